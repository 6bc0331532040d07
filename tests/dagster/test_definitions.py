"""The project's own code location loads at once, holds together, and works on real flights."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from paimon_orch.dagster import PaimonCatalogResource, SparkSessionResource
from paimon_orch.flights import MONTHS, TABLE
from paimon_orch.steps.inspect import inspect
from paimon_orch.warehouse import default_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOARD = dg.AssetKey(["nyc", "flight_board"])
COMPACTION = dg.AssetKey([*BOARD.path, "compaction"])
FILE_INDEX = dg.AssetKey([*BOARD.path, "file_index"])


@pytest.fixture
def defs() -> dg.Definitions:
    from definitions import defs

    return defs


def test_they_load(defs: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(defs)


def test_loading_starts_no_spark_and_touches_no_warehouse(repository: Path, tmp_path: Path) -> None:
    code = (
        "import sys, definitions, dagster as dg; dg.Definitions.validate_loadable(definitions.defs);"
        "print('pyspark' in sys.modules, definitions.defs.resources['paimon'].warehouse)"
    )
    warehouse = tmp_path / "warehouse"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=repository,
        env={**os.environ, "PAIMON_WAREHOUSE": str(warehouse)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["False", str(warehouse)]
    assert not warehouse.exists()


def test_without_the_variable_the_warehouse_lies_in_the_users_cache() -> None:
    assert default_warehouse().endswith("warehouse")
    assert "paimon-orch" in Path(default_warehouse()).parts


@pytest.mark.slow
def test_dg_accepts_the_project(repository: Path) -> None:
    program = Path(sys.executable).parent / "dg"

    done = subprocess.run(
        [program, "check", "defs"], cwd=repository, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_month_of_the_board_is_a_partition_of_all_assets(defs: dg.Definitions) -> None:
    for key in (BOARD, COMPACTION, FILE_INDEX):
        partitions = defs.resolve_assets_def(key).partitions_def
        assert partitions
        assert tuple(partitions.get_partition_keys()) == MONTHS


def test_sensor_jobs_and_schedules_are_there_and_stopped(defs: dg.Definitions) -> None:
    sensor = defs.resolve_sensor_def("latest_snapshot__nyc__flight_board")
    schedules = [s for s in defs.schedules or [] if isinstance(s, dg.ScheduleDefinition)]

    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    assert {job.name for job in defs.jobs or []} == {
        "compact_manifests__nyc__flight_board",
        "expire_snapshots__nyc__flight_board",
        "remove_orphan_files__nyc__flight_board",
    }
    assert {schedule.name for schedule in schedules} == {
        "compact_manifests__nyc__flight_board_schedule",
        "compaction__nyc__flight_board_schedule",
        "expire_snapshots__nyc__flight_board_schedule",
        "remove_orphan_files__nyc__flight_board_schedule",
    }
    assert {s.default_status for s in schedules} == {dg.DefaultScheduleStatus.STOPPED}


def test_the_boards_health_is_checked(defs: dg.Definitions) -> None:
    [checks] = defs.asset_checks or []

    assert isinstance(checks, dg.AssetChecksDefinition)
    assert {key.asset_key for key in checks.check_keys} == {BOARD}


@pytest.mark.timeout(300)
def test_a_month_of_flights_is_loaded_in_three_waves_and_compacted(
    spark: "SparkSession", paimon: PaimonCatalogResource
) -> None:
    from definitions import compaction, flight_board

    result = dg.materialize(
        [flight_board, compaction],
        partition_key="2013-02",
        resources={"paimon": paimon, "spark": SparkSessionResource()},
    )

    board = paimon.load_table(TABLE)
    kinds = [board.snapshots.get(number).commit_kind.value for number in board.snapshots.ids()]
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
