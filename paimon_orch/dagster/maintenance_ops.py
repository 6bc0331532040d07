"""Maintenance steps behind one face: a config that the launchpad explains, and what was or would be done."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import dagster as dg
from pydantic import Field, ValidationError

from paimon_orch.dagster.metadata import Metadata, build_metadata_table
from paimon_orch.dagster.run_config import AllowanceConfig, build_config_class
from paimon_orch.errors import InputError
from paimon_orch.format.times import parse_cutoff, parse_duration
from paimon_orch.steps.cleanup import remove_orphan_files as orphan_step
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.expiration import expire_partitions as partition_step
from paimon_orch.steps.expiration import expire_snapshots as snapshot_step
from paimon_orch.steps.inspection.check import check
from paimon_orch.steps.maintenance import compact_manifests as manifest_step
from paimon_orch.table.table import Table

_MAX_SHOWN_FINDINGS = 10


class MaintenanceConfig(AllowanceConfig):
    """What all steps have in common."""

    dry_run: bool = Field(default=True, description="Show what would be done, and change nothing.")
    use_spark: bool = Field(
        default=False, description="List and delete on Spark: for tables of very many files."
    )


class ExpireSnapshotsConfig(MaintenanceConfig):
    """What is not given is taken from the table's options."""

    retain_min: int | None = Field(default=None, description="Keep at least so many snapshots.")
    retain_max: int | None = Field(default=None, description="Keep at most so many snapshots.")
    retain_for: str | None = Field(default=None, description="Keep them so long, e.g. '24 h'.")
    max_deletes: int | None = Field(default=None, description="Delete at most so many in a run.")


class RemoveOrphanFilesConfig(MaintenanceConfig):
    """Orphans are files that no snapshot, tag, changelog or branch names."""

    older_than: str = Field(
        default="3 d",  # longer than the slowest writer takes to commit
        description="Leave younger files alone, e.g. '3 d'. Must be longer than the longest write takes.",
    )
    quarantine: bool = Field(
        default=False, description="Move the files aside, to be restored, instead of deleting them."
    )


class ExpirePartitionsConfig(MaintenanceConfig):
    """What is not given is taken from the table's options."""

    expiration_time: str | None = Field(
        default=None, description="Drop partitions that are older, e.g. '30 d'."
    )
    strategy: str | None = Field(default=None, description="values-time or update-time.")
    max_expires: int | None = Field(default=None, description="Drop at most so many in a run.")


class CompactManifestsConfig(MaintenanceConfig):
    """Rows and files stay as they are, so it is no dry run unless it is asked for."""

    dry_run: bool = Field(default=False, description="Show what would be done, and change nothing.")


C = TypeVar("C", bound=MaintenanceConfig)


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """What a step did or, in a dry run, would do.

    :ivar figures: numbers by name; other values are not reported
    :ivar rows: the plan, each row a mapping of :attr:`columns` (names and types)
    """

    figures: Mapping[str, object]
    rows: Iterable[Mapping[str, Any]] = ()
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, int | float]:
        """Return the figures that are numbers."""
        return {k: v for k, v in self.figures.items() if isinstance(v, int | float)}

    def to_metadata(self, action: str, *, dry_run: bool) -> Metadata:
        """Return the numbers below ``paimon/<action>_``, in a dry run ``planned_``, and the plan as a table."""
        prefix = f"paimon/{action}_planned_" if dry_run else f"paimon/{action}_"
        metadata: Metadata = {prefix + name: value for name, value in self.numbers.items()}
        metadata["paimon/dry_run"] = dry_run
        if self.columns:
            metadata["paimon/plan"] = build_metadata_table(self.rows, self.columns)
        return metadata


_TIME_PARSERS: Mapping[str, Callable[[str, str], object]] = {
    "retain_for": parse_duration,
    "older_than": parse_cutoff,
    "expiration_time": parse_duration,
}


@dataclass(frozen=True, slots=True)
class MaintenanceOp(Generic[C]):
    """A step by its name; ``perform`` changes nothing if the config says ``dry_run``.

    :ivar config: the class of the op's config; its defaults are the policy of the job
    """

    action: str
    description: str
    config: type[C]
    perform: Callable[[Table, C, Executor, Progress], MaintenanceResult]

    def with_policy(self, policy: Mapping[str, Any]) -> "MaintenanceOp[C]":
        """Return the step whose config has the values of ``policy`` as defaults.

        Raises :class:`InputError` for a name that the config does not have, and for a value that it does not take.
        """
        self.check_config(policy)
        return replace(self, config=build_config_class(self.config, policy))

    def check_config(self, config: Mapping[str, Any]) -> None:
        """Raise :class:`InputError` for an unknown config field, and for a value that the field does not accept."""
        known = self.config.model_fields
        unknown = sorted(config.keys() - known.keys())
        if unknown:
            raise InputError(
                f"{self.action} has no config field {', '.join(unknown)}; its fields are {', '.join(known)}"
            )
        try:
            self.config(**config)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, each['loc']))} = {each['input']!r}: {each['msg']}"
                for each in error.errors()
            )
            raise InputError(f"config of {self.action}: {wrong}") from error
        for name, parse in _TIME_PARSERS.items():
            if config.get(name) is not None:
                parse(name, config[name])  # refuse it when definitions load, not in a scheduled run


def _expire_snapshots(
    table: Table, config: ExpireSnapshotsConfig, executor: Executor, progress: Progress
) -> MaintenanceResult:
    older_than = None
    if config.retain_for is not None:
        retained = parse_duration("retain_for", config.retain_for)
        older_than = int((time.time() - retained.total_seconds()) * 1000)
    if not config.dry_run:
        result = snapshot_step.expire_snapshots(
            table,
            executor,
            retain_max=config.retain_max,
            retain_min=config.retain_min,
            older_than=older_than,
            max_deletes=config.max_deletes,
            progress=progress,
        )
        return MaintenanceResult(result.to_dict() | {"refused": len(result.refused)})
    planned = snapshot_step.plan(
        table,
        retain_max=config.retain_max,
        retain_min=config.retain_min,
        older_than=older_than,
        max_deletes=config.max_deletes,
    )
    kinds = {
        "snapshot": [table.stores.snapshots.path(number) for number in planned.snapshots],
        "data": planned.files_to_delete.data,
        "metadata": [*planned.files_to_delete.metadata, *planned.files_to_delete.lists],
    }
    rows = ({"kind": kind, "path": path} for kind, paths in kinds.items() for path in paths)
    figures = planned.to_dict() | {"refused": len(planned.refused)}
    return MaintenanceResult(figures, rows, {"kind": "string", "path": "string"})


def _remove_orphan_files(
    table: Table, config: RemoveOrphanFilesConfig, executor: Executor, progress: Progress
) -> MaintenanceResult:
    older_than = parse_cutoff("older_than", config.older_than)
    if not config.dry_run:
        _check_not_damaged(table)
    planned = orphan_step.plan(table, executor, older_than=older_than, progress=progress)
    rows = [{"path": file.path, "bytes": file.size} for file in planned.files]
    figures = planned.to_dict()
    if not config.dry_run:
        result = orphan_step.run(table, planned, executor, quarantine=config.quarantine)
        figures = result.to_dict() | {"refused": len(result.refused)}
    return MaintenanceResult(figures, rows, {"path": "string", "bytes": "int"})


def _check_not_damaged(table: Table) -> None:
    """Refuse to delete from a table that lost files, or whose metadata contradicts itself."""
    report = check(table)
    if not report:
        shown = "\n".join(map(str, report.findings[:_MAX_SHOWN_FINDINGS]))
        raise dg.Failure(
            f"{table.identifier} is damaged, so no orphan file was removed. Findings: {len(report.findings)}\n{shown}",
            metadata={
                "dagster/table_name": table.identifier,
                "paimon/findings": len(report.findings),
            },
            allow_retries=False,
        )


def _expire_partitions(
    table: Table, config: ExpirePartitionsConfig, *_: object
) -> MaintenanceResult:
    step = partition_step.plan if config.dry_run else partition_step.expire_partitions
    kept = config.expiration_time
    done = step(
        table,
        expiration_time=None if kept is None else parse_duration("expiration_time", kept),
        strategy=config.strategy,
        max_expires=config.max_expires,
    )
    figures = {"partitions": len(done.names), "rows": done.rows, "bytes": done.bytes}
    return MaintenanceResult(
        figures, ({"partition": name} for name in done.names), {"partition": "string"}
    )


def _compact_manifests(
    table: Table, config: CompactManifestsConfig, *_: object
) -> MaintenanceResult:
    planned = manifest_step.plan(table)
    if config.dry_run:
        return MaintenanceResult(planned.to_dict())
    manifest_step.compact_manifests(table)
    after = manifest_step.plan(table)
    return MaintenanceResult(
        {
            "manifests_before": planned.manifests,
            "manifests_after": after.manifests,
            "bytes_before": planned.bytes,
            "bytes_after": after.bytes,
        }
    )


EXPIRE_SNAPSHOTS = MaintenanceOp(
    "expire_snapshots",
    "Deletes old snapshots of `{table}` and the files that only they need.",
    ExpireSnapshotsConfig,
    _expire_snapshots,
)
REMOVE_ORPHAN_FILES = MaintenanceOp(
    "remove_orphan_files",
    "Deletes files of `{table}` that nothing refers to. A damaged table is left alone.",
    RemoveOrphanFilesConfig,
    _remove_orphan_files,
)
EXPIRE_PARTITIONS = MaintenanceOp(
    "expire_partitions",
    "Drops partitions of `{table}` by their age.",
    ExpirePartitionsConfig,
    _expire_partitions,
)
COMPACT_MANIFESTS = MaintenanceOp(
    "compact_manifests",
    "Merges the manifests of `{table}` into few; rows and files stay as they are.",
    CompactManifestsConfig,
    _compact_manifests,
)

MAINTENANCE_OPS: Mapping[str, MaintenanceOp[Any]] = {
    step.action: step
    for step in (EXPIRE_SNAPSHOTS, EXPIRE_PARTITIONS, COMPACT_MANIFESTS, REMOVE_ORPHAN_FILES)
}
"""The steps by their actions."""
