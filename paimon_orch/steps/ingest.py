"""Ingest: rows of a task become sorted level-0 files; all tasks together one snapshot."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.options.core_options import ROWKIND_FIELD
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import SEQUENCE_NUMBER
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.common.retry import discard_files_on_conflict
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.filter.partition_spec import (
    PartitionSpec,
    build_overwrite_filter,
    build_partition_matcher,
    format_partition,
)
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.dynamic_bucket import HashIndex, HashIndexWriter
from paimon_orch.table.write.postpone_bucket import PostponeBuckets
from paimon_orch.table.write.table_write import (
    TableWriter,
    check_columns,
    check_writable,
    conform_rows,
    serialize_partitions,
)
from paimon_orch.table.write.write_builder import WriteBuilder

WriteMode = Literal["append", "overwrite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """What every task of an ingest needs to know; ``first_sequence`` numbers the rows of each bucket.

    Of rows that were read from the table ``rows_are_new`` is false: their nulls are no place for default values.
    """

    factory: FileWriterFactory
    first_sequence: Mapping[PartitionBucket, int]
    mode: WriteMode
    row_kind: str | None
    hashes: HashIndex | None = None
    partitions: PartitionSpec | None = None
    commit_id: CommitId | None = None
    postponed: PostponeBuckets | None = None
    rows_are_new: bool = True

    def write(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Write a task's rows and return an encoded :class:`CommitMessage`.

        A column ``_SEQUENCE_NUMBER`` tells the order of the rows. Raises :class:`InputError` for rows that the table
        cannot hold; what was written is removed then. A task of a table with dynamic buckets must get all rows of each
        of its partitions: it alone assigns them.
        """
        index = None if self.hashes is None else HashIndexWriter(self.hashes)
        overwrites = self.mode == "overwrite"
        writer = TableWriter(
            factory=self.factory,
            first_sequence=self.first_sequence,
            index=index,
            is_overwrite=overwrites,
            postponed=self.postponed,
        )
        try:
            for batch in batches:
                writer.write(self._conform(pa.Table.from_batches([batch])))
            entries = writer.close()
            index_entries = tuple(writer.close_index())
            return CommitMessage(
                entries=tuple(entries), index=index_entries, changelog=tuple(writer.changelog)
            ).encode()
        except BaseException:
            writer.abort()
            raise

    def preview_rows(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Check a task's rows without writing them; return for :func:`build_preview` how many there are, and their partitions."""
        rows, partitions, schema = 0, set[bytes](), self.factory.schema
        for batch in batches:
            conformed = self._conform(pa.Table.from_batches([batch]))
            rows += conformed.num_rows
            partitions |= serialize_partitions(conformed, schema)
        return json.dumps([rows, sorted(map(bytes.hex, partitions))]).encode()

    def _conform(self, rows: pa.Table) -> pa.Table:
        conform = partial(
            conform_rows,
            schema=self.factory.schema,
            row_kind=self.row_kind,
            are_new=self.rows_are_new,
        )
        if SEQUENCE_NUMBER.name not in rows.column_names:
            return conform(rows)
        order = rows.column(SEQUENCE_NUMBER.name)
        conformed = conform(rows.drop_columns(SEQUENCE_NUMBER.name))
        return conformed.append_column(SEQUENCE_NUMBER.name, order)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """What an ingest did; ``snapshot_id`` is None if there were no rows. ``bytes`` are of the new files.

    ``rows_not_visible`` of the rows are seen by batch readers after a compaction only.
    """

    snapshot_id: int | None
    rows: int
    files: int
    bytes: int
    duration_seconds: float
    rows_not_visible: int = 0


def plan(
    table: Table,
    columns: Sequence[str],
    *,
    mode: WriteMode = "append",
    row_kind: str | None = None,
    partitions: PartitionSpec | None = None,
    commit_id: CommitId | None = None,
) -> IngestPlan:
    """Check the columns of the rows to come and read where each bucket's numbering goes on.

    ``partitions`` names what an overwrite replaces, as in :meth:`Table.overwrite`; ``commit_id`` makes the ingest safe
    to repeat.
    """
    if partitions is not None and mode != "overwrite":
        raise InputError("partitions are named for an overwrite only")
    table.stores.check_step(StepKind.WRITE_ROWS)
    if partitions is not None:
        build_partition_matcher(partitions, table.schema)  # refuses what is no partition column
    factory = table.stores.build_writer_factory()
    check_writable(factory.schema)
    row_kind = row_kind or factory.schema.typed_options.get(ROWKIND_FIELD)
    check_columns(columns, factory.schema, row_kind=row_kind)
    builder = WriteBuilder(table.stores, is_overwrite=mode == "overwrite")
    return IngestPlan(
        factory=factory,
        first_sequence=builder.read_next_sequences(),
        mode=mode,
        row_kind=row_kind,
        hashes=builder.load_hash_index(),
        partitions=partitions,
        commit_id=commit_id,
        postponed=builder.load_postpone_buckets(),
    )


@dataclass(frozen=True, slots=True)
class IngestPreview:
    """A dry run of an ingest: the rows to load, and the partitions and rows that an overwrite would replace."""

    rows: int
    replaced_partitions: tuple[str, ...]
    replaced_rows: int

    def to_dict(self) -> dict[str, object]:
        """Return the preview as JSON values."""
        return {
            "rows": self.rows,
            "replaced_partitions": list(self.replaced_partitions),
            "replaced_rows": self.replaced_rows,
        }


def build_preview(table: Table, planned: IngestPlan, results: Sequence[bytes]) -> IngestPreview:
    """Return what an ingest would do; ``results`` are those of :meth:`IngestPlan.preview_rows`."""
    found = list(map(json.loads, results))
    rows = sum(count for count, _ in found)
    written = {bytes.fromhex(partition) for _, partitions in found for partition in partitions}
    schema = table.schema
    chosen = (
        build_overwrite_filter(written, planned.partitions, schema)
        if planned.mode == "overwrite"
        else None
    )
    splits = [] if chosen is None else [s for s in table.files() if chosen(s.partition)]
    names = dict.fromkeys(format_partition(split.partition, schema) for split in splits)
    return IngestPreview(rows, tuple(names), sum(split.row_count for split in splits))


def commit(
    table: Table, planned: IngestPlan, results: Sequence[bytes], seconds: float
) -> IngestResult:
    """Commit what the tasks wrote in one snapshot; what was written is removed if that is refused."""
    messages = [CommitMessage.decode(result) for result in results]
    entries = [entry for message in messages for entry in message.entries]
    written = CommitMessage(
        entries=tuple(entries),
        index=tuple(entry for message in messages for entry in message.index),
        changelog=tuple(entry for message in messages for entry in message.changelog),
    )
    builder = WriteBuilder(
        table.stores,
        is_overwrite=planned.mode == "overwrite",
        partitions=planned.partitions,
        commit_id=planned.commit_id,
    )
    with discard_files_on_conflict(table, messages):
        snapshot: Snapshot | None = builder.commit(written, planned.hashes)
    return IngestResult(
        snapshot_id=None if snapshot is None else snapshot.id,
        rows=sum(entry.file.row_count for entry in entries),
        files=len(entries),
        bytes=sum(entry.file.file_size for entry in entries),
        duration_seconds=seconds,
        rows_not_visible=builder.count_unseen_rows(entries),
    )
