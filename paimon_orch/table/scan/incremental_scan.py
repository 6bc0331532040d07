"""Reads the changes between two snapshots.

See docs/format/incremental-and-streaming-reads.md#incremental-reads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import CorruptFileError, InputError, NotFoundError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.options.core_options import (
    INCREMENTAL_BETWEEN_SCAN_MODE,
    INCREMENTAL_BETWEEN_TAG_TO_SNAPSHOT,
)
from paimon_orch.format.row.row_kind import ROW_KIND_SYMBOLS
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import Field
from paimon_orch.format.types.predicate import Predicate, collect_columns, restrict_to_columns
from paimon_orch.table.bucket_readers.open_bucket import open_bucket
from paimon_orch.table.metadata.changelog_store import ChangelogStore
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.older_state import apply_older_options
from paimon_orch.table.scan.base_scan import ROW_KIND, BaseScan, filter_batches
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.scan.file_pruner import FilePruner
from paimon_orch.table.scan.scan_planner import ScanPlanner, build_bucket_splits
from paimon_orch.table.scan.snapshot_diff import DiffSide, diff_bucket, find_changed_buckets
from paimon_orch.table.scan.unseen_rows import Visibility
from paimon_orch.table.table_state import TableState, build_table_state

*_, _DELETE = ROW_KIND_SYMBOLS
INCREMENTAL_MODES = ("auto", "delta", "changelog", "diff")
_SCAN_MODE_OPTION = "incremental-between-scan-mode"


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """The snapshots after ``start`` up to ``end``; for a diff, only the states at both ends."""

    mode: str
    snapshots: tuple[Snapshot, ...] = ()
    before: Snapshot | None = None
    after: Snapshot | None = None

    @classmethod
    def of(
        cls, store: SnapshotStore, start: int | str, end: int | str, mode: str, schema: TableSchema
    ) -> "SnapshotRange":
        """Resolve a range of two snapshot ids or tags; raises :class:`InputError` if invalid."""
        if mode not in INCREMENTAL_MODES:
            raise InputError(
                f"incremental mode {mode!r} must be one of {', '.join(INCREMENTAL_MODES)}"
            )
        by_ids = _resolve_mode_between_ids(schema) if mode == "auto" else mode
        if isinstance(start, str) and isinstance(end, str):
            before, after = store.tag(start), store.tag(end)
            if mode == "auto" and schema.typed_options.get(INCREMENTAL_BETWEEN_TAG_TO_SNAPSHOT):
                mode = by_ids
            if mode in ("auto", "diff"):
                _check_snapshot_order(before.id, after.id)
                return cls("diff", before=before, after=after)
            start, end = before.id, after.id
        start, end = _convert_ids(start, end)
        _check_snapshot_order(start, end)
        if by_ids == "diff":
            # before the first snapshot, the table is empty
            first = store.get(start) if start else None
            return cls(by_ids, before=first, after=store.get(end))
        return cls(
            by_ids,
            tuple(
                read_snapshot_or_changelog(store, number) for number in range(start + 1, end + 1)
            ),
        )


def _convert_ids(start: Any, end: Any) -> tuple[int, int]:
    try:
        return index(start), index(end)  # also of NumPy
    except TypeError:
        raise InputError(f"{start!r} and {end!r} must be two snapshot ids or two tags") from None


def find_range_between_times(
    store: SnapshotStore, start_millis: int, end_millis: int, mode: str, schema: TableSchema
) -> tuple[int, int, str]:
    """Return the snapshots and the mode of a read of the changes between two commit times.

    Equal snapshots mean no changes. See
    docs/format/incremental-and-streaming-reads.md#bounds.
    """
    if start_millis > end_millis:
        raise InputError(f"the first time, {start_millis} ms, is after the last, {end_millis} ms")
    earliest = store.earliest_id() or 1
    start, end = (
        next((s.id for s in store.walk_back() if s.time_millis <= time), earliest - 1)
        for time in (start_millis, end_millis)
    )
    if start == end:
        return start, end, "delta"
    by_ids = _resolve_mode_between_ids(schema) if mode == "auto" else mode
    is_expired = by_ids == "diff" and start < earliest and earliest > 1
    return (earliest if is_expired else start), end, mode


def _resolve_mode_between_ids(schema: TableSchema) -> str:
    """Return the mode between two snapshots according to the table's options."""
    options = schema.typed_options
    mode = options.get(INCREMENTAL_BETWEEN_SCAN_MODE) or "auto"
    if mode not in INCREMENTAL_MODES:
        raise InputError(
            f"option {_SCAN_MODE_OPTION!r} = {mode!r} must be one of {', '.join(INCREMENTAL_MODES)}"
        )
    if mode != "auto":
        return mode
    return "delta" if options.changelog_producer == "none" else "changelog"


def _check_snapshot_order(start: int, end: int) -> None:
    if start > end:
        raise InputError(f"the first snapshot, {start}, is newer than the last, {end}; swap them")


def read_snapshot_or_changelog(store: SnapshotStore, snapshot_id: int) -> Snapshot:
    """Read a snapshot, or the changelog of an expired one; raises :class:`NotFoundError`."""
    changelogs = ChangelogStore(store.io, store.paths)
    if not store.exists(snapshot_id) and snapshot_id in changelogs.ids():
        return changelogs.get(snapshot_id)
    try:
        return store.get(snapshot_id)
    except NotFoundError as error:
        error.add_note("an incremental read requires every snapshot after its start, up to its end")
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalScan(BaseScan):
    """A read of changes, from :meth:`Table.incremental`; the first column is ``rowkind``.

    A delta or changelog has the row kinds as written. A diff compares the scans of both snapshots,
    with level 0, unless ``merge_level_0`` is False: it has ``+I`` for inserted rows, ``-D`` for
    deleted rows and, for tables with a primary key, ``+U`` for updated rows.
    """

    state: TableState
    """The table with its newest schema."""
    snapshot_range: SnapshotRange
    fields: tuple[Field, ...]
    predicate: Predicate | None = None
    merge_level_0: bool | None = None

    @property
    def schema(self) -> TableSchema:
        """Return the newest schema."""
        return self.state.schema

    @property
    def rows_not_visible(self) -> int:
        """Return the number of records that a diff leaves out of its newer state.

        The records become visible with the next compaction.
        """
        after = self.snapshot_range.after
        if after is None:
            return 0
        schema = apply_older_options(self.schema, self.state.schemas.get(after.schema_id))
        return self._build_visibility(schema).rows_not_visible(
            self.state.manifests, after, self._build_pruner()
        )

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows, with the first column ``rowkind``."""
        return to_arrow_schema([ROW_KIND, *self.fields])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes, ordered by snapshot and bucket; of a diff, by bucket.

        A diff of dynamic buckets begins with all deletes, because keys may have moved.
        """
        if self.snapshot_range.mode == "diff":
            return filter_batches(self._read_diff(), self.predicate, self.arrow_schema)
        return (batch for split in self.plan() for batch in self.read_split(split))

    def _build_visibility(self, schema: TableSchema) -> Visibility:
        """Level 0 is compared unless it is left out explicitly, as in Java Paimon."""
        return Visibility(schema, self.merge_level_0 is not False)

    def _build_pruner(self) -> FilePruner | None:
        predicate = self.predicate
        if predicate is not None and has_data_evolution(self.schema):
            # no file may be left out, because files without some columns are refused
            predicate = restrict_to_columns(predicate, set(self.schema.partition_keys))
        if predicate is None:
            return None
        return FilePruner(self.schema, predicate, self.state.schemas.get)

    def plan(self) -> list[BucketSplit]:
        """Return the files of changes by snapshot and bucket, in row order. A diff has none."""
        pruner, splits = self._build_pruner(), list[BucketSplit]()
        for snapshot in self.snapshot_range.snapshots:
            entries = [entry for entry in self._read_entries(snapshot) if entry.bucket >= 0]
            if pruner is not None:
                entries = pruner.select_unmerged(entries)
            splits += build_bucket_splits(entries, ())
        return splits

    def read_split(self, split: BucketSplit) -> Iterator[pa.RecordBatch]:
        """Yield the changes of one bucket and snapshot that match the filter."""
        names = {field.name for field in self.fields}
        if self.predicate is not None:
            names |= collect_columns(self.predicate)
        fields = [field for field in self.schema.fields if field.name in names]
        reader = _build_reader(self.state, split)
        changes = open_bucket(reader, split, fields, self.predicate).read_changes()
        yield from filter_batches(changes, self.predicate, self.arrow_schema)

    def _read_entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Return the files of changes of a snapshot; those of an OVERWRITE are left out."""
        manifests, kind = self.state.manifests, snapshot.commit_kind
        if self.snapshot_range.mode == "delta":
            entries = manifests.read_delta_entries(snapshot) if kind is CommitKind.APPEND else []
            return [entry for entry in entries if entry.kind is FileKind.ADD]
        name = snapshot.changelog_manifest_list
        if kind is CommitKind.OVERWRITE:
            return []
        if name is None:
            self._check_needs_no_changelog(snapshot)
            return []
        size = snapshot.changelog_manifest_list_size
        entries = manifests.entries(manifests.manifest_list(name, size))
        for entry in entries:
            if entry.kind is not FileKind.ADD:
                raise CorruptFileError(name, f"a changelog deletes the file {entry.file.file_name}")
        return entries

    def _check_needs_no_changelog(self, snapshot: Snapshot) -> None:
        """Raise an error if rows were written before the table had a changelog producer."""
        producer = self.schema.typed_options.changelog_producer
        before = self.state.schemas.get(snapshot.schema_id).typed_options.changelog_producer
        is_write = snapshot.commit_kind is CommitKind.APPEND and snapshot.delta_record_count != 0
        if is_write and before == "none" != producer:
            raise InputError(
                f"{self.state.identifier}: snapshot {snapshot.id} has no changelog, because it was "
                f"written before option 'changelog-producer' became {producer!r}; read the changes "
                "after a later snapshot, or with the incremental mode 'delta' or 'diff'"
            )

    def _read_diff(self) -> Iterator[pa.RecordBatch]:
        """Compare the rows that a scan of each snapshot returns, by the options of that snapshot."""
        before, after = (
            self._plan_end(end) for end in (self.snapshot_range.before, self.snapshot_range.after)
        )
        pruner, merges_equally = self._build_pruner(), before.state.schema == after.state.schema
        pairs = [
            (old, new)
            for old, new in find_changed_buckets(
                before.splits, after.splits, self.schema, includes_same_files=not merges_equally
            )
            if pruner is None
            or ((split := old or new) is not None and pruner.select_partitions([split.partition]))
        ]

        def read_changes() -> Iterator[pa.RecordBatch]:
            for old, new in pairs:
                yield from diff_bucket(
                    DiffSide(_build_reader(before.state, old), old),
                    DiffSide(_build_reader(after.state, new), new),
                )

        if self.schema.is_bucket_dynamic and len(pairs) > 1:
            # An overwrite may have moved keys to other buckets. If the changes are applied in their
            # order, the old row of a key must be deleted before the new row is added.
            yield from _filter_deletes(read_changes(), is_delete=True)
            yield from _filter_deletes(read_changes(), is_delete=False)
        else:
            yield from read_changes()

    def _plan_end(self, snapshot: Snapshot | None) -> "_DiffEnd":
        schema = self.schema
        if snapshot is not None:
            schema = apply_older_options(schema, self.state.schemas.get(snapshot.schema_id))
        levels = self._build_visibility(schema).levels_to_read()
        state = build_table_state(self.state, schema, snapshot)
        splits = ScanPlanner(state.manifests, schema).splits(snapshot, levels=levels)
        return _DiffEnd(state, [split for split in splits if split.bucket >= 0])


@dataclass(frozen=True, slots=True)
class _DiffEnd:
    """The state of a table at one end of a diff."""

    state: TableState
    """The snapshot; its schema has the newest columns, with the options of the snapshot."""
    splits: Sequence[BucketSplit]


def _filter_deletes(
    batches: Iterator[pa.RecordBatch], *, is_delete: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the kind ``-D``, or those of the other kinds."""
    for batch in batches:
        is_selected = pc.equal(batch[ROW_KIND.name], _DELETE)
        yield batch.filter(is_selected if is_delete else pc.invert(is_selected))


def _build_reader(state: TableState, split: BucketSplit | None) -> FileReader:
    files = () if split is None else split.files
    return state.reader(state.schemas.get_all(file.schema_id for file in files))
