"""The sensor and the schedule ask a policy, and show what it says."""

from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg
import pytest
from support.dagster.ticks import SensorTicks

from paimon_orch.dagster import (
    CompactionPolicy,
    PaimonCatalogResource,
    build_compaction_asset,
    build_compaction_schedule,
    build_latest_snapshot_sensor,
)
from paimon_orch.dagster import sensor_cursor as changes
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.schema_evolution.schema_changes import SetOption
from paimon_orch.table.table import Table

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
PARTITIONS = dg.StaticPartitionsDefinition(DAYS)
HOUR = 3_600_000
Upsert = Callable[..., None]
CompactAll = Callable[[Table], None]
Sensed = Callable[..., SensorTicks]


@pytest.fixture
def sensed(paimon: PaimonCatalogResource, instance: dg.DagsterInstance) -> Sensed:
    """Makes ticks over lake.orders by a policy."""

    def build(
        partitions: dg.PartitionsDefinition[str] | None = PARTITIONS, **policy: object
    ) -> SensorTicks:
        sensor = build_latest_snapshot_sensor(
            "lake.orders",
            partitions_def=partitions,
            policy=CompactionPolicy(**policy),  # type: ignore[arg-type]
        )
        return SensorTicks(sensor, paimon, instance)

    return build


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What time it is, in milliseconds."""
    time = [1_800_000_000_000]
    monkeypatch.setattr(changes, "_now_millis", lambda: time[0])
    return time


def test_a_request_says_why(sensed: Sensed, orders: Table, upsert: Upsert) -> None:
    upsert(orders, DAYS[0])

    [request] = sensed().requests()

    assert request.tags["paimon/reason"].startswith("level-0 files: 1, from 1 on")
    assert not request.run_config


def test_not_now_is_said_with_its_reason(
    sensed: Sensed, orders: Table, upsert: Upsert, instance: dg.DagsterInstance
) -> None:
    upsert(orders, *DAYS[:2])
    ticks = sensed(level0_files=3)

    said = ticks.skipped()

    assert said.startswith("lake.orders: nothing to compact up to snapshot 1; ")
    assert f"dt={DAYS[0]}: not now: not worth it yet: level-0 files: 1" in said
    assert f"dt={DAYS[1]}: not now" in said


def test_every_decision_is_on_the_observation(
    sensed: Sensed, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, *DAYS[:2])
    upsert(orders, DAYS[1], amount=2)

    found = sensed(level0_files=2).result()

    assert isinstance(found, dg.SensorResult)
    observation = found.asset_events[-1]
    assert isinstance(observation, dg.AssetObservation)
    metadata = {key: value.value for key, value in observation.metadata.items()}
    assert metadata["paimon/partitions_to_compact"] == 1
    assert metadata["paimon/partitions_not_now"] == 1
    shown = [record.data for record in metadata["paimon/decisions"].records]  # type: ignore[union-attr]
    assert [(row["partition"], row["compact"]) for row in shown] == [
        (f"dt={DAYS[1]}", "minor"),
        (f"dt={DAYS[0]}", "not now"),
    ]
    assert all(row["reason"] for row in shown)


def test_the_log_of_a_tick_tells_every_decision(
    sensed: Sensed, orders: Table, upsert: Upsert, caplog: pytest.LogCaptureFixture
) -> None:
    upsert(orders, *DAYS[:2])
    upsert(orders, DAYS[1], amount=2)
    ticks = sensed(level0_files=2)

    with dg.build_sensor_context(
        instance=ticks.instance, resources={"paimon": ticks.paimon}
    ) as context:
        context.log.addHandler(caplog.handler)
        ticks.sensor(context)

    assert f"lake.orders: dt={DAYS[0]}: not now: not worth it yet" in caplog.text
    assert f"lake.orders: dt={DAYS[1]}: minor compaction: level-0 files: 2" in caplog.text


def test_a_partition_that_waits_is_taken_up_when_more_comes(
    sensed: Sensed, orders: Table, upsert: Upsert
) -> None:
    ticks = sensed(level0_files=2)
    upsert(orders, DAYS[0])
    assert ticks.requested_partitions() == []
    upsert(orders, DAYS[0], amount=2)

    assert ticks.requested_partitions() == [DAYS[0]]


def test_a_partition_that_waits_is_taken_up_in_the_end_without_any_commit(
    sensed: Sensed, orders: Table, upsert: Upsert, clock: list[int]
) -> None:
    ticks = sensed(level0_files=9, max_wait="2 h")
    upsert(orders, DAYS[0])
    assert ticks.requested_partitions() == []
    clock[0] += HOUR
    upsert(orders, DAYS[1])
    assert ticks.requested_partitions() == []
    assert ticks.skipped() == "lake.orders: snapshot 2 already handled"

    clock[0] += HOUR
    [request] = ticks.requests()

    assert request.partition_key == DAYS[0]
    assert request.tags["paimon/reason"].startswith("it has waited longer than 2 h")
    assert ticks.requested_partitions() == []
    clock[0] += HOUR
    assert ticks.requested_partitions() == [DAYS[1]]


def test_a_compaction_that_did_not_come_is_asked_for_again_without_any_commit(
    sensed: Sensed, orders: Table, upsert: Upsert, compact_all: CompactAll, clock: list[int]
) -> None:
    ticks = sensed(max_wait="1 h")
    upsert(orders, DAYS[0])
    [first] = ticks.requests()
    assert ticks.requested_partitions() == []

    clock[0] += HOUR
    [again] = ticks.requests()

    assert again.partition_key == DAYS[0]
    assert again.run_key != first.run_key
    compact_all(orders)
    for _ in range(2):
        clock[0] += HOUR
        assert ticks.requested_partitions() == []
    assert ticks.skipped() == "lake.orders: snapshot 2 already handled"


def test_the_wait_of_a_whole_table_ends_too(
    sensed: Sensed, orders: Table, upsert: Upsert, clock: list[int]
) -> None:
    ticks = sensed(None, level0_files=9)
    upsert(orders, DAYS[0])
    assert ticks.requested_partitions() == []
    for day in DAYS[1:]:
        clock[0] += HOUR
        assert ticks.requested_partitions() == [None]
        upsert(orders, day)
        assert ticks.requested_partitions() == []


@pytest.fixture
def hollow(
    orders: Table, upsert: Upsert, compact_all: CompactAll, paimon: PaimonCatalogResource
) -> Table:
    """A table of one day whose rows are mostly hidden, and that waits for more of it."""
    change = SetOption("compaction.delete-ratio-threshold", "1.0")
    paimon.catalog().alter_table("lake.orders", [change])
    for amount in (1, 2, 3):
        upsert(orders, DAYS[0], amount=amount)
        compact_all(orders)
    return orders


def test_more_garbage_than_rows_is_rewritten_as_a_whole(
    sensed: Sensed, hollow: Table, paimon: PaimonCatalogResource
) -> None:
    [request] = sensed().requests()
    asset = build_compaction_asset("lake.orders", partitions_def=PARTITIONS)

    assert request.run_config == {"ops": {asset.op.name: {"config": {"strategy": "full"}}}}
    assert "67% of the rows are deleted" in request.tags["paimon/reason"]


def test_no_partition_alone_makes_a_whole_table_be_rewritten(sensed: Sensed, hollow: Table) -> None:
    assert sensed(None).requested_partitions() == []


def test_a_schedule_waits_for_no_threshold(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    upsert(orders, DAYS[0])
    policy = CompactionPolicy(level0_files=9)
    schedule = build_compaction_schedule("lake.orders", partitions_def=PARTITIONS, policy=policy)
    with (
        dg.DagsterInstance.local_temp() as instance,
        dg.build_schedule_context(
            instance, datetime(2026, 1, 4, 3, tzinfo=UTC), resources={"paimon": paimon}
        ) as context,
    ):
        found = schedule(context)

    assert isinstance(found, list)
    [request] = found
    assert isinstance(request, dg.RunRequest)
    assert request.partition_key == DAYS[0]
    assert request.tags["paimon/reason"].startswith("it has waited")


def test_after_the_compaction_that_it_asked_for_it_asks_for_no_other(
    sensed: Sensed, hollow: Table
) -> None:
    ticks = sensed()
    [request] = ticks.requests()
    compact(hollow, InProcessExecutor(), strategy="full")

    assert request.run_config
    assert ticks.requested_partitions() == []
