"""What rows of a table are in Spark: the types of columns, and batches in them.

TIME becomes its milliseconds (INT), as not every Spark has the type; of timestamps finer than a microsecond, which no
Spark has, the microseconds stay.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import Field
from paimon_orch.spark.row_conversion import to_spark_schema


def is_exact(kind: pa.DataType) -> bool:
    """Tell whether the values of a column are in Spark what they are in the table."""
    return not (
        pa.types.is_time(kind) or pa.types.is_nested(kind) or getattr(kind, "unit", None) == "ns"
    )


def build_visible_schema(rows: pa.Schema) -> pa.Schema:
    """Return the Arrow types in which Spark gets rows; everything may be null."""
    return pa.schema([(field.name, _to_visible_type(field.type, field.name)) for field in rows])


def build_target_schema(rows: pa.Schema, asked: StructType) -> pa.Schema:
    """Return the types of the columns that are asked for, in that order.

    Raises :class:`InputError` if the caller's schema gives a column another type than the table.
    """
    found = build_visible_schema(rows)
    fields = []
    for wanted, have in zip(
        asked, to_spark_schema(_select_fields(found, asked.names)), strict=True
    ):
        if wanted.dataType != have.dataType:
            raise InputError(
                f"column {have.name!r} is {have.dataType.simpleString()} in the table, the schema asks for "
                f"{wanted.dataType.simpleString()}; cast after reading"
            )
        fields.append(found.field(have.name).with_nullable(wanted.nullable))
    return pa.schema(fields)


def _select_fields(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def convert_batch(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return the columns of ``target`` in its types."""
    columns = [_cast_column(batch.column(field.name), field.type) for field in target]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def cast_timestamps_as_spark(
    batch: pa.RecordBatch, fields: Sequence[Field], zone: str | None
) -> pa.RecordBatch:
    """Return rows to be stored, with moments and times without zone turned into each other as Spark turns them.

    Spark goes by the clocks of the session's zone, Arrow by UTC. A moment comes with the zone, a time without does not:
    ``zone`` is it. Raises :class:`InputError` if it is needed and not known.
    """
    wanted = {field.name: to_arrow_type(field.type) for field in fields}
    columns = [
        _cast_timestamp(column, wanted.get(name), name, zone)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _cast_timestamp(
    column: pa.Array, wanted: pa.DataType | None, name: str, zone: str | None
) -> pa.Array:
    if wanted is None or not pa.types.is_timestamp(wanted):
        return column
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return pc.local_timestamp(column) if wanted.tz is None else column
    if wanted.tz is None or not (
        pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)
    ):
        return column
    if zone is None:
        raise InputError(
            f"column {name!r} is {wanted} in the table and {column.type} in the frame, and the session's zone is not "
            "known here; cast it to timestamp, or set spark.sql.session.timeZone"
        )
    moments = column.cast(pa.timestamp("us"))
    return pc.assume_timezone(moments, zone, ambiguous="earliest", nonexistent="latest")


def _cast_column(column: pa.Array, target: pa.DataType) -> pa.Array:
    if column.type == target:
        return column
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        # a cast rounds to zero: moments before 1970 would move to the next microsecond
        column = pc.floor_temporal(column, unit="microsecond")
    return column.cast(target)


def _to_visible_type(kind: pa.DataType, name: str, *, nested: bool = False) -> pa.DataType:
    if pa.types.is_time(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        if nested and kind.unit == "ns":
            raise UnsupportedError(
                f"column {name!r} holds {kind} inside a nested type, which Spark cannot carry; name the columns to "
                "read without it"
            )
        return pa.timestamp("us", None if kind.tz is None else "UTC")

    def inner(field: pa.Field) -> pa.Field:
        return pa.field(field.name, _to_visible_type(field.type, name, nested=True))

    if pa.types.is_list(kind):
        return pa.list_(inner(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_field).type, inner(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([inner(kind.field(index)) for index in range(kind.num_fields)])
    return kind
