"""Conditions that a task waits for, from the metadata of a table: its partitions and its health."""

from collections.abc import Mapping
from dataclasses import dataclass

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.orchestration.health_limits import (
    DEFAULT_LIMITS,
    FILE_REFERENCES,
    HealthOutcome,
    evaluate_health,
    reject_unknown_checks,
)
from paimon_orch.steps.common.bucket_scan import scan_latest_buckets
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.table.catalog_reports import mark_name
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.partition_spec import (
    PartitionSpec,
    build_partition_matcher,
    format_partition,
    format_partition_spec,
    parse_partition_specs,
)
from paimon_orch.table.partition_marks import PartitionNames, find_success_file, format_names
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPartitions:
    """Partitions of the newest snapshot that match a full or partial spec."""

    snapshot_id: int
    partitions: tuple[str, ...]
    """Their paths, sorted."""

    def to_dict(self) -> dict[str, object]:
        """Return the partitions as JSON values."""
        return {"snapshot_id": self.snapshot_id, "partitions": list(self.partitions)}


@repeat_if_expired
def find_partitions(table: Table, partition: str | PartitionSpec) -> FoundPartitions | None:
    """Return the partitions that have files in the newest snapshot, or None without one.

    Raises :class:`NotFoundError` for a column that is no partition column.
    """
    state = table.load()
    [spec] = parse_partition_specs(partition, state.schema)
    matches = build_partition_matcher(spec, state.schema)
    scan = scan_latest_buckets(state, PartitionRequest(partitions=[spec]))
    if scan is None:
        return None
    found = (each for each in scan.list_partitions() if matches(each))
    paths = sorted(format_partition(each, state.schema) for each in found)
    return FoundPartitions(snapshot_id=scan.snapshot.id, partitions=tuple(paths)) if paths else None


def find_done_partition(table: Table, partition: str | PartitionSpec) -> str | None:
    """Return the path of a partition if it is marked as done, or None if it is not.

    The marks are those of the option ``partition.mark-done-action`` that can be read: the file
    ``_SUCCESS``, and the partition ``.done`` of a metastore; all of them must exist. Raises
    :class:`UnsupportedError` if the option has none of them, and :class:`InputError` if the
    partition lacks a column.

    See docs/format/procedures.md#mark-partitions-as-done.
    """
    state = table.load()
    [spec] = parse_partition_specs(partition, state.schema)
    names = format_partition_spec(spec, state.schema)
    missing = [column for column in state.schema.partition_keys if column not in names]
    if missing:
        raise InputError(
            f"{table.identifier}: a partition that is marked as done has a value of each partition "
            f"column; {partition!r} lacks {', '.join(missing)}"
        )
    marker = state.build_marker()
    readable = [action for action in marker.actions if action in _MARKS]
    if not readable:
        raise UnsupportedError(
            f"{table.identifier}: no mark of a done partition can be read, because "
            f"'partition.mark-done-action' is {', '.join(marker.actions)!r}; add success-file to it"
        )
    for action in readable:
        marker.check_action(action)
    is_done = all(_MARKS[action](state, names) for action in readable)
    return format_names(names).rstrip("/") if is_done else None


def _has_success_file(state: TableState, names: PartitionNames) -> bool:
    return state.io.exists(find_success_file(state.paths, state.schema, names))


def _has_done_partition(state: TableState, names: PartitionNames) -> bool:
    return bool(state.build_catalog_reports().find_listed([mark_name(names)]))


_MARKS = {"success-file": _has_success_file, "done-partition": _has_done_partition}
"""How the mark of an action is found."""


def resolve_limits(table: str, limits: Mapping[str, float | None] | None) -> dict[str, float]:
    """Return the limits of a table's health: the default ones and those given; None drops one.

    Raises :class:`InputError` for an unknown check, and for the one that reads more than the newest
    snapshot.
    """
    resolved = {**DEFAULT_LIMITS, **(limits or {})}
    reject_unknown_checks(table, resolved)
    if FILE_REFERENCES in resolved:
        raise InputError(
            f"{table}: the check {FILE_REFERENCES} reads all snapshots, so a wait cannot repeat it; "
            "run the command check"
        )
    return {name: limit for name, limit in resolved.items() if limit is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """The checks of a table's health in its newest snapshot."""

    outcomes: tuple[HealthOutcome, ...]

    @property
    def failed(self) -> list[HealthOutcome]:
        """Return the checks that exceed their limits."""
        return [outcome for outcome in self.outcomes if not outcome.passed]

    def to_dict(self) -> dict[str, object]:
        """Return the values that were compared with the limits, as JSON values."""
        return {
            outcome.name: outcome.figures["value"]
            for outcome in self.outcomes
            if "value" in outcome.figures
        }


def read_health(table: Table, limits: Mapping[str, float]) -> HealthReport:
    """Compare the newest snapshot of a table with limits; see :func:`resolve_limits`."""
    return HealthReport(outcomes=tuple(evaluate_health(table, limits)))
