"""The scheduler, the triggerer and the API server of Airflow, with a SQLite database.

``SCREENSHOTS=docs/images pytest tests/airflow_provider/test_deployment.py`` writes the picture of
the documentation.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.airflow_deployment import AirflowDeployment
from support.airflow_environment import Airflow, read_example, run_in_airflow

from paimon_orch import Catalog
from paimon_orch.steps import mark_done
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("airflow"),
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]

PICTURES = os.environ.get("SCREENSHOTS")
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None
)
PARTITIONS = 50 if PICTURES else 8
LARGE_ROWS = 1_000_000
OPTIONS = {"bucket": "1", "deletion-vectors.enabled": "true"}
COLUMNS = "day STRING, id BIGINT"
DAYS = [f"2026-01-{day:02d}" for day in range(1, 10)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("getting-started")


@pytest.fixture(scope="module")
def catalog(lake: Path) -> Catalog:
    opened = Catalog(str(lake / "lake"))
    opened.create_database("shop")
    return opened


@pytest.fixture(scope="module")
def deployment(airflow: Airflow, lake: Path, catalog: Catalog) -> Iterator[AirflowDeployment]:
    connection = {"conn_type": "paimon", "host": str(lake / "lake")}
    closed = {"metastore": "rest", "uri": "http://127.0.0.1:9"}
    unreachable = {
        "conn_type": "paimon",
        "host": "lake",
        "password": "secret",
        "extra": json.dumps(closed),
    }
    variables = airflow.variables | {
        "AIRFLOW_CONN_PAIMON_DEFAULT": json.dumps(connection),
        "AIRFLOW_CONN_PAIMON_UNREACHABLE": json.dumps(unreachable),
    }
    running = AirflowDeployment(airflow.python, variables)
    airflow.dags.mkdir()
    shutil.copy(Path(__file__).with_name("dags") / "proof.py", airflow.dags)
    (airflow.dags / "maintain_orders.py").write_text(read_example("maintain_orders"))
    days = read_example("compact_days").replace("shop.orders", "shop.days")
    (airflow.dags / "compact_days.py").write_text(days)
    for name in ("first", "second"):
        upsert(create_table(catalog, name), *DAYS)
    listed = run_in_airflow(airflow.python, variables, "-c", read_example("build_pools"))
    (lake / "pools.json").write_text(listed.stdout)
    try:
        running.start()
        running.cli("pools", "import", str(lake / "pools.json"))
        yield running
    finally:
        running.close()


def create_table(catalog: Catalog, name: str, **options: str) -> Table:
    return catalog.create_table(
        f"shop.{name}",
        COLUMNS,
        primary_key=["day", "id"],
        partition_by=["day"],
        options=OPTIONS | options,
    )


def upsert(table: Table, *days: str) -> None:
    table.upsert(pa.table({"day": list(days), "id": pa.array([1] * len(days), pa.int64())}))


def get_times(task: dict[str, Any]) -> tuple[datetime, datetime]:
    start, end = (datetime.fromisoformat(task[name]) for name in ("start_date", "end_date"))
    return start, end


def test_commits_of_another_process_start_the_dag_of_the_page(
    deployment: AirflowDeployment, lake: Path
) -> None:
    (lake / "write_orders.py").write_text(read_example("create_table"))
    write = [str(deployment.python), "write_orders.py", str(PARTITIONS)]
    subprocess.run(write, cwd=lake, env=deployment.variables, check=True)

    run = deployment.wait_for_run("maintain_orders", seconds=800)

    assert (run["state"], run["run_type"]) == ("success", "asset_triggered")
    tasks = deployment.list_tasks("maintain_orders", run["dag_run_id"])
    compactions = [task for task in tasks if task["task_id"] == "compact"]
    assert len(compactions) == PARTITIONS
    assert {task["state"] for task in tasks} == {"success"}
    days = {f"day={date(2026, 1, 1) + timedelta(n)}" for n in range(PARTITIONS)}
    assert {task["rendered_map_index"] for task in compactions} == days
    [event] = deployment.api("/api/v2/assets/events?limit=10")["asset_events"]
    assert event["extra"]["payload"]["table"] == "shop.orders"
    assert len(event["extra"]["payload"]["due"]) == PARTITIONS
    orders = Catalog(str(lake / "lake")).table("shop.orders")
    assert orders.scan().rows_not_visible == 0
    assert orders.scan().to_arrow().num_rows == PARTITIONS
    assert not check(orders).findings


def test_a_task_links_to_its_plan_and_outcome(deployment: AirflowDeployment) -> None:
    run = deployment.wait_for_run("maintain_orders", seconds=800)["dag_run_id"]
    path = f"/api/v2/dags/maintain_orders/dagRuns/{run.replace('+', '%2B')}/taskInstances/compact"

    links = deployment.api(f"{path}/links?map_index=3")["extra_links"]

    [(name, address)] = links.items()
    assert name == "Plan and outcome"
    assert address.startswith(f"{deployment.url}/dags/maintain_orders/runs/asset_triggered__")
    assert address.endswith("/tasks/compact/mapped/3/xcom")


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed")
def test_the_ui_shows_the_partitions(deployment: AirflowDeployment) -> None:
    from playwright.sync_api import sync_playwright

    run = deployment.wait_for_run("maintain_orders", seconds=800)["dag_run_id"]
    with sync_playwright() as playwright:
        switches = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=switches)
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(60_000)
        address = f"{deployment.url}/dags/maintain_orders/runs/{run.replace('+', '%2B')}"
        page.goto(f"{address}/tasks/compact/mapped")
        page.get_by_text("day=2026-").first.wait_for()
        page.wait_for_timeout(2000)
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / "airflow-compactions.png")
        page.goto(f"{address}/tasks/compact/mapped/3/xcom")
        page.get_by_text("return_value").first.wait_for()
        browser.close()


def test_a_damaged_table_fails_without_a_retry_and_names_the_next_step(
    deployment: AirflowDeployment, catalog: Catalog
) -> None:
    damaged = create_table(catalog, "damaged")
    upsert(damaged, *DAYS)
    upsert(damaged, *DAYS)  # a compaction reads files that it merges
    next(Path(damaged.paths.root).glob("day=*/bucket-0/data-*")).write_bytes(b"damaged")

    deployment.trigger("damaged", "first")
    run = deployment.wait_for_run("damaged")

    [task] = deployment.list_tasks("damaged", "first")
    assert (run["state"], task["state"], task["try_number"]) == ("failed", "failed", 1)
    assert "paimon-orch doctor --deep" in deployment.read_task_log("damaged", "first", "compact")


def test_an_unreachable_catalog_is_tried_again(deployment: AirflowDeployment) -> None:
    deployment.trigger("unreachable", "first")

    run = deployment.wait_for_run("unreachable", seconds=300)

    [task] = deployment.list_tasks("unreachable", "first")
    assert (run["state"], task["try_number"]) == ("failed", 2)


def test_a_killed_worker_leaves_a_table_that_the_next_attempt_compacts(
    deployment: AirflowDeployment, catalog: Catalog
) -> None:
    large = catalog.create_table(
        "shop.large",
        "id BIGINT, amount BIGINT",
        primary_key=["id"],
        options=OPTIONS | {"bucket": "4"},
    )
    for part in range(4):
        ids = pa.array(range(part, LARGE_ROWS, 4), pa.int64())
        large.upsert(pa.table({"id": ids, "amount": ids}))
    files = set(Path(large.paths.root).glob("bucket-*/data-*"))
    before = large.stores.snapshots.latest_id()

    deployment.trigger("killed", "first")
    deadline = time.monotonic() + 120
    while set(Path(large.paths.root).glob("bucket-*/data-*")) == files:
        assert time.monotonic() < deadline, deployment.logs()
        time.sleep(0.01)
    killed = deployment.kill_tasks()

    assert killed
    assert large.stores.snapshots.latest_id() == before  # it was killed before its commit
    assert not check(large).findings
    run = deployment.wait_for_run("killed", seconds=240)
    [task] = deployment.list_tasks("killed", "first")
    assert (run["state"], task["try_number"]) == ("success", 2)
    rows = large.scan().to_arrow()
    assert large.scan().rows_not_visible == 0
    assert rows.num_rows == LARGE_ROWS
    assert rows["id"].combine_chunks().sort().equals(pa.array(range(LARGE_ROWS), pa.int64()))
    assert not check(large).findings


def test_a_backfill_compacts_the_partitions_of_its_keys(
    deployment: AirflowDeployment, catalog: Catalog
) -> None:
    days = create_table(catalog, "days")
    upsert(days, *DAYS)
    deployment.wait_for(lambda: deployment.knows("compact_days"), 60, "compact_days")

    def find_runs() -> list[dict[str, Any]]:
        # the schedule has also started a run for today, whose partition does not exist
        runs = [r for r in deployment.list_runs("compact_days") if r["run_type"] == "backfill"]
        return runs if [run["state"] for run in runs] == ["success"] * 3 else []

    window = ("--from-date", DAYS[1], "--to-date", DAYS[3])
    deployment.cli("backfill", "create", "--dag-id", "compact_days", *window)
    runs = deployment.wait_for(find_runs, 240, "the backfill")

    assert sorted(run["partition_key"] for run in runs) == DAYS[1:4]
    visible = days.scan(columns=["day"]).to_arrow()["day"].to_pylist()
    assert sorted(visible) == DAYS[1:4]


def test_deferred_sensors_wait_in_the_triggerer(
    deployment: AirflowDeployment, catalog: Catalog
) -> None:
    days = catalog.table("shop.days")
    deployment.trigger("waiting", "first")

    def wait_until_deferred(name: str) -> None:
        def is_deferred() -> bool:
            tasks = deployment.list_tasks("waiting", "first")
            return (name, "deferred") in {(task["task_id"], task["state"]) for task in tasks}

        deployment.wait_for(is_deferred, 300, f"the deferred task {name}")

    wait_until_deferred("done")
    mark_done(days, [f"day={DAYS[8]}"])
    wait_until_deferred("healthy")
    days.compact()

    assert deployment.wait_for_run("waiting")["state"] == "success"


def test_pools_let_one_task_of_all_dags_write_a_table(
    deployment: AirflowDeployment,
) -> None:
    deployment.trigger("hourly", "first")
    deployment.trigger("nightly", "first")
    runs = [deployment.wait_for_run(dag, seconds=240) for dag in ("hourly", "nightly")]

    assert {run["state"] for run in runs} == {"success"}
    tasks = [task for dag in ("hourly", "nightly") for task in deployment.list_tasks(dag, "first")]
    assert {task["pool"] for task in tasks} == {
        "paimon_default.shop.first",
        "paimon_default.shop.second",
    }
    for name in ("first", "second"):
        placed = [get_times(task) for task in tasks if task["pool"].endswith(name)]
        assert len(placed) == 3
        assert all(one[1] <= other[0] for one, other in pairwise(sorted(placed)))


def test_a_task_waits_until_its_pool_exists(
    deployment: AirflowDeployment, catalog: Catalog
) -> None:
    upsert(create_table(catalog, "third"), *DAYS)
    deployment.trigger("without_pool", "first")

    message = "Tasks using non-existent pool 'paimon_default.shop.third' will not be scheduled"
    deployment.wait_for(lambda: message in deployment.logs(), 60, "the message")
    states = {task["state"] for task in deployment.list_tasks("without_pool", "first")}
    assert states == {"scheduled", None}

    pool = {"name": "paimon_default.shop.third", "slots": 1, "description": ""}
    deployment.api("/api/v2/pools", pool)

    assert deployment.wait_for_run("without_pool")["state"] == "success"
