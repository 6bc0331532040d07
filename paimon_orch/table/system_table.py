"""System tables: what a table says of itself, as rows (``db.t$files``)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.files.row_tracking import tracking_fields
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.arrow import fields_of_arrow
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.table import metadata_tables as metadata
from paimon_orch.table.filter.bind import bound_filter
from paimon_orch.table.metadata.time_travel import Moment
from paimon_orch.table.scan.lazy_rows import ROW_KIND, Rows, filtered, limited
from paimon_orch.table.scan.order_by import Ordered, parse_order
from paimon_orch.table.scan.scan import Scan

if TYPE_CHECKING:
    from paimon_orch.table.table import Table

Maker = Callable[["Table", Snapshot | None], pa.Table]
_METADATA: Mapping[str, tuple[pa.Schema, Maker]] = {
    "snapshots": (metadata.SNAPSHOTS, metadata.snapshots),
    "schemas": (metadata.SCHEMAS, metadata.schemas),
    "options": (metadata.OPTIONS, metadata.options),
    "tags": (metadata.TAGS, metadata.tags),
    "manifests": (metadata.MANIFESTS, metadata.manifests),
    "files": (metadata.FILES, metadata.files),
    "partitions": (metadata.PARTITIONS, metadata.partitions),
    "buckets": (metadata.BUCKETS, metadata.buckets),
    "statistics": (metadata.STATISTICS, metadata.statistics),
}
_DATA = ("ro", "audit_log", "row_tracking")
_MERGED = ("audit_log", "row_tracking")
NAMES = (*_METADATA, *_DATA)


@dataclass(frozen=True, slots=True)
class SystemTable:
    """One system table of a table; made by :meth:`Table.system`. It is read only.

    ``ro`` are the rows that the last full compaction left, read without merging; ``audit_log`` are the rows behind a
    column ``rowkind``, with the last change of keys that are deleted; ``row_tracking`` are the rows with their ids and
    sequence numbers. The others describe the table.
    """

    table: "Table"
    name: str

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise NotFoundError(
                f"{self.table.identifier} has no system table {self.name!r}; there are {', '.join(NAMES)}"
            )

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
    ) -> Rows:
        """Describe a read, as :meth:`Table.scan` does; ``order_by`` names columns that are read."""
        if merge_level_0 is not None and self.name not in _MERGED:
            raise InputError(
                f"{self.table.identifier}${self.name} has no level 0 to merge; read the table, or its {_MERGED[0]}"
            )
        moment = Moment(snapshot_id, tag, timestamp, watermark)
        rows = self._rows(columns, filter, limit if order_by is None else None, moment)
        if isinstance(rows, Scan) and merge_level_0 is not None:
            rows = replace(rows, merge_level_0=merge_level_0)
        if order_by is None:
            return rows
        schema = TableSchema(0, tuple(fields_of_arrow(rows.arrow_schema)), 0, (), (), {})
        return Ordered(rows, parse_order(order_by, schema), limit)

    def _rows(
        self,
        columns: list[str] | None,
        filter: str | Predicate | None,
        limit: int | None,
        moment: Moment,
    ) -> Rows:
        if self.name in _DATA:
            return self._data(columns, filter, limit, moment)
        form, make = _METADATA[self.name]
        schema = TableSchema(0, tuple(fields_of_arrow(form)), 0, (), (), {})
        names = schema.names if columns is None else [f.name for f in schema.select(columns)]
        target = pa.schema([form.field(name) for name in names])
        predicate = bound_filter(filter, schema)
        return _Metadata(self.table, make, moment, target, predicate, limit)

    def _data(
        self,
        columns: list[str] | None,
        condition: str | Predicate | None,
        limit: int | None,
        moment: Moment,
    ) -> Rows:
        at = {name: getattr(moment, name) for name in moment.__slots__}
        if self.name == "ro":
            scan = self.table.scan(columns, condition, limit=limit, **at)
            top = scan.schema.typed_options.num_levels - 1
            levels = range(top, scan.levels.stop) if scan.schema.primary_keys else scan.levels
            return replace(scan, levels=levels)
        if self.name == "row_tracking":
            scan = self.table.scan(columns, condition, limit=limit, **at)
            tracking = tracking_fields(scan.schema)
            if not tracking:
                raise InputError(
                    f"{self.table.identifier} keeps no row ids: 'row-tracking.enabled'"
                )
            return scan if columns else replace(scan, fields=(*scan.fields, *tracking))
        scan = self.table.scan(limit=limit, **at)
        seen = replace(scan.schema, fields=(ROW_KIND, *scan.schema.fields))
        fields = seen.fields if columns is None else tuple(seen.select(columns))
        return replace(scan, fields=fields, predicate=bound_filter(condition, seen), audit=True)


@dataclass(frozen=True, slots=True)
class _Metadata(Rows):
    """Rows that describe a table, made when they are asked for."""

    table: "Table"
    make: Maker
    moment: Moment
    target: pa.Schema
    predicate: Predicate | None
    limit: int | None

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return self.target

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        made = self.make(self.table, self.moment.find(self.table.snapshots))
        return limited(filtered(made.to_batches(), self.predicate, self.target), self.limit)
