"""The history of maintenance is a table that anyone can read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.steps.autopilot.action_outcome import ActionOutcome, OutcomeKind
from paimon_orch.steps.autopilot.decisions import ActionKind, DecisionState, MaintenanceDecision
from paimon_orch.steps.autopilot.maintenance_history import (
    HISTORY_SCHEMA,
    append_history,
    read_maintenance_history,
)

NAME = "ops.maintenance"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def outcome_at(time: datetime, table: str = "db.t") -> ActionOutcome:
    decision = MaintenanceDecision(
        table=table,
        state=DecisionState.CHOSEN,
        reason="expired snapshots: 2",
        action=ActionKind.SNAPSHOT_EXPIRATION,
        score=float("inf"),
    )
    return ActionOutcome(decision=decision, kind=OutcomeKind.DONE, started_at=time)


def test_rows_are_partitioned_by_day_and_sorted_by_time(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    append_history(catalog, NAME, [outcome_at(NOON + timedelta(days=1))])
    append_history(catalog, NAME, [outcome_at(NOON, "db.u"), outcome_at(NOON)])

    rows = read_maintenance_history(catalog, NAME)

    assert rows.schema.names == HISTORY_SCHEMA.names
    assert rows["day"].to_pylist() == ["2026-01-31", "2026-01-31", "2026-02-01"]
    assert len(set(rows["run_id"].to_pylist())) == 2
    assert catalog.table(NAME).load().schema.partition_keys == ("day",)
    assert rows["score"].to_pylist() == [None] * 3


def test_actions_are_selected_by_time_and_table(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    times = [NOON - timedelta(hours=1), NOON, NOON + timedelta(days=1)]
    append_history(catalog, NAME, [*map(outcome_at, times), outcome_at(NOON, "db.u")])

    rows = read_maintenance_history(catalog, NAME, since=NOON, table="db.t")

    assert rows["started_at"].to_pylist() == times[1:]


def test_without_a_history_table_there_are_no_rows(tmp_path: Path) -> None:
    assert len(read_maintenance_history(Catalog(str(tmp_path)), NAME)) == 0


def test_a_table_with_other_columns_is_not_changed(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table(NAME, "day STRING", options={"bucket": "-1"})

    with pytest.raises(InputError, match=r"ops\.maintenance cannot be the history .* run_id"):
        append_history(catalog, NAME, [outcome_at(NOON)])
    with pytest.raises(InputError, match="cannot be the history"):
        read_maintenance_history(catalog, NAME)

    assert table.snapshot() is None


def test_the_database_of_system_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reserved for system tables"):
        append_history(Catalog(str(tmp_path)), "sys.maintenance_history", [outcome_at(NOON)])
