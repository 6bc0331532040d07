from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg

from paimon_orch.dagster import PaimonCatalogResource, build_compaction_schedule
from paimon_orch.dagster.schedules import minute_of
from paimon_orch.table.table import Table

PARTITIONS = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02", "2026-01-03"])


def evaluate(
    schedule: dg.ScheduleDefinition, paimon: PaimonCatalogResource
) -> list[dg.RunRequest] | dg.SkipReason:
    moment = datetime(2026, 1, 4, 3, tzinfo=UTC)
    with (
        # An ephemeral instance cannot be had from a schedule's context.
        dg.DagsterInstance.local_temp() as instance,
        dg.build_schedule_context(instance, moment, resources={"paimon": paimon}) as context,
    ):
        found = schedule(context)
    assert isinstance(found, list | dg.SkipReason)
    return found


def test_it_requests_the_partitions_that_need_compaction(
    orders: Table,
    upsert: Callable[..., None],
    compact_all: Callable[[Table], None],
    paimon: PaimonCatalogResource,
) -> None:
    schedule = build_compaction_schedule("lake.orders", partitions_def=PARTITIONS)
    upsert(orders, "2026-01-01", "2026-01-02", "2026-01-03")
    compact_all(orders)
    upsert(orders, "2026-01-02", "2026-01-03", amount=2)

    found = evaluate(schedule, paimon)

    assert isinstance(found, list)
    assert [request.partition_key for request in found] == ["2026-01-02", "2026-01-03"]
    assert len({request.run_key for request in found}) == 2


def test_it_requests_one_run_for_an_unpartitioned_asset(
    orders: Table, upsert: Callable[..., None], paimon: PaimonCatalogResource
) -> None:
    upsert(orders, "2026-01-01", "2026-01-02")

    found = evaluate(build_compaction_schedule("lake.orders"), paimon)

    assert isinstance(found, list)
    assert [request.partition_key for request in found] == [None]


def test_it_skips_when_nothing_is_to_be_done(orders: Table, paimon: PaimonCatalogResource) -> None:
    found = evaluate(build_compaction_schedule("lake.orders"), paimon)

    assert isinstance(found, dg.SkipReason)
    assert found.skip_message == "lake.orders: nothing to compact"


def test_it_skips_while_there_is_no_table(paimon: PaimonCatalogResource) -> None:
    assert isinstance(evaluate(build_compaction_schedule("lake.orders"), paimon), dg.SkipReason)


def test_tables_are_spread_over_the_hour_and_keep_their_minute() -> None:
    minutes = {minute_of(f"lake.table_{n}") for n in range(200)}

    assert len(minutes) > 50
    assert minute_of("lake.orders") == 23
    assert build_compaction_schedule("lake.orders", hour=4).cron_schedule == "23 4 * * *"


def test_it_ships_stopped_and_runs_in_utc() -> None:
    schedule = build_compaction_schedule("lake.orders")

    assert schedule.name == "compaction__lake__orders_schedule"
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    assert schedule.execution_timezone == "UTC"
