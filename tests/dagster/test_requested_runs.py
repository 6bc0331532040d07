"""Runs that the sensor requests for several partitions, executed by Dagster in this process."""

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from support.dagster.asset_runs import Resources, metadata_by_partition
from support.dagster.ticks import SensorTicks, partitions_of
from support.damage import data_files

from paimon_orch.dagster import (
    CompactionPolicy,
    PaimonCatalogResource,
    build_compaction_asset,
    build_latest_snapshot_sensor,
)
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

MONTHS = [f"2026-{month:02d}" for month in range(1, 13)]
STATIC = dg.StaticPartitionsDefinition(MONTHS)
DYNAMIC = dg.DynamicPartitionsDefinition(name="paimon/lake.orders")
KEY = dg.AssetKey(["lake", "orders", "orders_compaction"])
Upsert = Callable[..., None]
BuildTicks = Callable[..., SensorTicks]


@pytest.fixture
def build_ticks(paimon: PaimonCatalogResource, instance: dg.DagsterInstance) -> BuildTicks:
    def build(partitions_def: dg.PartitionsDefinition[str] | None, **arguments: Any) -> SensorTicks:
        sensor = build_latest_snapshot_sensor(
            "lake.orders", partitions_def=partitions_def, **arguments
        )
        return SensorTicks(sensor, paimon, instance)

    return build


def execute(
    request: dg.RunRequest,
    partitions_def: dg.PartitionsDefinition[str] | None,
    resources: Resources,
    instance: dg.DagsterInstance,
    **arguments: Any,
) -> dg.ExecuteInProcessResult:
    """Execute a request as the daemon does: the range is in the tags of the run."""
    return dg.materialize(
        [build_compaction_asset("lake.orders", partitions_def=partitions_def)],
        resources=resources,
        partition_key=request.partition_key,
        run_config=request.run_config,
        tags=request.tags,
        instance=instance,
        **arguments,
    )


def test_a_first_tick_requests_one_run_for_all_partitions_of_a_year(
    orders: Table, upsert: Upsert, build_ticks: BuildTicks
) -> None:
    for month in MONTHS:
        upsert(orders, month)
    ticks = build_ticks(STATIC, max_partitions_per_run=12)

    [request] = ticks.new_run_requests()

    assert partitions_of(request) == "2026-01...2026-12"
    assert request.partition_key is None
    assert re.fullmatch(
        r"dt=2026-01: level-0 files: 1 \(threshold 1\); [\d.]+ kB of [\d.]+ kB to rewrite, "
        r"and 11 other partitions",
        request.tags["paimon/reason"],
    )
    assert request.run_key
    assert ":compaction:dt=2026-01...dt=2026-12:12@" in request.run_key
    assert ticks.new_run_requests() == []


def test_only_neighbors_in_the_definition_share_a_run(
    orders: Table, upsert: Upsert, build_ticks: BuildTicks
) -> None:
    ticks = build_ticks(STATIC, max_partitions_per_run=3)
    upsert(orders, *(MONTHS[n] for n in (0, 2, 3, 4, 5, 11)))

    assert ticks.requested_partitions() == ["2026-01", "2026-03...2026-05", "2026-06", "2026-12"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("partitions_def", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_a_requested_range_materializes_each_of_its_partitions(
    orders: Table,
    upsert: Upsert,
    build_ticks: BuildTicks,
    resources: Resources,
    instance: dg.DagsterInstance,
    partitions_def: dg.PartitionsDefinition[str],
) -> None:
    upsert(orders, *MONTHS[2:5])
    upsert(orders, MONTHS[3])
    [request] = build_ticks(partitions_def).new_run_requests()

    result = execute(request, partitions_def, resources, instance)

    assert orders.stores.snapshots.latest_id() == 3  # one commit
    metadata_of = metadata_by_partition(result)
    assert {key: metadata["paimon/files_before"] for key, metadata in metadata_of.items()} == {
        MONTHS[2]: 1,
        MONTHS[3]: 2,
        MONTHS[4]: 1,
    }
    assert instance.get_materialized_partitions(KEY) == {*MONTHS[2:5]}
    assert inspect(orders).level0_files == 0


def test_a_range_has_the_order_in_which_dynamic_partitions_were_added(
    orders: Table, upsert: Upsert, build_ticks: BuildTicks, instance: dg.DagsterInstance
) -> None:
    ticks = build_ticks(DYNAMIC)
    upsert(orders, MONTHS[0], MONTHS[2])
    assert ticks.requested_partitions() == ["2026-01...2026-03"]
    upsert(orders, *MONTHS[:3])

    # Dagster keeps the order of additions, in which February is the last.
    assert ticks.requested_partitions() == ["2026-01...2026-02"]
    assert instance.get_dynamic_partitions("paimon/lake.orders") == [
        "2026-01",
        "2026-03",
        "2026-02",
    ]


def test_a_dropped_partition_is_not_part_of_the_order(
    orders: Table, upsert: Upsert, build_ticks: BuildTicks
) -> None:
    ticks = build_ticks(DYNAMIC)
    upsert(orders, *MONTHS[:3])
    assert ticks.requested_partitions() == ["2026-01...2026-03"]
    orders.drop_partitions([{"dt": MONTHS[1]}])
    upsert(orders, MONTHS[0], MONTHS[2])

    assert ticks.requested_partitions() == ["2026-01...2026-03"]
    assert ticks.instance.get_dynamic_partitions("paimon/lake.orders") == ["2026-01", "2026-03"]


def test_a_range_of_two_dimensions_materializes_the_combinations(
    paimon: PaimonCatalogResource, resources: Resources, instance: dg.DagsterInstance
) -> None:
    table = paimon.catalog().create_table(
        "lake.orders",
        "dt DATE, region STRING, id BIGINT",
        primary_key=["dt", "region", "id"],
        partition_by=["dt", "region"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    definition = dg.MultiPartitionsDefinition(
        {
            "dt": dg.DailyPartitionsDefinition("2026-01-01"),
            "region": dg.DynamicPartitionsDefinition(name="paimon/lake.orders/region"),
        }
    )
    sensor = build_latest_snapshot_sensor("lake.orders", partitions_def=definition)
    cells = [(date(2026, 1, day), region) for day in (1, 2) for region in ("eu", "us")]
    days, regions = zip(*cells, strict=True)
    table.upsert(pa.table({"dt": days, "region": regions, "id": range(4)}))

    [request] = SensorTicks(sensor, paimon, instance).new_run_requests()
    execute(request, definition, resources, instance)

    assert partitions_of(request) == "2026-01-01|eu...2026-01-02|us"
    assert instance.get_materialized_partitions(KEY) == {f"{day}|{region}" for day, region in cells}
    assert inspect(table).level0_files == 0


def test_partitions_with_different_strategies_have_runs_of_their_own(
    orders: Table, upsert: Upsert, build_ticks: BuildTicks, compact_all: Callable[[Table], None]
) -> None:
    for amount in (1, 2):
        upsert(orders, *MONTHS[:3], amount=amount)
        compact_all(orders)
    # April has no deleted rows.
    upsert(orders, MONTHS[3])
    policy = CompactionPolicy(deleted_ratio=0.4)

    requests = build_ticks(STATIC, policy=policy).new_run_requests()

    configs = {partitions_of(request): request.run_config for request in requests}
    full = {"ops": {"lake__orders__orders_compaction": {"config": {"strategy": "full"}}}}
    assert configs == {"2026-01...2026-03": full, "2026-04": {}}


@pytest.mark.slow
def test_a_damaged_partition_does_not_prevent_the_compaction_of_the_others_in_its_run(
    orders: Table,
    upsert: Upsert,
    build_ticks: BuildTicks,
    resources: Resources,
    instance: dg.DagsterInstance,
) -> None:
    for amount in (1, 2):  # a single file would be moved up without being read
        upsert(orders, *MONTHS[:3], amount=amount)
    [damaged, _] = [file for file in data_files(orders) if f"dt={MONTHS[1]}" in file.parts]
    damaged.write_bytes(b"rubbish")
    ticks = build_ticks(STATIC, policy=CompactionPolicy(max_wait="0 s"))
    [request] = ticks.new_run_requests()

    result = execute(request, STATIC, resources, instance, raise_on_error=False)

    failure = result.failure_data_for_node("lake__orders__orders_compaction")
    assert failure
    assert damaged.name in str(failure.error)
    levels = {b.partition: {file.level for file in b.files} for b in inspect(orders).buckets}
    assert [partition for partition in levels if 0 in levels[partition]] == [f"dt={MONTHS[1]}"]
    statuses = instance.get_status_by_partition(KEY, MONTHS[:3], STATIC) or {}
    assert {key: status and status.value for key, status in statuses.items()} == {
        MONTHS[0]: "MATERIALIZED",
        MONTHS[1]: "FAILED",
        MONTHS[2]: "MATERIALIZED",
    }
    assert ticks.requested_partitions() == [MONTHS[1]]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("default_limit", "user_limit", "expected"), [(1, None, 1), (1, 5, 5), (None, 5, 5)]
)
def test_the_pool_of_several_requested_runs_has_a_limit_before_they_start(
    orders: Table,
    upsert: Upsert,
    paimon: PaimonCatalogResource,
    tmp_path: Path,
    default_limit: int | None,
    user_limit: int | None,
    expected: int,
) -> None:
    pools = {"granularity": "run"} | ({"default_limit": default_limit} if default_limit else {})
    with dg.instance_for_test(
        {"concurrency": {"pools": pools}}, temp_dir=str(tmp_path)
    ) as instance:
        storage = instance.event_log_storage
        if user_limit:
            storage.set_concurrency_slots("paimon/lake.orders", user_limit)
        sensor = build_latest_snapshot_sensor("lake.orders", partitions_def=STATIC)
        upsert(orders, MONTHS[0], MONTHS[2])

        assert len(SensorTicks(sensor, paimon, instance).new_run_requests()) == 2

        [limit] = storage.get_pool_limits()
        assert (limit.name, limit.limit) == ("paimon/lake.orders", expected)


@pytest.mark.slow
def test_the_first_tick_limits_the_pool_even_if_it_requests_no_run(
    orders: Table,
    upsert: Upsert,
    compact_all: Callable[[Table], None],
    paimon: PaimonCatalogResource,
    tmp_path: Path,
) -> None:
    upsert(orders, MONTHS[0])
    compact_all(orders)
    config = {"concurrency": {"pools": {"granularity": "run", "default_limit": 1}}}
    with dg.instance_for_test(config, temp_dir=str(tmp_path)) as instance:
        sensor = build_latest_snapshot_sensor("lake.orders", partitions_def=STATIC)

        assert SensorTicks(sensor, paimon, instance).new_run_requests() == []

        assert instance.event_log_storage.get_concurrency_keys() == {"paimon/lake.orders"}
