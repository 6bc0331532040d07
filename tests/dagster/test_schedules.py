from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg
import pytest

from paimon_orch.dagster import (
    PaimonCatalogResource,
    build_compaction_schedule,
    build_expire_snapshots_job,
    build_maintenance_schedules,
    build_remove_orphan_files_job,
)
from paimon_orch.dagster.schedules import compute_schedule_minute
from paimon_orch.errors import InputError
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


def config_of(schedule: dg.ScheduleDefinition, action: str) -> object:
    """The config that the op of an action gets from the runs of a schedule."""
    with (
        dg.DagsterInstance.local_temp() as instance,
        dg.build_schedule_context(instance, datetime(2026, 1, 4, tzinfo=UTC)) as context,
    ):
        [request] = schedule.evaluate_tick(context).run_requests or []
    return request.run_config["ops"][action]["config"]


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
    minutes = {compute_schedule_minute(f"lake.table_{n}") for n in range(200)}

    assert len(minutes) > 50
    assert compute_schedule_minute("lake.orders") == 23
    assert build_compaction_schedule("lake.orders", hour=4).cron_schedule == "23 4 * * *"


def test_it_ships_stopped_and_runs_in_utc() -> None:
    schedule = build_compaction_schedule("lake.orders")

    assert schedule.name == "compaction__lake__orders_schedule"
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    assert schedule.execution_timezone == "UTC"


def test_each_job_gets_a_schedule_that_runs_it_in_earnest() -> None:
    jobs = [build_expire_snapshots_job("lake.orders"), build_remove_orphan_files_job("lake.orders")]

    expire, orphans = build_maintenance_schedules(jobs)

    assert expire.name == "expire_snapshots__lake__orders_schedule"
    assert (expire.cron_schedule, orphans.cron_schedule) == ("23 * * * *", "23 5 * * 0")
    assert expire.execution_timezone == "UTC"
    assert expire.default_status is dg.DefaultScheduleStatus.STOPPED
    assert config_of(expire, "expire_snapshots") == {"dry_run": False}
    assert config_of(orphans, "remove_orphan_files") == {"dry_run": False, "older_than": "3 d"}


def test_times_and_config_can_be_chosen_by_action() -> None:
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
    assert config_of(schedule, "remove_orphan_files") == {"dry_run": True, "older_than": "7 d"}


def test_a_time_for_an_action_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="vacuum; the actions are expire_snapshots"):
        build_maintenance_schedules([], cron={"vacuum": "@daily"})


def test_a_dynamic_definition_gets_the_partitions_that_it_requests(
    orders: Table, upsert: Callable[..., None], paimon: PaimonCatalogResource
) -> None:
    dynamic = dg.DynamicPartitionsDefinition(name="paimon/lake.orders")
    upsert(orders, "2026-01-02", "2026-01-01")

    found = evaluate(build_compaction_schedule("lake.orders", partitions_def=dynamic), paimon)

    assert isinstance(found, list)
    assert [request.partition_key for request in found] == ["2026-01-01", "2026-01-02"]
