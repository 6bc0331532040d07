"""Dynamic partition definitions follow the table that the sensor watches."""

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


def grown(ticks: SensorTicks) -> tuple[set[str], set[str], list[str | None]]:
    """What a tick does to the definition, keys that were added and deleted, and requests."""
    before = ticks.instance.get_dynamic_partitions("paimon/lake.orders")
    requested = ticks.requested_partitions()
    after = ticks.instance.get_dynamic_partitions("paimon/lake.orders")
    return {*after} - {*before}, {*before} - {*after}, requested


@pytest.fixture
def dynamic(paimon: PaimonCatalogResource, instance: dg.DagsterInstance) -> SensorTicks:
    sensor = build_latest_snapshot_sensor("lake.orders", partitions_def=DYNAMIC)
    return SensorTicks(sensor, paimon, instance)


def test_a_dynamic_definition_gets_the_partitions_of_the_table_in_order(
    dynamic: SensorTicks, orders: Table, upsert: Upsert, compact_all: CompactAll
) -> None:
    upsert(orders, DAYS[3], DAYS[1])
    compact_all(orders)
    upsert(orders, DAYS[2])

    first = grown(dynamic)
    upsert(orders, DAYS[0])
    second = grown(dynamic)

    assert first == ({*DAYS[1:4]}, set(), [DAYS[2]])
    assert second == ({DAYS[0]}, set(), [DAYS[0]])
    assert dynamic.instance.get_dynamic_partitions("paimon/lake.orders") == [*DAYS[1:4], DAYS[0]]


def test_a_dynamic_definition_loses_partitions_that_were_dropped_and_no_others(
    dynamic: SensorTicks, orders: Table, upsert: Upsert, instance: dg.DagsterInstance
) -> None:
    upsert(orders, DAYS[0], DAYS[1])
    grown(dynamic)
    instance.add_dynamic_partitions("paimon/lake.orders", ["still to be loaded"])
    orders.drop_partitions([{"dt": DAYS[0]}])

    added, deleted, _ = grown(dynamic)

    assert (added, deleted) == (set(), {DAYS[0]})
    assert set(instance.get_dynamic_partitions("paimon/lake.orders")) == {
        DAYS[1],
        "still to be loaded",
    }


@pytest.fixture
def stale(dynamic: SensorTicks, orders: Table, upsert: Upsert) -> SensorTicks:
    """A definition that has two days of the table."""
    upsert(orders, DAYS[0], DAYS[1])
    dynamic.result()
    return dynamic


def test_a_table_that_was_created_anew_keeps_no_partition_of_the_old_one(
    stale: SensorTicks, create: Callable[[], Table], upsert: Upsert
) -> None:
    stale.paimon.catalog().drop_table("lake.orders")
    upsert(create(), DAYS[4])

    assert grown(stale) == ({DAYS[4]}, {DAYS[0], DAYS[1]}, [DAYS[4]])


def test_partitions_that_went_while_snapshots_expired_are_deleted(
    stale: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    orders.drop_partitions([{"dt": DAYS[0]}])
    upsert(orders, DAYS[2])
    for expired in (1, 2):
        orders.io.delete(orders.stores.snapshots.path(expired))

    added, deleted, _ = grown(stale)

    assert (added, deleted) == ({DAYS[2]}, {DAYS[0]})


def test_partitions_that_a_rollback_undid_are_deleted(
    stale: SensorTicks, orders: Table, upsert: Upsert, roll_back: RollBack
) -> None:
    upsert(orders, DAYS[2])
    grown(stale)
    roll_back(orders, 1)

    added, deleted, _ = grown(stale)

    assert (added, deleted) == (set(), {DAYS[2]})


def test_the_values_of_a_dynamic_dimension_grow_with_the_table(
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

    requests = ticks.requests()

    assert instance.get_dynamic_partitions("paimon/lake.sales/region") == ["eu", "us"]
    assert [r.partition_key for r in requests] == ["2026-01-02|eu", "2026-01-01|us"]
    assert [r.tags["paimon/partition"] for r in requests] == [
        "region=eu/dt=20455",
        "region=us/dt=20454",
    ]
