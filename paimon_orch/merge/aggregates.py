"""The aggregate function of a column, by the table's options (merge-tree facts 3.6)."""

from collections.abc import Callable
from functools import partial

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types import ArrayType, DataType, RowType
from paimon_orch.merge.arithmetic import Product, Sum
from paimon_orch.merge.collections import (
    Combine,
    PythonFold,
    bitmap_union,
    collect,
    listagg,
    merge_map,
    nested_append,
    nested_update,
    uncollect,
    unmerge_map,
)
from paimon_orch.merge.fold import (
    Boolean,
    Extreme,
    FirstNonNullValue,
    FirstValue,
    Fold,
    LastNonNullValue,
    LastValue,
)

MakeFold = Callable[[str, pa.Array, int], Fold]
_UNLIMITED = 2**31 - 1


def function_name(schema: TableSchema, column: str) -> str | None:
    """Return the aggregate function that the options name for a column, None for none."""
    options = schema.options
    return options.get(f"fields.{column}.aggregate-function") or options.get(
        "fields.default-aggregate-function"
    )


def ignores_retract(schema: TableSchema, column: str) -> bool:
    """Tell whether retracts are left out of a column's aggregation."""
    return schema.typed_options.boolean(f"fields.{column}.ignore-retract")


_SIMPLE: dict[str, MakeFold] = {
    "sum": Sum,
    "product": Product,
    "max": partial(Extreme, largest=True),
    "min": partial(Extreme, largest=False),
    "last_value": LastValue,
    "last_non_null_value": LastNonNullValue,
    "first_value": FirstValue,
    "first_non_null_value": FirstNonNullValue,
    "first_not_null_value": FirstNonNullValue,
    "bool_and": partial(Boolean, conjunction=True),
    "bool_or": partial(Boolean, conjunction=False),
    "merge_map": partial(PythonFold, combine=merge_map, take_back=unmerge_map),
    "rbm32": partial(PythonFold, combine=bitmap_union(BitMap)),
    "rbm64": partial(PythonFold, combine=bitmap_union(BitMap64)),
}
_WITH_OPTIONS = ("listagg", "collect", "nested_update")
_NOT_YET = ("hll_sketch", "theta_sketch", "merge_map_with_keytime", "nested_partial_update")


def make_fold(schema: TableSchema, name: str, function: str) -> MakeFold:
    """Return what makes the fold of a column; functions that are not implemented are refused by name."""
    if function in _SIMPLE:
        return _SIMPLE[function]
    options, data_type = schema.typed_options, schema.field(name).type
    distinct = options.boolean(f"fields.{name}.distinct")
    if function == "listagg":
        delimiter = options.text(f"fields.{name}.list-agg-delimiter", ",")
        return partial(PythonFold, combine=listagg(delimiter, distinct=distinct))
    if function in ("collect", "nested_update") and not isinstance(data_type, ArrayType):
        raise InputError(f"column {name!r}: aggregate function {function!r} takes an ARRAY")
    if function == "collect":
        assert isinstance(data_type, ArrayType)
        combine = collect(data_type.element, distinct=distinct)
        return partial(PythonFold, combine=combine, take_back=uncollect, commutes=True)
    if function == "nested_update":
        assert isinstance(data_type, ArrayType)
        combine, take_back = _nested(schema, name, data_type.element)
        return partial(PythonFold, combine=combine, take_back=take_back)
    if function in _NOT_YET:
        raise UnsupportedError(
            f"column {name!r}: aggregate function {function!r} is not supported yet"
        )
    known = ", ".join(sorted((*_SIMPLE, *_WITH_OPTIONS)))
    raise InputError(f"column {name!r}: {function!r} is no aggregate function; known are {known}")


def _nested(schema: TableSchema, name: str, element: DataType) -> tuple[Combine, Combine]:
    options = schema.typed_options
    keys = options.names(f"fields.{name}.nested-key")
    limit = options.integer(f"fields.{name}.count-limit", _UNLIMITED)
    if not keys:
        return nested_append(limit)
    types = {f.name: f.type for f in element.fields} if isinstance(element, RowType) else {}
    if unknown := [key for key in keys if key not in types]:
        raise InputError(
            f"column {name!r}: nested-key {', '.join(unknown)} is no field of its rows"
        )
    return nested_update(keys, [types[key] for key in keys], limit)
