"""Finds the aggregate function of a column in the table's options.

See docs/format/aggregate-functions.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.options.core_options import (
    FIELD_AGGREGATE_FUNCTION,
    FIELD_COUNT_LIMIT,
    FIELD_DISTINCT,
    FIELD_IGNORE_RETRACT,
    FIELD_LIST_AGG_DELIMITER,
    FIELD_NESTED_KEY,
    FIELD_NESTED_KEY_NULL_STRATEGY,
    FIELD_NESTED_SEQUENCE_FIELD,
    FIELD_TS_FIELD,
    FIELDS_DEFAULT_AGGREGATE_FUNCTION,
)
from paimon_orch.format.options.table_option import TableOption
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.text import encode_text
from paimon_orch.format.types.data_types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowType,
    TypeRoot,
    type_to_sql,
)
from paimon_orch.merge.aggregate.bool_and_or import BooleanAggregator
from paimon_orch.merge.aggregate.collect import collect, retract_collect
from paimon_orch.merge.aggregate.field_aggregator import ColumnOfGroups, FieldAggregator
from paimon_orch.merge.aggregate.listagg import listagg
from paimon_orch.merge.aggregate.merge_map import merge_map, merge_map_with_keytime, retract_map
from paimon_orch.merge.aggregate.nested_update import NestedAppend, NestedTable
from paimon_orch.merge.aggregate.python_aggregator import ElementAggregator, PythonAggregator
from paimon_orch.merge.aggregate.selected_value import (
    FirstNonNullValue,
    FirstValue,
    LastNonNullValue,
    LastValue,
    MinMaxAggregator,
)
from paimon_orch.merge.aggregate.sketches import bitmap_union, hll_sketch_union, theta_sketch_union
from paimon_orch.merge.aggregate.sum_product import Product, Sum
from paimon_orch.optional_packages import require_package

AggregatorFactory = Callable[[str, ColumnOfGroups, int], FieldAggregator]
_UNLIMITED = 2**31 - 1
_MAX_DELIMITER_BYTES = 1_024


def find_aggregate_function(schema: TableSchema, column: str) -> str | None:
    """Return the aggregate function that the options set for a column, or None."""
    options = schema.typed_options
    return options.get(FIELD_AGGREGATE_FUNCTION.named(column)) or options.get(
        FIELDS_DEFAULT_AGGREGATE_FUNCTION
    )


_ANY_TYPE_FUNCTIONS: dict[str, AggregatorFactory] = {
    "last_value": LastValue,
    "last_non_null_value": LastNonNullValue,
    "first_value": FirstValue,
    "first_non_null_value": FirstNonNullValue,
    "first_not_null_value": FirstNonNullValue,
}
_NUMERIC_FUNCTIONS: dict[str, AggregatorFactory] = {"sum": Sum, "product": Product}
_COMPARABLE_FUNCTIONS: dict[str, AggregatorFactory] = {
    "max": partial(MinMaxAggregator, largest=True),
    "min": partial(MinMaxAggregator, largest=False),
}
_BOOLEAN_FUNCTIONS: dict[str, AggregatorFactory] = {
    "bool_and": partial(BooleanAggregator, conjunction=True),
    "bool_or": partial(BooleanAggregator, conjunction=False),
}
_SERIALIZED_FUNCTIONS: dict[str, AggregatorFactory] = {
    "rbm32": partial(PythonAggregator, combine=bitmap_union(32)),
    "rbm64": partial(PythonAggregator, combine=bitmap_union(64)),
    "theta_sketch": partial(PythonAggregator, combine=theta_sketch_union()),
    "hll_sketch": partial(PythonAggregator, combine=hll_sketch_union()),
}
_SKETCH_FUNCTIONS = ("theta_sketch", "hll_sketch")
_NUMERIC_TYPES = (
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INT,
    TypeRoot.BIGINT,
    TypeRoot.FLOAT,
    TypeRoot.DOUBLE,
    TypeRoot.DECIMAL,
)
_SIMPLE_FUNCTIONS = (
    _ANY_TYPE_FUNCTIONS
    | _NUMERIC_FUNCTIONS
    | _COMPARABLE_FUNCTIONS
    | _BOOLEAN_FUNCTIONS
    | _SERIALIZED_FUNCTIONS
)


def find_aggregator_factory(schema: TableSchema, name: str, function: str) -> AggregatorFactory:
    """Return the aggregator factory of a column; refuse unknown functions and unsupported types."""
    data_type = schema.field(name).type
    if function in _SIMPLE_FUNCTIONS:
        _check_type(name, function, data_type)
        if function in _SKETCH_FUNCTIONS:
            purpose = f"the aggregate function {function!r} of column {name!r}"
            require_package("datasketches", purpose, install="paimon-orch[sketches]")
        return _SIMPLE_FUNCTIONS[function]
    if function not in _CONFIGURABLE_FUNCTIONS:
        functions = ", ".join(sorted((*_SIMPLE_FUNCTIONS, *_CONFIGURABLE_FUNCTIONS)))
        raise InputError(
            f"column {name!r}: {function!r} is not an aggregate function; the functions are "
            f"{functions}"
        )
    return _CONFIGURABLE_FUNCTIONS[function](schema, name, data_type)


@dataclass(frozen=True, slots=True)
class ColumnAggregation:
    """How a column is aggregated, by the options of the table."""

    name: str
    factory: AggregatorFactory
    ignores_retract: bool

    @classmethod
    def of(cls, schema: TableSchema, name: str, function: str) -> "ColumnAggregation":
        """Return the aggregation of a column by a function."""
        ignores_retract = schema.typed_options.get(FIELD_IGNORE_RETRACT.named(name))
        return cls(name, find_aggregator_factory(schema, name, function), ignores_retract)

    def create(self, column: ColumnOfGroups, groups: int) -> FieldAggregator:
        """Return the aggregator of ``groups`` groups."""
        aggregator = self.factory(self.name, column, groups)
        aggregator.ignores_retract = self.ignores_retract
        return aggregator


def _check_type(name: str, function: str, data_type: DataType) -> None:
    kind = data_type.name if isinstance(data_type, AtomicType) else ""
    if function in _NUMERIC_FUNCTIONS and kind not in _NUMERIC_TYPES:
        raise _type_mismatch_error(name, function, "a number", data_type)
    if function in _COMPARABLE_FUNCTIONS and not kind:
        raise _type_mismatch_error(name, function, "a comparable type", data_type)
    if function in _BOOLEAN_FUNCTIONS and kind != TypeRoot.BOOLEAN:
        raise _type_mismatch_error(name, function, TypeRoot.BOOLEAN, data_type)
    if function in _SERIALIZED_FUNCTIONS and kind != TypeRoot.VARBINARY:
        raise _type_mismatch_error(name, function, TypeRoot.VARBINARY, data_type)


def _type_mismatch_error(name: str, function: str, expected: str, actual: DataType) -> InputError:
    return InputError(
        f"column {name!r}: aggregate function {function!r} takes {expected}, not "
        f"{type_to_sql(actual)}"
    )


def _listagg_factory(schema: TableSchema, name: str, data_type: DataType) -> AggregatorFactory:
    if data_type.with_nullable(True) != AtomicType(True, TypeRoot.VARCHAR, (MAX_LENGTH,)):
        raise _type_mismatch_error(name, "listagg", "STRING", data_type)
    options = schema.typed_options
    option = FIELD_LIST_AGG_DELIMITER.named(name)
    delimiter = encode_text(options.get(option))
    if len(delimiter) > _MAX_DELIMITER_BYTES:  # a merge stores it for each row
        raise UnsupportedError(
            f"{option.key!r} has {len(delimiter)} bytes; delimiters of more than "
            f"{_MAX_DELIMITER_BYTES} bytes are not supported"
        )
    distinct = options.get(FIELD_DISTINCT.named(name))
    return partial(PythonAggregator, combine=listagg(delimiter, distinct=distinct))


def _collect_factory(schema: TableSchema, name: str, data_type: DataType) -> AggregatorFactory:
    if not isinstance(data_type, ArrayType):
        raise _type_mismatch_error(name, "collect", "an ARRAY", data_type)
    distinct = schema.typed_options.get(FIELD_DISTINCT.named(name))
    combine = collect(data_type.element, distinct=distinct)
    return partial(ElementAggregator, combine=combine, take_back=retract_collect, commutes=True)


def _merge_map_factory(_schema: TableSchema, name: str, data_type: DataType) -> AggregatorFactory:
    if not isinstance(data_type, MapType):
        raise _type_mismatch_error(name, "merge_map", "a MAP", data_type)
    return partial(ElementAggregator, combine=merge_map, take_back=retract_map)


def _merge_map_with_keytime_factory(
    schema: TableSchema, name: str, data_type: DataType
) -> AggregatorFactory:
    value = data_type.value if isinstance(data_type, MapType) else None
    if not isinstance(value, RowType) or len(value.fields) < 2:
        raise _type_mismatch_error(
            name, "merge_map_with_keytime", "a MAP of ROWs of two fields or more", data_type
        )
    time = _parse_time_field(schema, name, value)
    kind = next(field.type for field in value.fields if field.name == time)
    if not (isinstance(kind, AtomicType) and kind.name in (TypeRoot.CHAR, TypeRoot.VARCHAR)):
        raise InputError(
            f"column {name!r}: 'merge_map_with_keytime' compares field {time!r} as text, but its "
            f"type is {type_to_sql(kind)}"
        )
    return partial(ElementAggregator, combine=merge_map_with_keytime(time))


def _parse_time_field(schema: TableSchema, name: str, row_type: RowType) -> str:
    names = [field.name for field in row_type.fields]
    option = FIELD_TS_FIELD.named(name)
    time = schema.typed_options.get(option, names[-1])
    if time not in names:
        raise InputError(
            f"option {option.key!r} = {time!r} is not a field of the rows; the fields are "
            f"{', '.join(names)}"
        )
    return time


def _nested_update_factory(
    schema: TableSchema, name: str, data_type: DataType
) -> AggregatorFactory:
    table = _parse_nested_table(schema, name, data_type, "nested_update")
    if table.key:
        return partial(PythonAggregator, combine=table.add, take_back=table.take_back)
    if table.sequence or schema.typed_options.has(FIELD_NESTED_KEY_NULL_STRATEGY.named(name)):
        raise InputError(
            f"column {name!r}: 'nested-sequence-field' and 'nested-key-null-strategy' need "
            f"'fields.{name}.nested-key'"
        )
    rows = NestedAppend(table.limit)
    return partial(ElementAggregator, combine=rows.add, take_back=rows.take_back)


def _nested_partial_update_factory(
    schema: TableSchema, name: str, data_type: DataType
) -> AggregatorFactory:
    table = _parse_nested_table(schema, name, data_type, "nested_partial_update")
    if not table.key:
        raise InputError(
            f"column {name!r}: aggregate function 'nested_partial_update' needs "
            f"'fields.{name}.nested-key'"
        )
    return partial(PythonAggregator, combine=table.update_fields)


def _parse_nested_table(
    schema: TableSchema, name: str, data_type: DataType, function: str
) -> NestedTable:
    element = data_type.element if isinstance(data_type, ArrayType) else None
    if not isinstance(element, RowType):
        raise _type_mismatch_error(name, function, "an ARRAY of ROWs", data_type)
    options, types = schema.typed_options, {field.name: field.type for field in element.fields}

    def select_fields(option: TableOption[tuple[str, ...]]) -> Mapping[str, DataType]:
        names = options.get(option)
        if unknown := [field for field in names if field not in types]:
            raise InputError(
                f"option {option.key!r}: {', '.join(unknown)} is not a field of the column's rows"
            )
        return {field: types[field] for field in names}

    sequence = select_fields(FIELD_NESTED_SEQUENCE_FIELD.named(name))
    for field, kind in sequence.items():
        if not isinstance(kind, AtomicType):
            raise InputError(
                f"option 'fields.{name}.nested-sequence-field': rows cannot be ordered by "
                f"{field!r}, whose type is {type_to_sql(kind)}; use a field of a simple type"
            )
    strategy = options.get(FIELD_NESTED_KEY_NULL_STRATEGY.named(name))
    if strategy not in ("merge", "ignore", "error"):
        raise InputError(
            f"option 'fields.{name}.nested-key-null-strategy' = {strategy!r} must be merge, ignore "
            "or error"
        )
    limit = options.get(FIELD_COUNT_LIMIT.named(name), _UNLIMITED)
    return NestedTable(
        column=name,
        key=select_fields(FIELD_NESTED_KEY.named(name)),
        null_key_strategy=strategy,
        sequence=sequence,
        limit=limit,
    )


_CONFIGURABLE_FUNCTIONS: dict[str, Callable[[TableSchema, str, DataType], AggregatorFactory]] = {
    "listagg": _listagg_factory,
    "collect": _collect_factory,
    "merge_map": _merge_map_factory,
    "merge_map_with_keytime": _merge_map_with_keytime_factory,
    "nested_update": _nested_update_factory,
    "nested_partial_update": _nested_partial_update_factory,
}
