"""What Dagster's partitions definitions contain, for the partition keys of a table."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import product

import dagster as dg

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot
from paimon_orch.orchestration.partition_keys import DIMENSION_SEPARATOR, PartitionKeys
from paimon_orch.safe_text import format_names
from paimon_orch.table.filter.partition_spec import PartitionSpec, build_directory_names

PARTITION_EXPR = "partition_expr"
"""The metadata that names the partition columns of an asset, as Dagster's own IO managers know it."""
_SHORTEST_DAY = timedelta(hours=23)
_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)

DynamicPartitionsRequest = dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest
PartitionsDef = dg.PartitionsDefinition[str]


def build_partition_keys(
    schema: TableSchema, partitions_def: PartitionsDef | None
) -> PartitionKeys:
    """Return the partition keys of the assets of a table.

    Raises :class:`InputError` if the table is not partitioned, or if the dimensions of the
    definition are not its partition columns.
    """
    if not schema.partition_keys:
        raise InputError(
            "the table has no partition columns, so its assets cannot be partitioned; "
            "remove partitions_def"
        )
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return PartitionKeys.of(schema, partitions_def.partition_dimension_names)
    return PartitionKeys.of(schema)


def find_dynamic_definitions(
    partitions_def: PartitionsDef,
) -> Iterator[tuple[int, dg.DynamicPartitionsDefinition]]:
    """Yield the dynamic definition, or the dynamic dimensions with their positions in keys."""
    parts = [partitions_def]
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        parts = [dimension.partitions_def for dimension in partitions_def.partitions_defs]
    for index, part in enumerate(parts):
        if isinstance(part, dg.DynamicPartitionsDefinition):
            yield index, part


def list_dimensions(
    partitions_def: PartitionsDef,
    instance: dg.DagsterInstance,
    requests: Sequence[DynamicPartitionsRequest],
) -> list[list[str]]:
    """Return the values of each dimension after the requests, in the order of the definition."""
    parts = [partitions_def]
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        parts = [dimension.partitions_def for dimension in partitions_def.partitions_defs]
    dimensions = [[*part.get_partition_keys(dynamic_partitions_store=instance)] for part in parts]
    for index, definition in find_dynamic_definitions(partitions_def):
        for request in requests:
            if request.partitions_def_name != definition.name:
                continue
            outdated = {*request.partition_keys}
            dimensions[index] = [key for key in dimensions[index] if key not in outdated]
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                dimensions[index] += request.partition_keys
    return dimensions


def parse_partition_expr(value: object, partitions_def: PartitionsDef) -> dict[str, str]:
    """Return the column of each dimension of a definition; the only dimension is "".

    ``value`` is a name of a column, or for several dimensions a mapping of names of columns. Raises
    :class:`InputError` for any other value.
    """
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        if not isinstance(value, str):
            raise InputError(
                f"{PARTITION_EXPR} {value!r} must be the name of the column of the partitions"
            )
        return {"": value}
    dimensions = partitions_def.partition_dimension_names
    columns = dict(value) if isinstance(value, Mapping) else {}
    if columns.keys() != {*dimensions} or len({*columns.values()}) < len(dimensions):
        raise InputError(
            f"{PARTITION_EXPR} {value!r} must name a column for each of the dimensions "
            f"{format_names(dimensions)}"
        )
    return {dimension: str(columns[dimension]) for dimension in dimensions}


def build_partition_specs(
    schema: TableSchema, partitions_def: PartitionsDef, keys: Sequence[str], expr: object
) -> list[PartitionSpec]:
    """Return the values of partition columns for partition keys.

    With ``expr``, the value of :data:`PARTITION_EXPR`, these are the columns that it names, and the
    table may have more of them; without it, the keys name all partition columns. Raises
    :class:`InputError` if the columns do not exist, or do not have such values.
    """
    if expr is None:
        partition_keys = build_partition_keys(schema, partitions_def)
        return [partition_keys.parse(key) for key in keys]
    columns = parse_partition_expr(expr, partitions_def)
    fields = {field.name: field for field in schema.partition_fields}
    unknown = sorted({*columns.values()} - fields.keys())
    if unknown:
        raise InputError(
            f"{PARTITION_EXPR} must name partition columns of the table, which are "
            f"{format_names(fields)}, and not {format_names(unknown)}"
        )
    parts = {"": partitions_def}
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        parts = {each.name: each.partitions_def for each in partitions_def.partitions_defs}
    specs = list[PartitionSpec]()
    for key in keys:
        values = key.split(DIMENSION_SEPARATOR) if len(parts) > 1 else [key]
        alternatives = [
            _list_values(schema, fields[columns[name]], part, value)
            for (name, part), value in zip(parts.items(), values, strict=True)
        ]
        specs += [dict(zip(columns.values(), each, strict=True)) for each in product(*alternatives)]
    return specs


def _list_values(
    schema: TableSchema, column: Field, partitions_def: PartitionsDef, key: str
) -> list[object]:
    """Return the values of a column in a partition: all days of a time window, or its start.

    In a column of another type, the key is the value.
    """
    kind = column.type.name if isinstance(column.type, AtomicType) else None
    is_time = kind is TypeRoot.DATE or kind in _TIMESTAMPS
    if not is_time or not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return [
            build_directory_names({column.name: key}, [column], schema.typed_options)[column.name]
        ]
    start, end = partitions_def.time_window_for_partition_key(key)[:2]
    if kind is TypeRoot.TIMESTAMP:
        return [start.replace(tzinfo=None)]
    if kind is TypeRoot.TIMESTAMP_LTZ:
        return [start]
    if end - start < _SHORTEST_DAY:
        raise InputError(
            f"the partition {key!r} is a part of a day, and the column {column.name!r} of type DATE "
            "has whole days: use a column with the time, or partitions of days"
        )
    days = (end.date() - start.date()).days
    return [start.date() + timedelta(days=number) for number in range(days)]
