"""Mark partitions as done.

Readers may wait for complete partitions.

See docs/format/procedures.md#mark-partitions-as-done.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from paimon_orch.errors import InputError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.bucket_scan import scan_latest_buckets
from paimon_orch.steps.common.partition_request import (
    PARTITION_METAVAR,
    PartitionRequest,
    check_partitions_exist,
    split_partitions,
)
from paimon_orch.steps.common.step import PlanOutcome, build_metadata_step, plan_and_run
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.catalog_reports import PartitionNames
from paimon_orch.table.filter.partition_spec import (
    PartitionSpec,
    build_directory_names,
    format_partition_spec,
    parse_partition_specs,
)
from paimon_orch.table.partition_marks import format_names
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkDoneRequest(ParsedRequest):
    """The partitions to mark: ``dt=2026-01-01/hr=1``, or mappings of all partition columns."""

    partitions: Annotated[
        Sequence[str | PartitionSpec],
        Argument(
            "Partitions to mark. Each names all partition columns.",
            split=split_partitions,
            metavar=PARTITION_METAVAR,
        ),
    ] = field(kw_only=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkDonePlan(Displayable):
    """The partitions to mark and the actions that do it. The plan is falsy if there are none."""

    request: MarkDoneRequest
    state: TableState = field(repr=False, compare=False)
    partitions: tuple[PartitionNames, ...]
    actions: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return whether any partition is marked."""
        return bool(self.partitions)

    @property
    def names(self) -> list[str]:
        """Return the paths of the partitions."""
        return [format_names(partition).rstrip("/") for partition in self.partitions]

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {"partitions": self.names, "actions": list(self.actions)}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action=f"mark {self.describe_marks()}",
            columns={"partition": "string"},
            items=[{"partition": name} for name in self.names],
        )

    def describe_marks(self) -> str:
        """Return the number of partitions, and how they are marked."""
        partitions = format_count(len(self.partitions), "partition")
        return f"{partitions} as done ({', '.join(self.actions)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkDoneResult(PlanOutcome[MarkDonePlan]):
    """The partitions that were marked."""

    def describe(self) -> list[str]:
        """Return what was marked."""
        return [f"marked {self.plan.describe_marks()}"]


def plan(table: Table, request: MarkDoneRequest) -> MarkDonePlan:
    """Check the partitions and the actions of ``partition.mark-done-action``.

    Raises :class:`UnsupportedError` for an action that this library cannot execute, and
    :class:`NotFoundError` for a partition that has neither files nor a directory: readers would
    take a misspelled name for a complete partition.
    """
    state = table.load()
    state.check_step(StepKind.METADATA)
    schema, marker = state.schema, state.build_marker()
    marker.check()
    names = []
    for spec in parse_partition_specs(request.partitions, schema):
        name = format_partition_spec(spec, schema)
        missing = [column for column in schema.partition_keys if column not in name]
        if missing:
            raise InputError(
                f"{table.identifier}: a partition to mark needs a value of each partition column; "
                f"{format_names(name).rstrip('/') or 'the empty partition'!r} lacks "
                f"{', '.join(missing)}"
            )
        _check_values(spec, schema)
        names.append(name)
    scan = scan_latest_buckets(state, PartitionRequest(partitions=request.partitions))
    check_partitions_exist(state, request.partitions, scan, with_directories=True)
    return MarkDonePlan(
        request=request, state=state, partitions=tuple(names), actions=tuple(marker.actions)
    )


def _check_values(spec: PartitionSpec, schema: TableSchema) -> None:
    """Raise :class:`InputError` for text that is not a value of its column."""
    for column in schema.partition_fields:
        value = spec[column.name]
        # Directories of old writers have numbers of days and times, which are no dates.
        if isinstance(value, str) and not value.lstrip("-").isdigit():
            build_directory_names({column.name: value}, [column], schema.typed_options)


def commit(_table: Table, plan: MarkDonePlan) -> MarkDoneResult:
    """Execute the actions for each partition."""
    plan.state.build_marker().mark(plan.partitions)
    return MarkDoneResult(plan=plan)


MARK_DONE = build_metadata_step("mark partitions of", plan, commit)


@take_fields(MarkDoneRequest)
def mark_done(table: Table, request: MarkDoneRequest) -> MarkDoneResult:
    """Mark partitions as done by the actions of the option ``partition.mark-done-action``.

    A partition names all partition columns, and must have files or a directory. The default action
    writes the file ``_SUCCESS`` into the directory of the partition.
    """
    return plan_and_run(MARK_DONE, table, request)


DECLARATION = declare_step(
    MARK_DONE,
    MarkDoneRequest,
    help="Executes the actions of the table's option partition.mark-done-action; by default, it "
    "writes the file _SUCCESS into the directory of each partition. A partition must have files or "
    "a directory.",
    examples=["/lake db.orders --partitions dt=2026-01-31"],
)
