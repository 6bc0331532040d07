"""New values of an update: the columns that can be set, and simple SQL expressions.

Simple expressions are constants, columns, and sums, differences and products of numbers. Spark
computes all others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from paimon_orch.errors import InputError, PaimonError, UnsupportedError
from paimon_orch.files.store_assignment import check_store_assignment
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.literals import to_exact_scalar
from paimon_orch.table.filter.expression import ColumnExpression
from paimon_orch.table.filter.long_lists import check_length, shorten
from paimon_orch.table.filter.sql_parser import build_literal

Assignments = Mapping[str, object]
"""New values by column: SQL expressions as text, columns as ``col("name")``, or other values."""

_OPERATIONS: Mapping[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}


def list_fixed_columns(schema: TableSchema) -> list[str]:
    """Return the columns that determine a row's file and cannot be updated."""
    bucket_keys = [] if schema.is_bucket_unaware else schema.bucket_key_fields
    return list(dict.fromkeys((*schema.identifying_names, *(field.name for field in bucket_keys))))


def check_assignable(schema: TableSchema, names: Iterable[str]) -> None:
    """Raise :class:`InputError` for columns that do not exist or cannot be updated."""
    names = list(names)
    check_columns_exist(schema, names)
    fixed = list_fixed_columns(schema)
    refused = [name for name in names if name in fixed]
    if refused:
        raise InputError(
            f"{', '.join(refused)} cannot be set: columns of the primary key, the partition and "
            f"the bucket key ({', '.join(fixed)}) determine where a row is stored. Delete the row "
            "and write the new one."
        )


def check_columns_exist(schema: TableSchema, names: Iterable[str]) -> None:
    """Raise :class:`InputError` for an unknown column."""
    for name in names:
        schema.field(name)


def check_update(schema: TableSchema, assignments: Mapping[str, object]) -> None:
    """Raise :class:`InputError` if an update cannot set these columns."""
    if not isinstance(assignments, Mapping):
        raise InputError(
            "an update needs a mapping of columns to new values, such as "
            f"{{'status': \"'VOID'\"}}, not {assignments!r}"
        )
    if not assignments:
        raise InputError("an update requires at least one column to set")
    check_assignable(schema, assignments)


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of the rows that expressions are computed from."""

    schema: TableSchema

    def resolve(self, tree: exp.Expr) -> exp.Expr:
        """Return an expression whose columns have the names of the rows' columns."""
        return tree


@dataclass(frozen=True, slots=True)
class NewValues:
    """The new values of rows, computed from the old rows."""

    schema: TableSchema
    expressions: Mapping[str, "exp.Expr | pa.Scalar[Any]"]
    """By column: the tree of an SQL expression, or a constant."""

    @classmethod
    def parse(
        cls, schema: TableSchema, assignments: Assignments, columns: RowColumns | None = None
    ) -> "NewValues":
        """Parse new values; ``columns`` are those of the old rows, by default the table's.

        Raises :class:`UnsupportedError` for an expression that only Spark computes, and
        :class:`InputError` for an unknown column or a value of a wrong type.
        """
        parser = _Parser(schema, columns or RowColumns(schema))
        return cls(schema, {name: parser.parse(name, value) for name, value in assignments.items()})

    def compute(self, rows: pa.Table) -> dict[str, pa.Array]:
        """Return the new values of rows, by column; the writer casts them to the table's types."""
        return {name: self._compute(name, rows) for name in self.expressions}

    def _compute(self, name: str, rows: pa.Table) -> pa.Array:
        tree = self.expressions[name]
        try:
            value = tree if isinstance(tree, pa.Scalar) else self._evaluate(tree, name, rows)
            if isinstance(value, pa.Scalar):
                return pa.repeat(value, rows.num_rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(
                f"column {name!r} = {_write(tree)}: {error}; nothing was changed"
            ) from error
        return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value

    def _evaluate(self, node: exp.Expr, name: str, rows: pa.Table) -> Any:
        match node:
            case exp.Paren():
                return self._evaluate(node.this, name, rows)
            case exp.Column():
                return rows.column(node.name)
        operation = _OPERATIONS.get(type(node))
        if operation is None:
            return build_literal(node, to_arrow_type(self.schema.field(name).type))
        return operation(
            self._evaluate(node.args["this"], name, rows),
            self._evaluate(node.args["expression"], name, rows),
        )


def _write(tree: "exp.Expr | pa.Scalar[Any]") -> str:
    return repr(tree.as_py()) if isinstance(tree, pa.Scalar) else tree.sql(dialect="spark")


def parse_expression(text: str, label: str) -> exp.Expr:
    """Parse an SQL expression; ``label`` names it in an error."""
    check_length(text)
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError) as error:
        raise InputError(
            f"{label}: {shorten(text)!r} is not an SQL expression; write text in single quotes, "
            "such as \"'VOID'\""
        ) from error


@dataclass(frozen=True, slots=True)
class _Parser:
    schema: TableSchema
    columns: RowColumns

    def parse(self, name: str, value: object) -> "exp.Expr | pa.Scalar[Any]":
        if isinstance(value, str):
            tree = self.columns.resolve(parse_expression(value, f"column {name!r}"))
            self._check_simple(name, tree)
            return tree
        target = to_arrow_type(self.schema.field(name).type)
        if isinstance(value, ColumnExpression):
            if value.key is not None or value.variant is not None:
                raise UnsupportedError(_describe_simple(name, f"a part of column {value.name!r}"))
            column = self.columns.resolve(exp.column(value.name))
            self._check_type(
                name, to_arrow_type(self.columns.schema.field(column.name).type), column
            )
            return column
        try:
            if pa.types.is_nested(target):
                return pa.scalar(value, target)
            constant = to_exact_scalar(value)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InputError(f"column {name!r} cannot be set to {value!r}: {error}") from error
        self._check_type(name, constant.type, constant)
        return constant

    def _check_simple(self, name: str, node: exp.Expr) -> None:
        """Raise an error for an expression that is not simple, and for an unknown column."""
        target = to_arrow_type(self.schema.field(name).type)
        if isinstance(node, exp.Column) and not node.args.get("table"):
            try:
                field = self.columns.schema.field(node.name)
            except PaimonError as error:
                raise InputError(
                    f"column {name!r} = {node.sql()}: {error}. Write text in single quotes: "
                    f"\"'{node.name}'\""
                ) from error
            self._check_type(name, to_arrow_type(field.type), node)
            return
        if isinstance(node, exp.Paren):
            self._check_simple(name, node.this)
            return
        if type(node) in _OPERATIONS:
            for part in (node.args["this"], node.args["expression"]):
                self._check_simple(name, part)
                self._check_number(name, part)
            return
        try:
            self._check_type(name, build_literal(node, target).type, node)
        except UnsupportedError as error:
            text = repr(node.sql(dialect="spark"))
            raise UnsupportedError(_describe_simple(name, text)) from error
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ArithmeticError, ValueError) as error:
            raise InputError(
                f"column {name!r} cannot be set to {node.sql(dialect='spark')}: {error}"
            ) from error

    def _check_type(self, name: str, kind: pa.DataType, value: "exp.Expr | pa.Scalar[Any]") -> None:
        """Raise an error for a type that the column does not store, or only after a cast of Spark.

        Spark writes numbers and times in the form of Java, and takes integers for TIME and for
        timestamps with nanoseconds.
        """
        target = to_arrow_type(self.schema.field(name).type)
        if pa.types.is_nested(kind) or pa.types.is_nested(target):
            return
        try:
            check_store_assignment(kind, target)
        except pa.ArrowInvalid as error:
            stands_for_integers = pa.types.is_time(target) or target == pa.timestamp("ns")
            if pa.types.is_string(target) or (pa.types.is_integer(kind) and stands_for_integers):
                found = f"{_write(value)}, which is {kind}, in a column of {target},"
                raise UnsupportedError(_describe_simple(name, found)) from error
            raise InputError(
                f"column {name!r} cannot be set to {_write(value)}: {error}"
            ) from error

    def _check_number(self, name: str, node: exp.Expr) -> None:
        """Raise :class:`UnsupportedError` for a text or a time in arithmetic, as Spark casts it."""
        if isinstance(node, exp.Column):
            kind = to_arrow_type(self.columns.schema.field(node.name).type)
            has_number = is_number(kind)
        else:
            has_number = not isinstance(node, exp.Cast | exp.Boolean) and not (
                isinstance(node, exp.Literal) and node.is_string
            )
        if not has_number:
            raise UnsupportedError(_describe_simple(name, f"arithmetic with {node.sql()}"))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is an integer, a decimal, FLOAT or DOUBLE."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _describe_simple(name: str, found: str) -> str:
    return (
        f"column {name!r}: {found} needs Spark. Without Spark, a new value is a constant, a column, "
        "or a sum, difference or product of numbers; use paimon_orch.spark.update or "
        "'paimon-orch update --executor spark'"
    )
