"""Which actions a maintenance of many tables chooses, and why it skips others."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.tables import new_table, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CancelledError, InputError
from paimon_orch.steps.autopilot import maintenance_plan
from paimon_orch.steps.autopilot.budgets import MaintenanceBudgets
from paimon_orch.steps.autopilot.decisions import ActionKind, DecisionState, MaintenanceDecision
from paimon_orch.steps.autopilot.maintenance_plan import MaintenancePlan, plan_maintenance
from paimon_orch.steps.autopilot.maintenance_request import MaintenanceRequest
from paimon_orch.steps.autopilot.run_maintenance import run_maintenance
from paimon_orch.steps.compaction.policy import CompactionPolicy
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

DAY = timedelta(days=1)


def plan_of(catalog: Catalog, **fields: Any) -> MaintenancePlan:
    return plan_maintenance(catalog, MaintenanceRequest(**fields))


def actions_of(plan: MaintenancePlan) -> list[tuple[str, ActionKind | None]]:
    return [(action.table, action.action) for action in plan.actions]


def find_skip(
    plan: MaintenancePlan, table: str, kind: ActionKind | None, partition: str = ""
) -> MaintenanceDecision:
    [skip] = [s for s in plan.skips if (s.table, s.action, s.partition) == (table, kind, partition)]
    return skip


def create_daily_table(catalog: Catalog, *days: str, files: int = 9, **options: str) -> None:
    """Create ``db.daily`` with small files in each partition."""
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    table = catalog.create_table(
        "db.daily",
        "dt STRING, k BIGINT",
        partition_by=["dt"],
        options={"bucket": "-1", "source.split.open-file-cost": "64 mb"} | named,
    )
    for _ in range(files):
        table.append(table_of("dt k", [(day, 1) for day in days]))


def test_the_plan_of_a_table_loads_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_daily_table(Catalog(str(tmp_path)), "2026-01-01")
    loaded, load = list[str](), Table.load

    def count(table: Table) -> TableState:
        loaded.append(table.identifier)
        return load(table)

    monkeypatch.setattr(Table, "load", count)

    plan = plan_of(Catalog(str(tmp_path)), history_table=None)

    assert ("db.daily", ActionKind.MANIFEST_COMPACTION) in actions_of(plan)
    assert loaded == ["db.daily"]


def test_actions_are_ordered_by_saved_read_cost_for_a_rewritten_byte(lake: Catalog) -> None:
    plan = plan_of(lake)

    scores = [action.score for action in plan.actions]
    assert scores == sorted(scores, reverse=True)
    assert {
        ("sales.orders", ActionKind.MINOR_COMPACTION),
        ("web.events", ActionKind.MINOR_COMPACTION),
        ("sales.orders", ActionKind.MANIFEST_COMPACTION),
        ("web.events", ActionKind.MANIFEST_COMPACTION),
    } <= set(actions_of(plan))
    [events] = [
        a for a in plan.actions
        if (a.table, a.action) == ("web.events", ActionKind.MINOR_COMPACTION)
    ]  # fmt: skip
    assert events.reason == (
        "sorted runs: 0, level-0 files: 0, small files: 12; saves each read 11 files"
    )
    saved = {
        a.table: a.saved_requests
        for a in plan.actions
        if a.action is ActionKind.MANIFEST_COMPACTION
    }
    assert saved == {"sales.orders": 8, "web.events": 11}
    assert all(action.saved_bytes == 0 for action in plan.actions), "no scan reads fewer rows"


def test_tables_that_are_read_more_often_come_first(lake: Catalog) -> None:
    plans = [plan_of(lake, reads={f"{name}.*": 9.0}) for name in ("sales", "web")]

    assert [plan.actions[0].table for plan in plans] == ["sales.orders", "web.events"]


def test_patterns_select_tables(lake: Catalog) -> None:
    assert plan_of(lake, include=("web.*",)).tables == ("web.events",)
    assert plan_of(lake, exclude=("web.*",)).tables == ("sales.orders",)


def test_a_plan_changes_nothing(lake: Catalog) -> None:
    tables = [lake.table("sales.orders"), lake.table("web.events")]
    before = [stored_files(table) for table in tables]

    plan_of(lake)

    assert [stored_files(table) for table in tables] == before
    assert lake.databases() == ["sales", "web"]


def test_actions_that_do_not_fit_into_the_budget_are_skipped_with_this_reason(
    lake: Catalog,
) -> None:
    planned = plan_of(lake, budgets=MaintenanceBudgets(max_bytes="9 kb"))

    assert planned.actions
    assert planned.rewrite_bytes <= 9 << 10
    reasons = [skip.reason for skip in planned.skips if skip.state is DecisionState.SKIPPED]
    assert any(reason.startswith("the budget of bytes is used up; ") for reason in reasons)


def test_actions_that_save_too_little_are_skipped_with_their_score(lake: Catalog) -> None:
    planned = plan_of(lake, budgets=MaintenanceBudgets(min_score=100))

    assert not planned
    skip = find_skip(planned, "web.events", ActionKind.MINOR_COMPACTION)
    assert skip.reason.startswith("saves too little for a rewritten byte: 11.")
    assert "(limit 100); sorted runs: 0" in skip.reason


def test_outside_of_the_hours_nothing_is_chosen(lake: Catalog) -> None:
    budgets = MaintenanceBudgets(hours="1-2")

    assert plan_of(lake, budgets=budgets, now=datetime(2027, 1, 1, 1).astimezone()).actions
    closed = plan_of(lake, budgets=budgets, now=datetime(2027, 1, 1, 2).astimezone())
    assert not closed
    skip = find_skip(closed, "web.events", ActionKind.MANIFEST_COMPACTION)
    assert skip.reason.startswith("outside of the hours 1-2; manifests: 12")


def test_idle_partitions_get_a_full_compaction(lake: Catalog) -> None:
    orders = [
        action
        for action in plan_of(lake, now=datetime.now().astimezone() + DAY).actions
        if action.table == "sales.orders"
    ]

    [compaction] = [a for a in orders if a.action is ActionKind.FULL_COMPACTION]
    assert compaction.is_full
    assert compaction.reason.startswith("no new file for 6 h; saves ")


def test_postponed_rows_are_moved_before_sorted_runs_are_merged(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    table = new_table(tmp_path, bucket="-2", postpone__batch_write_fixed_bucket="false")
    for _ in range(3):
        table.upsert(table_of("k v", [(1, "a")]))

    [action] = [a for a in plan_of(catalog).actions if a.action is ActionKind.MINOR_COMPACTION]

    assert action.up_to_level is None
    assert action.reason.endswith("; moves postponed rows to buckets")


def test_idle_partitions_of_clustered_tables_are_sorted(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    create_daily_table(
        catalog, "a", clustering__incremental="true", clustering__columns="k", files=2
    )

    planned = plan_of(catalog, now=datetime.now().astimezone() + DAY)

    [action] = [action for action in planned.actions if action.partition == "dt=a"]
    assert (action.action, action.is_full) == (ActionKind.CLUSTERING, True)


def test_partitions_about_to_expire_are_not_compacted(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    now = datetime.now().astimezone()
    days = [(now.date() - timedelta(days=age)).isoformat() for age in (10, 29, 40)]
    create_daily_table(catalog, *days, partition__expiration_time="30 d")

    planned = plan_of(catalog, now=now)

    assert [a.partition for a in planned.actions if a.partition] == [f"dt={days[0]}"]
    for day in days[1:]:
        skip = find_skip(planned, "db.daily", ActionKind.MINOR_COMPACTION, f"dt={day}")
        assert skip.reason == "the partition expires within 1 d"
        assert skip.state is DecisionState.SKIPPED


def test_partitions_that_the_policy_finds_too_large_are_skipped(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    create_daily_table(catalog, "a")

    planned = plan_of(catalog, policy=CompactionPolicy(max_rewrite="1 b"))

    skip = find_skip(planned, "db.daily", ActionKind.MINOR_COMPACTION, "dt=a")
    assert skip.reason.startswith("too much to rewrite: ")


def test_expired_snapshots_are_due_whatever_the_budget_of_bytes(lake: Catalog) -> None:
    now = datetime.now().astimezone() + DAY

    planned = plan_of(lake, now=now, budgets=MaintenanceBudgets(max_bytes="0 b"))

    assert actions_of(planned) == [("web.events", ActionKind.SNAPSHOT_EXPIRATION)]
    assert planned.actions[0].reason == "expired snapshots: 2"


def test_files_without_the_indexes_of_the_options_are_indexed(lake: Catalog) -> None:
    from paimon_orch.table.schema_change.schema_changes import SetOption

    lake.alter_table("web.events", [SetOption("file-index.bloom-filter.columns", "k")])
    planned = plan_of(lake, include=("web.*",))

    [action] = [a for a in planned.actions if a.action is ActionKind.FILE_INDEX_REWRITE]
    assert action.reason == "files without the file indexes of the table's options: 12"


def test_a_table_that_cannot_be_read_does_not_hide_the_others(lake: Catalog) -> None:
    root = Path(lake.table("sales.orders").paths.root)
    (root / "snapshot" / "snapshot-9").write_text("{")

    planned = plan_of(lake)

    assert {action.table for action in planned.actions} == {"web.events"}
    assert planned.skips[0].table == "sales.orders"
    assert planned.skips[0].state is DecisionState.REFUSED
    assert "snapshot-9" in planned.skips[0].reason


def test_a_decision_is_shown_with_its_action_or_as_maintenance() -> None:
    decision = MaintenanceDecision(table="db.t", state=DecisionState.REFUSED, reason="why")
    assert str(decision) == "db.t: maintenance: why"
    compaction = replace(decision, action=ActionKind.MINOR_COMPACTION, partition="p=1")
    assert str(compaction) == f"db.t p=1: {ActionKind.MINOR_COMPACTION}: why"


def test_a_canceled_plan_is_no_refusal(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def cancel(*_: object) -> None:
        raise CancelledError("stopped")

    monkeypatch.setattr(maintenance_plan, "find_actions", cancel)
    with pytest.raises(CancelledError, match="stopped"):
        plan_of(lake)


def test_an_option_that_forbids_a_step_is_the_reason(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table(
        "db.t", "k BIGINT", options={"commit.callbacks": "com.example.Notify"}
    )
    table.allow(stale_external=True).append(pa.table({"k": [1]}))

    planned = plan_of(catalog)

    assert not planned
    skip = find_skip(planned, "db.t", ActionKind.MINOR_COMPACTION)
    assert skip.state is DecisionState.REFUSED
    assert "commit.callbacks" in skip.reason


def test_an_empty_table_has_nothing_to_do(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_table("db.t", "k BIGINT")

    skip = find_skip(plan_of(catalog), "db.t", None)

    assert (skip.state, skip.reason) == (DecisionState.NOTHING_TO_DO, "the table has no snapshot")


def test_partitions_without_work_are_one_decision(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    create_daily_table(catalog, "a", "b", "c", files=1)

    skip = find_skip(plan_of(catalog), "db.daily", ActionKind.MINOR_COMPACTION)

    assert skip.reason == "partitions without files to compact: 3"


def test_durations_are_texts_or_timedeltas() -> None:
    request = MaintenanceRequest(idle_for="2 h", visible_within=timedelta(minutes=5))
    assert (request.idle_time, request.visibility_wait) == (
        timedelta(hours=2),
        timedelta(minutes=5),
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"idle_for": "soon"},
        {"idle_for": "30"},
        {"visible_within": timedelta(days=-1)},
        {"visible_within": 3_600},
        {"expiring_within": "1 x"},
        {"reads": {"*": -1.0}},
        {"history_table": None, "budgets": MaintenanceBudgets(max_bytes_per_hour="1 gb")},
    ],
)
def test_invalid_requests_are_refused_when_they_are_made(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        MaintenanceRequest(**fields)


@pytest.mark.parametrize(
    "options",
    [
        {"deletion-vectors.enabled": "true"},
        {"merge-engine": "first-row"},
        {"deletion-vectors.enabled": "true", "pk-clustering-override": "true",
         "clustering.columns": "v"},
        {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"},
    ],
    ids=["deletion-vectors", "first-row", "clustered", "postpone"],
)  # fmt: skip
def test_rows_that_readers_do_not_see_are_compacted_within_a_wait(
    tmp_path: Path, options: dict[str, str]
) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table(
        "db.t", "k BIGINT, v BIGINT", primary_key=["k"], options={"bucket": "1"} | options
    )
    table.append(table_of("k v", [(1, 1)]))
    late = datetime.now().astimezone() + timedelta(hours=2)

    plan = plan_of(catalog, now=late, budgets=MaintenanceBudgets(min_score=1e9))

    [action] = plan.actions
    assert "not visible to batch readers for more than 1 h" in action.reason
    assert table.scan().to_arrow().num_rows == 0
    run_maintenance(catalog, plan)
    assert table.scan().to_arrow().num_rows == 1
    assert not plan_of(catalog, now=late, budgets=MaintenanceBudgets(min_score=1e9)).actions


@pytest.mark.parametrize(
    "limits",
    [
        {"budgets": MaintenanceBudgets(max_bytes="1 b")},
        {"budgets": MaintenanceBudgets(max_bytes_per_hour="1 b")},
        {"policy": CompactionPolicy(max_rewrite="1 b")},
    ],
)
def test_rows_that_readers_do_not_see_are_compacted_whatever_the_limits(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    catalog = Catalog(str(tmp_path))
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    late = datetime.now().astimezone() + timedelta(hours=2)
    for name in ("db.a", "db.b"):  # the older rows are compacted first
        catalog.create_table(name, "k BIGINT", primary_key=["k"], options=options)
    for name in ("db.b", "db.a"):
        catalog.table(name).append(table_of("k", [(1,)]))
    compacted = []

    for _ in range(2):
        plan = plan_of(catalog, include=("db.*",), now=late, **limits)
        run_maintenance(catalog, plan)
        compacted.append([action.table for action in plan.actions])
        late += timedelta(hours=2)

    is_limited = "budgets" in limits
    assert compacted[0] == (["db.b"] if is_limited else ["db.b", "db.a"])
    for name in ("db.a", "db.b"):
        assert catalog.table(name).scan().to_arrow().num_rows == 1


def test_rows_that_readers_do_not_see_wait_as_long_as_configured(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = catalog.create_table("db.t", "k BIGINT", primary_key=["k"], options=options)
    table.append(table_of("k", [(1,)]))
    late = datetime.now().astimezone() + timedelta(hours=2)

    plan = plan_of(catalog, now=late, visible_within="3 h")

    assert not plan.actions
    assert "saves too little" in find_skip(plan, "db.t", ActionKind.MINOR_COMPACTION).reason


def test_merged_on_read_level_0_is_not_due(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", "k BIGINT", primary_key=["k"], options={"bucket": "1"})
    table.append(table_of("k", [(1,)]))

    assert not plan_of(catalog, now=datetime.now().astimezone() + timedelta(hours=2)).actions
