"""Plans which partitions a drop deletes, in the table and in its catalog."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paimon_orch.format.options.table_option import StepKind
from paimon_orch.table.commit.partition_statistics import format_partition_row
from paimon_orch.table.filter.partition_spec import (
    PartitionSpec,
    build_any_partition_matcher,
    build_partition_matcher,
    format_partition_spec,
    missing_partition_error,
    parse_partition_specs,
)
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDropPlan:
    """The partitions that a drop deletes."""

    specs: Sequence[PartitionSpec]
    partitions: Sequence[bytes]
    """The serialized partitions that have files."""
    catalog_names: Sequence[Mapping[str, str]]
    """The partitions to drop from the table's catalog, if it lists partitions."""


def plan_partition_drop(
    state: TableState, partitions: Iterable[str | PartitionSpec]
) -> PartitionDropPlan:
    """Return what :meth:`Table.drop_partitions` deletes; changes nothing, and raises its errors."""
    schema = state.schema
    state.check_step(StepKind.WRITE_ROWS)
    specs = parse_partition_specs(partitions, schema)
    present = sorted({split.partition for split in state.newest_files()})
    listed, names = list[dict[str, str]](), list[dict[str, str]]()
    dropped = [*filter(build_any_partition_matcher(specs, schema), present)]
    if state.environment.partitions is not None:
        spec_names = [format_partition_spec(spec, schema) for spec in specs]
        listed = state.build_catalog_reports().find_listed(spec_names)
        names = [format_partition_row(partition, schema) for partition in dropped]
        names += [name for name in listed if name not in names]
    for spec in specs:
        is_listed = any(
            format_partition_spec(spec, schema).items() <= name.items() for name in listed
        )
        if not is_listed and not any(map(build_partition_matcher(spec, schema), dropped)):
            raise missing_partition_error(spec, state.label)
    return PartitionDropPlan(specs=specs, partitions=dropped, catalog_names=names)
