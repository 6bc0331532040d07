"""All runs of a job follow the policy of the component: from the launchpad or from a schedule."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from support.dagster.asset_runs import observation_metadata
from support.dagster.ticks import scheduled_op_config

from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonTableComponent,
    build_expire_snapshots_job,
    build_remove_orphan_files_job,
)
from paimon_orch.dagster.components.maintenance_attributes import ScheduleAttributes
from paimon_orch.dagster.declared_ops import find_op
from paimon_orch.errors import InputError
from paimon_orch.table.table import Table

POLICIES: Mapping[str, Mapping[str, Any]] = {
    "expire_snapshots": {"retain_min": 2, "retain_for": "24 h", "max_deletes": 7},
    "remove_orphan_files": {"older_than": "9 d", "quarantine": True},
    "expire_partitions": {"expiration_time": "30 d", "strategy": "values-time", "max_expires": 3},
}
ATTRIBUTES = {
    "expire_snapshots": "snapshot_expiration",
    "remove_orphan_files": "orphan_files",
    "expire_partitions": "partition_expiration",
}
DAY_SECONDS = 24 * 3600
OLD, YOUNG = "2000-01-01", "2999-01-01"


def component(**attributes: Any) -> dg.Definitions:
    policies = {ATTRIBUTES[action]: dict(policy) for action, policy in POLICIES.items()}
    policies["orphan_files"]["dry_run"] = False
    attributes = {"table": "lake.orders", **policies, **attributes}
    return PaimonTableComponent.from_attributes_dict(attributes=attributes).definitions()


def job_of(defs: dg.Definitions, action: str) -> dg.JobDefinition:
    [job] = [job for job in defs.jobs or [] if job.name == f"{action}__lake__orders"]
    assert isinstance(job, dg.JobDefinition)
    return job


def schedule_config(defs: dg.Definitions, action: str) -> dict[str, Any]:
    [schedule] = [s for s in defs.schedules or [] if s.name == f"{action}__lake__orders_schedule"]
    assert isinstance(schedule, dg.ScheduleDefinition)
    return scheduled_op_config(schedule, action)


def read_observation(
    job: dg.JobDefinition, resources: Mapping[str, object], run_config: dict[str, Any] | None
) -> dict[str, Any]:
    """The metadata that a run reports, with the plan as a list of rows."""
    result = job.execute_in_process(run_config, resources=dict(resources))
    [metadata] = observation_metadata(result)
    if "paimon/plan" in metadata:
        metadata["paimon/plan"] = [record.data for record in metadata["paimon/plan"].records]
    return metadata


def launch_job(
    job: dg.JobDefinition, resources: Mapping[str, object], **config: object
) -> dict[str, Any]:
    """The metadata that a run with this config of its op reports."""
    action = job.tags["paimon/action"]
    return read_observation(job, resources, {"ops": {action: {"config": config}}})


@pytest.fixture
def work(paimon: PaimonCatalogResource, upsert: Callable[..., None]) -> Table:
    """A table on which each job has less work by its policy than by the options of the table."""
    table = paimon.catalog().create_table(
        "lake.orders",
        "dt STRING, id BIGINT, amount INT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={
            "bucket": "1",
            "snapshot.num-retained.min": "1",
            "snapshot.time-retained": "1 ms",
            "partition.expiration-time": "1 d",
            "partition.timestamp-formatter": "yyyy-MM-dd",
        },
    )
    recent = time.strftime("%Y-%m-%d", time.localtime(time.time() - 9 * DAY_SECONDS))
    for day in (OLD, recent, YOUNG):
        upsert(table, day)
    for number in (1, 2):  # this makes the snapshots old enough to expire
        path = Path(table.stores.snapshots.path(number))
        snapshot = json.loads(path.read_text())
        snapshot["timeMillis"] -= 3 * DAY_SECONDS * 1000
        path.write_text(json.dumps(snapshot))
    upsert(table, YOUNG)
    bucket = Path(str(paimon.warehouse), "lake.db", "orders", f"dt={YOUNG}", "bucket-0")
    for name, days in {"data-old-0.parquet": 10, "data-recent-0.parquet": 5}.items():
        (bucket / name).write_bytes(b"lost")
        modified = time.time() - days * DAY_SECONDS
        os.utime(bucket / name, (modified, modified))
    return table


@pytest.mark.parametrize("action", POLICIES)
def test_the_default_run_config_of_a_job_is_the_policy_of_the_component(action: str) -> None:
    job = job_of(component(), action)

    assert job.run_config == {"ops": {action: {"config": {"dry_run": True, **POLICIES[action]}}}}


@pytest.mark.parametrize("action", POLICIES)
def test_a_schedule_has_the_default_run_config_of_its_job_without_the_dry_run(action: str) -> None:
    assert schedule_config(component(), action) == {**POLICIES[action], "dry_run": False}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("config", [None, {"dry_run": True}], ids=str)
@pytest.mark.parametrize("action", POLICIES)
def test_a_dry_run_has_the_plan_of_the_schedule(
    work: Table,
    resources: Mapping[str, object],
    action: str,
    config: dict[str, Any] | None,
) -> None:
    defs = component()
    run_config = None if config is None else {"ops": {action: {"config": config}}}
    scheduled = schedule_config(defs, action) | {"dry_run": True}

    dry_run = read_observation(job_of(defs, action), resources, run_config)
    planned = launch_job(job_of(defs, action), resources, **scheduled)

    assert dry_run == planned
    assert len(dry_run["paimon/plan"]) >= 1
    assert work.stores.snapshots.ids() == [1, 2, 3, 4]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("action", "metric"),
    [
        ("expire_snapshots", "snapshots"),
        ("remove_orphan_files", "files"),
        ("expire_partitions", "partitions"),
    ],
)
def test_a_run_that_only_sets_dry_run_to_false_deletes_the_planned_files(
    work: Table, resources: Mapping[str, object], action: str, metric: str
) -> None:
    job = job_of(component(), action)
    planned = launch_job(job, resources, dry_run=True)
    executed = launch_job(job, resources, dry_run=False)

    assert executed[f"paimon/{action}_{metric}"] == planned[f"paimon/{action}_planned_{metric}"]
    assert executed[f"paimon/{action}_{metric}"] >= 1
    assert work.stores.snapshots.latest_id()


@pytest.mark.slow
def test_a_run_that_only_sets_dry_run_to_false_retains_snapshots_by_the_policy(
    orders: Table, upsert: Callable[..., None], resources: Mapping[str, object]
) -> None:
    for amount in range(51):
        upsert(orders, OLD, amount=amount)
    for number in range(1, 41):  # this makes the snapshots older than the retention time
        path = Path(orders.stores.snapshots.path(number))
        snapshot = json.loads(path.read_text())
        snapshot["timeMillis"] -= 89 * 60 * 1000
        path.write_text(json.dumps(snapshot))
    defs = component(snapshot_expiration={"retain_for": "24 h"})

    launch_job(job_of(defs, "expire_snapshots"), resources, dry_run=False)

    assert len(orders.stores.snapshots.ids()) == 51


def test_null_in_the_launchpad_selects_the_option_of_the_table(
    work: Table, resources: Mapping[str, object]
) -> None:
    job = job_of(component(), "expire_snapshots")

    launch_job(job, resources, dry_run=False, retain_for=None, retain_min=None)

    assert work.stores.snapshots.ids() == [4]


def test_the_policy_of_a_job_that_is_built_in_python_is_its_default_config() -> None:
    job = build_expire_snapshots_job("lake.orders", config={"retain_for": "2 d"})

    assert job.run_config == {
        "ops": {"expire_snapshots": {"config": {"dry_run": True, "retain_for": "2 d"}}}
    }


def test_the_launchpad_defaults_to_a_dry_run_for_any_config_of_the_schedule() -> None:
    defs = component(
        snapshot_expiration={"dry_run": True}, orphan_files={"older_than": "3 d", "dry_run": False}
    )

    assert schedule_config(defs, "expire_snapshots")["dry_run"] is True
    assert schedule_config(defs, "remove_orphan_files")["dry_run"] is False
    for action in POLICIES:
        job = job_of(defs, action)
        assert job.run_config
        assert job.run_config["ops"][action]["config"]["dry_run"] is True


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"retain": 3}, "no config field retain; its fields are .*retain_min"),
        ({"retain_min": "many"}, "^retain_min is 'many', but must be a whole number"),
        ({"retain_for": "soon"}, "retain_for.*soon"),
    ],
)
def test_an_invalid_policy_is_refused_when_the_job_is_built(
    config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build_expire_snapshots_job("lake.orders", config=config)


@pytest.mark.usefixtures("work")
def test_the_default_age_of_orphan_files_is_three_days(
    resources: Mapping[str, object],
) -> None:
    metadata = launch_job(build_remove_orphan_files_job("lake.orders"), resources, dry_run=True)

    assert len(metadata["paimon/plan"]) == 2


@pytest.mark.parametrize("action", POLICIES)
def test_the_component_has_all_config_fields_of_a_job(action: str) -> None:
    attribute = PaimonTableComponent.model_fields[ATTRIBUTES[action]]
    [policy] = [
        kind
        for kind in getattr(attribute.annotation, "__args__", ())
        if isinstance(kind, type) and issubclass(kind, ScheduleAttributes)
    ]

    allowances = {"allow_stale_external", "allow_unknown_options"} & set(
        PaimonTableComponent.model_fields
    )
    attributes = (set(policy.model_fields) - {"cron"}) | allowances
    assert attributes == set(find_op(action).config.model_fields)


@pytest.mark.slow
def test_the_launchpad_of_the_webserver_shows_the_policy(repository: Path, tmp_path: Path) -> None:
    """The test sends the query of the launchpad page."""
    file = tmp_path / "location.py"
    attributes = {
        "table": "lake.orders",
        "warehouse": "/lake",
        "snapshot_expiration": {"retain_for": "24 h"},
        "orphan_files": {"older_than": "5 d"},
    }
    file.write_text(
        "from paimon_orch.dagster import PaimonTableComponent\n"
        f"component = PaimonTableComponent.from_attributes_dict(attributes={attributes!r})\n"
        "defs = component.definitions()\n"
    )
    fields = " ".join(
        f"{action}: runConfigSchemaOrError(selector: "
        f"{{repositoryName: {json.dumps('__repository__')}, "
        f"repositoryLocationName: {json.dumps(file.name)}, "
        f"pipelineName: {json.dumps(action + '__lake__orders')}}}) "
        "{ ... on RunConfigSchema { rootDefaultYaml } }"
        for action in ("expire_snapshots", "remove_orphan_files")
    )
    result = subprocess.run(
        [
            Path(sys.executable).parent / "dagster-graphql",
            "--python-file",
            file,
            "--ephemeral-instance",
            "--text",
            f"{{ {fields} }}",
        ],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    [answer] = [line for line in result.stdout.splitlines() if line.startswith('{"data"')]

    expire, orphans = (data["rootDefaultYaml"] for data in json.loads(answer)["data"].values())
    assert "config:\n      dry_run: true\n      retain_for: 24 h\n" in expire
    assert "config:\n      dry_run: true\n      older_than: 5 d\n" in orphans
