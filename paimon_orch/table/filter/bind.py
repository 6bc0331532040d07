"""Binds filters to the columns of a table."""

from dataclasses import replace

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, Field, MapType, TypeRoot
from paimon_orch.format.types.predicate import And, Leaf, Not, Or, Predicate, bind_predicate


def bind_filter(condition: str | Predicate | None, schema: TableSchema) -> Predicate | None:
    """Return a text or predicate filter as a predicate with values of the columns' types."""
    if condition is None:
        return None
    if isinstance(condition, str):
        from paimon_orch.table.filter.sql_parser import parse_filter  # sqlglot is slow to import

        condition = parse_filter(condition, schema)
    elif not isinstance(condition, Leaf | And | Or | Not):
        raise InputError(f"a filter is a text or built with col(...), not {condition!r}")
    return bind_predicate(
        condition,
        lambda leaf: to_arrow_type(resolve_filter_field(schema, leaf.column, leaf.key).type),
    )


def resolve_filter_field(schema: TableSchema, name: str, key: str | None) -> Field:
    """Return a column to test; with a ``key`` the value of a map as if it were a column."""
    field = schema.field(name)
    data_type = field.type
    if key is not None:
        match data_type:
            case MapType(key=AtomicType(name=TypeRoot.CHAR | TypeRoot.VARCHAR), value=value):
                data_type, name = value, f"{name}[{key}]"
            case _:
                raise InputError(f"filter on {name}[{key!r}]: {name!r} is not a map with text keys")
    if not isinstance(data_type, AtomicType):
        raise InputError(f"filter: column {name!r} is nested; filters take simple columns")
    return replace(field, name=name, type=data_type)
