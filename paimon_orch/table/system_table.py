"""System tables (``db.t$files``): finds them by name and scans them.

:mod:`paimon_orch.table.metadata_tables` builds the rows of the metadata tables; ``ro``,
``audit_log`` and ``row_tracking`` are views of the rows of the table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.arrow import to_paimon_fields
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.table import metadata_tables
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.scan.base_scan import ROW_KIND, BaseScan, filter_batches, limit_batches
from paimon_orch.table.scan.order_by import SortedScan, parse_order
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
}
_DATA_TABLES = ("ro", "audit_log", "row_tracking")
_MERGED_TABLES = ("audit_log", "row_tracking")
SYSTEM_TABLE_NAMES = (*_METADATA_TABLES, *_DATA_TABLES)


@dataclass(frozen=True, slots=True)
class SystemTable:
    """One read-only system table of a table, from :meth:`Table.system`.

    ``ro`` has the rows of the last full compaction, read without a merge. ``audit_log`` has the
    rows with a first column ``rowkind``, including the last change of deleted keys.
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
        timestamp: int | None = None,
        watermark: int | None = None,
        merge_level_0: bool | None = None,
    ) -> BaseScan:
        """Describe a read as :meth:`Table.scan` does; ``columns`` must include ``order_by``."""
        if merge_level_0 is not None and self.name not in _MERGED_TABLES:
            raise InputError(
                f"{self.table.identifier}${self.name} has no level 0 to merge; read the table, or "
                f"its {_MERGED_TABLES[0]}"
            )
        selector = SnapshotSelector(snapshot_id, tag, timestamp, watermark)
        rows = self._build_scan(columns, filter, limit if order_by is None else None, selector)
        if isinstance(rows, Scan) and merge_level_0 is not None:
            rows = replace(rows, merge_level_0=merge_level_0)
        if order_by is None:
            return rows
        schema = TableSchema(
            id=0,
            fields=tuple(to_paimon_fields(rows.arrow_schema)),
            highest_field_id=0,
            partition_keys=(),
            primary_keys=(),
            options={},
        )
        return SortedScan(rows, parse_order(order_by, schema), limit)

    def _build_scan(
        self,
        columns: list[str] | None,
        filter: str | Predicate | None,
        limit: int | None,
        selector: SnapshotSelector,
    ) -> BaseScan:
        if self.name in _DATA_TABLES:
            return self._build_data_scan(columns, filter, limit, selector)
        form, make = _METADATA_TABLES[self.name]
        schema = TableSchema(
            id=0,
            fields=tuple(to_paimon_fields(form)),
            highest_field_id=0,
            partition_keys=(),
            primary_keys=(),
            options={},
        )
        names = schema.names if columns is None else [f.name for f in schema.select(columns)]
        target = pa.schema([form.field(name) for name in names])
        predicate = bind_filter(filter, schema)
        return _MetadataScan(
            table=self.table,
            build=make,
            selector=selector,
            target=target,
            predicate=predicate,
            limit=limit,
        )

    def _build_data_scan(
        self,
        columns: list[str] | None,
        condition: str | Predicate | None,
        limit: int | None,
        selector: SnapshotSelector,
    ) -> BaseScan:
        time_travel = {name: getattr(selector, name) for name in selector.__slots__}
        if self.name == "ro":
            scan = self.table.scan(columns, condition, limit=limit, **time_travel)
            top = scan.schema.typed_options.num_levels - 1
            levels = range(top, scan.levels.stop) if scan.schema.primary_keys else scan.levels
            return replace(scan, levels=levels)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _MetadataScan(BaseScan):
    """A scan of metadata; builds the rows when they are read."""

    table: "Table"
    build: MetadataTableBuilder
    selector: SnapshotSelector
    target: pa.Schema
    predicate: Predicate | None
    limit: int | None

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return self.target

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        rows = self.build(self.table, self.selector.find(self.table.stores.snapshots))
        return limit_batches(
            filter_batches(rows.to_batches(), self.predicate, self.target), self.limit
        )
