"""The actions of a plan are executed within the budgets, and each is recorded."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.tables import assert_healthy, levels_of, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CancelledError, InputError, StorageError
from paimon_orch.steps.autopilot import execute_action as execution
from paimon_orch.steps.autopilot.action_outcome import (
    ActionEffect,
    ActionOutcome,
    MaintenancePrices,
    OutcomeKind,
)
from paimon_orch.steps.autopilot.budgets import MaintenanceBudgets
from paimon_orch.steps.autopilot.decisions import ActionKind, DecisionState, MaintenanceDecision
from paimon_orch.steps.autopilot.execute_action import ActionContext
from paimon_orch.steps.autopilot.maintenance_history import read_maintenance_history
from paimon_orch.steps.autopilot.maintenance_plan import MaintenancePlan, plan_maintenance
from paimon_orch.steps.autopilot.maintenance_request import HISTORY_TABLE, MaintenanceRequest
from paimon_orch.steps.autopilot.run_maintenance import MaintenanceResult, run_maintenance
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table

TOMORROW = datetime.now().astimezone() + timedelta(days=1)


def plan_of(catalog: Catalog, **fields: Any) -> MaintenancePlan:
    return plan_maintenance(catalog, MaintenanceRequest(**fields))


def outcomes_of(result: MaintenanceResult) -> dict[tuple[str, ActionKind | None], OutcomeKind]:
    return {(o.decision.table, o.decision.action): o.kind for o in result.outcomes}


def test_the_plan_that_was_shown_is_executed_and_needs_no_second_run(lake: Catalog) -> None:
    rows = lake.table("sales.orders").scan().to_arrow().sort_by("k")
    planned = plan_of(lake, now=TOMORROW)

    result = run_maintenance(lake, planned)

    ranked = [action for action in planned.actions if action.table == "web.events"]
    ranked.sort(key=lambda action: action.action is ActionKind.SNAPSHOT_EXPIRATION)
    assert [o.decision for o in result.outcomes if o.decision.table == "web.events"] == ranked
    assert {o.decision for o in result.outcomes} == set(planned.actions)
    assert {o.kind for o in result.outcomes} == {OutcomeKind.DONE}
    assert lake.table("sales.orders").scan().to_arrow().sort_by("k").equals(rows)
    again = plan_of(lake, now=TOMORROW)
    assert not [a for a in again.actions if a.action is not ActionKind.SNAPSHOT_EXPIRATION]


def test_the_newest_runs_are_merged_as_planned_before_the_threshold_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise tables of tests are so small that all runs are merged at once.
    monkeypatch.setattr("paimon_orch.steps.autopilot.read_cost.ACTION_OVERHEAD_BYTES", 1)
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(number, f"value {number}") for number in range(2000)]))
    compact(table, strategy="full")
    for number in range(2):
        table.upsert(table_of("k v", [(number, "new")]))
    rows, catalog = rows_of(table), Catalog(str(tmp_path))
    planned = plan_of(catalog)
    [action] = [a for a in planned.actions if a.action is ActionKind.MINOR_COMPACTION]

    [outcome] = run_maintenance(catalog, replace(planned, actions=(action,))).outcomes

    assert action.up_to_level == 0
    assert action.reason.startswith("sorted runs: 3, level-0 files: 2, small files: 3; merges ")
    assert outcome.effect.bytes_read == action.rewrite_bytes
    assert (levels_of(table), rows_of(table)) == ([4, 5], rows)
    assert_healthy(table)


def test_file_indexes_are_built(lake: Catalog) -> None:
    from paimon_orch.table.schema_change.schema_changes import SetOption

    lake.alter_table("web.events", [SetOption("file-index.bloom-filter.columns", "k")])
    planned = plan_of(lake, include=("web.*",))
    [action] = [a for a in planned.actions if a.action is ActionKind.FILE_INDEX_REWRITE]

    [outcome] = run_maintenance(lake, replace(planned, actions=(action,))).outcomes

    assert (outcome.kind, outcome.effect.rows) == (OutcomeKind.DONE, 24)
    assert outcome.effect.bytes_read == action.rewrite_bytes


def test_skips_are_recorded_with_their_reasons(lake: Catalog) -> None:
    planned = plan_of(
        lake, include=("sales.*", "web.*"), budgets=MaintenanceBudgets(max_bytes="1 b")
    )
    skips = [s for s in planned.skips if s.state is DecisionState.SKIPPED]

    result = run_maintenance(lake, planned)

    executed = read_maintenance_history(lake, HISTORY_TABLE)
    rows = read_maintenance_history(lake, HISTORY_TABLE, include_skipped=True)
    skipped = [row for row in rows.to_pylist() if row["outcome"] == "skipped"]
    assert len(executed) == len(result.outcomes) == len(rows) - len(skipped)
    assert len(skips) == result.count(OutcomeKind.SKIPPED) > 0
    assert {(s.table, s.partition, s.action, s.reason) for s in skips} == {
        (row["table_name"], row["partition"], row["action"], row["reason"]) for row in skipped
    }


def test_a_table_that_cannot_be_read_is_recorded_as_refused(lake: Catalog) -> None:
    table = lake.table("sales.orders")
    Path(table.paths.root, "schema", "schema-0").write_bytes(b"{")

    run_maintenance(lake, plan_of(lake, include=("sales.orders",)))

    [row] = read_maintenance_history(lake, HISTORY_TABLE, include_skipped=True).to_pylist()
    assert (row["table_name"], row["action"], row["outcome"]) == (
        "sales.orders",
        "maintenance",
        "refused",
    )
    assert "schema-0" in row["reason"]


def test_history_rows_equal_the_outcomes(lake: Catalog) -> None:
    prices = MaintenancePrices(per_gb=1e6, per_core_hour=3600, cores=2)

    result = run_maintenance(lake, plan_of(lake), prices=prices)

    rows = read_maintenance_history(lake, HISTORY_TABLE).to_pylist()
    assert len(rows) == len(result.outcomes) > 1
    for row, outcome in zip(rows, result.outcomes, strict=True):
        values = outcome.to_dict()
        assert {name: row[name] for name in row.keys() & values.keys() - {"started_at"}} == {
            name: values[name] for name in row.keys() & values.keys() - {"started_at"}
        }
        assert row["run_id"] == result.run_id
        assert row["table_name"] == outcome.decision.table
        assert row["estimated_rewrite_bytes"] == outcome.decision.rewrite_bytes
        assert row["started_at"] - outcome.started_at < timedelta(milliseconds=1)
        size = outcome.effect.bytes_read + outcome.effect.bytes_written
        assert outcome.cost == pytest.approx(size / 1e3 + 2 * outcome.seconds)
    assert result.cost == sum(row["cost"] for row in rows)


def test_a_failed_table_does_not_stop_the_others_and_its_error_is_recorded(lake: Catalog) -> None:
    planned = plan_of(lake)
    root = Path(lake.table("web.events").paths.root)
    for file in root.glob("bucket-0/*"):
        file.unlink()

    result = run_maintenance(lake, planned)

    outcomes = outcomes_of(result)
    assert outcomes["web.events", ActionKind.MINOR_COMPACTION] is OutcomeKind.FAILED
    assert outcomes["sales.orders", ActionKind.MINOR_COMPACTION] is OutcomeKind.DONE
    history = read_maintenance_history(lake, HISTORY_TABLE, table="web.events").to_pylist()
    [failed] = [row for row in history if row["outcome"] == "failed"]
    assert "bucket-0" in failed["error"]
    assert result.count(OutcomeKind.FAILED) == 1


def test_a_table_that_was_dropped_after_the_plan_is_a_failure(lake: Catalog) -> None:
    planned = plan_of(lake)
    lake.drop_table("web.events")

    outcomes = outcomes_of(run_maintenance(lake, planned))

    assert outcomes["web.events", ActionKind.MINOR_COMPACTION] is OutcomeKind.FAILED
    assert outcomes["sales.orders", ActionKind.MINOR_COMPACTION] is OutcomeKind.DONE


def test_an_action_that_has_become_too_large_is_skipped(lake: Catalog) -> None:
    budgets = MaintenanceBudgets(max_bytes="100 kb")
    planned = replace(plan_of(lake, budgets=budgets), available_bytes=1)

    result = run_maintenance(lake, planned)

    assert {outcome.kind for outcome in result.outcomes} == {OutcomeKind.SKIPPED}
    error = result.outcomes[0].error
    assert error is not None
    assert re.match(
        r"the budget of bytes is used up: the action now needs [\d.]+ kB, and 1 B remain", error
    )
    assert result.bytes_read == 0


def test_work_that_another_writer_has_done_is_nothing_to_do(lake: Catalog) -> None:
    planned = plan_of(lake, include=("web.*",))
    run_maintenance(lake, planned)

    result = run_maintenance(lake, planned)

    outcomes = outcomes_of(result)
    assert outcomes["web.events", ActionKind.MINOR_COMPACTION] is OutcomeKind.NOTHING_TO_DO


def test_bytes_of_the_last_hour_reduce_the_budget_of_the_next_run(lake: Catalog) -> None:
    result = run_maintenance(lake, plan_of(lake))
    budgets = MaintenanceBudgets(max_bytes_per_hour="1 mb")

    now, later = plan_of(lake, budgets=budgets), plan_of(lake, budgets=budgets, now=TOMORROW)

    assert result.bytes_read
    assert now.available_bytes == (1 << 20) - result.bytes_read
    assert later.available_bytes == 1 << 20


def test_tables_are_maintained_at_once(lake: Catalog) -> None:
    planned = plan_of(lake, budgets=MaintenanceBudgets(max_concurrent=2))

    result = run_maintenance(lake, planned)

    assert {o.decision for o in result.outcomes} == set(planned.actions)
    assert {o.kind for o in result.outcomes} == {OutcomeKind.DONE}


@pytest.mark.parametrize("max_concurrent", [1, 2])
def test_an_interrupted_run_records_what_it_has_done(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, max_concurrent: int
) -> None:
    done: list[str] = []

    def execute(table: Table, action: MaintenanceDecision, context: ActionContext) -> ActionEffect:
        if len(done) >= 2:
            raise CancelledError("interrupted")
        done.append(action.table)
        return ActionEffect(rows=7)

    monkeypatch.setattr("paimon_orch.steps.autopilot.run_maintenance.execute_action", execute)
    planned = plan_of(lake, budgets=MaintenanceBudgets(max_concurrent=max_concurrent))

    with pytest.raises(CancelledError, match="interrupted"):
        run_maintenance(lake, planned)

    rows = read_maintenance_history(lake, HISTORY_TABLE).to_pylist()
    assert [row["rows"] for row in rows] == [7] * len(done)
    assert len(done) < len(planned.actions)


def test_without_a_history_table_nothing_is_recorded(lake: Catalog) -> None:
    result = run_maintenance(lake, plan_of(lake, history_table=None, include=("web.*",)))

    assert result.outcomes
    assert result.run_id is None
    assert lake.databases() == ["sales", "web"]


def test_a_failure_of_the_history_says_that_the_actions_were_executed(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> str:
        raise StorageError("no space")

    monkeypatch.setattr("paimon_orch.steps.autopilot.run_maintenance.append_history", fail)

    with pytest.raises(StorageError) as failure:
        run_maintenance(lake, plan_of(lake, include=("web.*",)))

    assert failure.value.__notes__ == [
        "2 actions were executed, and are not recorded in paimon_orch.maintenance_history"
    ]


@pytest.mark.parametrize("prices", [{"per_gb": -1.0}, {"cores": -1}, {"per_core_hour": -0.1}])
def test_negative_prices_are_refused(prices: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="at least 0"):
        MaintenancePrices(**prices)


def test_every_kind_of_action_can_be_executed() -> None:
    assert set(execution._STEPS) == set(ActionKind)


def test_an_outcome_is_one_line_of_text() -> None:
    decision = MaintenanceDecision(
        table="web.events",
        partition="dt=a",
        state=DecisionState.CHOSEN,
        reason="",
        action=ActionKind.CLUSTERING,
    )
    outcome = ActionOutcome(
        decision=decision, kind=OutcomeKind.FAILED, started_at=TOMORROW, error="no space"
    )

    assert str(outcome) == "web.events dt=a: clustering: failed: no space"


def test_snapshots_expire_after_the_other_actions_of_a_table(tmp_path: Path) -> None:
    retained = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = new_table(tmp_path, **retained)
    for number in range(40):
        table.upsert(table_of("k v", [(number, "a")]))
    catalog = Catalog(str(tmp_path))

    result = run_maintenance(catalog, plan_of(catalog, history_table=None))

    assert len(result.outcomes) > 1
    assert result.outcomes[-1].decision.action is ActionKind.SNAPSHOT_EXPIRATION
    assert len(table.stores.snapshots.ids()) == 1
