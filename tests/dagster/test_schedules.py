from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg
import pytest
from support.dagster.ticks import evaluate_schedule, partitions_of, scheduled_op_config

from paimon_orch.dagster import (
    PaimonCatalogResource,
    build_compaction_schedule,
    build_expire_snapshots_job,
    build_maintenance_schedules,
    build_remove_orphan_files_job,
)
from paimon_orch.dagster.schedules import compute_schedule_minute
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.table.table import Table

PARTITIONS = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02", "2026-01-03"])


def test_the_schedule_requests_partitions_that_need_compaction(
    orders: Table,
    upsert: Callable[..., None],
    compact_all: Callable[[Table], None],
    paimon: PaimonCatalogResource,
) -> None:
    schedule = build_compaction_schedule("lake.orders", partitions_def=PARTITIONS)
    upsert(orders, "2026-01-01", "2026-01-02", "2026-01-03")
    compact_all(orders)
    upsert(orders, "2026-01-02", "2026-01-03", amount=2)

    result = evaluate_schedule(schedule, paimon)

    assert isinstance(result, list)
    assert [partitions_of(request) for request in result] == ["2026-01-02...2026-01-03"]


def test_a_request_of_the_schedule_has_at_most_max_partitions_per_run(
    orders: Table, upsert: Callable[..., None], paimon: PaimonCatalogResource
) -> None:
    schedule = build_compaction_schedule(
        "lake.orders", partitions_def=PARTITIONS, max_partitions_per_run=2
    )
    upsert(orders, "2026-01-01", "2026-01-02", "2026-01-03")

    result = evaluate_schedule(schedule, paimon)

    assert isinstance(result, list)
    assert [partitions_of(request) for request in result] == [
        "2026-01-01...2026-01-02",
        "2026-01-03",
    ]
    assert len({request.run_key for request in result}) == 2


def test_the_schedule_requests_one_run_for_an_unpartitioned_asset(
    orders: Table, upsert: Callable[..., None], paimon: PaimonCatalogResource
) -> None:
    upsert(orders, "2026-01-01", "2026-01-02")

    result = evaluate_schedule(build_compaction_schedule("lake.orders"), paimon)

    assert isinstance(result, list)
    assert [partitions_of(request) for request in result] == [None]


def test_the_schedule_is_skipped_if_there_is_nothing_to_compact(
    orders: Table, paimon: PaimonCatalogResource
) -> None:
    result = evaluate_schedule(build_compaction_schedule("lake.orders"), paimon)

    assert isinstance(result, dg.SkipReason)
    assert result.skip_message == "lake.orders: nothing to compact"


def test_the_schedule_is_skipped_until_its_table_is_created(paimon: PaimonCatalogResource) -> None:
    paimon.catalog().create_database("lake")

    result = evaluate_schedule(build_compaction_schedule("lake.orders"), paimon)

    assert isinstance(result, dg.SkipReason)
    assert str(result.skip_message).startswith("lake.orders does not exist yet: ")


def test_the_schedule_fails_without_a_warehouse_and_with_a_similar_table(
    paimon: PaimonCatalogResource, create: Callable[..., Table]
) -> None:
    schedule = build_compaction_schedule("lake.orders")
    with pytest.raises(NotFoundError, match="warehouse"):  # there is none
        evaluate_schedule(schedule, paimon)
    create("lake.order")
    with pytest.raises(NotFoundError, match=r"did you mean lake\.order|did you mean order"):
        evaluate_schedule(schedule, paimon)


@pytest.mark.slow
def test_the_schedule_of_a_dropped_table_fails(paimon: PaimonCatalogResource) -> None:
    paimon.catalog().create_database("lake")
    schedule = build_compaction_schedule("lake.orders")
    compacted = dg.AssetMaterialization(["lake", "orders", "orders_compaction"])

    with dg.DagsterInstance.local_temp() as instance:
        instance.report_runless_asset_event(compacted)
        context = dg.build_schedule_context(
            instance, datetime(2026, 1, 4, 3, tzinfo=UTC), resources={"paimon": paimon}
        )
        with context, pytest.raises(NotFoundError, match="was dropped or renamed"):
            schedule(context)


def test_the_minute_of_a_schedule_depends_only_on_the_table_name() -> None:
    minutes = {compute_schedule_minute(f"lake.table_{n}") for n in range(200)}

    assert len(minutes) > 50
    assert compute_schedule_minute("lake.orders") == 23
    assert build_compaction_schedule("lake.orders", hour=4).cron_schedule == "23 4 * * *"


def test_a_schedule_is_stopped_by_default_and_uses_utc() -> None:
    schedule = build_compaction_schedule("lake.orders")

    assert schedule.name == "compaction__lake__orders_schedule"
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    assert schedule.execution_timezone == "UTC"


def test_the_schedule_of_each_job_is_not_a_dry_run() -> None:
    jobs = [build_expire_snapshots_job("lake.orders"), build_remove_orphan_files_job("lake.orders")]

    expire, orphans = build_maintenance_schedules(jobs)

    assert expire.name == "expire_snapshots__lake__orders_schedule"
    assert (expire.cron_schedule, orphans.cron_schedule) == ("23 * * * *", "23 5 * * 0")
    assert expire.execution_timezone == "UTC"
    assert expire.default_status is dg.DefaultScheduleStatus.STOPPED
    assert scheduled_op_config(expire, "expire_snapshots") == {"dry_run": False}
    assert scheduled_op_config(orphans, "remove_orphan_files") == {
        "dry_run": False,
        "older_than": "3 d",
    }


def test_the_cron_schedule_and_the_config_can_be_set_for_each_action() -> None:
    [schedule] = build_maintenance_schedules(
        [build_remove_orphan_files_job("lake.orders")],
        cron={"remove_orphan_files": "0 6 1 * *"},
        config={"remove_orphan_files": {"dry_run": True, "older_than": "7 d"}},
        execution_timezone="Europe/Berlin",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )

    assert schedule.cron_schedule == "0 6 1 * *"
    assert schedule.execution_timezone == "Europe/Berlin"
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    assert scheduled_op_config(schedule, "remove_orphan_files") == {
        "dry_run": True,
        "older_than": "7 d",
    }


def test_the_cron_schedule_of_an_unknown_action_is_refused() -> None:
    with pytest.raises(InputError, match="vacuum; the actions are expire_snapshots"):
        build_maintenance_schedules([], cron={"vacuum": "@daily"})


def test_the_schedule_adds_the_dynamic_partitions_that_it_requests(
    orders: Table, upsert: Callable[..., None], paimon: PaimonCatalogResource
) -> None:
    dynamic = dg.DynamicPartitionsDefinition(name="paimon/lake.orders")
    upsert(orders, "2026-01-02", "2026-01-01")

    result = evaluate_schedule(
        build_compaction_schedule("lake.orders", partitions_def=dynamic), paimon
    )

    assert isinstance(result, list)
    assert [partitions_of(request) for request in result] == ["2026-01-01...2026-01-02"]
