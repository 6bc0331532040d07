"""The jobs and schedules of a component, for one table or for many."""

from collections.abc import Sequence
from typing import Any, TypedDict

import dagster as dg

from paimon_orch.dagster.components.component_attributes import TableAttributes
from paimon_orch.dagster.components.maintenance_attributes import ScheduleAttributes
from paimon_orch.dagster.declared_ops import build_declared_op
from paimon_orch.dagster.jobs import ACTION_TAG, JobScope, build_maintenance_job
from paimon_orch.dagster.maintenance_ops import (
    EXPIRE_PARTITIONS,
    EXPIRE_SNAPSHOTS,
    REMOVE_ORPHAN_FILES,
    SYNC_ICEBERG,
    MaintenanceOp,
)
from paimon_orch.dagster.run_config import build_allowance_config
from paimon_orch.dagster.schedules import build_maintenance_schedules


class SensorOptions(TypedDict):
    """When a sensor runs."""

    minimum_interval_seconds: int
    default_status: dg.DefaultSensorStatus


def get_sensor_options(attributes: TableAttributes) -> SensorOptions:
    """Return when the sensor of a component runs."""
    status = dg.DefaultSensorStatus
    return {
        "minimum_interval_seconds": attributes.sensor_interval_seconds,
        "default_status": status.RUNNING if attributes.running else status.STOPPED,
    }


def build_jobs(attributes: TableAttributes, scope: JobScope) -> list[dg.JobDefinition]:
    """Return the maintenance jobs of a component."""
    ops: list[MaintenanceOp[Any]] = [EXPIRE_SNAPSHOTS, REMOVE_ORPHAN_FILES, SYNC_ICEBERG]
    if attributes.partition_expiration is not None:
        ops.append(EXPIRE_PARTITIONS)
    ops += map(build_declared_op, attributes.steps)
    policies = {
        action: policy.job_config() for action, policy in _find_policies(attributes).items()
    }
    allowances = build_allowance_config(attributes.allowances)
    return [
        build_maintenance_job(op, scope, policies.get(op.action, {}) | allowances) for op in ops
    ]


def build_schedules(
    attributes: TableAttributes, jobs: Sequence[dg.JobDefinition]
) -> list[dg.ScheduleDefinition]:
    """Return the schedules of the jobs that have a policy."""
    declared = {name.replace("-", "_") for name in attributes.steps}
    policies = {
        action: policy
        for action, policy in _find_policies(attributes).items()
        if policy.cron is not None or action not in declared
    }
    status = dg.DefaultScheduleStatus
    return build_maintenance_schedules(
        [job for job in jobs if job.tags[ACTION_TAG] in policies],
        cron={name: policy.cron for name, policy in policies.items() if policy.cron is not None},
        config={name: {"dry_run": policy.dry_run} for name, policy in policies.items()},
        default_status=status.RUNNING if attributes.running else status.STOPPED,
    )


def _find_policies(attributes: TableAttributes) -> dict[str, ScheduleAttributes]:
    """Return the configured policies by action; only jobs with a policy have a schedule."""
    policies = {
        EXPIRE_SNAPSHOTS.action: attributes.snapshot_expiration,
        REMOVE_ORPHAN_FILES.action: attributes.orphan_files,
        EXPIRE_PARTITIONS.action: attributes.partition_expiration,
        SYNC_ICEBERG.action: attributes.iceberg,
    }
    declared = {name.replace("-", "_"): policy for name, policy in attributes.steps.items()}
    return declared | {name: policy for name, policy in policies.items() if policy is not None}
