"""System tables (``db.t$files``): finds them by name and scans them.

:mod:`paimon_orch.table.metadata_tables`, :mod:`paimon_orch.table.reference_tables` and
:mod:`paimon_orch.table.index_tables` build the rows of the metadata tables; ``ro``, ``audit_log``,
``binlog`` and ``row_tracking`` are views of the rows of the table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError, NotFoundError, wrap_decode_errors
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.arrow import to_paimon_fields
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.table import index_tables, metadata_tables, reference_tables
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.scan.base_scan import ROW_KIND, BaseScan, filter_batches, limit_batches
from paimon_orch.table.scan.order_by import SortedScan
from paimon_orch.table.scan.scan import Scan

if TYPE_CHECKING:
    from paimon_orch.table.table import Table

MetadataTableBuilder = Callable[["Table", Snapshot | None], pa.Table]
_METADATA_TABLES: Mapping[str, tuple[pa.Schema, MetadataTableBuilder]] = {
    "snapshots": (metadata_tables.SNAPSHOTS_COLUMNS, metadata_tables.build_snapshots_table),
    "schemas": (metadata_tables.SCHEMAS_COLUMNS, metadata_tables.build_schemas_table),
    "options": (metadata_tables.OPTIONS_COLUMNS, metadata_tables.build_options_table),
    "tags": (metadata_tables.TAGS_COLUMNS, metadata_tables.build_tags_table),
    "manifests": (metadata_tables.MANIFESTS_COLUMNS, metadata_tables.build_manifests_table),
    "files": (metadata_tables.FILES_COLUMNS, metadata_tables.build_files_table),
    "partitions": (metadata_tables.PARTITIONS_COLUMNS, metadata_tables.build_partitions_table),
    "buckets": (metadata_tables.BUCKETS_COLUMNS, metadata_tables.build_buckets_table),
    "statistics": (metadata_tables.STATISTICS_COLUMNS, metadata_tables.build_statistics_table),
    "branches": (reference_tables.BRANCHES_COLUMNS, reference_tables.build_branches_table),
    "consumers": (reference_tables.CONSUMERS_COLUMNS, reference_tables.build_consumers_table),
    "aggregation_fields": (
        reference_tables.AGGREGATION_FIELDS_COLUMNS,
        reference_tables.build_aggregation_fields_table,
    ),
    "file_key_ranges": (
        index_tables.FILE_KEY_RANGES_COLUMNS,
        index_tables.build_file_key_ranges_table,
    ),
    "table_indexes": (index_tables.TABLE_INDEXES_COLUMNS, index_tables.build_table_indexes_table),
}
_DATA_TABLES = ("ro", "audit_log", "binlog", "row_tracking")
_MERGED_TABLES = ("audit_log", "binlog", "row_tracking")
SYSTEM_TABLE_NAMES = (*_METADATA_TABLES, *_DATA_TABLES)


@dataclass(frozen=True, slots=True)
class SystemTable:
    """One read-only system table of a table, from :meth:`Table.system`.

    ``ro`` has the rows of the last full compaction, read without a merge. ``audit_log`` has the
    rows with a first column ``rowkind``, including the last change of deleted keys. ``binlog`` has
    the rows of ``audit_log`` with an array in each column, as a change has two values in streams.
    ``row_tracking`` has the rows with their ids and sequence numbers. The other system tables
    contain metadata.
    """

    table: "Table"
    name: str

    def __post_init__(self) -> None:
        if self.name not in SYSTEM_TABLE_NAMES:
            raise NotFoundError(
                f"{self.table.identifier} has no system table {self.name!r}; the system tables are "
                f"{', '.join(SYSTEM_TABLE_NAMES)}"
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
        timestamp: int | datetime | None = None,
        watermark: int | None = None,
        merge_level_0: bool | None = None,
    ) -> BaseScan:
        """Describe a read as :meth:`Table.scan` does; ``columns`` must include ``order_by``."""
        if merge_level_0 is not None and self.name not in _MERGED_TABLES:
            raise InputError(
                f"{self.table.identifier}${self.name} has no level 0 to merge; read the table, or "
                f"its {_MERGED_TABLES[0]}"
            )
        selector = SnapshotSelector.of(snapshot_id, tag, timestamp, watermark)
        query = _Query(columns, filter, limit if order_by is None else None, selector)
        rows = self._build_scan(query)
        if merge_level_0 is not None:
            if isinstance(rows, Scan):
                rows = replace(rows, merge_level_0=merge_level_0)
            elif isinstance(rows, _BinlogScan):
                rows = replace(rows, rows=replace(rows.rows, merge_level_0=merge_level_0))
        if order_by is None:
            return rows
        return SortedScan.of(rows, order_by, limit)

    def _build_scan(self, query: "_Query") -> BaseScan:
        if self.name == "binlog":
            return self._build_binlog_scan(query)
        if self.name in _DATA_TABLES:
            return self._build_data_scan(query)
        form, build = _METADATA_TABLES[self.name]
        read = partial(_read_metadata, self.table, build, query.selector)
        columns, condition, limit, _ = query
        return MetadataScan.of(form, read, columns=columns, filter=condition, limit=limit)

    def _build_binlog_scan(self, query: "_Query") -> BaseScan:
        audit_log = SystemTable(self.table, "audit_log")
        rows = audit_log._build_data_scan(_Query(None, None, None, query.selector))
        form = pa.schema(map(_wrap_field, rows.arrow_schema))
        schema = TableSchema.of_columns(to_paimon_fields(form))
        return _BinlogScan(
            rows=rows,
            target=_select_fields(form, schema, query.columns),
            predicate=bind_filter(query.condition, schema),
            limit=query.limit,
        )

    def _build_data_scan(self, query: "_Query") -> Scan:
        columns, condition, limit, selector = query
        time_travel = {name: getattr(selector, name) for name in selector.__slots__}
        if self.name == "ro":
            scan = self.table.scan(columns, condition, limit=limit, **time_travel)
            return replace(scan, levels=range(scan.schema.top_level, scan.levels.stop))
        if self.name == "row_tracking":
            scan = self.table.scan(columns, condition, limit=limit, **time_travel)
            tracking = row_tracking_fields(scan.schema)
            if not tracking:
                raise InputError(
                    f"{self.table.identifier} has no row ids: the option 'row-tracking.enabled' is "
                    "not set"
                )
            return scan if columns else replace(scan, fields=(*scan.fields, *tracking))
        scan = self.table.scan(limit=limit, **time_travel)
        audited = replace(scan.schema, fields=(ROW_KIND, *scan.schema.fields))
        fields = audited.fields if columns is None else tuple(audited.select(columns))
        return replace(
            scan, fields=fields, predicate=bind_filter(condition, audited), is_audit_log=True
        )


class _Query(NamedTuple):
    """What a scan returns, before it is ordered."""

    columns: list[str] | None
    condition: str | Predicate | None
    limit: int | None
    selector: SnapshotSelector


def _select_fields(form: pa.Schema, schema: TableSchema, columns: list[str] | None) -> pa.Schema:
    names = schema.names if columns is None else [f.name for f in schema.select(columns)]
    return pa.schema([form.field(name) for name in names])


def _wrap_field(field: pa.Field) -> pa.Field:
    """Return the array field of a column in ``binlog``; the row kind is no array."""
    if field.name == ROW_KIND.name:
        return field
    return pa.field(field.name, pa.list_(field.with_name("item").with_nullable(True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _BinlogScan(BaseScan):
    """A scan of the audit log with each value in an array of its own."""

    rows: Scan
    target: pa.Schema
    predicate: Predicate | None
    limit: int | None

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return self.target

    @property
    def rows_not_visible(self) -> int:
        """Return the number of records that the scan leaves out until a compaction."""
        return self.rows.rows_not_visible

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        form = pa.schema(map(_wrap_field, self.rows.arrow_schema))
        wrapped = (_wrap_columns(batch, form) for batch in self.rows.to_batches())
        return limit_batches(filter_batches(wrapped, self.predicate, self.target), self.limit)


def _wrap_columns(batch: pa.RecordBatch, form: pa.Schema) -> pa.RecordBatch:
    offsets = pa.array(np.arange(batch.num_rows + 1, dtype=np.int32))
    columns = [
        pa.ListArray.from_arrays(offsets, column, type=field.type)
        if field.name != ROW_KIND.name
        else column
        for column, field in zip(batch.columns, form, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=form)


@repeat_if_expired
def _read_metadata(
    table: "Table", build: MetadataTableBuilder, selector: SnapshotSelector
) -> pa.Table:
    with wrap_decode_errors(f"the metadata of {table.identifier}"):
        return build(table, selector.find(table.stores.snapshots))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataScan(BaseScan):
    """A scan of metadata; builds the rows when they are read."""

    read: Callable[[], pa.Table]
    target: pa.Schema
    predicate: Predicate | None
    limit: int | None

    @classmethod
    def of(
        cls,
        form: pa.Schema,
        read: Callable[[], pa.Table],
        *,
        columns: list[str] | None,
        filter: str | Predicate | None,
        limit: int | None,
    ) -> "MetadataScan":
        """Return a scan of rows with the schema ``form``."""
        schema = TableSchema.of_columns(to_paimon_fields(form))
        return cls(
            read=read,
            target=_select_fields(form, schema, columns),
            predicate=bind_filter(filter, schema),
            limit=limit,
        )

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return self.target

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        return limit_batches(
            filter_batches(self.read().to_batches(), self.predicate, self.target), self.limit
        )
