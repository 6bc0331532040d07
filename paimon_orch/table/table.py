"""A table as users hold it: read, write, look inside."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from paimon_orch.errors import CommitConflictError, InputError, UnsupportedError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.manifest.index_manifest import HASH_INDEX, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.options import Options
from paimon_orch.format.options.step_support import NO_ALLOWANCES, Allowances
from paimon_orch.format.options.table_option import EVERY_CHANGE, StepKind
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.row.row_kind import RowKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.storage import FileIO
from paimon_orch.table.commit.commit import CommitId, TableCommit, create_commit_user
from paimon_orch.table.commit.commit_changes import CommitChanges, PartitionFilter
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.filter.partition_spec import (
    PartitionSpec,
    build_any_partition_matcher,
    build_overwrite_filter,
    parse_partition_spec,
)
from paimon_orch.table.metadata.bitmap_index_version import choose_bitmap_version
from paimon_orch.table.metadata.branches import Branches
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.metadata.tags import Tags, rollback
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.scan.fallback_branch import FALLBACK_BRANCH_OPTION, FallbackBranch
from paimon_orch.table.scan.incremental_scan import IncrementalScan, SnapshotRange
from paimon_orch.table.scan.order_by import parse_order
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.scan_planner import BucketSplit, ScanPlanner
from paimon_orch.table.scan.visibility import Visibility, describe_unseen_rows_after_write
from paimon_orch.table.step_gate import list_stale_options, require_step, warn_of_unknown_options
from paimon_orch.table.system_table import SystemTable
from paimon_orch.table.write.arrow_input import ArrowStreamExportable, to_arrow_table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files
from paimon_orch.table.write.dynamic_bucket import (
    BucketId,
    HashIndex,
    HashIndexWriter,
    has_dynamic_buckets,
)
from paimon_orch.table.write.overwrite_upgrade import upgrade_after_overwrite
from paimon_orch.table.write.postpone_bucket import (
    PostponeBuckets,
    has_postpone_buckets,
    should_merge_postponed,
)
from paimon_orch.table.write.table_write import (
    TableWriter,
    check_writable,
    complete_rows_to_delete,
    conform_rows,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Table:
    """One table (and branch). Cheap to make and to pickle: it holds no open files and no data.

    >>> table.upsert(pa.table({"id": [1], "status": ["PENDING"]}))
    >>> table.scan(filter="status = 'PENDING'").to_arrow()
    """

    identifier: str
    io: FileIO
    paths: TablePaths
    allowances: Allowances = NO_ALLOWANCES

    def allow(self, *, stale_external: bool = False, unknown_options: bool = False) -> "Table":
        """Return the table with allowances for steps that its options forbid.

        ``stale_external``: steps change the table although Iceberg metadata, a metastore or a callback is not informed.
        ``unknown_options``: steps change the table although an option may be of a newer release of Paimon.
        """
        return replace(
            self,
            allowances=Allowances(stale_external=stale_external, unknown_options=unknown_options),
        )

    def check_step(self, step: StepKind, schema: TableSchema | None = None) -> None:
        """Refuse a step that the table's options forbid, by default those of the newest schema.

        Raises :class:`UnsupportedError` naming each option. What :meth:`allow` permits is logged as a warning.
        """
        options = (schema or self.schema).options
        require_step(self.identifier, options, step, self.allowances)

    def stale_external_options(self) -> list[str]:
        """Return the options, with their values, whose external system is stale after a step that was allowed."""
        return list_stale_options(self.options.values, EVERY_CHANGE, self.allowances)

    @property
    def schemas(self) -> SchemaStore:
        """Return access to the schema versions."""
        return SchemaStore(self.io, self.paths)

    @property
    def snapshots(self) -> SnapshotStore:
        """Return access to snapshots, tags and hints."""
        return SnapshotStore(self.io, self.paths)

    @property
    def tags(self) -> Tags:
        """Return access to the tags."""
        return Tags(self.snapshots, check=partial(self.check_step, StepKind.TAG))

    @property
    def branches(self) -> Branches:
        """Return access to the branches of the table."""
        return Branches(self.io, self.paths.root, check=partial(self.check_step, StepKind.METADATA))

    @property
    def manifests(self) -> ManifestReader:
        """Return access to the manifests."""
        return ManifestReader(self.io, self.paths)

    @property
    def schema(self) -> TableSchema:
        """Read the newest schema."""
        return self.schemas.latest()

    @property
    def options(self) -> Options:
        """Read the options of the newest schema."""
        return self.schema.typed_options

    def snapshot(self, snapshot_id: int | None = None) -> Snapshot | None:
        """Read a snapshot, by default the newest; None if the table has none yet."""
        return self.snapshots.latest() if snapshot_id is None else self.snapshots.get(snapshot_id)

    def scan(  # noqa: PLR0913 - keywords alone behind the filter
        self,
        columns: list[str] | None = None,
        filter: str | Predicate | None = None,
        *,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: int | None = None,
        watermark: int | None = None,
        merge_level_0: bool | None = None,
    ) -> Scan:
        """Describe a read of one snapshot; nothing is read before the scan is asked for rows.

        ``filter`` is SQL-like text, or made by :func:`paimon_orch.col`; ``timestamp`` is epoch milliseconds, the newest
        snapshot not after it counts; of a ``watermark`` the oldest snapshot counts that has reached it. At most one of
        the four is given. Tables with row tracking have two more columns, ``_ROW_ID`` and ``_SEQUENCE_NUMBER``, for
        those who name them. With ``order_by``, as in ``"price desc nulls last, id"``, the ``limit`` takes the first rows
        in that order. ``merge_level_0`` reads rows that are not compacted yet where readers leave them out (deletion vectors,
        ``first-row``); False leaves them out whatever ``deletion-vectors.merge-on-read`` says. Raises :class:`NotFoundError`
        for a column, snapshot or tag that does not exist.
        """
        moment = SnapshotSelector(snapshot_id, tag, timestamp, watermark)
        if columns is not None and not columns:
            raise InputError(f"a scan of {self.identifier} needs at least one column")
        snapshot = moment.find(self.snapshots)
        if snapshot is not None:
            self.schemas.get(
                snapshot.schema_id
            )  # gone: refused, even where the newest schema is read with
        # time travel reads with the schema of that time
        newest = self.schema
        self.check_step(StepKind.READ if moment else StepKind.READ | StepKind.DEFAULT_READ, newest)
        warn_of_unknown_options(self.identifier, newest.options)
        schema = self.schemas.get(snapshot.schema_id) if moment and snapshot else newest
        readable = replace(schema, fields=(*schema.fields, *row_tracking_fields(schema)))
        predicate = bind_filter(filter, readable)
        fields = schema.fields if columns is None else tuple(readable.select(columns))
        scan = Scan(
            io=self.io,
            paths=self.paths,
            schemas=self.schemas,
            schema=schema,
            snapshot=snapshot,
            fields=fields,
            predicate=predicate,
            limit=limit,
        )
        scan = replace(scan, merge_postponed=should_merge_postponed(newest))
        branch = newest.typed_options.text(FALLBACK_BRANCH_OPTION).strip()
        if branch and branch != self.paths.branch:
            fallback = FallbackBranch.of(
                self.io, self.paths, schema, branch, moment=moment, snapshot=snapshot
            )
            if fallback is not None:
                self.check_step(StepKind.READ, fallback.schema)
                scan = replace(scan, fallback=fallback.with_level_0(merge_level_0))
        if (
            merge_level_0 is None and schema.typed_options.has_deletion_vectors
        ):  # an option of reads: as it is now
            merge_level_0 = newest.typed_options.boolean("deletion-vectors.merge-on-read")
        return replace(scan, order=parse_order(order_by, schema), merge_level_0=merge_level_0)

    def incremental(
        self,
        start: int | str,
        end: int | str,
        mode: str = "auto",
        *,
        columns: list[str] | None = None,
        filter: str | Predicate | None = None,
        merge_level_0: bool | None = None,
    ) -> IncrementalScan:
        """Describe a read of what changed after ``start`` until ``end``, two snapshot ids or two tags.

        Rows come behind a column ``rowkind``. ``mode`` is ``delta`` (what writers appended, as they wrote it),
        ``changelog`` (what the changelog producer wrote), ``diff`` (the difference of the two states), or ``auto``:
        diff between tags; between ids changelog if the table has a producer, else delta; the table's options
        ``incremental-between-scan-mode`` and ``incremental-between-tag-to-snapshot`` change what ``auto`` means. A diff compares what scans read
        and leaves out what they leave out; ``merge_level_0`` is that of :meth:`scan`. A delta holds all records, so that a copy
        that continues with deltas must begin with a scan that merges level 0.
        """
        schema = self.schema
        self.check_step(StepKind.READ, schema)
        if schema.options.get(FALLBACK_BRANCH_OPTION, "").strip():
            raise UnsupportedError(
                f"{self.identifier}: changes between snapshots are not read together with the branch that option "
                f"{FALLBACK_BRANCH_OPTION!r} = {schema.options[FALLBACK_BRANCH_OPTION]!r} names; read the two snapshots, or remove the option"
            )
        if should_merge_postponed(schema):
            raise UnsupportedError(
                f"{self.identifier}: with 'postpone.merge-on-read' = true only whole snapshots are read; changes of rows "
                "in postpone buckets are not known"
            )
        fields = schema.fields if columns is None else tuple(schema.select(columns))
        span = SnapshotRange.of(self.snapshots, start, end, mode, schema)
        predicate = bind_filter(filter, schema)
        return IncrementalScan(
            io=self.io,
            paths=self.paths,
            schemas=self.schemas,
            schema=schema,
            snapshot_range=span,
            fields=fields,
            predicate=predicate,
            merge_level_0=merge_level_0,
        )

    def system(self, name: str) -> SystemTable:
        """Return a system table: ``snapshots``, ``files``, ``audit_log`` and so on."""
        return SystemTable(self, name)

    def files(self, snapshot: Snapshot | None = None) -> list[BucketSplit]:
        """Return all live files of a snapshot (by default the newest) by bucket, level 0 included."""
        return ScanPlanner(self.manifests, self.schema).splits(snapshot or self.snapshots.latest())

    def reader(self) -> FileReader:
        """Return a reader of data files in the shape of the newest schema."""
        schemas = self.schemas
        return FileReader(self.io, self.paths, schemas.latest(), schemas.get_all(schemas.ids()))

    def build_writer_factory(self) -> FileWriterFactory:
        """Return what makes writers of data files."""
        version = choose_bitmap_version(self.manifests, self.reader(), self.snapshots.latest())
        return FileWriterFactory(self.io, self.paths, self.schema, version)

    def read_next_sequences(self) -> dict[BucketId, int]:
        """Return the next sequence number of every bucket that has files.

        See docs/format/data-files.md#order-and-sequence-numbers.
        """
        return {
            (split.partition, split.bucket): 1 + max(f.max_sequence_number for f in split.files)
            for split in self.files()
        }

    def load_hash_index(self, *, fresh: bool = False) -> HashIndex | None:
        """Return what rows are assigned to dynamic buckets by; None for tables with other buckets.

        With ``fresh`` nothing is known yet, as for an overwrite. Raises :class:`UnsupportedError` if keys may change
        their partition.
        """
        if not has_dynamic_buckets(self.schema):
            return None
        if fresh:
            return HashIndex(self.reader(), {}, {})
        snapshot = self.snapshots.latest()
        files = {
            (entry.partition, entry.bucket): entry
            for entry in self.manifests.read_index_entries(snapshot)
            if entry.index_type == HASH_INDEX
        }
        splits = [] if snapshot is None else self.files(snapshot)
        unindexed = {
            (split.partition, split.bucket): split.files
            for split in splits
            if (split.partition, split.bucket) not in files
        }
        return HashIndex(self.reader(), files, unindexed)

    def load_postpone_buckets(self, *, fresh: bool = False) -> PostponeBuckets | None:
        """Return where the rows of partitions go; None for tables without postpone buckets.

        With ``fresh`` nothing is known of partitions, as for an overwrite.
        """
        schema = self.schema
        if not has_postpone_buckets(schema):
            return None
        return PostponeBuckets.of(schema, [] if fresh else self.files())

    def new_commit(self, step: StepKind, user: str | None = None) -> TableCommit:
        """Return a committer for one job, which does ``step``."""
        schemas = self.schemas
        return TableCommit(
            schemas=schemas,
            snapshots=self.snapshots,
            manifests=self.manifests,
            user=user or create_commit_user(schemas.latest()),
            check=partial(self.check_step, step),
        )

    def upsert(
        self,
        rows: ArrowStreamExportable,
        *,
        row_kind: str | None = None,
        commit_id: CommitId | None = None,
    ) -> Snapshot | None:
        """Insert or update rows by primary key in one snapshot; the last row of a key wins.

        ``rows`` are a table of pyarrow, a data frame of pandas or Polars, or what exports an Arrow stream.
        ``row_kind`` names a text column of ``+I``, ``-U``, ``+U``, ``-D``. A ``commit_id`` makes the call safe to
        repeat: what it names is committed once. Returns the snapshot, None without rows. A warning is logged if batch
        readers see the rows only after a compaction (deletion vectors, ``first-row``, postpone buckets).
        """
        if not self.schema.primary_keys:
            raise InputError(f"{self.identifier} has no primary key: use append, not upsert")
        return self._write(rows, row_kind=row_kind, commit_id=commit_id)

    def append(
        self, rows: ArrowStreamExportable, *, commit_id: CommitId | None = None
    ) -> Snapshot | None:
        """Add rows in one snapshot; on a primary-key table this is :meth:`upsert`.

        >>> table.append(rows, commit_id=CommitId("nightly load", 20260131))  # again: nothing is added
        """
        return self._write(rows, commit_id=commit_id)

    def delete(
        self, rows: ArrowStreamExportable, *, commit_id: CommitId | None = None
    ) -> Snapshot | None:
        """Delete rows of a primary-key table by key.

        Columns beyond the key, the partition and ``sequence.field`` may be missing. All rows are deletes, whatever the
        column that ``rowkind.field`` names says.
        """
        schema = self.schema
        if not schema.primary_keys:
            raise InputError(
                f"{self.identifier} has no primary key, so there is no key to delete by"
            )
        deleted = complete_rows_to_delete(to_arrow_table(rows), schema)
        return self._write(deleted, kind=RowKind.DELETE, commit_id=commit_id)

    def overwrite(
        self,
        rows: ArrowStreamExportable,
        partitions: PartitionSpec | Sequence[PartitionSpec] | None = None,
        *,
        commit_id: CommitId | None = None,
    ) -> Snapshot | None:
        """Replace whole partitions by rows: those that receive rows, or those that match ``partitions``, or one of them.

        An empty mapping replaces the whole table. Without partition columns the whole table is replaced. Records that are
        not compacted yet are replaced too: if the rows come from a scan of this table, read with ``merge_level_0=True``.
        What is written is visible at once where no key is in two new files of a bucket (``overwrite-upgrade``).
        """
        return self._write(rows, overwrite=True, partitions=partitions, commit_id=commit_id)

    def rollback(
        self,
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp: int | None = None,
        watermark: int | None = None,
    ) -> Snapshot:
        """Go back to a snapshot as :meth:`scan` names it, and return the snapshot that is newest then.

        Later snapshots and tags are removed, schemas stay. Nothing may write to the table meanwhile.
        """
        self.check_step(StepKind.METADATA)
        return rollback(self.snapshots, SnapshotSelector(snapshot_id, tag, timestamp, watermark))

    def truncate(self) -> Snapshot | None:
        """Remove all rows in one snapshot; None if there are no files. Older snapshots keep theirs."""
        return self._drop_matching_partitions(lambda _: True)

    def drop_partitions(self, partitions: Iterable[str | PartitionSpec]) -> Snapshot | None:
        """Remove whole partitions in one snapshot; None if none of them has files.

        A partition is ``"dt=2026-01-01/region=eu"`` or a mapping; one that names some of the partition columns means all
        that agree. None, like the option ``partition.default-name``, means the partition of null.
        """
        schema = self.schema
        specs = [parse_partition_spec(p, schema) if isinstance(p, str) else p for p in partitions]
        if not all(specs):
            raise InputError("a partition to drop names no column; truncate removes all rows")
        return self._drop_matching_partitions(build_any_partition_matcher(specs, schema))

    def _drop_matching_partitions(self, chosen: PartitionFilter) -> Snapshot | None:
        self.check_step(StepKind.WRITE_ROWS)
        if not any(chosen(split.partition) for split in self.files()):
            return None
        return self.new_commit(StepKind.WRITE_ROWS).commit(
            CommitChanges(kind=CommitKind.OVERWRITE, overwrite=chosen)
        )

    def _write(
        self,
        rows: ArrowStreamExportable,
        *,
        row_kind: str | None = None,
        kind: RowKind = RowKind.INSERT,
        overwrite: bool = False,
        partitions: PartitionSpec | Sequence[PartitionSpec] | None = None,
        commit_id: CommitId | None = None,
    ) -> Snapshot | None:
        schema = self.schema
        self.check_step(StepKind.WRITE_ROWS, schema)
        check_writable(schema)
        committed = self.find_committed(commit_id)
        if committed is not None:
            return committed
        conformed = conform_rows(to_arrow_table(rows), schema, row_kind=row_kind, kind=kind)
        hashes = self.load_hash_index(fresh=overwrite)
        writer = TableWriter(
            factory=self.build_writer_factory(),
            first_sequence={} if overwrite else self.read_next_sequences(),
            index=None if hashes is None else HashIndexWriter(hashes),
            is_overwrite=overwrite,
            postponed=self.load_postpone_buckets(fresh=overwrite),
        )
        try:
            writer.write(conformed)
            entries, index = writer.close(), writer.close_index()
        except BaseException:
            writer.abort()
            raise
        try:
            snapshot = self.commit_entries(
                entries,
                index,
                hashes,
                changelog=writer.changelog,
                overwrite=overwrite,
                partitions=partitions,
                commit_id=commit_id,
            )
        except (
            CommitConflictError,
            InputError,
            UnsupportedError,
        ):  # after others it may have been committed
            writer.abort()
            raise
        not_visible = self.count_rows_not_visible_of(entries, overwrite=overwrite)
        if not_visible:
            logger.warning(
                "%s", describe_unseen_rows_after_write(self.identifier, self.paths, not_visible)
            )
        return snapshot

    def count_rows_not_visible_of(
        self, entries: Sequence[ManifestEntry], *, overwrite: bool = False
    ) -> int:
        """Return the records of newly written files that batch readers do not see before a compaction."""
        schema = self.schema
        added = upgrade_after_overwrite(entries, schema) if overwrite else entries
        return Visibility(schema).count(added)

    def find_committed(self, commit_id: CommitId | None) -> Snapshot | None:
        """Return the snapshot that makes a commit a duplicate; None if it is to be made."""
        if commit_id is None:
            return None
        return self.new_commit(StepKind.WRITE_ROWS, commit_id.user).find_committed(
            commit_id.identifier
        )

    def _warn_of_unseen_rows(self, replaced: PartitionFilter) -> None:
        """Log that an overwrite replaces records that no batch reader has seen; its rows may come from a scan without them."""
        latest, visibility = self.snapshots.latest(), Visibility(self.schema)
        rows = visibility.rows_not_visible(self.manifests, latest, partitions=replaced)
        if latest is not None and rows:
            logger.warning(
                "the overwrite of %s replaces %s records that are not compacted yet, which batch reads leave out. If the "
                "new rows come from a read of this table, they lack them: roll back to snapshot %d, and read with "
                "merge_level_0",
                self.identifier,
                f"{rows:,}",
                latest.id,
            )

    def commit_entries(
        self,
        entries: Sequence[ManifestEntry],
        index: Sequence[IndexManifestEntry] = (),
        hashes: HashIndex | None = None,
        *,
        changelog: Sequence[ManifestEntry] = (),
        overwrite: bool = False,
        partitions: PartitionSpec | Sequence[PartitionSpec] | None = None,
        commit_id: CommitId | None = None,
    ) -> Snapshot | None:
        """Commit newly written files as an APPEND, or as an OVERWRITE of the partitions they replace.

        ``changelog`` are files of rows as they came, ``index`` new hash indexes and ``hashes`` the state that rows were
        assigned to dynamic buckets by. If another call has committed this ``commit_id`` the files are removed.
        """
        if len({(entry.partition, entry.bucket) for entry in index}) < len(index):
            raise InputError(
                "two tasks assigned new keys of one partition to dynamic buckets; all its rows must go to one task"
            )
        if overwrite:
            replaced = build_overwrite_filter(
                (entry.partition for entry in entries), partitions, self.schema
            )
            if replaced is None:
                return None
            self._warn_of_unseen_rows(replaced)
            added = tuple(upgrade_after_overwrite(entries, self.schema))
            changes = CommitChanges(
                kind=CommitKind.OVERWRITE, entries=added, index=tuple(index), overwrite=replaced
            )
        elif entries or self.options.boolean("commit.force-create-snapshot"):
            guards = () if hashes is None else hashes.guards(entries, index)
            changes = CommitChanges(
                kind=CommitKind.APPEND,
                entries=tuple(entries),
                changelog=tuple(changelog),
                index=tuple(index),
                hash_index_guards=guards,
            )
        else:
            return None
        if commit_id is not None:
            changes = replace(changes, identifier=commit_id.identifier)
        commit = self.new_commit(StepKind.WRITE_ROWS, None if commit_id is None else commit_id.user)
        snapshot = commit.commit(changes)
        if commit.is_duplicate:
            written = CommitMessage(
                entries=tuple(entries), index=tuple(index), changelog=tuple(changelog)
            )
            discard_written_files(self.reader(), [written])
        return snapshot
