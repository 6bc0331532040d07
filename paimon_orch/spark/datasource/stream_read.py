"""``spark.readStream.format("paimon")``: a table's rows, then what changes, snapshot by snapshot."""

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
from paimon_orch.spark.datasource.datasource_options import STREAM_READ_OPTIONS, DataSourceOptions
from paimon_orch.spark.datasource.input_partitions import divide_split, pack_splits
from paimon_orch.spark.datasource.offsets import StreamFollower, StreamOffset
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.scan.bucket_reader import add_constant_row_kind
from paimon_orch.table.scan.incremental_scan import IncrementalScan, SnapshotRange
from paimon_orch.table.scan.lazy_rows import ROW_KIND
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.scan_planner import (
    ALL_LEVELS,
    BucketSplit,
    ScanPlanner,
    build_bucket_splits,
)
from paimon_orch.table.system_table import SystemTable
from paimon_orch.table.write.postpone_bucket import should_merge_postponed

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
    except ImportError:  # before Spark 4.2, which ends such a trigger in its own way
        _AvailableNow = object

_INSERT, _, _UPDATE, _DELETE = ROW_KIND_SYMBOLS
_ADDED_KINDS = [_INSERT, _UPDATE]
_AUDIT_LOG = "audit_log"


def build_stream_reader(options: Mapping[str, str], schema: StructType) -> "PaimonStreamReader":
    """Return the reader of some columns of the table, or of its ``audit_log``, that the options name."""
    asked = DataSourceOptions.of(options, STREAM_READ_OPTIONS)
    opened = asked.open()
    table = opened.table if isinstance(opened, SystemTable) else opened
    if isinstance(opened, SystemTable) and opened.name != _AUDIT_LOG:
        raise InputError(
            f"{table.identifier}${opened.name} cannot be followed; a table and its {_AUDIT_LOG} can"
        )
    kinds = isinstance(opened, SystemTable)
    names = [name for name in schema.names if not (kinds and name == ROW_KIND.name)]
    if should_merge_postponed(table.schema):
        raise UnsupportedError(
            f"{table.identifier} cannot be followed with 'postpone.merge-on-read' = true; only batch reads merge the rows "
            "that wait"
        )
    # as in Java Paimon a stream follows the table itself, without the branch that batch reads fall back to
    whole = replace(table.scan(names or None, asked.values.get("filter")), fallback=None)
    changes = _build_incremental(whole)
    visible = changes.arrow_schema if kinds else whole.arrow_schema
    return PaimonStreamReader(
        StreamFollower(table, asked), whole, changes, build_target_schema(visible, schema)
    )


def _build_incremental(scan: Scan) -> IncrementalScan:
    """Return the changes of the columns and rows of a scan, of no snapshot yet."""
    producer = scan.schema.typed_options.changelog_producer
    span = SnapshotRange("delta" if producer == "none" else "changelog")
    return IncrementalScan(
        io=scan.io,
        paths=scan.paths,
        schemas=scan.schemas,
        schema=scan.schema,
        snapshot_range=span,
        fields=scan.fields,
        predicate=scan.predicate,
    )


def _choose_levels(schema: TableSchema) -> range:
    """Return the levels that a stream begins with; files below them come again as changelog.

    See docs/format/incremental-and-streaming-reads.md#streaming-reads.
    """
    producer = schema.typed_options.changelog_producer if schema.primary_keys else "none"
    if producer == "lookup":
        return range(1, ALL_LEVELS.stop)
    if producer == "full-compaction":
        return range(schema.typed_options.num_levels - 1, ALL_LEVELS.stop)
    return ALL_LEVELS


@dataclass(frozen=True)
class StreamInputPartition(InputPartition):
    """What one task reads: files of a snapshot, merged, whose rows are all of one ``kind``, or of changes, as they are."""

    splits: tuple[BucketSplit, ...]
    kind: str | None


class PaimonStreamReader(DataSourceStreamReader, _AvailableNow):
    """Plans batches in a process beside the driver, which lives as long as the query; reads them in tasks."""

    def __init__(
        self, follower: StreamFollower, whole: Scan, changes: IncrementalScan, target: pa.Schema
    ) -> None:
        self._follower, self._full_scan, self._changes = follower, whole, changes
        self._target = target
        self._most = follower.options.positive_number("max-snapshots-per-trigger")
        self._end_snapshot_id: int | None = None
        self._seen: StreamOffset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names
        """Return where a query without checkpoint begins."""
        self._seen = self._follower.start()
        return self._seen.offset

    def latestOffset(  # noqa: N802 - before 4.2 there are no arguments
        self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, Any]:
        """Return where the next batch ends; before Spark 4.2 that is the newest, as ``availableNow`` asks once only."""
        everything = start is None or type(limit).__name__ == "ReadAllAvailable"
        begin = self._seen if start is None else StreamOffset.of(start)
        most = None if everything else self._most
        return self._follower.latest(begin, most, self._end_snapshot_id).offset

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        """Return the limit of the options; a snapshot counts as a file, as Spark has no such limit."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        return ReadAllAvailable() if self._most is None else ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End with the snapshot that is the newest now."""
        self._end_snapshot_id = self._follower.newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch, in the order of the changes."""
        self._seen = StreamOffset.of(end)
        batch = self._follower.batch(StreamOffset.of(start), self._seen)
        self._check_types((*([batch.whole] if batch.whole else []), *batch.changes))
        found: list[InputPartition] = []
        if batch.whole is not None:
            found += self._plan_full_parts(self._begin(batch.whole), _INSERT)
        for replaces, snapshots in groupby(batch.changes, self._is_visible_overwrite):
            if replaces:
                found += chain.from_iterable(map(self._plan_overwrite, snapshots))
            else:
                span = replace(self._changes.snapshot_range, snapshots=tuple(snapshots))
                found += self._parts(replace(self._changes, snapshot_range=span).plan(), None)
        return found

    def _is_visible_overwrite(self, snapshot: Snapshot) -> bool:
        """Tell whether a snapshot is an overwrite that the table wants to be read.

        See docs/format/incremental-and-streaming-reads.md#streaming-reads.
        """
        schema = self._full_scan.schema
        option = (
            STREAMING_READ_OVERWRITE if schema.primary_keys else STREAMING_READ_APPEND_OVERWRITE
        )
        return snapshot.commit_kind is CommitKind.OVERWRITE and schema.typed_options.get(option)

    def _plan_overwrite(self, snapshot: Snapshot) -> list[StreamInputPartition]:
        """Return what an overwrite took, of tables with keys, and what it brought."""
        scan, manifests = self._full_scan, self._manifests
        entries = [entry for entry in manifests.read_delta_entries(snapshot) if entry.bucket >= 0]
        gone = [entry for entry in entries if entry.kind is FileKind.DELETE]
        came = [entry for entry in entries if entry.kind is FileKind.ADD]
        if not (gone and scan.schema.primary_keys and ROW_KIND.name in self._target.names):
            return self._plan_full_parts(build_bucket_splits(came, ()), _INSERT)
        hides = scan.schema.typed_options.has_deletion_vectors
        before = self._follower.table.stores.snapshots.get(snapshot.id - 1) if hides else None
        taken = build_bucket_splits(gone, manifests.read_index_entries(before))
        return [
            *self._plan_full_parts(taken, _DELETE),
            *self._plan_full_parts(build_bucket_splits(came, ()), _INSERT),
        ]

    def _check_types(self, snapshots: Sequence[Snapshot]) -> None:
        """Refuse snapshots since which a column is of another type: its values may not be those of the type here."""
        scan = self._full_scan
        read = set(scan.fields)
        if scan.predicate is not None:
            read |= {scan.schema.field(name) for name in collect_columns(scan.predicate)}
        types = {field.id: field.type.with_nullable(True) for field in read}
        newer = {one.schema_id for one in snapshots if one.schema_id > scan.schema.id}
        for number in sorted(newer):
            for field in scan.schemas.get(number).fields:
                wanted = types.get(field.id, field.type)
                if field.type.with_nullable(True) != wanted.with_nullable(True):
                    raise PaimonError(
                        f"{self._follower.table.identifier}: column {field.name!r} is {type_to_sql(field.type)} since "
                        f"the query began, which reads it as {type_to_sql(wanted)}. Start the query again: it goes on "
                        "where it stands, with the new type"
                    )

    def _begin(self, snapshot: Snapshot) -> list[BucketSplit]:
        """Return the files of all rows that the changes after a snapshot do not bring again."""
        schema = self._full_scan.schema
        splits = ScanPlanner(self._manifests, schema).splits(
            snapshot, levels=_choose_levels(schema)
        )
        return [split for split in splits if split.bucket >= 0]

    @property
    def _manifests(self) -> ManifestReader:
        return ManifestReader(self._full_scan.io, self._full_scan.paths)

    def _plan_full_parts(self, splits: list[BucketSplit], kind: str) -> list[StreamInputPartition]:
        return self._parts(
            [one for split in splits for one in divide_split(split, self._full_scan)], kind
        )

    def _parts(self, splits: list[BucketSplit], kind: str | None) -> list[StreamInputPartition]:
        return [
            StreamInputPartition(tuple(one), kind)
            for one in pack_splits(splits, self._full_scan.schema)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; without a column of kinds those that came, not those that went."""
        assert isinstance(partition, StreamInputPartition)
        for split in partition.splits:
            for batch in self._rows(split, partition.kind):
                if batch.num_rows:
                    yield convert_batch(batch, self._target)

    def _rows(self, split: BucketSplit, kind: str | None) -> Iterator[pa.RecordBatch]:
        if kind is None:
            yield from self._changed(split)
        else:
            for batch in self._full_scan.read_split(split):
                yield add_constant_row_kind(batch, kind)

    def _changed(self, split: BucketSplit) -> Iterator[pa.RecordBatch]:
        for batch in self._changes.read_split(split):
            if ROW_KIND.name in self._target.names:
                yield batch
            else:
                came = pc.is_in(batch.column(ROW_KIND.name), pa.array(_ADDED_KINDS))
                yield batch.filter(came)

    def commit(self, end: dict[str, Any]) -> None:
        """Let expiration know what has been read."""
        self._follower.record(StreamOffset.of(end))
