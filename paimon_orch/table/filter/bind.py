"""Binds filters to the columns of a table."""

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.predicate import And, Leaf, Not, Or, Predicate, bind_predicate
from paimon_orch.table.filter.filter_fields import resolve_filter_field


def bind_filter(condition: str | Predicate | None, schema: TableSchema) -> Predicate | None:
    """Parse a filter if it is text, and convert its values to the types of the columns."""
    if condition is None:
        return None
    if isinstance(condition, str):
        from paimon_orch.table.filter.sql_parser import parse_filter  # sqlglot is slow to import

        condition = parse_filter(condition, schema)
    elif not isinstance(condition, Leaf | And | Or | Not):
        raise InputError(
            f"a filter must be SQL text or an expression of col(...), not {condition!r}"
        )
    return bind_predicate(
        condition,
        lambda leaf: to_arrow_type(
            resolve_filter_field(schema, leaf.column, key=leaf.key, variant=leaf.variant).type
        ),
    )
