"""What Dagster's partitions definitions contain, for the partition keys of a table."""

from collections.abc import Iterator, Sequence

import dagster as dg

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.orchestration.partition_keys import PartitionKeys

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
