"""Steps that delete partitions, all rows or a tag run in any front end, and ask for a decision."""

from pathlib import Path

import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.orchestration.step_runs import run_declared_step
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path, "p STRING, k BIGINT, v STRING", key=("p", "k"), partition_by=("p",))
    table.upsert(table_of("p k v", [("a", 1, "x"), ("a", 2, "y"), ("b", 3, "z")]))
    return table


def test_partitions_are_dropped(table: Table) -> None:
    arguments = {"partitions": ["p=a"]}

    planned = run_declared_step("drop-partitions", table, arguments, EXECUTOR, dry_run=True)
    assert (planned["plan"], len(rows_of(table))) == ({"buckets": 1, "rows": 2}, 3)
    done = run_declared_step("drop-partitions", table, arguments, EXECUTOR, dry_run=False)

    assert done["outcome"] == {"snapshot_id": 2, "rows": 2}
    assert rows_of(table) == [("b", 3, "z")]
    with pytest.raises(NotFoundError, match="p=c"):
        run_declared_step("drop-partitions", table, {"partitions": ["p=c"]}, EXECUTOR, dry_run=True)


def test_all_rows_are_deleted_once(table: Table) -> None:
    with pytest.raises(InputError, match="truncate needs a decision"):
        run_declared_step("truncate", table, {}, EXECUTOR, dry_run=None)

    done = run_declared_step("truncate", table, {}, EXECUTOR, dry_run=False)
    again = run_declared_step("truncate", table, {}, EXECUTOR, dry_run=False)

    assert done["outcome"] == {"snapshot_id": 2, "rows": 3}
    assert again["outcome"] == {"snapshot_id": None, "rows": 0}
    assert rows_of(table) == []


def test_a_tag_is_deleted(table: Table) -> None:
    table.tags.create("late")

    planned = run_declared_step("delete-tag", table, {"name": "late"}, EXECUTOR, dry_run=True)
    assert (planned["plan"], table.tags.names()) == ({"tag": "late", "files": 0}, ["late"])
    done = run_declared_step("delete-tag", table, {"name": "late"}, EXECUTOR, dry_run=False)

    assert done["outcome"] == {"tag": "late", "files": 0}
    assert table.tags.names() == []


def test_the_snapshot_after_a_gap_becomes_the_earliest(table: Table) -> None:
    for number in range(3):
        table.upsert(table_of("p k v", [("b", 3, str(number))]))
    Path(table.stores.snapshots.path(2)).unlink()

    done = run_declared_step(
        "repair-earliest-snapshot", table, {"snapshot_id": 3}, EXECUTOR, dry_run=False
    )

    assert done["outcome"] == {"snapshot_id": 3, "previous_snapshot_id": 1}
    assert table.stores.snapshots.earliest_id() == 3
