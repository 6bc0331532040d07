"""Converts rows of a table to Spark rows and back without loss.

Spark has no TIME before 4.1, and no timestamps with a precision above microseconds. So TIME becomes
milliseconds of the day (INT), and such timestamps become nanoseconds since 1970 (BIGINT).
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import Field
from paimon_orch.spark.shuffle import PrepareRows
from paimon_orch.steps.row_level.task_result import OLD_VALUE_PREFIX


def build_carrier_schema(fields: Sequence[Field]) -> pa.Schema:
    """Return the Arrow types for columns in Spark; refuses nested types that would lose values."""
    return pa.schema([(field.name, _to_carrier_type(field)) for field in fields])


def to_spark_schema(carriers: pa.Schema) -> StructType:
    """Convert Arrow types to Spark types."""
    return from_arrow_schema(carriers, prefer_timestamp_ntz=True)


def quote_column(name: str) -> str:
    """Return the name of a column in backquotes."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def cast_timestamps(frame: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Cast timestamps to types with or without time zone, as the columns of the table; nested too.

    Spark casts with the time zone of the session; Arrow would use UTC.
    """
    types = {field.name: to_arrow_type(field.type) for field in fields}
    casts = {}
    for column in frame.schema:
        target = _find_cast(column.dataType, types.get(column.name, pa.null()))
        if target != column.dataType:
            casts[column.name] = fn.col(quote_column(column.name)).cast(target)
    return frame.withColumns(casts) if casts else frame


def _find_cast(source: DataType, target: pa.DataType) -> DataType:
    """Return a type of Spark with the timestamps of the target, or ``source`` without any."""
    if pa.types.is_timestamp(target):
        if target.tz is None:
            return TimestampNTZType() if isinstance(source, TimestampType) else source
        has_no_zone = isinstance(source, (TimestampNTZType, DateType))
        return TimestampType() if has_no_zone else source
    if isinstance(source, ArrayType) and pa.types.is_list(target):
        items = _find_cast(source.elementType, target.value_type)
        return ArrayType(items, source.containsNull)
    if isinstance(source, MapType) and pa.types.is_map(target):
        key, value = source.keyType, source.valueType
        cast = _find_cast(key, target.key_type), _find_cast(value, target.item_type)
        return MapType(*cast, source.valueContainsNull)
    if isinstance(source, StructType) and pa.types.is_struct(target):
        types = {field.name: field.type for field in target}
        return StructType(
            [
                StructField(
                    each.name,
                    _find_cast(each.dataType, types.get(each.name, pa.null())),
                    each.nullable,
                )
                for each in source
            ]
        )
    return source


def to_carrier_batches(rows: pa.Table, carriers: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows with the types of :func:`build_carrier_schema`."""
    columns = []
    for column, field in zip(rows.columns, carriers, strict=True):
        array = column.combine_chunks()
        columns.append(array if array.type == field.type else array.cast(field.type))
    yield from pa.table(columns, schema=carriers).combine_chunks().to_batches()


def from_carriers(prepare: PrepareRows, fields: Sequence[Field]) -> PrepareRows:
    """Return a function that first converts integers back to TIME and to nanoseconds.

    ``prepare`` gets the columns of the table, and the old values of row-level writes.
    """
    targets = {}
    for field in fields:
        target = to_arrow_type(field.type)
        if _find_integer_carrier(target) is not None:
            targets[field.name] = targets[OLD_VALUE_PREFIX + field.name] = target

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        for index, column in enumerate(batch.schema):
            target = targets.get(column.name)
            if target is not None and column.type == _find_integer_carrier(target):
                values = batch.column(index).view(target)
                batch = batch.set_column(index, column.name, values)
        return batch

    def prepare_converted(batches: Iterable[pa.RecordBatch], first_row: int) -> Iterator[pa.Table]:
        return prepare(map(convert, batches), first_row)

    return prepare_converted if targets else prepare


def _find_integer_carrier(target: pa.DataType) -> pa.DataType | None:
    """Return the integers that stand for values of a type in Spark, if there are any."""
    if pa.types.is_time32(target):
        return pa.int32()
    is_long = isinstance(target, pa.TimestampType) and target.unit == "ns"
    return pa.int64() if is_long else None


def _to_carrier_type(field: Field) -> pa.DataType:
    target = to_arrow_type(field.type)
    if (integers := _find_integer_carrier(target)) is not None:
        return integers
    if isinstance(target, pa.TimestampType):
        return pa.timestamp("us", target.tz)
    if pa.types.is_nested(target) and (unfit := _find_lossy_types(target)):
        raise UnsupportedError(
            f"column {field.name!r} has {', '.join(sorted(unfit))} inside a nested type, which "
            "Spark cannot represent without loss"
        )
    if isinstance(target, pa.FixedSizeListType):
        return pa.list_(target.value_field)
    return target


def _find_lossy_types(target: pa.DataType) -> set[str]:
    """Return the types inside a nested type that Spark lacks."""
    if pa.types.is_nested(target):
        children = (target.field(index).type for index in range(target.num_fields))
        return set().union(*map(_find_lossy_types, children))
    is_exact = isinstance(target, pa.TimestampType) and target.unit == "us"
    temporal = pa.types.is_time(target) or pa.types.is_timestamp(target)
    return {str(target)} if temporal and not is_exact else set()
