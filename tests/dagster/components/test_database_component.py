import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from paimon_orch.dagster import PaimonCatalogResource, PaimonDatabaseComponent
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


def test_each_table_has_the_definitions_of_a_table_component() -> None:
    policy = {"retain_min": 3}
    defs = component(warehouse="/lake", snapshot_expiration=policy).definitions(
        {"items": [], "orders": ["dt", "region"]}
    )

    dg.Definitions.validate_loadable(defs)
    assert partitions_of(defs, "items") is None
    assert isinstance(partitions_of(defs, "orders"), dg.DynamicPartitionsDefinition)
    names = {schedule.name for schedule in defs.schedules or []}
    assert names == {
        "expire_snapshots__lake__items_schedule",
        "expire_snapshots__lake__orders_schedule",
    }


def test_each_name_in_a_list_of_the_ui_contains_its_table() -> None:
    tables = {"orders": ["dt"], "items": []}
    attributes: dict[str, Any] = {
        "warehouse": "/lake",
        "file_index": True,
        "snapshot_expiration": {"retain_min": 3},
        "orphan_files": {"older_than": "3 d"},
        "partition_expiration": {"expiration_time": "30 d"},
        "iceberg": {},
    }
    by_trigger = [
        component(trigger=trigger, **attributes).definitions(tables)
        for trigger in ("sensor", "schedule")
    ]

    for defs in by_trigger:
        lists = [
            [key.path[-1] for key in defs.resolve_all_asset_keys()],
            [job.name for job in defs.jobs or []],
            [schedule.name for schedule in defs.schedules or []],
            [sensor.name for sensor in defs.sensors or []],
            [check.node_def.name for check in defs.asset_checks or []],
        ]
        for names in lists:
            assert len(names) == len(set(names))
            assert all(any(table in name for table in tables) for name in names)


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
