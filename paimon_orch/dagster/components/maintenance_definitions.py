"""The jobs and schedules of a component, for one table or for many."""

from collections.abc import Sequence
from typing import TypedDict

import dagster as dg

from paimon_orch.dagster.components.component_attributes import TableAttributes
from paimon_orch.dagster.components.maintenance_attributes import ScheduleAttributes
from paimon_orch.dagster.declared_ops import build_declared_op
from paimon_orch.dagster.jobs import ACTION_TAG, JobScope, build_maintenance_job
from paimon_orch.dagster.run_config import build_allowance_config
from paimon_orch.dagster.schedules import build_maintenance_schedules
from paimon_orch.errors import InputError

_ALWAYS_DEFINED = ("expire-snapshots", "remove-orphan-files", "sync-iceberg")
"""The steps that have a job also without a policy."""


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
    steps = dict.fromkeys([*_ALWAYS_DEFINED, *_find_policies(attributes)])
    policies = {step: policy.job_config() for step, policy in _find_policies(attributes).items()}
    allowances = build_allowance_config(attributes.allowances)
    tags = {} if callable(attributes.run_tags) else attributes.run_tags or {}
    return [
        build_maintenance_job(
            build_declared_op(step),
            scope,
            policies.get(step, {}) | allowances,
            op=attributes.other_ops,
            run_tags=tags,
            run_on=attributes.run_on,
            resource_prefix=attributes.resource_prefix,
        )
        for step in steps
    ]


def build_schedules(
    attributes: TableAttributes, jobs: Sequence[dg.JobDefinition]
) -> list[dg.ScheduleDefinition]:
    """Return the schedules of the jobs that have a policy."""
    policies = {
        step.replace("-", "_"): policy
        for step, policy in _find_policies(attributes).items()
        if policy.cron is not None or step not in attributes.steps
    }
    status = dg.DefaultScheduleStatus
    return build_maintenance_schedules(
        [job for job in jobs if job.tags[ACTION_TAG] in policies],
        cron={name: policy.cron for name, policy in policies.items() if policy.cron is not None},
        config={name: {"dry_run": policy.dry_run} for name, policy in policies.items()},
        default_status=status.RUNNING if attributes.running else status.STOPPED,
    )


def _find_policies(attributes: TableAttributes) -> dict[str, ScheduleAttributes]:
    """Return the configured policies by step; only jobs with a policy have a schedule.

    Raises :class:`InputError` for a step with two policies.
    """
    names = {
        "expire-snapshots": "snapshot_expiration",
        "remove-orphan-files": "orphan_files",
        "expire-partitions": "partition_expiration",
        "sync-iceberg": "iceberg",
    }
    policies = {step: getattr(attributes, name) for step, name in names.items()}
    policies = {step: policy for step, policy in policies.items() if policy is not None}
    for step in policies.keys() & attributes.steps.keys():
        raise InputError(
            f"{names[step]} and steps.{step} are both the policy of one job; set one of them"
        )
    return {**policies, **attributes.steps}
