"""Builds the columns of row-level writes as Spark expressions with the table's types."""

from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import (
    AtomicType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    FractionalType,
    IntegralType,
    TimestampNTZType,
    TimestampType,
)

from paimon_orch.errors import InputError
from paimon_orch.files.row_tracking import ROW_ID, row_tracking_fields
from paimon_orch.files.store_assignment import check_store_assignment
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.merge.engine.update_rows import should_merge_updates
from paimon_orch.spark.row_conversion import build_carrier_schema, quote_column, to_spark_schema
from paimon_orch.steps.row_level.task_result import OLD_VALUE_PREFIX

Assignments = Mapping[str, str | Column]
"""New values by column: SQL expressions as text, or Spark columns."""

_KINDS: tuple[tuple[type[DataType], pa.DataType], ...] = (
    (BooleanType, pa.bool_()),
    (IntegralType, pa.int64()),
    (FractionalType, pa.float64()),
    (BinaryType, pa.binary()),
    (DateType, pa.date32()),
    (TimestampNTZType, pa.timestamp("us")),
    (TimestampType, pa.timestamp("us", "UTC")),
    (DayTimeIntervalType, pa.duration("us")),
)
"""A type of Arrow for each kind of values of Spark; texts and nested values are left to casts."""

SOURCE_ALIAS, TARGET_ALIAS = "source", "target"


def to_column(expression: str | Column) -> Column:
    """Return an SQL expression as a column."""
    return fn.expr(expression) if isinstance(expression, str) else expression


def build_current_columns(schema: TableSchema, alias: str | None = None) -> dict[str, Column]:
    """Return the current values of the table, by column."""
    prefix = "" if alias is None else f"{alias}."
    return {name: fn.col(prefix + quote_column(name)) for name in schema.names}


def build_old_value_columns(schema: TableSchema, old: Mapping[str, Column]) -> list[Column]:
    """Return the old values if the table merges changes with them; otherwise, return none."""
    if not should_merge_updates(schema):
        return []
    return [value.alias(f"{OLD_VALUE_PREFIX}{name}") for name, value in old.items()]


def list_row_id_columns(schema: TableSchema) -> list[str]:
    """Return the column of row ids if the table has row tracking; otherwise, return none."""
    return [ROW_ID.name] if row_tracking_fields(schema) else []


def cast_columns(schema: TableSchema, values: Mapping[str, Column]) -> list[Column]:
    """Return the columns of the table, cast to their types."""
    types = to_spark_schema(build_carrier_schema(schema.fields))
    return [values[field.name].cast(field.dataType).alias(field.name) for field in types]


def cast_assignments(schema: TableSchema, assignments: Assignments) -> dict[str, Column]:
    """Cast new values to the types of their columns; a value that cannot be cast is an error.

    Without these casts, Spark would convert decimals and text to doubles in expressions whose
    branches have different types.
    """
    types = {
        field.name: field.dataType for field in to_spark_schema(build_carrier_schema(schema.fields))
    }
    columns = {}
    for name, expression in assignments.items():
        value, target = to_column(expression), types[name]
        columns[name] = value.cast(target)
        if isinstance(target, AtomicType):
            is_misfit = value.isNotNull() & value.try_cast(target).isNull()
            error = fn.raise_error(_build_misfit_message(schema, name, value))
            columns[name] = fn.when(is_misfit, error).otherwise(columns[name])
    return columns


def check_assignments(rows: DataFrame, schema: TableSchema, assignments: Assignments) -> None:
    """Raise :class:`InputError` for an expression whose type a column does not store.

    A cast of Spark would take a timestamp as the number of its seconds, and true as 1.
    """
    carriers = build_carrier_schema(schema.fields)
    values = [to_column(value).alias(name) for name, value in assignments.items()]
    for field in rows.select(*values).schema:
        target = carriers.field(field.name).type
        given = next((kind for types, kind in _KINDS if isinstance(field.dataType, types)), None)
        if given is None or pa.types.is_nested(target):
            continue
        try:
            check_store_assignment(given, target, has_text_form=True)
        except pa.ArrowInvalid as error:
            sql_type = type_to_sql(schema.field(field.name).type.with_nullable(True))
            raise InputError(
                f"column {field.name!r} is {sql_type}, and its new value is "
                f"{field.dataType.simpleString()}: {error}. Nothing was committed"
            ) from error


def _build_misfit_message(schema: TableSchema, name: str, value: Column) -> Column:
    sql_type = type_to_sql(schema.field(name).type.with_nullable(True))
    return fn.concat(
        fn.lit(f"column {name!r}: the value '"),
        value.cast("string"),
        fn.lit(f"' is not a value of its type, {sql_type}"),
    )


def expand_star(
    assignments: Assignments | Literal["*"] | None, names: Sequence[str]
) -> Assignments | None:
    """Replace ``"*"`` with the columns of the source that have these names."""
    if assignments != "*":
        return assignments
    return {name: fn.col(f"{SOURCE_ALIAS}.{quote_column(name)}") for name in names}
