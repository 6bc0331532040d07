"""The sensor adds and deletes the partitions of a dynamic definition."""

from collections.abc import Callable
from datetime import date

import dagster as dg
import pyarrow as pa
import pytest
from support.dagster.ticks import SensorTicks

from paimon_orch.dagster import PaimonCatalogResource, build_latest_snapshot_sensor
from paimon_orch.table.table import Table

DAYS = [f"2026-01-{day:02d}" for day in range(1, 6)]
DYNAMIC = dg.DynamicPartitionsDefinition(name="paimon/lake.orders")
Upsert = Callable[..., None]
CompactAll = Callable[[Table], None]
RollBack = Callable[[Table, int], None]


def tick(ticks: SensorTicks) -> tuple[set[str], set[str], list[str | None]]:
    """The keys that a tick adds and deletes, and the partitions that it requests."""
    before = ticks.instance.get_dynamic_partitions("paimon/lake.orders")
    requested = ticks.requested_partitions()
    after = ticks.instance.get_dynamic_partitions("paimon/lake.orders")
    return {*after} - {*before}, {*before} - {*after}, requested


@pytest.fixture
def dynamic(paimon: PaimonCatalogResource, instance: dg.DagsterInstance) -> SensorTicks:
    sensor = build_latest_snapshot_sensor("lake.orders", partitions_def=DYNAMIC)
    return SensorTicks(sensor, paimon, instance)


def test_partitions_of_the_table_are_added_in_order(
    dynamic: SensorTicks, orders: Table, upsert: Upsert, compact_all: CompactAll
) -> None:
    upsert(orders, DAYS[3], DAYS[1])
    compact_all(orders)
    upsert(orders, DAYS[2])

    first = tick(dynamic)
    upsert(orders, DAYS[0])
    second = tick(dynamic)

    assert first == ({*DAYS[1:4]}, set(), [DAYS[2]])
    assert second == ({DAYS[0]}, set(), [DAYS[0]])
    assert dynamic.instance.get_dynamic_partitions("paimon/lake.orders") == [*DAYS[1:4], DAYS[0]]


def test_only_dropped_partitions_are_deleted(
    dynamic: SensorTicks, orders: Table, upsert: Upsert, instance: dg.DagsterInstance
) -> None:
    upsert(orders, DAYS[0], DAYS[1])
    tick(dynamic)
    instance.add_dynamic_partitions("paimon/lake.orders", ["still to be loaded"])
    orders.drop_partitions([{"dt": DAYS[0]}])

    added, deleted, _ = tick(dynamic)

    assert (added, deleted) == (set(), {DAYS[0]})
    assert set(instance.get_dynamic_partitions("paimon/lake.orders")) == {
        DAYS[1],
        "still to be loaded",
    }


@pytest.fixture
def ticks_with_two_days(dynamic: SensorTicks, orders: Table, upsert: Upsert) -> SensorTicks:
    """Ticks of a table whose definition has two days."""
    upsert(orders, DAYS[0], DAYS[1])
    dynamic.result()
    return dynamic


def test_the_partitions_of_the_previous_table_are_deleted_after_it_is_recreated(
    ticks_with_two_days: SensorTicks, create: Callable[[], Table], upsert: Upsert
) -> None:
    ticks_with_two_days.paimon.catalog().drop_table("lake.orders")
    upsert(create(), DAYS[4])

    assert tick(ticks_with_two_days) == ({DAYS[4]}, {DAYS[0], DAYS[1]}, [DAYS[4]])


def test_partitions_dropped_in_expired_snapshots_are_deleted(
    ticks_with_two_days: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    orders.drop_partitions([{"dt": DAYS[0]}])
    upsert(orders, DAYS[2])
    for expired in (1, 2):
        orders.io.delete(orders.stores.snapshots.path(expired))

    added, deleted, _ = tick(ticks_with_two_days)

    assert (added, deleted) == ({DAYS[2]}, {DAYS[0]})


def test_partitions_removed_by_a_rollback_are_deleted(
    ticks_with_two_days: SensorTicks, orders: Table, upsert: Upsert, roll_back: RollBack
) -> None:
    upsert(orders, DAYS[2])
    tick(ticks_with_two_days)
    roll_back(orders, 1)

    added, deleted, _ = tick(ticks_with_two_days)

    assert (added, deleted) == (set(), {DAYS[2]})


def test_the_values_of_a_dynamic_dimension_are_added(
    paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    table = paimon.catalog().create_table(
        "lake.sales",
        "region STRING, dt DATE, id BIGINT",
        primary_key=["region", "dt", "id"],
        partition_by=["region", "dt"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    definition = dg.MultiPartitionsDefinition(
        {
            "dt": dg.DailyPartitionsDefinition("2026-01-01"),
            "region": dg.DynamicPartitionsDefinition(name="paimon/lake.sales/region"),
        }
    )
    sensor = build_latest_snapshot_sensor("lake.sales", partitions_def=definition)
    ticks = SensorTicks(sensor, paimon, instance)
    days = [date(2026, 1, 1), date(2026, 1, 2), date(1999, 1, 1)]
    table.upsert(pa.table({"region": ["us", "eu", "eu"], "dt": days, "id": [1, 2, 3]}))

    requests = ticks.new_run_requests()

    assert instance.get_dynamic_partitions("paimon/lake.sales/region") == ["eu", "us"]
    assert [r.partition_key for r in requests] == ["2026-01-01|us", "2026-01-02|eu"]
