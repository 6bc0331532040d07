"""Narrows scans to the columns, rows and number of rows that a query engine asks for."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot
from paimon_orch.format.types.predicate import Predicate, collect_columns, conjoin
from paimon_orch.table.filter.bind import bind_filter

if TYPE_CHECKING:
    from paimon_orch.table.scan.scan import Scan

_EQUALLY_COMPARED = frozenset(
    (
        TypeRoot.BOOLEAN,
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.DECIMAL,
        TypeRoot.CHAR,
        TypeRoot.VARCHAR,
        TypeRoot.DATE,
        TypeRoot.TIMESTAMP,
        TypeRoot.TIMESTAMP_LTZ,
    )
)
"""Types whose values all engines compare in the same way; NaN is greater than numbers in some."""


def list_filterable_columns(scan: "Scan") -> dict[str, pa.DataType]:
    """Return the columns of a scan that a pushed test may use; none if the scan has a limit.

    A limit counts the rows before an engine tests them.
    """
    if scan.limit is not None:
        return {}
    schema = scan.arrow_schema
    return {field.name: schema.field(field.name).type for field in _iterate_filterable(scan)}


def _iterate_filterable(scan: "Scan") -> Iterable[Field]:
    computed = {column.field.name for column in scan.variant_columns}
    for field in scan.fields:
        is_equal = isinstance(field.type, AtomicType) and field.type.name in _EQUALLY_COMPARED
        if is_equal and field.name not in computed:
            yield field


def narrow_scan(
    scan: "Scan",
    columns: Sequence[str] | None,
    tests: Iterable[Predicate] = (),
    limit: int | None = None,
) -> "Scan":
    """Return the scan of some columns, without rows that fail a test, and of the first rows.

    Tests of other columns than :func:`list_filterable_columns`, and of values that a column cannot
    hold, have no effect, so the engine must test the rows too. Without columns, it reads one.
    """
    fields = scan.fields
    if columns is not None:
        by_name = {field.name: field for field in scan.fields}
        fields = tuple(by_name[name] for name in columns) or scan.fields[:1]
    names = {field.name for field in fields}
    parts = [] if scan.predicate is None else [scan.predicate]
    filterable = list_filterable_columns(scan)
    readable = replace(scan.schema, fields=(*scan.schema.fields, *row_tracking_fields(scan.schema)))
    for test in tests:
        if collect_columns(test) <= filterable.keys():
            with suppress(InputError):  # the column has no such value
                bound = bind_filter(test, readable)
                parts += [] if bound is None else [bound]
    limits = [number for number in (scan.limit, limit) if number is not None]
    return replace(
        scan,
        fields=fields,
        variant_columns=tuple(x for x in scan.variant_columns if x.field.name in names),
        predicate=conjoin(parts) if len(parts) > 1 else parts[0] if parts else None,
        limit=min(limits, default=None),
    )
