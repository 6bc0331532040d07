"""Postpone buckets (``bucket`` = -2): how many buckets a partition has, and the files that wait for one.

See docs/format/postpone-buckets.md.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.avro_writer import build_avro_schema
from paimon_orch.files.data_file_writer import FileWriterFactory, data_file_fields
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import (
    BUCKET_FUNCTION_TYPE,
    DATA_FILE_PREFIX,
    POSTPONE_BATCH_WRITE_FIXED_BUCKET,
    POSTPONE_MERGE_ON_READ,
    POSTPONE_TARGET_ROW_NUM_PER_BUCKET,
)
from paimon_orch.format.options.engine_options import POSTPONE_DEFAULT_BUCKET_NUM
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.scan.scan_planner import BucketSplit

_DROPPED_OPTIONS = re.compile(
    r"file\.format\.per\.level|metadata\.stats-mode\.per\.level|fields\..*\.stats-mode|file-index\..*"
)
_FILE_NUMBER = re.compile(r"-(\d+)\.\w+$")


def has_postpone_buckets(schema: TableSchema) -> bool:
    """Tell whether a table has postpone buckets."""
    return schema.typed_options.bucket == POSTPONE_BUCKET


def should_merge_postponed(schema: TableSchema) -> bool:
    """Return whether batch readers merge the rows that wait (``postpone.merge-on-read``)."""
    merges = schema.typed_options.get(POSTPONE_MERGE_ON_READ)
    return merges and has_postpone_buckets(schema) and bool(schema.primary_keys)


def add_postponed_files(
    splits: Iterable[BucketSplit], every: Iterable[BucketSplit], schema: TableSchema
) -> list[BucketSplit]:
    """Return the splits to read, each with the files that wait in its partition; buckets that do not exist yet are added.

    ``every`` are all live files of the partitions, by which buckets are counted.
    """
    real = {split.partition_bucket: split for split in splits if split.bucket >= 0}
    every = list(every)
    counts = {split.partition: split.total_buckets for split in every if split.bucket >= 0}
    for split in every:
        if split.bucket != POSTPONE_BUCKET:
            continue
        count = counts.get(split.partition) or compute_bucket_count(schema, split.row_count)
        waiting = tuple(sort_postponed_files(split.files))
        for bucket in range(count):
            empty = BucketSplit(
                partition=split.partition, bucket=bucket, total_buckets=count, files=()
            )
            real[empty.partition_bucket] = replace(
                real.get(empty.partition_bucket, empty), waiting=waiting
            )
    return list(real.values())


@dataclass(frozen=True, slots=True)
class PostponeBuckets:
    """Where the rows of each partition go: into so many real buckets, or to the files that wait (-2).

    ``counts`` are those of partitions that have files, ``default`` that of others.
    """

    counts: Mapping[bytes, int]
    default: int

    @classmethod
    def of(cls, schema: TableSchema, splits: Iterable[BucketSplit]) -> "PostponeBuckets":
        """Take the live files of a table. Where files wait, rows that come later wait behind them."""
        check_postpone_options(schema)
        options = schema.typed_options
        if not options.get(POSTPONE_BATCH_WRITE_FIXED_BUCKET):
            return cls({}, POSTPONE_BUCKET)
        counts: dict[bytes, int] = {}
        for split in splits:
            if split.bucket == POSTPONE_BUCKET:
                counts[split.partition] = POSTPONE_BUCKET
            else:
                counts.setdefault(split.partition, split.total_buckets)
        return cls(counts, default_bucket_count(schema))

    def count(self, partition: bytes) -> int:
        """Return the number of buckets of a partition, -2 if its rows wait."""
        return self.counts.get(partition, self.default)


def default_bucket_count(schema: TableSchema) -> int:
    """Return how many buckets a new partition gets."""
    return max(1, schema.typed_options.get(POSTPONE_DEFAULT_BUCKET_NUM, 1))


def compute_bucket_count(schema: TableSchema, rows: int) -> int:
    """Return the number of buckets for a partition without buckets, by its waiting rows."""
    target = schema.typed_options.get(POSTPONE_TARGET_ROW_NUM_PER_BUCKET)
    if target is None:
        return default_bucket_count(schema)
    if target < 1:
        raise InputError(
            f"option {POSTPONE_TARGET_ROW_NUM_PER_BUCKET.key!r} = {target} must be at least 1"
        )
    return max(1, -(-rows // target))


def check_postpone_options(schema: TableSchema) -> None:
    """Refuse what postpone buckets are not combined with, by name."""
    options = schema.typed_options
    if options.changelog_producer == "input":
        raise UnsupportedError(
            "'bucket' = -2 with 'changelog-producer' = input is not supported: rows that wait have no changelog yet"
        )
    function = options.get(BUCKET_FUNCTION_TYPE)
    if function != "default":
        raise UnsupportedError(
            f"'bucket' = -2 with 'bucket-function.type' = {function} is not supported: engines route such rows by the "
            "default function"
        )


def build_postpone_writer_factory(factory: FileWriterFactory) -> FileWriterFactory:
    """Return what makes the files that wait: Avro where it holds the columns, without statistics.

    All files of one writer have a prefix of their own, and their numbers tell their order.
    """
    schema = factory.schema
    kept = {
        key: text for key, text in schema.options.items() if not _DROPPED_OPTIONS.fullmatch(key)
    }
    prefix = schema.typed_options.get(DATA_FILE_PREFIX)
    kept["data-file.prefix"] = f"{prefix}-u-{uuid4()}-s-0-w-"
    kept["metadata.stats-mode"] = "none"
    try:
        build_avro_schema(data_file_fields(schema))
        kept["file.format"] = "avro"
    except UnsupportedError:
        pass
    return replace(factory, schema=replace(schema, options=kept))


def sort_postponed_files(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    """Return the files that wait in a partition in the order of their rows; ``files`` are in the order of commits."""

    def key(file: DataFileMeta) -> tuple[int, int]:
        match = _FILE_NUMBER.search(file.file_name)
        return file.creation_time or 0, 0 if match is None else int(match[1])

    return sorted(files, key=key)
