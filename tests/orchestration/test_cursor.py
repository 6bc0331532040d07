"""The cursor of a sensor: which table it belongs to, and which partitions have waited too long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.orchestration import cursor as cursor_module
from paimon_orch.orchestration.cursor import (
    Cursor,
    SnapshotIdentity,
    get_table_identity,
    now_millis,
)
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption

CURSOR = Cursor(
    table="/w/db.db/t@1",
    handled=SnapshotIdentity(7, 1_700_000_000_000),
    pending={"dt=ä": "7"},
    waiting={"": 5, "dt=b": 1_700_000_000_000},
)


def wait_for_another_millisecond() -> None:
    """Return when a new schema has another time."""
    start = now_millis()
    while now_millis() == start:
        pass


def test_a_changed_table_is_the_same_table_and_a_recreated_one_is_another(tmp_path: Path) -> None:
    table, catalog = new_table(tmp_path), Catalog(str(tmp_path))
    identity = get_table_identity(table.stores)
    wait_for_another_millisecond()
    catalog.alter_table("db.t", [AddColumn(column="n", type="INT")])
    table.upsert(table_of("k v n", [(1, "a", 2)]))
    catalog.alter_table("db.t", [SetOption("snapshot.num-retained.min", "1")])
    changed = catalog.table("db.t")

    assert get_table_identity(changed.stores) == identity

    wait_for_another_millisecond()
    catalog.drop_table("db.t")
    recreated = get_table_identity(new_table(tmp_path).stores)
    assert recreated != identity
    assert recreated.startswith(f"{table.paths.root}@")
    other = get_table_identity(new_table(tmp_path / "other").stores)
    assert other.partition("@")[0] != identity.partition("@")[0]


def test_a_branch_is_not_the_table(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.branches.create("dev")
    branch = Catalog(str(tmp_path)).table("db.t$branch_dev")

    assert get_table_identity(branch.stores) != get_table_identity(table.stores)


def test_a_partition_is_overdue_when_the_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_module, "now_millis", lambda: 10_000)
    waiting = {"dt=a": 6_999, "dt=b": 7_000, "dt=c": 7_001}
    cursor = Cursor(table="t", handled=CURSOR.handled, waiting=waiting)

    assert cursor.find_overdue(3_000) == {"dt=a", "dt=b"}


def test_a_cursor_is_decoded_unchanged() -> None:
    assert Cursor.from_json(CURSOR.to_json()) == CURSOR


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"v": None},
        {"table": None},
        {"handled": [7, 1]},
        {"pending": {"no partition": "7"}},
        {"waiting": {"no partition": 1}},
        {"waiting": {"dt=a": "1"}},
    ],
)
def test_a_cursor_of_another_format_is_not_decoded(changes: dict[str, object]) -> None:
    assert Cursor.from_json(json.dumps(json.loads(CURSOR.to_json()) | changes)) is None


@pytest.mark.parametrize(
    "text", [None, "", "41", "{", "{}", "[]", "null", pytest.param("[" * 9999, id="deep")]
)
def test_a_text_that_is_no_cursor_is_not_decoded(text: str | None) -> None:
    assert Cursor.from_json(text) is None
