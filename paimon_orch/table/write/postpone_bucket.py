"""Postpone buckets (``bucket`` = -2): bucket counts of partitions, and postponed files.

See docs/format/postpone-buckets.md.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.manifest.live_files import BucketGroups
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import (
    BUCKET_FUNCTION_TYPE,
    DATA_FILE_PREFIX,
    POSTPONE_BATCH_WRITE_FIXED_BUCKET,
    POSTPONE_TARGET_ROW_NUM_PER_BUCKET,
)
from paimon_orch.format.options.engine_options import POSTPONE_DEFAULT_BUCKET_NUM
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.schema import TableSchema

if TYPE_CHECKING:  # readers of metadata also ask whether a table has postpone buckets
    from paimon_orch.files.data_file_writer import FileWriterFactory

_DROPPED_OPTIONS = re.compile(
    r"file\.format\.per\.level|metadata\.stats-mode\.per\.level|fields\..*\.stats-mode|file-index\..*"
)
_FILE_NUMBER = re.compile(r"-(\d+)\.\w+$")


def has_postpone_buckets(schema: TableSchema) -> bool:
    """Return whether a table has postpone buckets."""
    return schema.typed_options.bucket == POSTPONE_BUCKET


@dataclass(frozen=True, slots=True)
class PostponeBuckets:
    """The bucket counts of partitions; -2 for partitions whose rows are postponed."""

    counts: Mapping[bytes, int]
    """The bucket counts of partitions with files."""

    default: int
    """The bucket count of all other partitions."""

    @classmethod
    def of(cls, schema: TableSchema, groups: BucketGroups) -> "PostponeBuckets":
        """Return the bucket counts of partitions; -2 for partitions with postponed files."""
        check_postpone_options(schema)
        options = schema.typed_options
        if not options.get(POSTPONE_BATCH_WRITE_FIXED_BUCKET):
            return cls({}, POSTPONE_BUCKET)
        counts: dict[bytes, int] = {}
        totals = groups.files.total_buckets[groups.first_rows].tolist()
        for (partition, bucket), total in zip(groups.list_buckets(), totals, strict=True):
            if bucket == POSTPONE_BUCKET:
                counts[partition] = POSTPONE_BUCKET
            else:
                counts.setdefault(partition, total)
        return cls(counts, default_bucket_count(schema))

    def count(self, partition: bytes) -> int:
        """Return the bucket count of a partition, or -2 if its rows are postponed."""
        return self.counts.get(partition, self.default)


def default_bucket_count(schema: TableSchema) -> int:
    """Return the bucket count of new partitions."""
    return max(1, schema.typed_options.get(POSTPONE_DEFAULT_BUCKET_NUM, 1))


def compute_bucket_count(schema: TableSchema, rows: int) -> int:
    """Return the bucket count for a partition that has only postponed rows."""
    target = schema.typed_options.get(POSTPONE_TARGET_ROW_NUM_PER_BUCKET)
    if target is None:
        return default_bucket_count(schema)
    if target < 1:
        raise InputError(
            f"option {POSTPONE_TARGET_ROW_NUM_PER_BUCKET.key!r} = {target} must be at least 1"
        )
    return max(1, -(-rows // target))


def check_postpone_options(schema: TableSchema) -> None:
    """Refuse options that are not supported with postpone buckets."""
    options = schema.typed_options
    if options.changelog_producer == "input":
        raise UnsupportedError(
            "'bucket' = -2 with 'changelog-producer' = input is not supported: postponed rows "
            "have no changelog"
        )
    function = options.get(BUCKET_FUNCTION_TYPE)
    if function != "default":
        raise UnsupportedError(
            f"'bucket' = -2 with 'bucket-function.type' = {function} is not supported: engines "
            "assign postponed rows with the default function"
        )


def build_postpone_writer_factory(factory: "FileWriterFactory") -> "FileWriterFactory":
    """Return a factory of writers for postponed files.

    These files have no statistics, and are Avro files if Avro supports the columns. The files of a
    writer share a unique prefix and have consecutive numbers.
    """
    from paimon_orch.files.avro_writer import build_avro_schema
    from paimon_orch.files.data_file_writer import data_file_fields

    schema = factory.schema
    options = {
        key: text for key, text in schema.options.items() if not _DROPPED_OPTIONS.fullmatch(key)
    }
    prefix = schema.typed_options.get(DATA_FILE_PREFIX)
    options["data-file.prefix"] = f"{prefix}-u-{uuid4()}-s-0-w-"
    options["metadata.stats-mode"] = "none"
    try:
        build_avro_schema(data_file_fields(schema))
        options["file.format"] = "avro"
    except UnsupportedError:
        pass
    return replace(factory, schema=replace(schema, options=options))


def sort_postponed_files(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    """Return postponed files in row order; ``files`` must be in the order of commits."""

    def key(file: DataFileMeta) -> tuple[int, int]:
        match = _FILE_NUMBER.search(file.file_name)
        return file.creation_time or 0, 0 if match is None else int(match[1])

    return sorted(files, key=key)
