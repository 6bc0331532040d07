"""The clauses of a merge in this process: conditions and new values of target and source columns.

New values are the expressions of :mod:`paimon_orch.steps.row_level.assignments`. Spark computes all
others.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.argument_checks import check_names
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import Field
from paimon_orch.steps.row_level.assignments import (
    Assignments,
    NewValues,
    RowColumns,
    check_columns_exist,
    check_update,
    list_fixed_columns,
    parse_expression,
)
from paimon_orch.steps.row_level.merge_conditions import SPARK_HINT, parse_condition
from paimon_orch.steps.row_level.row_level_plan import check_row_level_supported
from paimon_orch.table.table import Table

TARGET, SOURCE = "target", "source"


class MergeClauses(TypedDict, total=False):
    """The actions of a merge for rows with and without a match; see :meth:`Table.merge`."""

    when_matched_update: Assignments | Literal["*"] | None
    when_matched_delete: str | None
    when_not_matched_insert: Assignments | Literal["*"] | None
    when_not_matched_by_source_update: Assignments | None
    when_not_matched_by_source_delete: str | None


_UPDATES = ("when_matched_update", "when_not_matched_by_source_update")
_DELETES = ("when_matched_delete", "when_not_matched_by_source_delete")
_INSERT = "when_not_matched_insert"


def check_merge(table: Table, clauses: Mapping[str, object]) -> TableSchema:
    """Check the clauses of a merge in this process or on Spark; return the table's schema.

    :raises InputError: for an unknown column, a column that cannot be set, or no clause
    :raises UnsupportedError: if the table's options do not allow the changes
    """
    if all(clause is None for clause in clauses.values()):
        raise InputError("a merge requires an update, delete or insert clause")
    schema = table.stores.get_schema()
    table.stores.check_step(StepKind.WRITE_ROWS, schema)
    check_row_level_supported(schema, name_operation(clauses))
    for name in (*_UPDATES, _INSERT):
        values = clauses.get(name)
        if isinstance(values, Mapping):
            check = check_columns_exist if name == _INSERT else check_update
            check(schema, values)
        elif values is not None and values != "*":
            raise InputError(
                f"{name} must be a mapping of columns to new values, such as "
                f'{{"status": "source.status"}}, or "*" for all columns, not {values!r}'
            )
    return schema


def name_operation(clauses: Mapping[str, object]) -> Literal["merge", "insert", "update"]:
    """Return the name of the operation of a merge, for the check of the table's options."""
    if any(clauses.get(name) is not None for name in _DELETES):
        return "merge"
    return "update" if any(clauses.get(name) is not None for name in _UPDATES) else "insert"


@dataclass(frozen=True, slots=True)
class JoinedColumns(RowColumns):
    """Columns of the table and the source, by the names ``target.COLUMN`` and ``source.COLUMN``."""

    @classmethod
    def of(cls, fields: Mapping[str, Sequence[Field]]) -> "JoinedColumns":
        """Return the columns of one or both sides."""
        named = (
            replace(field, name=f"{side}.{field.name}") for side in fields for field in fields[side]
        )
        return cls(TableSchema.of_columns(named))

    def resolve(self, tree: exp.Expr) -> exp.Expr:
        """Return an expression with the joined names; a column of one side needs no prefix."""
        return tree.copy().transform(self._resolve_column)

    def _resolve_column(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.args.get("db"):
            return node
        side = node.table.lower()
        if side in (TARGET, SOURCE):
            return exp.column(f"{side}.{node.name}", quoted=True)
        if side:
            raise InputError(
                f"{node.sql(dialect='spark')} is not a column: write target.COLUMN or source.COLUMN"
            )
        names = [f"{side}.{node.name}" for side in (TARGET, SOURCE)]
        matching = [name for name in names if name in self.schema.names]
        if len(matching) > 1:
            raise InputError(
                f"column {node.name!r} is in the table and in the source: write {names[0]} or "
                f"{names[1]}"
            )
        return exp.column(matching[0], quoted=True) if matching else node


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """The parsed clauses of a merge; None for those that are not set."""

    keys: Mapping[str, str]
    """The columns of the source by those of the table that must be equal."""
    update: NewValues | None
    delete: pc.Expression | None
    insert: NewValues | None
    update_unmatched: NewValues | None
    delete_unmatched: pc.Expression | None
    kept: Sequence[str] = ()
    """Columns of both that a star cannot set, so that their values must be equal already."""

    @classmethod
    def parse(
        cls,
        schema: TableSchema,
        source: Sequence[Field],
        on: str | Sequence[str],
        clauses: MergeClauses,
    ) -> "MergeRules":
        """Parse the clauses for a table and the columns of a source.

        :raises InputError: for an unknown column, or a condition that only Spark evaluates
        :raises UnsupportedError: for a value that only Spark computes
        """
        both = JoinedColumns.of({TARGET: schema.fields, SOURCE: source})
        of_source = JoinedColumns.of({SOURCE: source})
        of_target = JoinedColumns.of({TARGET: schema.fields})
        fixed = list_fixed_columns(schema)
        updatable = [name for name in schema.names if name not in fixed]

        def parse_values(
            name: str, columns: JoinedColumns, star: Sequence[str] = ()
        ) -> NewValues | None:
            values: Any = clauses.get(name)
            if values == "*":
                values = _expand_star(name, star, source)
            return None if values is None else NewValues.parse(schema, values, columns)

        def parse_delete(name: str, columns: JoinedColumns) -> pc.Expression | None:
            text = clauses.get(name)
            return None if text is None else parse_condition(text, name, columns)

        keys = _parse_keys(schema, both, on)
        given = {field.name for field in source if keys.get(field.name) != field.name}
        return cls(
            keys=keys,
            update=parse_values(_UPDATES[0], both, updatable),
            delete=parse_delete(_DELETES[0], both),
            insert=parse_values(_INSERT, of_source, schema.names),
            update_unmatched=parse_values(_UPDATES[1], of_target),
            delete_unmatched=parse_delete(_DELETES[1], of_target),
            kept=[x for x in fixed if x in given and clauses.get(_UPDATES[0]) == "*"],
        )

    @property
    def changes_matched(self) -> bool:
        """Return whether rows of the table with a match may change."""
        return self.update is not None or self.delete is not None

    @property
    def changes_unmatched(self) -> bool:
        """Return whether rows of the table without a match may change."""
        return self.update_unmatched is not None or self.delete_unmatched is not None

    @property
    def changes_rows(self) -> bool:
        """Return whether rows of the table may change."""
        return self.changes_matched or self.changes_unmatched

    @property
    def updated(self) -> set[str]:
        """Return the columns that get new values in existing rows."""
        values = (self.update, self.update_unmatched)
        return {name for each in values if each is not None for name in each.expressions}


def _expand_star(clause: str, names: Sequence[str], source: Sequence[Field]) -> dict[str, str]:
    given = [field.name for field in source]
    missing = [name for name in names if name not in given]
    if missing:
        raise InputError(
            f'{clause} = "*" needs all columns of the table that can be set, but the source has no '
            f"{', '.join(missing)}; name the columns to set instead, such as "
            '{"status": "source.status"}'
        )
    return {name: exp.column(name, table=SOURCE, quoted=True).sql("spark") for name in names}


def _parse_keys(
    schema: TableSchema, columns: JoinedColumns, on: str | Sequence[str]
) -> dict[str, str]:
    if isinstance(on, str):
        pairs = [_parse_equality(columns, test) for test in _split_conjuncts(on)]
    else:
        check_names("on", on)
        pairs = [(f"{TARGET}.{name}", f"{SOURCE}.{name}") for name in on]
    if not pairs:
        raise InputError(
            'on needs columns to match rows by: ["id"], or a condition such as '
            '"target.id = source.order_id"'
        )
    keys = {}
    for name, source_name in pairs:
        columns.schema.field(source_name)
        kind = to_arrow_type(columns.schema.field(name).type)
        if pa.types.is_nested(kind):
            raise UnsupportedError(
                f"on: column {name!r} is {kind}, and its values cannot be matched. {SPARK_HINT}"
            )
        keys[name.removeprefix(f"{TARGET}.")] = source_name.removeprefix(f"{SOURCE}.")
    if len(keys) < len(pairs):
        raise UnsupportedError(f"on: {on!r} tests a column of the table twice. {SPARK_HINT}")
    check_columns_exist(schema, keys)
    return keys


def can_get_matches(schema: TableSchema, matched: Collection[str]) -> bool:
    """Return whether other commits can add a match of a new row to a bucket that was not read.

    They cannot if the matched columns determine the bucket: the key and the partition. 0.0 and -0.0
    match, although they can be in different buckets.
    """
    exact = {x for x in matched if not pa.types.is_floating(to_arrow_type(schema.field(x).type))}
    return not schema.primary_keys or not schema.identifying_names <= exact


def find_matched_columns(on: object) -> set[str]:
    """Return the columns of the table that a condition for Spark equates with source columns.

    These are those of ``target.COLUMN = source.COLUMN``; others do not matter for
    :func:`can_get_matches`.
    """
    columns = set[str]()
    with suppress(InputError):  # Spark has other expressions
        for node in _split_conjuncts(on) if isinstance(on, str) else ():
            sides = [node.args.get("this"), node.args.get("expression")]
            names = {x.table.lower(): x.name for x in sides if isinstance(x, exp.Column)}
            if isinstance(node, exp.EQ) and names.keys() == {TARGET, SOURCE}:
                columns.add(names[TARGET])
    return columns


def _split_conjuncts(text: str) -> list[exp.Expr]:
    tree = parse_expression(text, "on")
    parts = tree.flatten() if isinstance(tree, exp.And) else [tree]
    return [part.unnest() for part in parts]


def _parse_equality(columns: JoinedColumns, node: exp.Expr) -> tuple[str, str]:
    """Return the columns of the table and of the source that a test compares."""
    if isinstance(node, exp.Column) and not node.table:  # "id" is a column of both
        return f"{TARGET}.{node.name}", f"{SOURCE}.{node.name}"
    tested = columns.resolve(node)
    sides = [tested.args.get("this"), tested.args.get("expression")]
    names = sorted(side.name for side in sides if isinstance(side, exp.Column))
    prefixes = [name.partition(".")[0] for name in names]
    if not isinstance(tested, exp.EQ) or prefixes != [SOURCE, TARGET]:
        raise UnsupportedError(
            f"on: {node.sql(dialect='spark')!r} is not of the form target.COLUMN = source.COLUMN. "
            f"{SPARK_HINT}"
        )
    return names[1], names[0]
