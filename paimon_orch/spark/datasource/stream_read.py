"""``spark.readStream.format("paimon")``: the rows of a table, then the changes of each snapshot."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from paimon_orch.errors import InputError, PaimonError, UnsupportedError
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.options.core_options import (
    STREAMING_READ_APPEND_OVERWRITE,
    STREAMING_READ_OVERWRITE,
)
from paimon_orch.format.row.row_kind import ROW_KIND_SYMBOLS
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.format.types.predicate import collect_columns
from paimon_orch.spark.column_types import build_target_schema, convert_batch
from paimon_orch.spark.datasource.datasource_options import DataSourceOptions
from paimon_orch.spark.datasource.option_names import STREAM_READ_OPTIONS
from paimon_orch.spark.datasource.stream_follower import (
    FROM_SNAPSHOT_FULL,
    StreamFollower,
    StreamOffset,
)
from paimon_orch.table.bucket_readers.append_reader import add_constant_row_kind
from paimon_orch.table.chain.chain_branches import find_chain_branches
from paimon_orch.table.older_state import apply_older_options
from paimon_orch.table.scan.base_scan import ROW_KIND
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.incremental_scan import IncrementalScan, SnapshotRange
from paimon_orch.table.scan.postponed_rows import should_merge_postponed
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.scan_planner import ALL_LEVELS, ScanPlanner, build_bucket_splits
from paimon_orch.table.scan.split_generator import divide_splits, pack_splits
from paimon_orch.table.system_table import SystemTable
from paimon_orch.table.table_state import build_table_state

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
    except ImportError:  # the class is new in Spark 4.2
        _AvailableNow = object

_INSERT, _, _UPDATE, _DELETE = ROW_KIND_SYMBOLS
_ADDED_KINDS = [_INSERT, _UPDATE]
_AUDIT_LOG = "audit_log"


def build_stream_reader(
    spark_options: Mapping[str, str], schema: StructType
) -> "PaimonStreamReader":
    """Return a reader of columns of the table of the options, or of its ``audit_log``."""
    options = DataSourceOptions.of(spark_options, STREAM_READ_OPTIONS)
    opened = options.open()
    is_audit_log = isinstance(opened, SystemTable)
    table = opened.table if isinstance(opened, SystemTable) else opened
    if isinstance(opened, SystemTable) and opened.name != _AUDIT_LOG:
        raise InputError(
            f"{table.identifier}${opened.name} cannot be read as a stream; only a table and its "
            f"{_AUDIT_LOG} can"
        )
    newest = table.stores.get_schema()
    if should_merge_postponed(newest):
        raise UnsupportedError(
            f"{table.identifier} cannot be read as a stream with 'postpone.merge-on-read' = true; "
            "only batch reads merge postponed rows"
        )
    if find_chain_branches(newest, table.paths.branch) is not None:
        raise UnsupportedError(
            f"{table.identifier} is a chain table, which cannot be read as a stream; read its "
            "delta branch"
        )
    names = [name for name in schema.names if not (is_audit_log and name == ROW_KIND.name)]
    # streams ignore the fallback branch, as in Java Paimon
    full_scan = replace(table.scan(names or None, options.values.get("filter")), fallback=None)
    changes = _build_incremental(full_scan)
    visible = changes.arrow_schema if is_audit_log else full_scan.arrow_schema
    return PaimonStreamReader(
        StreamFollower(table, options), full_scan, changes, build_target_schema(visible, schema)
    )


def _build_incremental(scan: Scan) -> IncrementalScan:
    """Return an incremental scan with the columns and filter of a scan, without snapshots."""
    producer = scan.schema.typed_options.changelog_producer
    span = SnapshotRange("delta" if producer == "none" else "changelog")
    return IncrementalScan(
        state=scan.state,
        snapshot_range=span,
        fields=scan.fields,
        predicate=scan.predicate,
    )


def _choose_levels(schema: TableSchema) -> range:
    """Return the levels of the first snapshot to read; later changelogs have the lower levels.

    See docs/format/incremental-and-streaming-reads.md#streaming-reads.
    """
    producer = schema.typed_options.changelog_producer
    if producer == "lookup":
        return range(1, ALL_LEVELS.stop)
    if producer == "full-compaction":
        return range(schema.top_level, ALL_LEVELS.stop)
    return ALL_LEVELS


@dataclass(frozen=True)
class StreamInputPartition(InputPartition):
    """The files that one task reads."""

    splits: tuple[BucketSplit, ...]
    kind: str | None
    """The kind of all rows of a merged read, or None if the files contain the kinds of rows."""
    schema_id: int | None = None
    """The schema whose options decide how a merged read merges files; None means the newest."""


class PaimonStreamReader(DataSourceStreamReader, _AvailableNow):
    """Plans batches in one separate process per query, and reads them in tasks."""

    def __init__(
        self,
        follower: StreamFollower,
        full_scan: Scan,
        changes: IncrementalScan,
        target: pa.Schema,
    ) -> None:
        self._follower, self._full_scan, self._changes = follower, full_scan, changes
        self._target = target
        self._max_snapshots = follower.options.positive_number("max-snapshots-per-trigger")
        self._end_snapshot_id: int | None = None
        self._last_offset: StreamOffset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names
        """Return the start of a query without a checkpoint."""
        self._last_offset = self._follower.start()
        return self._last_offset.offset

    def latestOffset(  # noqa: N802 - before 4.2 there are no arguments
        self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, Any]:
        """Return the end of the next batch.

        Before Spark 4.2, this is the newest snapshot, because ``availableNow`` calls this method
        only once.
        """
        is_unlimited = start is None or type(limit).__name__ == "ReadAllAvailable"
        position = self._last_offset if start is None else StreamOffset.of(start)
        max_snapshots = None if is_unlimited else self._max_snapshots
        return self._follower.latest(position, max_snapshots, self._end_snapshot_id).offset

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        """Return the limit of the options; Spark's limits count each snapshot as a file."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        if self._max_snapshots is None:
            return ReadAllAvailable()
        return ReadMaxFiles(self._max_snapshots)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the query after the current newest snapshot."""
        self._end_snapshot_id = self._follower.newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch, in the order of the changes."""
        self._last_offset = StreamOffset.of(end)
        batch = self._follower.batch(StreamOffset.of(start), self._last_offset)
        self._check_types((*([batch.whole] if batch.whole else []), *batch.changes))
        parts: list[InputPartition] = []
        if batch.whole is not None:
            parts += self._plan_whole(batch.whole)
        for is_overwrite, snapshots in groupby(batch.changes, self._is_visible_overwrite):
            if is_overwrite:
                parts += chain.from_iterable(map(self._plan_overwrite, snapshots))
            else:
                span = replace(self._changes.snapshot_range, snapshots=tuple(snapshots))
                parts += self._pack_parts(replace(self._changes, snapshot_range=span).plan(), None)
        return parts

    def _is_visible_overwrite(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot is an overwrite that streams of this table read.

        See docs/format/incremental-and-streaming-reads.md#streaming-reads.
        """
        schema = self._full_scan.schema
        option = (
            STREAMING_READ_OVERWRITE if schema.primary_keys else STREAMING_READ_APPEND_OVERWRITE
        )
        return snapshot.commit_kind is CommitKind.OVERWRITE and schema.typed_options.get(option)

    def _plan_overwrite(self, snapshot: Snapshot) -> list[StreamInputPartition]:
        """Plan the added rows of an overwrite and, in primary-key tables, its deleted rows."""
        scan, manifests = self._full_scan, self._full_scan.state.manifests
        entries = [entry for entry in manifests.read_delta_entries(snapshot) if entry.bucket >= 0]
        deleted = [entry for entry in entries if entry.kind is FileKind.DELETE]
        added = self._plan_full_parts(
            build_bucket_splits([e for e in entries if e.kind is FileKind.ADD], ()),
            _INSERT,
            snapshot.schema_id,
        )
        if not (deleted and scan.schema.primary_keys and ROW_KIND.name in self._target.names):
            return added
        before = self._follower.table.stores.snapshots.get(snapshot.id - 1)
        removed = build_bucket_splits(deleted, manifests.read_index_entries(before))
        return [*self._plan_full_parts(removed, _DELETE, before.schema_id), *added]

    def _check_types(self, snapshots: Sequence[Snapshot]) -> None:
        """Raise an error if the type of a column was changed after the query started."""
        scan = self._full_scan
        read = set(scan.fields)
        if scan.predicate is not None:
            read |= {scan.schema.field(name) for name in collect_columns(scan.predicate)}
        types = {field.id: field.type.with_nullable(True) for field in read}
        newer = {
            snapshot.schema_id for snapshot in snapshots if snapshot.schema_id > scan.schema.id
        }
        for number in sorted(newer):
            for field in scan.state.schemas.get(number).fields:
                expected = types.get(field.id, field.type)
                if field.type.with_nullable(True) != expected.with_nullable(True):
                    raise PaimonError(
                        f"{self._follower.table.identifier}: the type of column {field.name!r} was "
                        f"changed to {type_to_sql(field.type)} after the query started, which "
                        f"reads it as {type_to_sql(expected)}. Start the query again: it continues "
                        "from its position, with the new type"
                    )

    def _plan_whole(self, snapshot: Snapshot) -> list[StreamInputPartition]:
        """Plan the files whose rows are not in later changelogs.

        As in batch reads, the newest options decide how the files of the newest snapshot are
        merged, and those of the snapshot otherwise.
        """
        follower, schema = self._follower, self._full_scan.schema
        is_past = follower.mode == FROM_SNAPSHOT_FULL or snapshot.id != follower.newest()
        if is_past:
            self._check_changelog_producer(snapshot)
        splits = ScanPlanner(self._full_scan.state.manifests, schema).splits(
            snapshot, levels=_choose_levels(schema)
        )
        in_buckets = [split for split in splits if split.bucket >= 0]
        return self._plan_full_parts(in_buckets, _INSERT, snapshot.schema_id if is_past else None)

    def _check_changelog_producer(self, snapshot: Snapshot) -> None:
        """Raise an error if the rows that the first read leaves out have no changelog."""
        scan = self._full_scan
        producer = scan.schema.typed_options.changelog_producer
        before = scan.state.schemas.get(snapshot.schema_id).typed_options.changelog_producer
        if before != producer and _choose_levels(scan.schema) != ALL_LEVELS:
            raise PaimonError(
                f"{self._follower.table.identifier}: option 'changelog-producer' was {before!r} at "
                f"snapshot {snapshot.id} and is {producer!r} now, so the changes after the snapshot "
                "are unknown; start the query with a newer snapshot or with scan-mode latest-full"
            )

    def _plan_full_parts(
        self, splits: list[BucketSplit], kind: str, schema_id: int | None
    ) -> list[StreamInputPartition]:
        divided = divide_splits(splits, self._build_full_scan(schema_id))
        return self._pack_parts(divided, kind, schema_id)

    def _build_full_scan(self, schema_id: int | None) -> Scan:
        """Return the scan that merges files by the options of a schema."""
        scan = self._full_scan
        if schema_id is None:
            return scan
        schema = apply_older_options(scan.schema, scan.state.schemas.get(schema_id))
        return replace(scan, state=build_table_state(scan.state, schema, scan.snapshot))

    def _pack_parts(
        self, splits: list[BucketSplit], kind: str | None, schema_id: int | None = None
    ) -> list[StreamInputPartition]:
        return [
            StreamInputPartition(tuple(packed), kind, schema_id)
            for packed in pack_splits(splits, self._full_scan.schema)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; without a column of row kinds, only added rows."""
        assert isinstance(partition, StreamInputPartition)
        scan = self._build_full_scan(partition.schema_id)
        for split in partition.splits:
            for batch in self._rows(split, partition.kind, scan):
                if batch.num_rows:
                    yield convert_batch(batch, self._target)

    def _rows(
        self, split: BucketSplit, kind: str | None, full_scan: Scan
    ) -> Iterator[pa.RecordBatch]:
        if kind is None:
            yield from self._read_changes(split)
        else:
            for batch in full_scan.read_split(split):
                yield add_constant_row_kind(batch, kind)

    def _read_changes(self, split: BucketSplit) -> Iterator[pa.RecordBatch]:
        for batch in self._changes.read_split(split):
            if ROW_KIND.name in self._target.names:
                yield batch
            else:
                is_added = pc.is_in(batch.column(ROW_KIND.name), pa.array(_ADDED_KINDS))
                yield batch.filter(is_added)

    def commit(self, end: dict[str, Any]) -> None:
        """Record the position, so that snapshots before it can expire."""
        self._follower.record(StreamOffset.of(end))
