"""Sensor and schedule follow the policy and report its decisions."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import dagster as dg
import pyarrow as pa
import pytest
from support.dagster.ticks import SensorTicks, evaluate_schedule

from paimon_orch.dagster import (
    CompactionPolicy,
    PaimonCatalogResource,
    build_compaction_asset,
    build_compaction_schedule,
    build_latest_snapshot_sensor,
)
from paimon_orch.orchestration import changes_since_cursor, cursor
from paimon_orch.steps.common import bucket_scan
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
PARTITIONS = dg.StaticPartitionsDefinition(DAYS)
HOUR = 3_600_000
Upsert = Callable[..., None]
CompactAll = Callable[[Table], None]
BuildTicks = Callable[..., SensorTicks]


@pytest.fixture
def build_ticks(paimon: PaimonCatalogResource, instance: dg.DagsterInstance) -> BuildTicks:
    """Builds ticks of lake.orders with a policy."""

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
    """The current time in milliseconds."""
    now = [1_800_000_000_000]
    for module in (cursor, changes_since_cursor):
        monkeypatch.setattr(module, "now_millis", lambda: now[0])
    return now


def test_a_run_request_has_a_reason(build_ticks: BuildTicks, orders: Table, upsert: Upsert) -> None:
    upsert(orders, DAYS[0])

    [request] = build_ticks().new_run_requests()

    assert request.tags["paimon/reason"].startswith("level-0 files: 1 (threshold 1)")
    assert not request.run_config


def test_the_skip_message_contains_the_reasons(
    build_ticks: BuildTicks, orders: Table, upsert: Upsert, instance: dg.DagsterInstance
) -> None:
    upsert(orders, *DAYS[:2])
    ticks = build_ticks(level0_files=3)

    message = ticks.skip_message()

    assert message.startswith("lake.orders: nothing to compact up to snapshot 1; ")
    assert f"dt={DAYS[0]}: not now: below all thresholds: level-0 files: 1" in message
    assert f"dt={DAYS[1]}: not now" in message


def test_the_observation_contains_all_decisions(
    build_ticks: BuildTicks, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, *DAYS[:2])
    upsert(orders, DAYS[1], amount=2)

    observation = build_ticks(level0_files=2).result().asset_events[-1]

    assert isinstance(observation, dg.AssetObservation)
    metadata = {key: value.value for key, value in observation.metadata.items()}
    assert metadata["paimon/partitions_to_compact"] == 1
    assert metadata["paimon/partitions_not_now"] == 1
    rows = [record.data for record in metadata["paimon/decisions"].records]  # type: ignore[union-attr]
    assert [(row["partition"], row["compact"]) for row in rows] == [
        (f"dt={DAYS[1]}", "minor"),
        (f"dt={DAYS[0]}", "not now"),
    ]
    assert all(row["reason"] for row in rows)


def test_a_tick_logs_all_decisions(
    build_ticks: BuildTicks, orders: Table, upsert: Upsert, caplog: pytest.LogCaptureFixture
) -> None:
    upsert(orders, *DAYS[:2])
    upsert(orders, DAYS[1], amount=2)
    ticks = build_ticks(level0_files=2)

    with dg.build_sensor_context(
        instance=ticks.instance, resources={"paimon": ticks.paimon}
    ) as context:
        context.log.addHandler(caplog.handler)
        ticks.sensor(context)

    assert f"lake.orders: dt={DAYS[0]}: not now: below all thresholds" in caplog.text
    assert f"lake.orders: dt={DAYS[1]}: minor compaction: level-0 files: 2" in caplog.text


def test_a_waiting_partition_is_requested_after_the_threshold_is_reached(
    build_ticks: BuildTicks, orders: Table, upsert: Upsert
) -> None:
    ticks = build_ticks(level0_files=2)
    upsert(orders, DAYS[0])
    assert ticks.requested_partitions() == []
    upsert(orders, DAYS[0], amount=2)

    assert ticks.requested_partitions() == [DAYS[0]]


def test_a_waiting_partition_is_requested_after_max_wait_without_a_commit(
    build_ticks: BuildTicks, orders: Table, upsert: Upsert, clock: list[int]
) -> None:
    ticks = build_ticks(level0_files=9, max_wait="2 h")
    upsert(orders, DAYS[0])
    assert ticks.requested_partitions() == []
    clock[0] += HOUR
    upsert(orders, DAYS[1])
    assert ticks.requested_partitions() == []
    assert ticks.skip_message() == "lake.orders: snapshot 2 was already handled"

    clock[0] += HOUR
    [request] = ticks.new_run_requests()

    assert request.partition_key == DAYS[0]
    assert request.tags["paimon/reason"].startswith("the partition has waited longer than 2 h")
    assert ticks.requested_partitions() == []
    clock[0] += HOUR
    assert ticks.requested_partitions() == [DAYS[1]]


def test_a_failed_compaction_is_requested_again_after_max_wait(
    build_ticks: BuildTicks,
    orders: Table,
    upsert: Upsert,
    compact_all: CompactAll,
    clock: list[int],
) -> None:
    ticks = build_ticks(max_wait="1 h")
    upsert(orders, DAYS[0])
    [first] = ticks.new_run_requests()
    assert ticks.requested_partitions() == []

    clock[0] += HOUR
    [second] = ticks.new_run_requests()

    assert second.partition_key == DAYS[0]
    assert second.run_key != first.run_key
    compact_all(orders)
    for _ in range(2):
        clock[0] += HOUR
        assert ticks.requested_partitions() == []
    assert ticks.skip_message() == "lake.orders: snapshot 2 was already handled"


def test_a_waiting_table_is_requested_after_max_wait(
    build_ticks: BuildTicks, orders: Table, upsert: Upsert, clock: list[int]
) -> None:
    ticks = build_ticks(None, level0_files=9)
    upsert(orders, DAYS[0])
    assert ticks.requested_partitions() == []
    for day in DAYS[1:]:
        clock[0] += HOUR
        assert ticks.requested_partitions() == [None]
        upsert(orders, day)
        assert ticks.requested_partitions() == []


@pytest.fixture
def mostly_deleted(
    orders: Table, upsert: Upsert, compact_all: CompactAll, paimon: PaimonCatalogResource
) -> Table:
    """A table with more deleted than visible rows, below its own delete ratio threshold."""
    change = SetOption("compaction.delete-ratio-threshold", "1.0")
    paimon.catalog().alter_table("lake.orders", [change])
    for amount in (1, 2, 3):
        upsert(orders, DAYS[0], amount=amount)
        compact_all(orders)
    return orders


def test_a_partition_with_many_deleted_rows_is_compacted_fully(
    build_ticks: BuildTicks, mostly_deleted: Table, paimon: PaimonCatalogResource
) -> None:
    [request] = build_ticks().new_run_requests()
    asset = build_compaction_asset("lake.orders", partitions_def=PARTITIONS)

    assert request.run_config == {"ops": {asset.op.name: {"config": {"strategy": "full"}}}}
    assert "67% of the rows are deleted" in request.tags["paimon/reason"]


def test_an_unpartitioned_asset_of_a_partitioned_table_is_not_fully_compacted(
    build_ticks: BuildTicks, mostly_deleted: Table
) -> None:
    assert build_ticks(None).requested_partitions() == []


@pytest.mark.slow
def test_the_schedule_ignores_thresholds(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    upsert(orders, DAYS[0])
    policy = CompactionPolicy(level0_files=9)
    schedule = build_compaction_schedule("lake.orders", partitions_def=PARTITIONS, policy=policy)

    result = evaluate_schedule(schedule, paimon)

    assert isinstance(result, list)
    [request] = result
    assert isinstance(request, dg.RunRequest)
    assert request.partition_key == DAYS[0]
    assert request.tags["paimon/reason"].startswith("the partition has waited")


def test_a_full_compaction_is_requested_only_once(
    build_ticks: BuildTicks, mostly_deleted: Table
) -> None:
    ticks = build_ticks()
    [request] = ticks.new_run_requests()
    compact(mostly_deleted, InProcessExecutor(), strategy="full")

    assert request.run_config
    assert ticks.requested_partitions() == []


def test_an_idle_partition_is_requested_without_a_commit(
    build_ticks: BuildTicks,
    paimon: PaimonCatalogResource,
    clock: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = paimon.catalog().create_table(
        "lake.orders",
        "dt STRING, id BIGINT",
        partition_by=["dt"],
        options={"clustering.incremental": "true", "clustering.columns": "id"},
    )
    table.append(pa.table({"dt": DAYS[:1] * 2, "id": [2, 1]}))
    ticks = build_ticks(cluster_idle_for="5 h", max_wait="2 h")
    assert ticks.requested_partitions() == []
    assert ticks.skip_message() == "lake.orders: snapshot 1 was already handled"

    for hours in (3, 6):
        later = datetime.now(UTC) + timedelta(hours=hours)
        clock[0] += 3 * HOUR
        monkeypatch.setattr(bucket_scan, "datetime", SimpleNamespace(now=lambda now=later: now))
        requests = ticks.new_run_requests()
        assert [request.partition_key for request in requests] == DAYS[: int(hours == 6)]

    [request] = requests
    assert request.tags["paimon/reason"].startswith("no new files for 5 h")
    assert "full" in str(request.run_config)
