"""The aggregate function of a column, by the table's options (merge-tree facts 3.6)."""

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowType,
    type_to_sql,
)
from paimon_orch.merge.aggregate.collect import (
    PythonFold,
    collect,
    listagg,
    merge_map,
    merge_map_with_keytime,
    uncollect,
    unmerge_map,
)
from paimon_orch.merge.aggregate.field_aggregator import (
    Boolean,
    Extreme,
    FirstNonNullValue,
    FirstValue,
    Fold,
    LastNonNullValue,
    LastValue,
)
from paimon_orch.merge.aggregate.nested_update import NestedAppend, NestedTable
from paimon_orch.merge.aggregate.sketches import bitmap_union, hll_sketch_union, theta_sketch_union
from paimon_orch.merge.aggregate.sum_product import Product, Sum

MakeFold = Callable[[str, pa.Array, int], Fold]
_UNLIMITED = 2**31 - 1


def function_name(schema: TableSchema, column: str) -> str | None:
    """Return the aggregate function that the options name for a column, None for none."""
    options = schema.options
    return options.get(f"fields.{column}.aggregate-function") or options.get(
        "fields.default-aggregate-function"
    )


_ANY: dict[str, MakeFold] = {
    "last_value": LastValue,
    "last_non_null_value": LastNonNullValue,
    "first_value": FirstValue,
    "first_non_null_value": FirstNonNullValue,
    "first_not_null_value": FirstNonNullValue,
}
_NUMERIC: dict[str, MakeFold] = {"sum": Sum, "product": Product}
_COMPARABLE: dict[str, MakeFold] = {
    "max": partial(Extreme, largest=True),
    "min": partial(Extreme, largest=False),
}
_BOOLEAN: dict[str, MakeFold] = {
    "bool_and": partial(Boolean, conjunction=True),
    "bool_or": partial(Boolean, conjunction=False),
}
_SERIALIZED: dict[str, MakeFold] = {
    "rbm32": partial(PythonFold, combine=bitmap_union(32)),
    "rbm64": partial(PythonFold, combine=bitmap_union(64)),
    "theta_sketch": partial(PythonFold, combine=theta_sketch_union()),
    "hll_sketch": partial(PythonFold, combine=hll_sketch_union()),
}
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_SIMPLE = _ANY | _NUMERIC | _COMPARABLE | _BOOLEAN | _SERIALIZED


def make_fold(schema: TableSchema, name: str, function: str) -> MakeFold:
    """Return what makes the fold of a column; refuses unknown functions and types that they do not take."""
    data_type = schema.field(name).type
    if function in _SIMPLE:
        _check_simple(name, function, data_type)
        return _SIMPLE[function]
    if function not in _WITH_OPTIONS:
        known = ", ".join(sorted((*_SIMPLE, *_WITH_OPTIONS)))
        raise InputError(
            f"column {name!r}: {function!r} is no aggregate function; known are {known}"
        )
    return _WITH_OPTIONS[function](schema, name, data_type)


def new_fold(schema: TableSchema, function: str, name: str, column: pa.Array, groups: int) -> Fold:
    """Return the fold of a column for a number of groups, which heeds ``ignore-retract``."""
    fold = make_fold(schema, name, function)(name, column, groups)
    fold.ignores_retract = schema.typed_options.boolean(f"fields.{name}.ignore-retract")
    return fold


def _check_simple(name: str, function: str, data_type: DataType) -> None:
    kind = data_type.name if isinstance(data_type, AtomicType) else ""
    if function in _NUMERIC and kind not in _NUMBERS:
        raise _mismatch(name, function, "a number", data_type)
    if function in _COMPARABLE and not kind:
        raise _mismatch(name, function, "a comparable type", data_type)
    if function in _BOOLEAN and kind != "BOOLEAN":
        raise _mismatch(name, function, "BOOLEAN", data_type)
    if function in _SERIALIZED and kind != "VARBINARY":
        raise _mismatch(name, function, "VARBINARY", data_type)


def _mismatch(name: str, function: str, wanted: str, found: DataType) -> InputError:
    return InputError(
        f"column {name!r}: aggregate function {function!r} takes {wanted}, not {type_to_sql(found)}"
    )


def _listagg(schema: TableSchema, name: str, data_type: DataType) -> MakeFold:
    if data_type.with_nullable(True) != AtomicType(True, "VARCHAR", (MAX_LENGTH,)):
        raise _mismatch(name, "listagg", "STRING", data_type)
    options = schema.typed_options
    delimiter = options.text(f"fields.{name}.list-agg-delimiter", ",")
    distinct = options.boolean(f"fields.{name}.distinct")
    return partial(PythonFold, combine=listagg(delimiter, distinct=distinct))


def _collect(schema: TableSchema, name: str, data_type: DataType) -> MakeFold:
    if not isinstance(data_type, ArrayType):
        raise _mismatch(name, "collect", "an ARRAY", data_type)
    distinct = schema.typed_options.boolean(f"fields.{name}.distinct")
    combine = collect(data_type.element, distinct=distinct)
    return partial(PythonFold, combine=combine, take_back=uncollect, commutes=True)


def _merge_map(_schema: TableSchema, name: str, data_type: DataType) -> MakeFold:
    if not isinstance(data_type, MapType):
        raise _mismatch(name, "merge_map", "a MAP", data_type)
    return partial(PythonFold, combine=merge_map, take_back=unmerge_map)


def _merge_map_with_keytime(schema: TableSchema, name: str, data_type: DataType) -> MakeFold:
    value = data_type.value if isinstance(data_type, MapType) else None
    if not isinstance(value, RowType) or len(value.fields) < 2:
        raise _mismatch(
            name, "merge_map_with_keytime", "a MAP of ROWs of two fields or more", data_type
        )
    names = [field.name for field in value.fields]
    option = f"fields.{name}.ts-field"
    time = schema.options.get(option, names[-1])
    if time not in names:
        raise InputError(
            f"option {option!r} = {time!r} is no field of the rows, which are {', '.join(names)}"
        )
    kind = value.fields[names.index(time)].type
    if not (isinstance(kind, AtomicType) and kind.name in ("CHAR", "VARCHAR")):
        raise InputError(
            f"column {name!r}: 'merge_map_with_keytime' compares field {time!r} as text, which is {type_to_sql(kind)}"
        )
    return partial(PythonFold, combine=merge_map_with_keytime(time))


def _nested_update(schema: TableSchema, name: str, data_type: DataType) -> MakeFold:
    table = _nested(schema, name, data_type, "nested_update")
    if table.key:
        return partial(PythonFold, combine=table.add, take_back=table.take_back)
    if table.sequence or f"fields.{name}.nested-key-null-strategy" in schema.options:
        raise InputError(
            f"column {name!r}: 'nested-sequence-field' and 'nested-key-null-strategy' need "
            f"'fields.{name}.nested-key'"
        )
    rows = NestedAppend(table.limit)
    return partial(PythonFold, combine=rows.add, take_back=rows.take_back)


def _nested_partial_update(schema: TableSchema, name: str, data_type: DataType) -> MakeFold:
    table = _nested(schema, name, data_type, "nested_partial_update")
    if not table.key:
        raise InputError(
            f"column {name!r}: aggregate function 'nested_partial_update' needs 'fields.{name}.nested-key'"
        )
    return partial(PythonFold, combine=table.add_fields)


def _nested(schema: TableSchema, name: str, data_type: DataType, function: str) -> NestedTable:
    element = data_type.element if isinstance(data_type, ArrayType) else None
    if not isinstance(element, RowType):
        raise _mismatch(name, function, "an ARRAY of ROWs", data_type)
    options, types = schema.typed_options, {field.name: field.type for field in element.fields}

    def named(option: str) -> Mapping[str, DataType]:
        names = options.names(f"fields.{name}.{option}")
        if unknown := [field for field in names if field not in types]:
            raise InputError(
                f"option 'fields.{name}.{option}': {', '.join(unknown)} is no field of the column's rows"
            )
        return {field: types[field] for field in names}

    strategy = options.text(f"fields.{name}.nested-key-null-strategy", "merge").lower()
    if strategy not in ("merge", "ignore", "error"):
        raise InputError(
            f"option 'fields.{name}.nested-key-null-strategy' = {strategy!r} must be merge, ignore or error"
        )
    limit = options.integer(f"fields.{name}.count-limit", _UNLIMITED)
    return NestedTable(name, named("nested-key"), strategy, named("nested-sequence-field"), limit)


_WITH_OPTIONS: dict[str, Callable[[TableSchema, str, DataType], MakeFold]] = {
    "listagg": _listagg,
    "collect": _collect,
    "merge_map": _merge_map,
    "merge_map_with_keytime": _merge_map_with_keytime,
    "nested_update": _nested_update,
    "nested_partial_update": _nested_partial_update,
}
