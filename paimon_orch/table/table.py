"""The user API of a table: reads, writes, tags, branches and system tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from paimon_orch.errors import InputError
from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES, BatchSizes
from paimon_orch.format.argument_checks import check_flag, check_names, check_text, to_whole_number
from paimon_orch.format.display import format_html
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.row.row_kind import RowKind
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.times import TimeArgument
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.storage import FileIO
from paimon_orch.table.catalog_environment import NO_CATALOG, CatalogEnvironment
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.partition_spec import (
    PartitionSpec,
    build_any_partition_matcher,
    convert_partition_specs,
)
from paimon_orch.table.metadata.branches import Branches
from paimon_orch.table.metadata.rollback import (
    RollbackPlan,
    plan_rollback,
    repair_earliest_snapshot,
    rollback,
)
from paimon_orch.table.metadata.snapshot_store import LatestHint
from paimon_orch.table.metadata.tags import Tags
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.older_state import check_same_rows_under_newest_options
from paimon_orch.table.partition_drop import plan_partition_drop
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.table_state import TableState, load_newest_state
from paimon_orch.table.table_stores import TableStores

if TYPE_CHECKING:  # imported on first use, because many commands only read metadata
    from paimon_orch.steps.compaction.compact import CompactionResult, CompactionStrategy
    from paimon_orch.steps.row_level.assignments import Assignments
    from paimon_orch.table.commit.commit_id import CommitId
    from paimon_orch.table.scan.incremental_scan import IncrementalScan
    from paimon_orch.table.scan.scan import Scan
    from paimon_orch.table.system_table import SystemTable
    from paimon_orch.table.write.arrow_input import ArrowStreamExportable


@dataclass(frozen=True, slots=True)
class Table:
    """One table or branch. Cheap to create and to pickle: it holds no open files and no data.

    >>> table.upsert(pa.table({"id": [1], "status": ["PENDING"]}))
    >>> table.scan(filter="status = 'PENDING'").to_arrow()
    """

    identifier: str
    io: FileIO
    paths: TablePaths
    allowances: Allowances = NO_ALLOWANCES
    _: KW_ONLY
    batch_sizes: BatchSizes = DEFAULT_BATCH_SIZES
    """The number of rows that are read, merged and written together."""
    environment: CatalogEnvironment = NO_CATALOG
    """The catalog of the table, as far as commits and other changes need it."""
    hint: LatestHint = field(default_factory=LatestHint, repr=False, compare=False)

    def __repr__(self) -> str:
        """Return the name and the location; reads nothing."""
        return f"Table({self.identifier!r}, {self.paths.root!r})"

    def _repr_html_(self) -> str:
        """Return the newest schema as an HTML table, which notebooks show."""
        schema = self.load().schema
        return format_html(
            self.identifier,
            {
                "location": self.paths.root,
                "comment": schema.comment,
                "primary key": list(schema.primary_keys),
                "partitioned by": list(schema.partition_keys),
                "columns": [
                    {"name": x.name, "type": type_to_sql(x.type), "comment": x.description}
                    for x in schema.fields
                ],
                "options": [
                    {"option": key, "value": value}
                    for key, value in sorted(hide_secrets(schema.options).items())
                ],
            },
        )

    @property
    def stores(self) -> TableStores:
        """Return the stores and commits that steps and writers use; not part of the public API."""
        return TableStores(
            self.identifier,
            self.io,
            self.paths,
            self.allowances,
            batch_sizes=self.batch_sizes,
            environment=self.environment,
            hint=self.hint,
        )

    def allow(self, *, stale_external: bool = False, unknown_options: bool = False) -> "Table":
        """Return a copy of this object that allows steps that the table's options forbid.

        ``stale_external``: steps may change the table even if Iceberg metadata, a metastore or a
        callback is not updated. ``unknown_options``: steps may change the table even if it has
        unknown options, which may belong to a newer release of Paimon.
        """
        check_flag("stale_external", stale_external)
        check_flag("unknown_options", unknown_options)
        allowances = Allowances(stale_external=stale_external, unknown_options=unknown_options)
        return replace(self, allowances=allowances)

    def stale_external_options(self) -> list[str]:
        """Return the options, as ``key=value``, whose external systems a step leaves stale."""
        return self.stores.list_stale_options()

    @property
    def tags(self) -> Tags:
        """Return the tags: list, create, rename and delete them."""
        return self.stores.tags

    @property
    def branches(self) -> Branches:
        """Return the branches: list, create, rename, fast-forward and delete them."""
        return self.stores.branches

    def load(self, *, with_lists: bool = False) -> TableState:
        """Read the newest schema and snapshot, as the attributes of the returned object.

        With ``with_lists``, its manifest lists are read at the same time as the schema.

        >>> table.load().schema.fields
        """
        return load_newest_state(self.stores, with_lists=with_lists)

    def snapshot(self, snapshot_id: int | None = None) -> Snapshot | None:
        """Read a snapshot, by default the newest; return None if the table has no snapshot yet.

        Raises :class:`NotFoundError` for an id that does not exist.
        """
        snapshot_id = to_whole_number("snapshot_id", snapshot_id)
        snapshots = self.stores.snapshots
        return snapshots.latest() if snapshot_id is None else snapshots.get(snapshot_id)

    def snapshots(self) -> list[Snapshot]:
        """Read all snapshots that have not expired, the oldest first."""
        return self.history()[::-1]

    def history(self, limit: int | None = None) -> list[Snapshot]:
        """Read the snapshots that have not expired, the newest first, at most ``limit``."""
        count = to_whole_number("limit", limit, minimum=0)
        return list(islice(self.stores.snapshots.walk_back(), count))

    @repeat_if_expired
    def files(self, snapshot: Snapshot | None = None) -> list[BucketSplit]:
        """Return all live files of a snapshot (default: the newest) by bucket, level 0 included."""
        given: Any = snapshot
        if given is not None and not isinstance(given, Snapshot):
            raise InputError(
                f"snapshot must be a snapshot, such as table.snapshot(5), not {given!r}"
            )
        return (
            self.load(with_lists=True).files() if snapshot is None else self.stores.files(snapshot)
        )

    def scan(  # noqa: PLR0913 - all but columns and filter are keywords
        self,
        columns: list[str] | None = None,
        filter: str | Predicate | None = None,
        *,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: TimeArgument = None,
        watermark: TimeArgument = None,
        merge_level_0: bool | None = None,
    ) -> "Scan":
        """Describe a read of one snapshot; data is read when rows are requested from the scan.

        ``columns`` may include ``_ROW_ID`` and ``_SEQUENCE_NUMBER`` in tables with row tracking, and
        values of VARIANT columns, such as ``variant_get(v, '$.age', 'INT') AS age``.
        ``filter`` is an SQL condition or an expression of :func:`paimon_orch.col`; no comparison
        finds NaN, but ``isnan(column)`` does. ``order_by`` is
        for example ``"price desc nulls last, id"``; ``limit`` returns the first rows in that order.

        At most one of ``snapshot_id``, ``tag``, ``timestamp`` (epoch milliseconds, ISO 8601, a date
        or a datetime; the newest snapshot that is not later) and ``watermark`` (the oldest snapshot
        that has reached it) selects the snapshot; the default is the newest. Time travel reads with
        the schema of that snapshot.

        ``merge_level_0=True`` includes rows that are not compacted yet, which batch reads of tables
        with deletion vectors or the merge engine ``first-row`` leave out; False leaves them out
        regardless of ``deletion-vectors.merge-on-read``.

        Raises :class:`NotFoundError` for a column, snapshot or tag that does not exist.
        """
        from paimon_orch.table.scan.scan_builder import ScanRequest, build_scan

        check_flag("merge_level_0", merge_level_0)
        if columns is not None:
            check_names("columns", columns)
        if order_by is not None and not isinstance(order_by, str):
            check_names("order_by", order_by)
        request = ScanRequest(
            selector=_select_snapshot(snapshot_id, tag, timestamp, watermark),
            columns=columns,
            filter=filter,
            limit=to_whole_number("limit", limit, minimum=0),
            order_by=order_by,
            merge_level_0=merge_level_0,
        )
        return build_scan(self.stores, request)

    def incremental(
        self,
        start: int | str,
        end: int | str,
        mode: str = "auto",
        *,
        columns: list[str] | None = None,
        filter: str | Predicate | None = None,
        merge_level_0: bool | None = None,
    ) -> "IncrementalScan":
        """Describe a read of the changes after ``start`` up to ``end``: two snapshot ids or tags.

        The first column of the rows is ``rowkind``. ``mode`` is one of:

        * ``delta``: the rows that writers appended, as they were written;
        * ``changelog``: the rows that the changelog producer wrote;
        * ``diff``: the difference between both snapshots, with level 0 unless ``merge_level_0`` is
          False; before the snapshot 1 the table is empty;
        * ``auto``: ``diff`` between tags; between ids ``changelog`` if the table has a changelog
          producer, else ``delta``. The table's options ``incremental-between-scan-mode`` and
          ``incremental-between-tag-to-snapshot`` change this default.

        A delta has all written records, so a copy that is updated with deltas must start from a
        scan with ``merge_level_0=True``.
        """
        from paimon_orch.table.scan.scan_builder import IncrementalRequest, build_incremental_scan

        check_flag("merge_level_0", merge_level_0)
        if columns is not None:
            check_names("columns", columns)
        request = IncrementalRequest(
            start=start,
            end=end,
            mode=mode,
            columns=columns,
            filter=filter,
            merge_level_0=merge_level_0,
        )
        return build_incremental_scan(self.stores, request)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows of the newest snapshot as an Arrow stream, as :meth:`scan` does.

        >>> duckdb.sql("SELECT count(*) FROM orders")
        """
        return self.scan().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema of the rows of the newest snapshot."""
        return self.scan().__arrow_c_schema__()

    def system(self, name: str) -> "SystemTable":
        """Return a system table: ``snapshots``, ``files``, ``audit_log`` and others."""
        from paimon_orch.table.system_table import SystemTable

        return SystemTable(self, name)

    def upsert(
        self,
        rows: "ArrowStreamExportable",
        *,
        row_kind: str | None = None,
        commit_id: "CommitId | None" = None,
    ) -> Snapshot | None:
        """Insert or update rows by primary key in one snapshot; the last row of a key wins.

        ``rows`` are a pyarrow table, a pandas or Polars data frame, or any object that exports an
        Arrow stream. ``row_kind`` names a text column with the values ``+I``, ``-U``, ``+U``,
        ``-D``. With a ``commit_id``, the call can be repeated safely: each id is committed once.

        Returns the new snapshot, or None if there are no rows. Logs a warning if batch readers see
        the rows only after a compaction (deletion vectors, ``first-row``, postpone buckets).
        """
        from paimon_orch.table.write.write_builder import WriteBuilder

        state = self._load_with_key(": use append, not upsert")
        return WriteBuilder(state, commit_id=commit_id).write(rows, row_kind=row_kind)

    def append(
        self, rows: "ArrowStreamExportable", *, commit_id: "CommitId | None" = None
    ) -> Snapshot | None:
        """Add rows in one snapshot; for a table with a primary key, same as :meth:`upsert`.

        >>> table.append(rows, commit_id=CommitId("nightly load", 20260131))  # commits once
        """
        from paimon_orch.table.write.write_builder import WriteBuilder

        return WriteBuilder(self.load(with_lists=True), commit_id=commit_id).write(rows)

    def delete(
        self,
        rows: "ArrowStreamExportable | str | Predicate",
        *,
        commit_id: "CommitId | None" = None,
    ) -> Snapshot | None:
        """Delete rows that match a filter, or rows of a primary-key table by key.

        ``rows`` is an SQL condition, an expression of :func:`paimon_orch.col`, or Arrow data with
        the columns of the key, the partition and ``sequence.field``. The column of
        ``rowkind.field`` is ignored: all rows are deletes. A filter runs in this process; use
        :func:`paimon_orch.steps.delete` to run it on Spark, and for its errors.

        >>> table.delete("status = 'VOID'")
        """
        if isinstance(rows, str | Predicate):
            return self._delete_matching(rows, commit_id)
        from paimon_orch.table.write.arrow_input import to_arrow_table
        from paimon_orch.table.write.conform_rows import complete_rows_to_delete
        from paimon_orch.table.write.write_builder import WriteBuilder

        state = self._load_with_key(
            '; its rows can only be deleted by a filter: table.delete("id = 3")'
        )
        deletes = complete_rows_to_delete(to_arrow_table(rows), state.schema)
        return WriteBuilder(state, commit_id=commit_id).write(deletes, kind=RowKind.DELETE)

    def _load_with_key(self, advice: str) -> "TableState":
        """Return the newest state. Raises :class:`InputError` if the table has no primary key."""
        state = self.load(with_lists=True)
        if not state.schema.primary_keys:
            raise InputError(f"{self.identifier} has no primary key{advice}")
        return state

    def _delete_matching(
        self, where: str | Predicate, commit_id: "CommitId | None"
    ) -> Snapshot | None:
        if commit_id is not None:
            raise InputError(
                "a delete by a filter takes no commit_id: repeated, it deletes the rows that match then"
            )
        from paimon_orch.steps import InProcessExecutor, delete

        return delete(self, InProcessExecutor(), where).snapshot

    def update(
        self, values: "Mapping[str, object]", where: str | Predicate | None = None
    ) -> Snapshot | None:
        """Update the rows that match a filter, by default all rows, in one snapshot.

        ``values`` are new values by column: text is an SQL expression, and other values, such as
        numbers, dates and :func:`paimon_orch.col`, are stored as they are. Runs in this process;
        use :func:`paimon_orch.spark.update` for expressions that only Spark computes.

        >>> table.update({"status": "'VOID'", "price": 0}, where="id = 3")
        """
        from paimon_orch.steps import update

        return update(self, values, where).snapshot

    def merge(
        self,
        source: "ArrowStreamExportable",
        on: str | Sequence[str],
        *,
        when_matched_update: 'Assignments | Literal["*"] | None' = None,
        when_matched_delete: str | None = None,
        when_not_matched_insert: 'Assignments | Literal["*"] | None' = None,
        when_not_matched_by_source_update: "Assignments | None" = None,
        when_not_matched_by_source_delete: str | None = None,
    ) -> Snapshot | None:
        """Update, delete and insert rows in one snapshot, as the rows of a source say.

        ``source`` is Arrow data or a data frame, as in :meth:`upsert`. ``on`` is a list of columns
        of both, or equalities such as ``"target.id = source.order_id AND target.dt = source.dt"``;
        null equals nothing. A matched row is deleted if the condition ``when_matched_delete`` is
        true (``"true"`` deletes all matched rows), and is otherwise updated with
        ``when_matched_update``. A source row without a match is inserted with the values of
        ``when_not_matched_insert``; other columns get their default or null. ``"*"`` assigns the
        source's columns of the same names. Rows of the table without a match are deleted or updated
        by ``when_not_matched_by_source_delete`` and ``when_not_matched_by_source_update``.

        New values are as in :meth:`update`, of ``target.column`` and ``source.column``. Runs in this
        process, with the source in memory; use :func:`paimon_orch.spark.merge_into` for a large
        source and for expressions that only Spark computes.

        Raises :class:`InputError` if several source rows change the same row of the table.

        >>> table.merge(rows, ["id"], when_matched_update="*", when_not_matched_insert="*")
        """
        from paimon_orch.steps import merge

        return merge(
            self,
            source,
            on,
            when_matched_update=when_matched_update,
            when_matched_delete=when_matched_delete,
            when_not_matched_insert=when_not_matched_insert,
            when_not_matched_by_source_update=when_not_matched_by_source_update,
            when_not_matched_by_source_delete=when_not_matched_by_source_delete,
        ).snapshot

    def compact(
        self,
        *,
        partitions: "Sequence[str | PartitionSpec] | None" = None,
        where: str | None = None,
        strategy: "CompactionStrategy" = "minor",
    ) -> "CompactionResult":
        """Compact the table, or some partitions, in this process.

        See :func:`paimon_orch.steps.compact`, which also runs on Spark.

        >>> table.compact(strategy="full")
        """
        from paimon_orch.steps import compact

        return compact(self, partitions=partitions, where=where, strategy=strategy)

    def overwrite(
        self,
        rows: "ArrowStreamExportable",
        partitions: PartitionSpec | Sequence[PartitionSpec] | None = None,
        *,
        commit_id: "CommitId | None" = None,
    ) -> Snapshot | None:
        """Replace whole partitions with rows.

        Replaces the partitions that match ``partitions`` (one or more mappings), by default the
        partitions of the rows. An empty mapping replaces the whole table, and so does any overwrite
        of a table without partition columns. Records that are not compacted yet are replaced too:
        if the rows come from a scan of this table, scan with ``merge_level_0=True``.

        With the option ``overwrite-upgrade``, rows of files with disjoint keys are visible
        immediately.
        """
        from paimon_orch.table.write.write_builder import WriteBuilder

        builder = WriteBuilder(
            self.load(with_lists=True),
            is_overwrite=True,
            partitions=partitions,
            commit_id=commit_id,
        )
        return builder.write(rows)

    def rollback(
        self,
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp: TimeArgument = None,
        watermark: TimeArgument = None,
        delete_tags: bool = False,
    ) -> Snapshot:
        """Roll back to a snapshot, selected as in :meth:`scan`; return that snapshot.

        Deletes later snapshots, and with ``delete_tags`` also their tags; keeps all schemas. No
        other process may write to the table during the call. Raises :class:`InputError` if later
        snapshots have tags and ``delete_tags`` is not set, or if the newest options would show
        other rows of the snapshot's files; the table is then unchanged.
        """
        selector = _select_snapshot(snapshot_id, tag, timestamp, watermark)
        planned = self.plan_rollback(selector)
        planned.check_tags(delete_tags=delete_tags)
        return self.run_rollback(planned)

    def plan_rollback(self, selector: SnapshotSelector) -> RollbackPlan:
        """Return what :meth:`rollback` does; changes nothing, and raises the same errors."""
        self.stores.check_step(StepKind.METADATA)
        planned = plan_rollback(self.stores.snapshots, selector)
        check_same_rows_under_newest_options(self.stores, planned.target)
        return planned

    def run_rollback(self, planned: RollbackPlan) -> Snapshot:
        """Execute a planned rollback, including the deletion of tags; return its target.

        Raises :class:`CommitConflictError` if snapshots were created since the plan; the table is
        then unchanged.
        """
        rollback(self.stores.snapshots, planned)
        self.stores.report_deleted_tags(planned.tags)
        self.stores.publish_iceberg_metadata()
        return planned.target

    def repair_earliest_snapshot(self, snapshot_id: int) -> int:
        """Make the snapshot after missing ones the earliest; return the previous earliest id.

        Older snapshots are then treated as expired. Raises :class:`InputError` unless all snapshots
        from this one to the newest exist and the one before it does not.
        """
        self.stores.check_step(StepKind.METADATA)
        return repair_earliest_snapshot(self.stores.snapshots, snapshot_id)

    def truncate(self) -> Snapshot | None:
        """Delete all rows in one snapshot; returns None if the table has no files.

        As in Java Paimon, the table's catalog still lists the partitions.
        """
        state = self.load()
        state.check_step(StepKind.WRITE_ROWS)
        return state.drop_partitions(
            StepKind.WRITE_ROWS, lambda _: True, (), has_rows=bool(state.newest_files())
        )

    def drop_partitions(
        self,
        partitions: Iterable[str | PartitionSpec],
        *,
        commit_id: "CommitId | None" = None,
    ) -> Snapshot | None:
        """Delete whole partitions in one snapshot; returns None if they have no files.

        A partition is ``"dt=2026-01-01/region=eu"`` or a mapping. If it names only some of the
        partition columns, it selects all partitions with these values. None, or the value of the
        option ``partition.default-name``, selects null.

        If the table's catalog lists partitions, they are dropped there too, except for those with
        rows in other branches.

        Raises :class:`NotFoundError` for a partition that neither the table nor its catalog has.
        With a ``commit_id``, the call can be repeated: each id is committed once.
        """
        from paimon_orch.table.write.write_builder import WriteBuilder

        state = self.load()
        requested = convert_partition_specs(partitions, state.schema)
        builder = WriteBuilder(state, commit_id=commit_id)
        if (committed := builder.find_committed()) is not None:
            builder.report_commit(committed)
            return committed
        planned = plan_partition_drop(state, requested)
        return state.drop_partitions(
            StepKind.WRITE_ROWS,
            build_any_partition_matcher(planned.specs, state.schema),
            planned.catalog_names,
            has_rows=bool(planned.partitions),
            commit_id=commit_id,
        )


def _select_snapshot(
    snapshot_id: int | None, tag: str | None, timestamp: TimeArgument, watermark: TimeArgument
) -> SnapshotSelector:
    if tag is not None:
        check_text("tag", tag, "2026-01-31")
    return SnapshotSelector.of(
        to_whole_number("snapshot_id", snapshot_id), tag, timestamp, watermark
    )
