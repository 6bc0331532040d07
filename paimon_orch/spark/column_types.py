"""Converts batches between the table's types and the types of the data source.

TIME becomes an INT of milliseconds, because old versions of Spark lack the type. Timestamps with a
precision above microseconds, which Spark does not have, are truncated to microseconds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.nested_arrays import build_map_entries, with_fields, with_values
from paimon_orch.format.time_zones import to_instants, to_local_times
from paimon_orch.format.types.arrow import is_variant, to_arrow_type
from paimon_orch.format.types.data_types import Field
from paimon_orch.spark.row_conversion import to_spark_schema
from paimon_orch.spark.shuffle import PrepareRows


def is_exact(kind: pa.DataType) -> bool:
    """Return whether Spark represents the values of a column exactly."""
    return not (
        pa.types.is_time(kind) or pa.types.is_nested(kind) or getattr(kind, "unit", None) == "ns"
    )


def build_visible_schema(rows: pa.Schema) -> pa.Schema:
    """Return the Arrow types of the rows that Spark receives; all columns are nullable."""
    return pa.schema([(field.name, _to_visible_type(field.type, field.name)) for field in rows])


def build_target_schema(
    rows: pa.Schema, requested: StructType, names: Sequence[str] | None = None
) -> pa.Schema:
    """Return the types of the requested columns, in the requested order.

    ``names`` are the names of the columns in ``rows``, if they differ from the requested ones.
    Raises :class:`InputError` if the requested type of a column differs from the table's.
    """
    visible = build_visible_schema(rows)
    arrow_fields = [visible.field(name) for name in names or requested.names]
    fields = []
    for request, actual in zip(requested, to_spark_schema(pa.schema(arrow_fields)), strict=True):
        if request.dataType != actual.dataType:
            raise InputError(
                f"column {actual.name!r} is {actual.dataType.simpleString()} in the table, but "
                f"{request.dataType.simpleString()} in the schema of the read; cast after reading"
            )
        field = visible.field(actual.name).with_name(request.name)
        fields.append(field.with_nullable(request.nullable))
    return pa.schema(fields)


def convert_batch(
    batch: pa.RecordBatch, target: pa.Schema, names: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Return the columns of ``target``, cast to its types; ``names`` are those in the batch."""
    columns = [
        _cast_column(batch.column(name), field.type)
        for name, field in zip(names or target.names, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def cast_timestamps_as_spark(
    batch: pa.RecordBatch, fields: Sequence[Field], zone: str | None
) -> pa.RecordBatch:
    """Cast timestamps, also nested ones, between types with and without time zone as Spark does.

    Spark uses the time zone of the session, but Arrow would use UTC. ``zone`` is the time zone of
    the session. Raises :class:`InputError` if a cast needs it and it is None. An INT in a column of
    TIME is the number of milliseconds.
    """
    types = {field.name: to_arrow_type(field.type) for field in fields}
    columns = [
        _cast_timestamp(column, types.get(name), name, zone)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _cast_timestamp(
    column: pa.Array, target: pa.DataType | None, name: str, zone: str | None
) -> pa.Array:
    if target is None:
        return column
    if pa.types.is_nested(target) and not is_variant(target):
        return _cast_nested(column, target, lambda x, kind: _cast_timestamp(x, kind, name, zone))
    if pa.types.is_time(target):
        return _cast_time(column, target)
    if not pa.types.is_timestamp(target):
        return column
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return to_local_times(column) if target.tz is None else column
    if target.tz is None or not (
        pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)
    ):
        return column
    if zone is None:
        raise InputError(
            f"column {name!r} is {target} in the table and {column.type} in the frame, and the "
            "time zone of the session is unknown; cast it to timestamp, or set "
            "spark.sql.session.timeZone"
        )
    return to_instants(column.cast(pa.timestamp("us")), zone)


def cast_times(prepare: PrepareRows, fields: Sequence[Field]) -> PrepareRows:
    """Return a function that first converts integers in columns of TIME, also nested ones."""
    types = {field.name: to_arrow_type(field.type) for field in fields}

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = map(_cast_time, batch.columns, map(types.get, batch.schema.names))
        return pa.RecordBatch.from_arrays(list(columns), names=batch.schema.names)

    def prepare_converted(batches: Iterable[pa.RecordBatch], first_row: int) -> Iterator[pa.Table]:
        return prepare(map(convert, batches), first_row)

    return prepare_converted


def _cast_time(column: pa.Array, target: pa.DataType | None) -> pa.Array:
    if target is None or is_variant(target):
        return column
    if pa.types.is_nested(target):
        return _cast_nested(column, target, _cast_time)
    is_millis = pa.types.is_time(target) and column.type == pa.int32()
    return column.view(target) if is_millis else column


def _cast_nested(
    column: pa.Array,
    target: pa.DataType,
    cast: Callable[[pa.Array, pa.DataType | None], pa.Array],
) -> pa.Array:
    """Cast the values in rows, arrays and maps; a column of another nesting is unchanged."""
    kind = column.type
    if isinstance(kind, pa.StructType) and isinstance(target, pa.StructType):
        types = {field.name: field.type for field in target}
        fields = [
            cast(column.field(i), types.get(kind.field(i).name)) for i in range(kind.num_fields)
        ]
        changed = pa.struct(
            [old.with_type(new.type) for old, new in zip(kind, fields, strict=True)]
        )
        return with_fields(column, changed, fields)
    if isinstance(kind, pa.MapType) and isinstance(target, pa.MapType):
        keys, items = (column.values.field(index) for index in range(2))
        parts = [cast(keys, target.key_type), cast(items, target.item_type)]
        changed_map = pa.map_(parts[0].type, kind.item_field.with_type(parts[1].type))
        return with_values(column, changed_map, build_map_entries(changed_map, parts))
    if pa.types.is_list(kind) and hasattr(target, "value_type"):
        values = cast(column.values, target.value_type)
        return with_values(column, pa.list_(kind.value_field.with_type(values.type)), values)
    return column


def _cast_column(column: pa.Array, target: pa.DataType) -> pa.Array:
    if column.type == target:
        return column
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        # a cast rounds towards zero, which moves times before 1970 to the next microsecond
        column = pc.floor_temporal(column, unit="microsecond")
    return column.cast(target)


def _to_visible_type(kind: pa.DataType, name: str, *, nested: bool = False) -> pa.DataType:
    if pa.types.is_time(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        if nested and kind.unit == "ns":
            raise UnsupportedError(
                f"column {name!r} has {kind} inside a nested type, which Spark does not support; "
                "select the other columns"
            )
        return pa.timestamp("us", None if kind.tz is None else "UTC")

    if is_variant(kind):
        return kind

    def inner(field: pa.Field) -> pa.Field:
        return pa.field(field.name, _to_visible_type(field.type, name, nested=True))

    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_field).type, inner(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([inner(kind.field(index)) for index in range(kind.num_fields)])
    return kind
