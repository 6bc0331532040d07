"""Reads the rows of one snapshot, with columns, a filter, an order and a limit."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.file_index_reader import TopRowsOrLimit
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.files.stats.file_stats import FileStats
from paimon_orch.format.file_index.evaluation import TopN
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.options.core_options import (
    GLOBAL_INDEX_ENABLED,
    PK_BITMAP_INDEX_COLUMNS,
    PK_BTREE_INDEX_COLUMNS,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.table_kind import TableKind
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import Field, type_to_sql
from paimon_orch.format.types.predicate import (
    Predicate,
    VariantValue,
    collect_columns,
    iterate_leaves,
    restrict_to_columns,
)
from paimon_orch.merge.compact.bucket_deletion_vectors import open_vectors_ahead
from paimon_orch.storage.concurrency import start_call
from paimon_orch.storage.recent_inputs import RecentInputs, iterate_ahead
from paimon_orch.table.bucket_readers.open_bucket import open_bucket
from paimon_orch.table.chain.chain_file_reader import ChainFileReader
from paimon_orch.table.chain.chain_splits import (
    ChainPartitions,
    check_chain_support,
    plan_chain_splits,
    with_origins,
)
from paimon_orch.table.column_index.global_index_evaluator import GlobalIndexEvaluator
from paimon_orch.table.column_index.global_index_pruner import IndexPruner, prune_by_row_ids
from paimon_orch.table.column_index.key_index_pruner import prune_by_file_rows
from paimon_orch.table.filter.variant_column import VariantColumn
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.scan.base_scan import BaseScan, filter_batches, limit_batches
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.scan.explain import ScanReport, explain_scan
from paimon_orch.table.scan.fallback_branch import FallbackBranch
from paimon_orch.table.scan.file_pruner import FilePruner
from paimon_orch.table.scan.order_by import SortKey, sort_batches
from paimon_orch.table.scan.partition_pruner import filter_partitions
from paimon_orch.table.scan.postponed_rows import add_postponed_files, should_merge_postponed
from paimon_orch.table.scan.row_count import count_rows
from paimon_orch.table.scan.scan_planner import ALL_LEVELS, IndexSource, ScanPlanner, apply_limit
from paimon_orch.table.scan.top_n_files import select_top_n_splits
from paimon_orch.table.scan.unseen_rows import Visibility
from paimon_orch.table.table_state import TableState

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection, DuckDBPyRelation


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(BaseScan):
    """A read of one snapshot, from :meth:`Table.scan`."""

    state: TableState
    """The table with the schema and the snapshot that are read."""

    fields: tuple[Field, ...]
    predicate: Predicate | None = None

    variant_columns: tuple[VariantColumn, ...] = ()
    """The columns among ``fields`` that are values of VARIANT columns."""

    limit: int | None = None
    """The maximum number of rows; with ``order``, the first rows in that order."""

    levels: range = ALL_LEVELS
    """The levels of the merge tree to read."""

    is_audit_log: bool = False
    """Whether to add the last changes of deleted keys, and a column ``rowkind``."""

    order: tuple[SortKey, ...] = ()

    merge_level_0: bool | None = None
    """Overrides the options that decide whether level 0 is read."""

    fallback: FallbackBranch | None = None
    """Provides the partitions that the snapshot lacks."""

    chain: Literal["missing", "all"] | None = None
    """Whether this is a scan of the delta branch of a chain table, and which partitions it merges.

    These are the partitions that the snapshot branch, which is then the fallback, lacks, or all.
    """

    merge_postponed: bool = False
    """Whether to merge the rows in postpone buckets."""

    @property
    def schema(self) -> TableSchema:
        """Return the schema of the rows."""
        return self.state.schema

    @property
    def snapshot(self) -> Snapshot | None:
        """Return the snapshot to read; None if the table has none."""
        return self.state.snapshot

    def list_values(self) -> Mapping[str, object]:
        """Return the values to show in interactive Python; reads nothing."""
        values = {
            "table": self.state.identifier,
            "snapshot_id": None if self.snapshot is None else self.snapshot.id,
            "columns": {field.name: type_to_sql(field.type) for field in self.fields},
            "filter": self.predicate,
            "order_by": [key.column for key in self.order],
            "limit": self.limit,
        }
        return {key: value for key, value in values.items() if value not in (None, [])}

    @property
    def visibility(self) -> Visibility:
        """Return which files the scan leaves out, as batch readers do."""
        return Visibility(self.schema, self.merge_level_0, self.merge_postponed)

    @property
    def rows_not_visible(self) -> int:
        """Return the number of records that the scan leaves out until they are compacted.

        Counts the records in files of level 0 (deletion vectors, ``first-row``) and in postpone
        buckets, in the partitions that the filter selects. Reads only manifests.
        """
        if self.levels.start > 0:
            return 0
        rows = self.count_rows_not_visible(lambda _: True)
        if self.fallback is None:
            return rows
        present = self._find_own_partitions()
        fallback_scan = self._build_fallback_scan(self.fallback)
        rows += fallback_scan.count_rows_not_visible(lambda key: key not in present)
        if fallback_scan.fallback is not None:
            anchor_scan = self._build_fallback_scan(fallback_scan.fallback)
            rows += anchor_scan.count_rows_not_visible(lambda key: key not in present)
        return rows

    def count_rows_not_visible(self, partitions: Callable[[bytes], bool]) -> int:
        """Count the records that are left out, except those of the fallback branch."""
        pruner = None
        if self.predicate is not None:
            pruner = FilePruner(
                self.schema, self.predicate, self.state.schemas.get, use_indexes=False
            )
        manifests = self.state.manifests
        return self.visibility.rows_not_visible(manifests, self.snapshot, pruner, partitions)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return to_arrow_schema(self.fields)

    def plan(self, *, use_indexes: bool = True) -> list[BucketSplit]:
        """Return the files to read, by bucket.

        With ``use_indexes``, file indexes that are embedded in manifests also exclude files, and
        global indexes exclude files and rows.
        """
        if self.chain is not None:
            return list(self._plan_chain(use_indexes=use_indexes))
        splits, _ = self._plan_branch(use_indexes=use_indexes)
        if self.fallback is None:
            return splits
        fallback_splits = self._build_fallback_scan(self.fallback).plan(use_indexes=use_indexes)
        present = self._find_own_partitions()
        missing = (split for split in fallback_splits if split.partition not in present)
        return [*splits, *(replace(split, is_fallback=True) for split in missing)]

    def _plan_branch(self, *, use_indexes: bool) -> tuple[list[BucketSplit], Sequence[str]]:
        """Return the files of the snapshot that may match, and the column indexes that were used."""
        manifests = self.state.manifests
        read_index = start_call(manifests.io, lambda: manifests.read_index_entries(self.snapshot))
        splits = self.plan_own_splits(
            self._restrict_to_columns(), use_indexes=use_indexes, read_index=read_index
        )
        return self._prune_by_column_indexes(splits, read_index()) if use_indexes else (splits, ())

    def _prune_by_column_indexes(
        self, splits: list[BucketSplit], index: Sequence[IndexManifestEntry]
    ) -> tuple[list[BucketSplit], Sequence[str]]:
        """Return the files and rows that may match by indexes of columns, and the indexes used."""
        prune = self._find_index_pruner()
        if self.predicate is None or not splits or prune is None:
            return splits, ()
        evaluator = GlobalIndexEvaluator(
            io=self.state.io,
            paths=self.state.paths,
            schemas=self.state.schemas,
            schema=self.schema,
            predicate=self.predicate,
        )
        return prune(splits, evaluator, index), tuple(evaluator.used)

    def _find_index_pruner(self) -> IndexPruner | None:
        """Return what selects rows by indexes of columns; None if the table cannot have any."""
        options = self.schema.typed_options
        if self.is_audit_log or not options.get(GLOBAL_INDEX_ENABLED):
            return None
        match self.schema.kind:
            case TableKind.DATA_EVOLUTION:
                return prune_by_row_ids
            case TableKind.PRIMARY_KEY:
                columns = (PK_BTREE_INDEX_COLUMNS, PK_BITMAP_INDEX_COLUMNS)
                return prune_by_file_rows if any(map(options.get, columns)) else None
        return None

    def _find_own_partitions(self) -> set[bytes]:
        """Return the selected partitions that the snapshot has, without the fallback branch."""
        keys = set(self.schema.partition_keys)
        on_keys = None if self.predicate is None else restrict_to_columns(self.predicate, keys)
        return {split.partition for split in self.plan_own_splits(on_keys, use_indexes=False)}

    def find_scan_of(self, split: BucketSplit) -> "Scan":
        """Return the scan that reads a planned split: this scan, or that of the fallback branch."""
        if not split.is_fallback or self.fallback is None:
            return self
        return self._build_fallback_scan(self.fallback)

    def build_chain_scan(self) -> "Scan":
        """Return the scan of a chain table that merges all selected delta partitions."""
        assert self.fallback is not None
        return replace(self._build_fallback_scan(self.fallback), chain="all")

    def _build_fallback_scan(self, fallback: FallbackBranch) -> "Scan":
        schema = fallback.state.schema
        branch_fields = {field.name: field for field in schema.fields}
        return replace(
            self,
            state=fallback.state,
            fields=tuple(branch_fields.get(field.name, field) for field in self.fields),
            merge_level_0=fallback.merge_level_0,
            fallback=fallback.anchors,
            chain=None if fallback.anchors is None else "missing",
            merge_postponed=should_merge_postponed(schema),
        )

    def _plan_chain(self, *, use_indexes: bool) -> Iterator[BucketSplit]:
        """Yield the partitions of the snapshot branch, then the others of this delta branch."""
        assert self.fallback is not None
        snapshot_scan = self._build_fallback_scan(self.fallback)
        check_chain_support(self.schema, snapshot_scan.schema)
        if self.chain == "missing":
            for split in snapshot_scan.plan_own_splits(self.predicate, use_indexes=use_indexes):
                yield with_origins(split, is_anchor=True)
        stored = [scan.list_splits_by_partition() for scan in (snapshot_scan, self)]
        complete, changed = stored
        partitions = ChainPartitions.of(self.schema, complete, changed)
        missing = [p for p in changed if self.chain == "all" or p not in complete]
        selected = filter_partitions(missing, self.schema, self.predicate)
        yield from plan_chain_splits(
            partitions, [p for p in missing if p in selected], anchors=complete, deltas=changed
        )

    def list_splits_by_partition(self) -> dict[bytes, list[BucketSplit]]:
        """Return all files that are read of this branch by partition.

        Only the values of keys decide which rows of a chain are merged, and the rows of a delta
        partition have the partition values of the partition that is read. Therefore the filter
        excludes no files here.
        """
        splits = defaultdict[bytes, list[BucketSplit]](list)
        for split in self.plan_own_splits(None, use_indexes=False):
            splits[split.partition].append(split)
        return splits

    def plan_own_splits(
        self,
        predicate: Predicate | None,
        *,
        use_indexes: bool,
        read_index: IndexSource | None = None,
    ) -> list[BucketSplit]:
        """Return the files of the snapshot that may match, without the fallback branch.

        ``read_index`` returns the index files of the snapshot, if the caller reads them.
        """
        levels = self.visibility.levels_to_read(self.levels)
        if not self.merge_postponed:
            splits = self._plan_splits(
                predicate, levels, use_indexes=use_indexes, read_index=read_index
            )
            return [split for split in splits if split.bucket >= 0]
        # A postponed row replaces the row with its key, so only predicates on keys can prune files.
        partitions, names = set(self.schema.partition_keys), self.schema.identifying_names
        on_keys = None if predicate is None else restrict_to_columns(predicate, names)
        on_partitions = None if predicate is None else restrict_to_columns(predicate, partitions)
        all_splits = self._plan_splits(
            on_partitions, ALL_LEVELS, use_indexes=False, read_index=read_index
        )
        return add_postponed_files(
            self._plan_splits(on_keys, levels, use_indexes=False, read_index=read_index),
            all_splits,
            self.schema,
        )

    def _plan_splits(
        self,
        predicate: Predicate | None,
        levels: range,
        *,
        use_indexes: bool,
        read_index: IndexSource | None,
    ) -> list[BucketSplit]:
        pruner = None
        if predicate is not None:
            pruner = FilePruner(self.schema, predicate, self.state.schemas.get, use_indexes)
        planner = ScanPlanner(self.state.manifests, self.schema)
        return planner.splits(self.snapshot, pruner, levels=levels, read_index=read_index)

    def plan_first(self) -> Sequence[BucketSplit]:
        """Return the buckets and files that the limit needs."""
        return self._apply_limit(self.plan())

    def _apply_limit(self, splits: Sequence[BucketSplit]) -> Sequence[BucketSplit]:
        """Return only the files that the limit needs, or all files if rows are filtered later."""
        if self.limit is None or not self.has_no_row_filter:
            return splits
        if self.fallback is not None or self.merge_postponed:
            return splits
        if self.predicate is not None:
            partitions = [split.partition for split in splits]
            matching = filter_partitions(partitions, self.schema, self.predicate)
            splits = [split for split in splits if split.partition in matching]
        if self.order:
            stats = FileStats(self.schema, self.state.schemas.get)
            return select_top_n_splits(
                splits, self.schema, stats=stats, key=self.order[0], limit=self.limit
            )
        return list(apply_limit(splits, self.schema, self.limit))

    @property
    def has_no_row_filter(self) -> bool:
        """Return whether the filter, if any, selects whole partitions."""
        keys = set(self.schema.partition_keys)
        return not self.is_audit_log and (
            self.predicate is None or collect_columns(self.predicate) <= keys
        )

    @property
    def _first(self) -> TopRowsOrLimit | None:
        """Return the rows of a file that the limit needs, or None if rows are filtered later."""
        if self.limit is None or self.limit < 0 or not self.has_no_row_filter:
            return None
        if not self.order:
            return self.limit
        key = self.order[0]
        return TopN(
            column=key.column,
            k=self.limit,
            descending=key.descending,
            nulls_first=key.nulls_first,
            sort_keys=len(self.order),
        )

    def explain(self) -> ScanReport:
        """Report the files, rows and bytes that indexes and the limit save; reads no rows."""
        if self.fallback is not None or self.merge_postponed:
            # The report covers neither the fallback branch nor postpone buckets.
            return replace(self, fallback=None, merge_postponed=False).explain()
        splits = self.plan(use_indexes=False)
        ids = (file.schema_id for split in splits for file in split.files)
        reader = self.state.reader(self.state.schemas.get_all(ids))
        first = self._first
        predicate = self._restrict_to_columns() if first is None else None
        planned, used = (
            self._plan_branch(use_indexes=True) if self.chain is None else (self.plan(), ())
        )
        return explain_scan(
            reader,
            splits,
            planned=self._apply_limit(planned),
            predicate=predicate,
            first=first,
            column_indexes=used,
        )

    def _restrict_to_columns(self) -> Predicate | None:
        """Return the part of the filter on columns that every file of a row has."""
        names = self.schema.partition_keys if has_data_evolution(self.schema) else self.schema.names
        return None if self.predicate is None else restrict_to_columns(self.predicate, set(names))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows by bucket, in bounded memory.

        With an order but without a limit, holds all rows in memory.
        """
        rows = self.with_sort_columns().read_first(self.plan_first())
        names = self.arrow_schema.names
        return (batch.select(names) for batch in rows) if self.order else rows

    def with_sort_columns(self) -> "Scan":
        """Return the scan with the columns of its order after its own columns."""
        sorted_by = dict.fromkeys(key.column for key in self.order)
        missing = [name for name in sorted_by if name not in self.arrow_schema.names]
        return replace(self, fields=(*self.fields, *self.schema.select(missing)))

    def read_first(self, splits: Sequence[BucketSplit]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of buckets in the order of the scan, at most its limit.

        The columns of the order must be columns of the scan.
        """
        batches = self.read_splits(splits)
        if not self.order:
            return limit_batches(batches, self.limit)
        return sort_batches(batches, self.order, self.limit, self.arrow_schema)

    def to_polars_lazy(self) -> "pl.LazyFrame":
        """Return a lazy frame of Polars, which reads the columns and files that a query needs.

        Tests of columns of integers, decimals, text, dates, timestamps and booleans skip files, and
        so does ``head`` without a test; Polars computes all other expressions.

        >>> table.scan().to_polars_lazy().filter(pl.col("id") < 3).select("id").collect()
        """
        from paimon_orch.table.scan.polars_frame import build_lazy_frame

        return build_lazy_frame(self)

    def to_duckdb(self, connection: "DuckDBPyConnection", name: str) -> "DuckDBPyRelation":
        """Register the rows as a view of DuckDB, which reads the columns and files that a query needs.

        Tests of the same columns as in :meth:`to_polars_lazy` skip files.

        >>> table.scan().to_duckdb(connection, "orders").filter("id < 3").fetchall()
        """
        from paimon_orch.table.scan.arrow_dataset import ScanDataset

        connection.register(name, ScanDataset(self))
        return connection.view(name)

    def count(self) -> int:
        """Count the rows; reads only metadata where no merge and no filter is needed."""
        return count_rows(self)

    def read_splits(self, splits: Sequence[BucketSplit]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of buckets like :meth:`read_split`; opens their remote files ahead."""
        inputs = RecentInputs()
        for split in iterate_ahead(splits, partial(self._open_ahead, inputs)):
            yield from self.read_split(split, inputs)

    def _open_ahead(self, inputs: RecentInputs, split: BucketSplit) -> bool:
        """Start to open the files of a bucket; return False if too many are open.

        Files of which the read may skip some are left out.
        """
        if not self.state.io.capabilities.has_slow_requests or (
            self.limit is not None and not self.order
        ):
            return False
        scan = self.find_scan_of(split)
        if split.origins or has_data_evolution(scan.schema):
            return False
        reader = scan._build_reader({}, inputs)  # noqa: SLF001 - its own class
        return open_vectors_ahead(reader, split.vectors) and all(
            reader.open_ahead(BucketFile(split.partition, split.bucket, file))
            for file in split.files
            if self.predicate is None or not file.extra_files
        )

    def read_split(
        self, split: BucketSplit, inputs: RecentInputs | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one bucket that match the filter; a limit may leave out rows.

        ``inputs`` are the files that :meth:`read_splits` has opened ahead.
        """
        if split.is_fallback:
            target = self.arrow_schema  # the nullability of columns may differ
            scan, split = self.find_scan_of(split), replace(split, is_fallback=False)
            for batch in scan.read_split(split, inputs):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=target)
            return
        names = {field.name for field in self.fields}
        names |= {column.source for column in self.variant_columns}
        if self.predicate is not None:
            names |= collect_columns(self.predicate)
        all_fields = (*self.schema.fields, *row_tracking_fields(self.schema))
        needed = [field for field in all_fields if field.name in names]
        reader = self._create_file_reader(split, inputs or RecentInputs())
        first = self._first  # None if the filter may keep only some rows of a file
        bucket = open_bucket(
            reader,
            split,
            fields=needed,
            predicate=self._restrict_to_columns() if first is None else None,
            first=first,
            may_stop=self.limit is not None and not self.order,
        )
        batches = bucket.read_audit_log() if self.is_audit_log else bucket.batches()
        yield from filter_batches(batches, self.predicate, self.arrow_schema, self.variant_columns)

    def _find_variant_values(self) -> dict[str, list[VariantValue]]:
        """Return the needed values of the VARIANT columns that are not read as a whole."""
        if self.schema.typed_options.combines_rows:
            return {}
        leaves = () if self.predicate is None else iterate_leaves(self.predicate)
        needed = [(leaf.column, leaf.variant) for leaf in leaves if leaf.variant is not None]
        needed += [(column.source, column.value) for column in self.variant_columns]
        values: dict[str, list[VariantValue]] = {}
        read = {field.name for field in self.fields}
        for column, value in needed:
            if column not in read:
                values.setdefault(column, []).append(value)
        return values

    def _build_reader(self, schemas: Mapping[int, TableSchema], inputs: RecentInputs) -> FileReader:
        return replace(
            self.state.reader(schemas),
            variant_values=self._find_variant_values(),
            inputs=inputs,
        )

    def _create_file_reader(self, split: BucketSplit, inputs: RecentInputs) -> FileReader:
        anchored = {origin.file_name for origin in split.origins if origin.is_anchor}
        files = (*split.files, *split.postponed_files)

        def create(schemas: SchemaStore, names: Container[str] | None) -> FileReader:
            ids = (f.schema_id for f in files if names is None or f.file_name in names)
            return self._build_reader(schemas.get_all(ids), inputs)

        if self.chain is None or self.fallback is None:
            return create(self.state.schemas, None)
        changed = {file.file_name for file in files} - anchored
        return ChainFileReader.of(
            create(self.state.schemas, changed),
            create(self.fallback.state.schemas, anchored),
            split.origins,
        )
