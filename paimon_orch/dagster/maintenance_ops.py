"""Maintenance ops: each runs one step with a run config, and reports its result.

An op makes a plan, reports the plan, and executes this plan; a dry run ends after the report. This
module is imported when definitions are loaded, and ``maintenance_steps`` by runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import Field, ValidationError

from paimon_orch.dagster.resources import MAINTENANCE_EXECUTOR_HELP, ExecutorChoice
from paimon_orch.dagster.run_config import AllowanceConfig, build_config_class
from paimon_orch.errors import InputError
from paimon_orch.format.times import parse_cutoff, parse_duration

if TYPE_CHECKING:
    from paimon_orch.dagster.maintenance_steps import MaintenanceStep

DRY_RUN_HELP = "Report what the run would do, without changing the table."


class MaintenanceConfig(AllowanceConfig):
    """Run config of all maintenance ops."""

    dry_run: bool = Field(default=True, description=DRY_RUN_HELP)


class DeletionConfig(MaintenanceConfig):
    """Run config of maintenance ops that delete files in work units."""

    executor: ExecutorChoice = Field(
        default=ExecutorChoice.auto, description=MAINTENANCE_EXECUTOR_HELP
    )


class ExpireSnapshotsConfig(DeletionConfig):
    """Run config of expire_snapshots; the defaults are the table's options."""

    retain_min: int | None = Field(
        default=None, description="Minimum number of snapshots to retain."
    )
    retain_max: int | None = Field(
        default=None, description="Maximum number of snapshots to retain."
    )
    retain_for: str | None = Field(
        default=None, description="Retain snapshots younger than this, for example '24 h'."
    )
    max_deletes: int | None = Field(
        default=None, description="Maximum number of snapshots to delete in one run."
    )


class RemoveOrphanFilesConfig(DeletionConfig):
    """Run config of remove_orphan_files.

    Orphan files are files that no snapshot, tag, changelog or branch references.
    """

    older_than: str = Field(
        default="3 d",  # the slowest writers commit within this time
        description="Keep files younger than this, for example '3 d'. It must exceed the time "
        "between the first file and the commit of the slowest write.",
    )
    quarantine: bool = Field(
        default=False, description="Move the files to quarantine instead of deleting them."
    )


class ExpirePartitionsConfig(MaintenanceConfig):
    """Run config of expire_partitions; the defaults are the table's options."""

    expiration_time: str | None = Field(
        default=None, description="Drop partitions older than this, for example '30 d'."
    )
    strategy: str | None = Field(
        default=None,
        description="How the age is computed: values-time (partition value) or update-time (last "
        "change).",
    )
    max_expires: int | None = Field(
        default=None, description="Maximum number of partitions to drop in one run."
    )


class CompactManifestsConfig(MaintenanceConfig):
    """Run config of compact_manifests.

    By default, a run is not a dry run, since data files do not change.
    """

    dry_run: bool = Field(default=False, description=DRY_RUN_HELP)


class SyncIcebergConfig(MaintenanceConfig):
    """Run config of sync_iceberg.

    By default, a run is not a dry run, since only Iceberg metadata changes.
    """

    dry_run: bool = Field(default=False, description=DRY_RUN_HELP)


class SyncPartitionsConfig(MaintenanceConfig):
    """Run config of sync_partitions.

    By default, a run is not a dry run, since only the catalog changes.
    """

    dry_run: bool = Field(default=False, description=DRY_RUN_HELP)
    drop: bool = Field(
        default=False, description="Also drop partitions of the catalog that have no rows."
    )


class MarkDoneConfig(MaintenanceConfig):
    """Run config of mark_done.

    By default, a run is not a dry run, since the rows of the table do not change.
    """

    dry_run: bool = Field(default=False, description=DRY_RUN_HELP)
    partitions: list[str] = Field(
        default=[], description="The partitions to mark, for example 'dt=2026-01-31'."
    )


C = TypeVar("C", bound=MaintenanceConfig)

_TIME_PARSERS: Mapping[str, Callable[[str, str], object]] = {
    "retain_for": parse_duration,
    "older_than": parse_cutoff,
    "expiration_time": parse_duration,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOp(Generic[C]):
    """A maintenance step as an op with a run config."""

    action: str
    """The name of the op."""
    description: str
    """The description of the op: a template with the field ``table``, a table or several."""
    config: type[C]
    """The class of the op's config; its defaults are the policy of the job."""
    shown: tuple[str, ...] = ("dry_run",)
    """The fields that the launchpad shows even if the policy does not set them."""

    def load_step(self) -> "MaintenanceStep[C, Any]":
        """Import the library, and return the functions of the step."""
        from paimon_orch.dagster.maintenance_steps import MAINTENANCE_STEPS

        return MAINTENANCE_STEPS[self.action]

    def with_policy(self, policy: Mapping[str, Any]) -> "MaintenanceOp[C]":
        """Return the op with the values of ``policy`` as config defaults.

        Raises :class:`InputError` for an unknown config field and for an invalid value.
        """
        config = self.check_config(policy)
        defaults = {name: getattr(config, name) for name in policy}
        return replace(self, config=build_config_class(self.config, defaults))

    def check_config(self, config: Mapping[str, Any]) -> C:
        """Return the config, with defaults for the other fields.

        Raises :class:`InputError` for an unknown config field and for an invalid value.
        """
        fields = self.config.model_fields
        unknown = sorted(config.keys() - fields.keys())
        if unknown:
            raise InputError(
                f"{self.action} has no config field {', '.join(unknown)}; "
                f"its fields are {', '.join(fields)}"
            )
        try:
            checked = self.config(**config)
        except ValidationError as error:
            details = "; ".join(
                f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}"
                for e in error.errors()
            )
            raise InputError(f"invalid config of {self.action}: {details}") from error
        for name, parse in _TIME_PARSERS.items():
            if config.get(name) is not None:
                # An invalid value raises an error when definitions load, not in a scheduled run.
                parse(name, config[name])
        return checked


EXPIRE_SNAPSHOTS = MaintenanceOp(
    action="expire_snapshots",
    description="Deletes expired snapshots of {table} and the files that only they reference.",
    config=ExpireSnapshotsConfig,
)
REMOVE_ORPHAN_FILES = MaintenanceOp(
    action="remove_orphan_files",
    description="Deletes unreferenced files of {table}. Fails without deleting anything if the "
    "table is damaged.",
    config=RemoveOrphanFilesConfig,
    shown=("dry_run", "older_than"),
)
EXPIRE_PARTITIONS = MaintenanceOp(
    action="expire_partitions",
    description="Drops expired partitions of {table}.",
    config=ExpirePartitionsConfig,
)
COMPACT_MANIFESTS = MaintenanceOp(
    action="compact_manifests",
    description="Merges small manifests of {table}. Data files do not change.",
    config=CompactManifestsConfig,
)
SYNC_ICEBERG = MaintenanceOp(
    action="sync_iceberg",
    description="Publishes the newest snapshot of {table} as Iceberg metadata, unless its commit "
    "has done that. Fails for a table without the option metadata.iceberg.storage.",
    config=SyncIcebergConfig,
)

SYNC_PARTITIONS = MaintenanceOp(
    action="sync_partitions",
    description="Adds the partitions or tags of {table} that its catalog lacks. Fails for a "
    "table that the catalog shows without partitions.",
    config=SyncPartitionsConfig,
)
MARK_DONE = MaintenanceOp(
    action="mark_done",
    description="Marks partitions of {table} as done by the actions of the table's option "
    "partition.mark-done-action.",
    config=MarkDoneConfig,
)

MAINTENANCE_OPS: Mapping[str, MaintenanceOp[Any]] = {
    op.action: op
    for op in (
        EXPIRE_SNAPSHOTS,
        EXPIRE_PARTITIONS,
        COMPACT_MANIFESTS,
        REMOVE_ORPHAN_FILES,
        SYNC_ICEBERG,
        SYNC_PARTITIONS,
        MARK_DONE,
    )
}
"""Maintenance ops by action."""
