import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from paimon_orch.dagster import PaimonCatalogResource, PaimonDatabaseComponent, PaimonTableComponent
from paimon_orch.dagster.jobs import get_op_config, list_job_tables
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.table.table import Table

Create = Callable[..., Table]
# Dagster's code that loads YAML causes these warnings.
ignore_dagster_warnings = pytest.mark.filterwarnings(
    "ignore:.parse_obj_as. is deprecated", "ignore::dagster.BetaWarning"
)


def component(**attributes: Any) -> PaimonDatabaseComponent:
    return PaimonDatabaseComponent.from_attributes_dict(
        attributes={"database": "lake", **attributes}
    )


@pytest.fixture
def warehouse(create: Create, paimon: PaimonCatalogResource) -> str:
    """A database of two tables with partitions and one without."""
    create("lake.orders")
    create("lake.orders_old")
    create("lake.items", ())
    return str(paimon.warehouse)


def discover(tmp_path: Path, **attributes: Any) -> dict[str, list[str]]:
    component(**attributes).write_state_to_path(tmp_path / "state")
    state: dict[str, list[str]] = json.loads((tmp_path / "state").read_text())
    return state


def partitions_of(defs: dg.Definitions, table: str) -> dg.PartitionsDefinition[str] | None:
    return defs.resolve_assets_def(
        dg.AssetKey(["lake", table, f"{table}_compaction"])
    ).partitions_def


def test_matching_tables_are_discovered(warehouse: str, tmp_path: Path) -> None:
    assert discover(tmp_path, warehouse=warehouse) == {
        "items": [],
        "orders": ["dt"],
        "orders_old": ["dt"],
    }
    assert set(discover(tmp_path, warehouse=warehouse, select=["orders*"], exclude=["*_old"])) == {
        "orders"
    }


def test_a_refresh_adds_the_partitions_of_tables_before_a_sensor_runs(
    warehouse: str, paimon: PaimonCatalogResource, upsert: Callable[..., None], tmp_path: Path
) -> None:
    upsert(paimon.load_table("lake.orders"), "2026-01-01", "2026-01-02")

    with dg.DagsterInstance.local_temp() as instance:  # provides the storage of state
        state = discover(tmp_path, warehouse=warehouse)
        definition = partitions_of(component(warehouse=warehouse).definitions(state), "orders")
        assert definition is not None
        known = definition.get_partition_keys(dynamic_partitions_store=instance)

    assert known == ["2026-01-01", "2026-01-02"]


def test_assets_with_dynamic_partitions_say_which_sensor_adds_them() -> None:
    tables = {"items": [], "orders": ["dt"]}

    def describe(table: str, **attributes: Any) -> str:
        defs = component(warehouse="/lake", **attributes).definitions(tables)
        key = dg.AssetKey(["lake", table, f"{table}_compaction"])
        return str(defs.resolve_assets_def(key).get_asset_spec(key).description)

    assert describe("orders").endswith(
        "The sensor `latest_snapshot__lake` adds its partitions while it is started."
    )
    assert "latest_snapshot" not in describe("items")
    assert "latest_snapshot" not in describe("orders", trigger="none")
    assert "latest_snapshot" not in describe("orders", partitions={"start": "2026-01-01"})


def test_a_table_that_cannot_be_an_asset_is_skipped(
    warehouse: str, create: Create, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create("lake.my orders")
    (Path(warehouse) / "lake.db" / "half" / "schema").mkdir(parents=True)

    assert set(discover(tmp_path, warehouse=warehouse)) == {"items", "orders", "orders_old"}
    assert "'lake.my orders' cannot be part of an asset key" in caplog.text


def test_a_table_that_cannot_be_read_is_skipped(
    warehouse: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (Path(warehouse) / "lake.db" / "items" / "schema" / "schema-0").write_text("{")

    assert set(discover(tmp_path, warehouse=warehouse)) == {"orders", "orders_old"}
    assert "the table lake.items is skipped" in caplog.text


def test_each_component_has_its_own_state_key() -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"select": ["orders*"]},
        {"exclude": ["orders*"]},
        {"warehouse": "/other"},
        {"database": "sea"},
    ]
    keys = {component(**attributes).defs_state_config.key for attributes in variants}

    assert len(keys) == len(variants)


def test_a_missing_database_is_refused(warehouse: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no database 'sea'"):
        discover(tmp_path, warehouse=warehouse, database="sea")


def test_tables_of_a_named_catalog_are_discovered(
    warehouse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__PROD__WAREHOUSE", warehouse)
    monkeypatch.setenv("SOME_TOKEN", "true")

    assert set(discover(tmp_path, catalog="prod")) == {"items", "orders", "orders_old"}
    options = {"cache.token": {"env": "SOME_TOKEN"}, "cache-enabled": False}
    by_kind = {"metastore": "filesystem", "warehouse": warehouse, "catalog_options": options}
    assert set(discover(tmp_path, **by_kind)) == {"items", "orders", "orders_old"}


def test_the_state_has_a_key_without_secrets() -> None:
    keys = [
        component(**attributes).defs_state_config.key
        for attributes in (
            {"warehouse": "/lake"},
            {"catalog": "prod"},
            {"metastore": "jdbc", "uri": "jdbc:postgresql://h/d?password=word", "warehouse": "/l"},
        )
    ]
    assert keys == [
        "PaimonDatabaseComponent[/lake/lake+*]",
        "PaimonDatabaseComponent[prod/lake+*]",
        "PaimonDatabaseComponent[jdbc:jdbc:postgresql://h/d?password=***:/l/lake+*]",
    ]


def test_discovery_requires_a_warehouse(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'warehouse'"):
        discover(tmp_path)


def test_tables_share_a_sensor_jobs_and_schedules() -> None:
    policies = {
        "snapshot_expiration": {"retain_min": 3, "cron": "17 * * * *"},
        "orphan_files": {"older_than": "3 d"},
        "partition_expiration": {"expiration_time": "30 d"},
        "iceberg": {},
    }
    defs = component(warehouse="/lake", key_prefix=["prod"], **policies).definitions(
        {"items": [], "orders": ["dt", "region"]}
    )

    dg.Definitions.validate_loadable(defs)
    actions = {"expire_snapshots", "remove_orphan_files", "expire_partitions", "sync_iceberg"}
    assert {job.name for job in defs.jobs or []} == {f"{name}__prod__lake" for name in actions}
    assert {schedule.name for schedule in defs.schedules or []} == {
        f"{name}__prod__lake_schedule" for name in actions
    }
    assert [sensor.name for sensor in defs.sensors or []] == ["latest_snapshot__prod__lake"]
    assert defs.resolve_schedule_def("expire_snapshots__prod__lake_schedule").cron_schedule == (
        "17 * * * *"
    )


def test_assets_of_tables_keep_their_own_partitions() -> None:
    defs = component(warehouse="/lake").definitions({"items": [], "orders": ["dt", "region"]})

    assert partitions_of(defs, "items") is None
    assert partitions_of(defs, "orders") == dg.DynamicPartitionsDefinition(
        name="paimon/lake.orders"
    )


def test_each_asset_and_check_in_a_list_of_the_ui_contains_its_table() -> None:
    tables = {"orders": ["dt"], "items": []}
    defs = component(warehouse="/lake", file_index=True).definitions(tables)

    lists = [
        [key.path[-1] for key in defs.resolve_all_asset_keys()],
        [check.node_def.name for check in defs.asset_checks or []],
    ]
    for names in lists:
        assert len(names) == len(set(names))
        assert all(any(table in name for table in tables) for name in names)


def test_components_of_one_database_have_different_names() -> None:
    defs = dg.Definitions.merge(
        component(warehouse="/lake", name="hot").definitions({"orders": ["dt"]}),
        component(warehouse="/lake", name="cold").definitions({"items": []}),
    )

    dg.Definitions.validate_loadable(defs)
    assert {sensor.name for sensor in defs.sensors or []} == {
        "latest_snapshot__hot",
        "latest_snapshot__cold",
    }


@pytest.mark.parametrize(
    ("attributes", "sensors", "schedules"),
    [
        ({"trigger": "automation"}, {"latest_snapshot__lake"}, set()),
        ({"trigger": "none"}, set(), set()),
        (
            {"trigger": "schedule"},
            set(),
            {"compaction__lake__items_schedule", "compaction__lake__orders_schedule"},
        ),
    ],
)
def test_the_trigger_of_all_tables(
    attributes: dict[str, Any], sensors: set[str], schedules: set[str]
) -> None:
    defs = component(warehouse="/lake", **attributes).definitions({"items": [], "orders": ["dt"]})

    dg.Definitions.validate_loadable(defs)
    assert {sensor.name for sensor in defs.sensors or []} == sensors
    assert {schedule.name for schedule in defs.schedules or []} == schedules


def test_a_database_without_tables_can_be_loaded() -> None:
    defs = component(warehouse="/lake").definitions({})

    dg.Definitions.validate_loadable(defs)
    assert not defs.sensors
    assert not defs.jobs


class OwnPolicyComponent(PaimonDatabaseComponent):
    def table_component(self, table: str, *, partitioned: bool) -> PaimonTableComponent:
        component = super().table_component(table, partitioned=partitioned)
        if table != "lake.audit":
            return component
        return component.model_copy(update={"snapshot_expiration": None})


def test_a_table_with_other_attributes_has_a_sensor_and_jobs_of_its_own() -> None:
    defs = OwnPolicyComponent.from_attributes_dict(
        attributes={
            "database": "lake",
            "warehouse": "/lake",
            "snapshot_expiration": {"retain_for": "1 h"},
        }
    ).definitions({"audit": ["dt"], "items": [], "orders": ["dt"]})

    dg.Definitions.validate_loadable(defs)
    assert {sensor.name for sensor in defs.sensors or []} == {
        "latest_snapshot__lake",
        "latest_snapshot__lake__audit",
    }
    job = defs.resolve_job_def("expire_snapshots__lake")
    assert list_job_tables(job) == ["lake.items", "lake.orders"]
    own = defs.resolve_job_def("expire_snapshots__lake__audit")
    assert "retain_for" not in get_op_config(own)
    assert [schedule.name for schedule in defs.schedules or []] == [
        "expire_snapshots__lake_schedule"
    ]


def snapshot_ids(paimon: PaimonCatalogResource, table: str) -> list[int]:
    return [*paimon.load_table(table).stores.snapshots.ids()]


@pytest.fixture
def expiring(
    create: Create, paimon: PaimonCatalogResource, upsert: Callable[..., None]
) -> dg.Definitions:
    """A component of two tables with two snapshots each, of which one expires."""
    for name in ("lake.items", "lake.orders"):
        table = create(name, ())
        upsert(table, "2026-01-01")
        upsert(table, "2026-01-02")
    policy = {"retain_min": 1, "retain_max": 1, "retain_for": "1 ms"}
    return component(warehouse=paimon.warehouse, snapshot_expiration=policy).definitions(
        {"items": [], "orders": []}
    )


def test_a_run_maintains_the_table_of_its_partition(
    expiring: dg.Definitions,
    paimon: PaimonCatalogResource,
    resources: dict[str, object],
    instance: dg.DagsterInstance,
) -> None:
    job = expiring.resolve_job_def("expire_snapshots__lake")
    launchpad = job.get_run_config_for_partition_key("lake.items")
    assert dg.validate_run_config(job, launchpad)
    assert launchpad["ops"]["expire_snapshots"]["config"]["dry_run"] is True
    options: dict[str, Any] = {
        "partition_key": "lake.items",
        "resources": resources,
        "instance": instance,
    }

    planned = job.execute_in_process(**options)  # the launchpad's config
    assert snapshot_ids(paimon, "lake.items") == [1, 2]
    config = {"ops": {"expire_snapshots": {"config": {"dry_run": False}}}}
    result = job.execute_in_process(config, **options)

    assert snapshot_ids(paimon, "lake.items") == [2]
    assert snapshot_ids(paimon, "lake.orders") == [1, 2]
    assert planned.dagster_run.tags["paimon/table"] == "lake.items"
    [event] = [e for e in result.all_events if e.is_asset_observation]
    observation = event.asset_observation_data.asset_observation
    assert observation.asset_key == dg.AssetKey(["lake", "items"])
    assert observation.partition is None


def test_a_run_without_a_partition_says_what_to_select(
    expiring: dg.Definitions, resources: dict[str, object]
) -> None:
    job = expiring.resolve_job_def("expire_snapshots__lake")

    with pytest.raises(dg.Failure, match="select a table as the partition of the run"):
        job.execute_in_process(resources=resources)


@pytest.mark.slow
def test_the_schedule_requests_a_run_for_each_table(expiring: dg.Definitions) -> None:
    repository = expiring.get_repository_def()
    schedule = repository.get_schedule_def("expire_snapshots__lake_schedule")
    time = datetime(2026, 1, 4, 3, tzinfo=UTC)

    with dg.DagsterInstance.local_temp() as instance:
        context = dg.build_schedule_context(instance, time, repository_def=repository)
        requests = schedule.evaluate_tick(context).run_requests or []

    assert [request.partition_key for request in requests] == ["lake.items", "lake.orders"]
    assert len({request.run_key for request in requests}) == 2
    for request in requests:
        assert request.tags["paimon/table"] == request.partition_key
        assert request.tags["dagster/priority"] == "-1"
        config = request.run_config["ops"]["expire_snapshots"]["config"]
        assert (config["dry_run"], config["retain_for"]) == (False, "1 ms")


def test_given_partitions_apply_to_all_partitioned_tables() -> None:
    defs = component(warehouse="/lake", partitions={"start": "2026-01-01"}).definitions(
        {"items": [], "orders": ["dt"]}
    )

    assert partitions_of(defs, "items") is None
    assert isinstance(partitions_of(defs, "orders"), dg.DailyPartitionsDefinition)


@ignore_dagster_warnings
def test_dagster_loads_the_component_without_reading_the_warehouse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(tmp_path / "warehouse"))

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PaimonDatabaseComponent, scaffold_params={"database": "lake"}
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (loaded, defs):
            assert isinstance(loaded, PaimonDatabaseComponent)
            assert not list(defs.assets or [])
    assert not (tmp_path / "warehouse").exists()
