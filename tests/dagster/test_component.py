import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonTableComponent,
)
from paimon_orch.errors import InputError
from paimon_orch.steps.inspect import inspect
from paimon_orch.table.table import Table

ATTRIBUTES: Mapping[str, Any] = {
    "table": "lake.orders",
    "warehouse": "/lake",
    "partitions": {"start": "2026-01-01"},
    "snapshot_expiration": {"retain_min": 10, "retain_for": "24 h", "cron": "17 * * * *"},
    "orphan_files": {"older_than": "7 d"},
    "checks": {"level0_backlog": {"limit": 20, "severity": "error", "blocking": True}},
}
DAY = "2026-01-01"
# Dagster warns of what it does itself when it loads YAML.
of_dagster = pytest.mark.filterwarnings(
    "ignore:.parse_obj_as. is deprecated", "ignore::dagster.BetaWarning"
)


def load(**attributes: Any) -> dg.Definitions:
    component = PaimonTableComponent.from_attributes_dict(attributes={**ATTRIBUTES, **attributes})
    return component.definitions()


def schedule_config(defs: dg.Definitions, action: str) -> dict[str, Any]:
    schedule = defs.resolve_schedule_def(f"{action}__lake__orders_schedule")
    [request] = schedule.evaluate_tick(dg.build_schedule_context()).run_requests or []
    config: dict[str, Any] = request.run_config["ops"][action]["config"]
    return config


def asset_keys(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.resolve_all_asset_keys()}


def test_a_few_lines_are_all_that_a_table_needs() -> None:
    defs = load()

    dg.Definitions.validate_loadable(defs)
    assert asset_keys(defs) == {"lake/orders", "lake/orders/compaction"}
    assert [sensor.name for sensor in defs.sensors or []] == ["latest_snapshot__lake__orders"]
    assert {job.name for job in defs.jobs or []} == {
        "expire_snapshots__lake__orders",
        "remove_orphan_files__lake__orders",
    }


def test_policies_reach_the_schedules() -> None:
    defs = load()

    expire = defs.resolve_schedule_def("expire_snapshots__lake__orders_schedule")
    assert expire.cron_schedule == "17 * * * *"
    assert expire.default_status is dg.DefaultScheduleStatus.STOPPED
    assert schedule_config(defs, "expire_snapshots") == {
        "dry_run": False,
        "retain_min": 10,
        "retain_for": "24 h",
    }
    assert schedule_config(defs, "remove_orphan_files") == {
        "dry_run": True,
        "older_than": "7 d",
        "quarantine": False,
    }


def test_without_a_policy_there_is_no_schedule() -> None:
    defs = load(snapshot_expiration=None, orphan_files=None)

    assert not list(defs.schedules or [])


def test_limits_reach_the_checks_and_null_means_none() -> None:
    [checks] = load().asset_checks or []
    assert isinstance(checks, dg.AssetChecksDefinition)
    spec = {spec.name: spec for spec in checks.check_specs}["level0_backlog"]

    assert spec.blocking
    assert not load(checks=None).asset_checks


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ({"values": ["eu", "us"]}, ["eu", "us"]),
        ({"values": ["1_0", "0x10"]}, ["1_0", "0x10"]),
        ({"start": "2026-01", "every": "month", "format": "%Y-%m"}, ["2026-01", "2026-02"]),
        ({"start": "20260101", "format": "%Y%m%d"}, ["20260101", "20260102"]),
        ({"start": "2026-01-01-00:00", "every": "hour"}, ["2026-01-01-00:00", "2026-01-01-01:00"]),
    ],
)
def test_partitions_are_values_or_times(partitions: object, expected: list[str]) -> None:
    asset = load(partitions=partitions).resolve_assets_def(
        dg.AssetKey(["lake", "orders", "compaction"])
    )

    assert asset.partitions_def
    assert list(asset.partitions_def.get_partition_keys())[:2] == expected


@pytest.mark.parametrize(
    "partitions", [{}, {"values": ["eu"], "start": "2026-01-01"}, {"start": "x", "dynamic": True}]
)
def test_partitions_are_of_one_kind(partitions: object) -> None:
    with pytest.raises(InputError, match="one of 'values', 'start' and 'dynamic'"):
        load(partitions=partitions)


def test_dynamic_partitions_are_named_after_the_table() -> None:
    asset = load(partitions={"dynamic": True}).resolve_assets_def(
        dg.AssetKey(["lake", "orders", "compaction"])
    )

    assert isinstance(asset.partitions_def, dg.DynamicPartitionsDefinition)
    assert asset.partitions_def.name == "paimon/lake.orders"


def test_one_trigger_requests_compactions() -> None:
    names = {
        trigger: {
            *(s.name for s in load(trigger=trigger).sensors or []),
            *(s.name for s in load(trigger=trigger).schedules or [] if "compaction" in s.name),
        }
        for trigger in ("sensor", "schedule", "none")
    }

    assert names == {
        "sensor": {"latest_snapshot__lake__orders"},
        "schedule": {"compaction__lake__orders_schedule"},
        "none": set(),
    }


def test_what_should_run_at_once_says_so() -> None:
    defs = load(running=True)

    sensor = defs.resolve_sensor_def("latest_snapshot__lake__orders")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING


def test_tables_of_one_warehouse_share_its_resources() -> None:
    defs = dg.Definitions.merge(load(), load(table="lake.items"))

    dg.Definitions.validate_loadable(defs)
    assert set(defs.resources or {}) == {"paimon", "spark"}
    assert load(warehouse=None).resources == {}


def test_options_are_text_whatever_yaml_makes_of_them() -> None:
    defs = load(storage_options={"key": "12345", "anon": True}, spark={"config": {"a.b": 8}})

    resources = defs.resources or {}
    assert resources["paimon"].storage_options == {"key": "12345", "anon": "true"}
    assert resources["spark"].spark_config == {"a.b": "8"}


def test_a_table_that_dagster_loads_has_its_asset_elsewhere() -> None:
    assets = load(external=False, file_index=True).assets or []

    keys = {asset.key for asset in assets if isinstance(asset, dg.AssetsDefinition | dg.AssetSpec)}
    assert {key.path[-1] for key in keys} == {"compaction", "file_index"}


def test_a_misspelt_attribute_is_refused() -> None:
    with pytest.raises(Exception, match="compactoin"):
        load(compactoin={})


def test_what_it_defines_compacts_the_table(
    orders: Table,
    upsert: Callable[..., None],
    paimon: PaimonCatalogResource,
    resources: Mapping[str, object],
) -> None:
    upsert(orders, DAY)
    assets = [
        asset
        for asset in load(warehouse=None).assets or []
        if isinstance(asset, dg.AssetsDefinition)
    ]

    assert dg.materialize(assets, resources=resources, partition_key=DAY).success
    assert inspect(orders).level0_files == 0


def test_the_python_of_the_documentation_runs(repository: Path, tmp_path: Path) -> None:
    text = (repository / "docs" / "dagster.md").read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) == 2

    for number, block in enumerate(blocks):
        path = tmp_path / f"block{number}.py"
        path.write_text(block)
        names = runpy.run_path(str(path))
        if "defs" in names:
            dg.Definitions.validate_loadable(names["defs"])


@of_dagster
def test_what_dg_scaffolds_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", "/lake")

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PaimonTableComponent, scaffold_params={"table": "lake.orders"}
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, PaimonTableComponent)
            assert component.table == "lake.orders"
            dg.Definitions.validate_loadable(defs)
