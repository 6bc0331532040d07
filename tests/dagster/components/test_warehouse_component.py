"""One job maintains all tables of a catalog, also those that are created after the definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox
from support.dagster.spark_resources import UnavailableSparkResource
from support.lake import ROWS, create_lake

from paimon_orch import Catalog
from paimon_orch.dagster import PaimonCatalogResource, PaimonWarehouseComponent
from paimon_orch.errors import InputError
from paimon_orch.steps.autopilot.maintenance_history import read_maintenance_history
from paimon_orch.steps.autopilot.maintenance_request import HISTORY_TABLE

HISTORY = dg.AssetKey(HISTORY_TABLE.split("."))
# Dagster's code that loads YAML causes these warnings.
ignore_dagster_warnings = pytest.mark.filterwarnings(
    "ignore:.parse_obj_as. is deprecated", "ignore::dagster.BetaWarning"
)


def component(**attributes: Any) -> PaimonWarehouseComponent:
    return PaimonWarehouseComponent.from_attributes_dict(attributes=attributes)


def resolve_job(root: Path, **attributes: Any) -> dg.JobDefinition:
    """Return the job of a component without a catalog, with resources that never start Spark."""
    resources = dg.Definitions(
        resources={
            "paimon": PaimonCatalogResource(warehouse=str(root)),
            "spark": UnavailableSparkResource(),
        }
    )
    defs = dg.Definitions.merge(component(**attributes).definitions(), resources)
    return defs.resolve_job_def("paimon_maintenance")


def run_job(
    job: dg.JobDefinition, instance: dg.DagsterInstance, **config: Any
) -> dg.ExecuteInProcessResult:
    run_config = {"ops": {"maintain": {"config": {"dry_run": False, **config}}}}
    return job.execute_in_process(run_config=run_config, instance=instance, raise_on_error=False)


def observations_of(result: dg.ExecuteInProcessResult) -> dict[dg.AssetKey, dict[str, Any]]:
    """Return the metadata of the last observation of each asset."""
    events = result.get_asset_observation_events()
    return {
        event.asset_observation_data.asset_observation.asset_key: {
            key: value.value
            for key, value in event.asset_observation_data.asset_observation.metadata.items()
        }
        for event in events
    }


def test_a_run_maintains_all_tables_and_reports_each_decision(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    catalog = create_lake(tmp_path)

    result = run_job(resolve_job(tmp_path, prices={"per_gb": 1000.0}), instance)

    assert result.success
    observations = observations_of(result)
    plan = observations[HISTORY]
    assert (plan["paimon/tables"], plan["paimon/chosen"]) == (2, 4)
    states = [record.data["state"] for record in plan["paimon/decisions"].records]
    assert states == ["chosen"] * 4 + ["nothing to do"] * 2
    orders = observations[dg.AssetKey(["sales", "orders"])]
    assert (orders["paimon/actions"], orders["paimon/failed_actions"]) == (2, 0)
    assert orders["paimon/cost"] > 0
    [event] = result.asset_materializations_for_node("maintain")
    assert event.asset_key == HISTORY
    rows = read_maintenance_history(catalog, HISTORY_TABLE)
    assert event.metadata["paimon/actions"].value == len(rows) == 4
    assert event.metadata["paimon/history_run_id"].value == rows["run_id"][0].as_py()


def test_new_tables_are_maintained_without_new_definitions(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    job = resolve_job(tmp_path)
    catalog = Catalog(str(tmp_path))
    options = {"source.split.open-file-cost": "32 mb", "bucket": "-1"}
    table = catalog.create_table("new.events", "k BIGINT, v STRING", options=options)
    for _ in range(6):
        table.append(ROWS)

    assert run_job(job, instance).success

    assert [file for split in table.files() for file in split.files][1:] == []


def test_the_launchpad_shows_a_dry_run_and_the_budgets(tmp_path: Path) -> None:
    budgets = {"max_bytes": "5 gb", "max_concurrent": 2, "hours": "22-6", "min_score": 3.0}

    job = resolve_job(tmp_path, budgets=budgets)

    assert job.run_config == {
        "ops": {"maintain": {"config": {**budgets, "max_bytes_per_hour": None, "dry_run": True}}}
    }


def test_a_run_has_the_budgets_of_the_component_except_those_of_its_config(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    create_lake(tmp_path)
    job = resolve_job(tmp_path, budgets={"min_score": 1_000_000.0})

    refused = observations_of(run_job(job, instance, dry_run=True))[HISTORY]
    allowed = observations_of(run_job(job, instance, dry_run=True, min_score=1.0))[HISTORY]
    wrong = run_job(job, instance, hours="late")

    assert refused["paimon/chosen"] < allowed["paimon/chosen"] == 4
    assert not wrong.success


@pytest.mark.slow
def test_a_dry_run_changes_no_table(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    catalog = create_lake(tmp_path)

    result = resolve_job(tmp_path).execute_in_process(instance=instance)  # as from the launchpad

    assert result.success
    assert set(observations_of(result)) == {HISTORY}
    assert result.asset_materializations_for_node("maintain") == []
    assert catalog.databases() == ["sales", "web"]


@pytest.mark.slow
def test_a_failed_action_fails_the_run_after_the_others(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    catalog = create_lake(tmp_path)
    for file in (tmp_path / "web.db" / "events" / "bucket-0").iterdir():
        file.unlink()

    job = resolve_job(tmp_path)
    policy = dg.RetryPolicy(max_retries=1)
    job = job.graph.to_job(resource_defs=job.resource_defs, op_retry_policy=policy)

    result = run_job(job, instance)

    assert not result.success
    assert result.retry_attempts_for_node("maintain") == 0
    [failure] = [event for event in result.all_events if event.is_step_failure]
    data = failure.step_failure_data
    assert data.user_failure_data is not None
    assert data.user_failure_data.description is not None
    assert data.user_failure_data.description.startswith("1 of 4 actions failed; the others were")
    outcomes = read_maintenance_history(catalog, HISTORY_TABLE)["outcome"].to_pylist()
    assert sorted(outcomes) == ["done", "done", "done", "failed"]


@ignore_dagster_warnings
def test_a_scaffolded_component_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", "/lake")

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=PaimonWarehouseComponent)
        with sandbox.load_component_and_build_defs(defs_path=path) as (loaded, defs):
            assert isinstance(loaded, PaimonWarehouseComponent)
            assert loaded.build_request().budgets.hour_bytes == 50 << 30
            dg.Definitions.validate_loadable(defs)


def test_the_component_shares_the_resources_of_its_catalog() -> None:
    one, other = component(warehouse="/lake"), component(warehouse="/lake", name="nightly")

    merged = dg.Definitions.merge(one.definitions(), other.definitions())

    assert {job.name for job in merged.jobs or ()} == {"paimon_maintenance", "nightly"}


@pytest.mark.slow
def test_no_run_is_requested_while_another_is_unfinished() -> None:
    defs = component(warehouse="/lake").definitions()
    schedule = defs.resolve_schedule_def("paimon_maintenance_schedule")
    # The context of a schedule cannot use an ephemeral instance.
    with dg.DagsterInstance.local_temp() as instance:
        first = schedule.evaluate_tick(dg.build_schedule_context(instance=instance))
        run = instance.create_run_for_job(
            defs.resolve_job_def("paimon_maintenance"), status=dg.DagsterRunStatus.STARTED
        )
        second = schedule.evaluate_tick(dg.build_schedule_context(instance=instance))

    [request] = first.run_requests or ()
    assert request.run_config["ops"]["maintain"]["config"]["dry_run"] is False
    assert not second.run_requests
    assert second.skip_message == f"run {run.run_id} of paimon_maintenance is unfinished"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": "a-b"}, "'a-b' is not the name of a job"),
        ({"budgets": {"hours": "22-"}}, "hours are '22-'"),
        ({"budgets": {"max_bytes": "many"}}, "max_bytes"),
        ({"reads": {"*": -1}}, "must be at least 0"),
        ({"idle_for": "soon"}, "idle_for"),
        ({"history_table": "history"}, "database.table"),
        ({"cron": "hourly"}, "cron"),
    ],
)
def test_invalid_attributes_are_refused_when_definitions_load(
    attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        component(**attributes)
