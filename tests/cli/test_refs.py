"""Commands on tags and branches, rollback, drop-partitions and truncate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import run_command
from support.histories import unreferenced_files
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch.errors import InputError, NotFoundError, PaimonError
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(
        tmp_path, "dt STRING, k INT, v STRING", key=(), partition_by=("dt",), bucket="-1"
    )
    table.append(table_of("dt k v", [("a", 1, "x"), ("b", 2, "y")]))
    table.append(table_of("dt k v", [("a", 3, "z"), (None, 4, "n")]))
    return table


def run(table: Table, command: str, *arguments: str) -> str:
    """Run a command; the warehouse and the table come after its name."""
    warehouse = str(Path(table.paths.root).parents[1])
    return run_command(*command.split(), warehouse, "db.t", *arguments)


def test_tags_are_created_moved_renamed_and_deleted(table: Table) -> None:
    assert run(table, "tag list") == "none"
    assert run(table, "tag create", "one", "--snapshot", "1") == "tag one keeps snapshot 1"
    run(table, "tag create", "two", "--time-retained", "30 d")
    assert json.loads(run(table, "tag list", "--json")) == ["one", "two"]
    assert run(table, "tag create", "one", "--replace", "--yes") == "tag one keeps snapshot 2"
    run(table, "tag rename", "one", "uno")
    run(table, "tag delete", "two", "--yes")

    assert run(table, "tag list") == "uno"
    with pytest.raises(InputError, match="already"):
        run(table, "tag create", "uno")
    with pytest.raises(InputError, match="--time-retained"):
        run(table, "tag create", "x", "--time-retained", "soon")


def test_a_tag_is_deleted_with_files_that_only_it_references(table: Table) -> None:
    table.tags.create("kept", 1)
    table.overwrite(table_of("dt k v", [("a", 5, "e")]))
    expire_snapshots(table, retain_max=1)
    before = stored_files(table)

    output = run(table, "tag delete", "kept", "--dry-run")
    assert (output.startswith("would delete tag kept of db.t with"), stored_files(table)) == (
        True,
        before,
    )
    result = run(table, "tag delete", "kept", "--yes")

    deleted = before - stored_files(table)
    assert result == f"deleted tag kept with {len(deleted) - 1} files"
    assert any("/bucket-0/data-" in path for path in deleted)
    assert unreferenced_files(table) == set()


def test_a_tag_is_created_from_a_time_or_a_watermark(table: Table) -> None:
    first, second = (table.stores.snapshots.get(number).time_millis for number in (1, 2))
    run(table, "tag create", "a", "--from-timestamp", str(first))
    run(table, "tag create", "b", "--from-timestamp", str(second))
    assert (table.tags.get("a").id, table.tags.get("b").id) == (1, 2)
    with pytest.raises(NotFoundError, match="no snapshot or tag at or after"):
        run(table, "tag create", "c", "--from-timestamp", str(second + 1))
    with pytest.raises(NotFoundError, match="with a watermark of 5 or more"):
        run(table, "tag create", "c", "--from-watermark", "5")
    with pytest.raises(InputError, match="cannot be combined"):
        run(table, "tag create", "c", "--snapshot", "1", "--from-timestamp", "1")
    # The tag of an expired snapshot is earlier than the first snapshot.
    table.append(table_of("dt k v", [("a", 5, "e")]))
    table.tags.delete("b")
    expire_snapshots(table, retain_max=1)
    run(table, "tag create", "c", "--from-timestamp", str(first))
    assert table.tags.get("c").id == 1


def test_an_older_state_is_committed_as_the_latest(table: Table) -> None:
    output = run(table, "rollback", "--snapshot", "1", "--as-latest", "--dry-run")
    changes = "(0 files added, 2 removed)"
    assert output == f"would commit the state of snapshot 1 {changes}; nothing was changed"
    assert (table.stores.snapshots.latest_id(), table.tags.names()) == (2, [])
    output = run(table, "rollback", "--snapshot", "1", "--as-latest")
    [tag] = table.tags.names()
    expected = (
        f"committed the state of snapshot 1 as snapshot 3 {changes}; tag {tag} keeps its files"
    )
    assert output == expected
    assert rows_of(table) == [("a", 1, "x"), ("b", 2, "y")]
    values = json.loads(run(table, "rollback", "--tag", tag, "--as-latest", "--json"))
    assert (values["snapshot_id"], values["tag"], values["added_files"]) == (4, tag, 0)


def test_a_branch_is_renamed(table: Table) -> None:
    table.tags.create("base", 1)
    table.branches.create("dev", "base")
    table.branches.create("other")
    assert run(table, "branch rename", "dev", "new") == "renamed branch dev to new"
    assert table.branches.names() == ["new", "other"]
    for name, to in (("new", "other"), ("new", "main"), ("new", "new"), ("new", "7")):
        with pytest.raises(InputError):
            run(table, "branch rename", name, to)
    with pytest.raises(NotFoundError, match="no branch 'gone'"):
        run(table, "branch rename", "gone", "x")
    assert table.branches.names() == ["new", "other"]


def test_consumers_are_reset_and_cleared(table: Table) -> None:
    assert run(table, "consumer list") == "none"
    text = "set consumer app to read snapshot 1 next"
    assert run(table, "consumer reset", "app", "--next-snapshot", "1") == text
    assert table.stores.open_consumers().read_all() == {"app": 1}
    with pytest.raises(NotFoundError, match="no snapshot 9"):
        run(table, "consumer reset", "app", "--next-snapshot", "9")
    output = run(table, "consumer reset", "app", "--dry-run")
    assert (
        output
        == "would delete consumer app of db.t, which reads snapshot 1 next; nothing was changed"
    )
    assert run(table, "consumer reset", "app", "--yes") == "deleted consumer app"
    with pytest.raises(NotFoundError, match="no consumer 'app'"):
        run(table, "consumer reset", "app")

    for name in ("a1", "a2", "b1", "b11"):
        table.stores.open_consumers().record(name, 2)
    patterns = ("--including", ".1", "--excluding", "b.*")
    assert run(table, "consumer clear", *patterns, "--dry-run") == "a1"
    assert len(table.stores.open_consumers().read_all()) == 4
    assert run(table, "consumer clear", *patterns, "--yes") == "a1"
    assert run(table, "consumer list").split() == ["a2", "b1", "b11"]
    with pytest.raises(InputError, match="not a regular expression"):
        run(table, "consumer clear", "--including", "(")
    run(table, "consumer clear", "--yes")
    assert table.stores.open_consumers().read_all() == {}


def test_the_earliest_snapshot_is_set_after_a_gap(table: Table) -> None:
    for number in range(5, 8):
        table.append(table_of("dt k v", [("a", number, "e")]))
    store = table.stores.snapshots
    with pytest.raises(InputError, match="does not follow a missing snapshot"):
        run(table, "repair-earliest-snapshot", "--snapshot", "3")
    table.io.delete(store.path(3))
    for wrong in ("2", "5", "6"):
        with pytest.raises(InputError):
            run(table, "repair-earliest-snapshot", "--snapshot", wrong)
    assert store.earliest_id() == 1
    output = run(table, "repair-earliest-snapshot", "--snapshot", "4", "--dry-run")
    assert output == (
        "would set the earliest snapshot of db.t from 1 to 4 and no longer keep 2 older snapshots; "
        "nothing was changed"
    )
    assert store.earliest_id() == 1
    output = run(table, "repair-earliest-snapshot", "--snapshot", "4", "--yes")
    assert output == "set the earliest snapshot from 1 to 4"
    assert store.earliest_id() == 4


def test_branches_are_created_fast_forwarded_and_deleted(table: Table) -> None:
    table.tags.create("base", 1)
    run(table, "branch create", "dev", "--tag", "base")
    run(table, "branch create", "empty")
    assert run(table, "branch list").split() == ["dev", "empty"]
    output = run(table, "branch fast-forward", "dev", "--dry-run")
    assert output.startswith("would move main of db.t from snapshot 2 to snapshot 1 of branch dev")
    assert (
        run(table, "branch fast-forward", "dev", "--yes")
        == "moved main to snapshot 1 of branch dev"
    )
    output = run(table, "branch delete", "dev", "--dry-run")
    assert output.startswith("would delete branch dev of db.t with 1 snapshot and 1 tag (base)")
    run(table, "branch delete", "empty", "--yes")

    assert table.branches.names() == ["dev"]
    assert len(rows_of(table)) == 2


def test_a_dry_run_of_a_rollback_prints_both_snapshots(table: Table) -> None:
    assert run(table, "rollback", "--snapshot", "1", "--dry-run").startswith(
        "would roll back db.t from snapshot 2 to 1"
    )
    assert table.stores.snapshots.latest_id() == 2

    assert run(table, "rollback", "--snapshot", "1", "--yes") == "rolled back to snapshot 1"

    assert table.stores.snapshots.latest_id() == 1
    with pytest.raises(InputError, match="needs"):
        run(table, "rollback")


def test_partitions_are_dropped(table: Table) -> None:
    null = "dt=__DEFAULT_PARTITION__"
    output = run(table, "drop-partitions", "--partitions", f"dt=a;{null}", "--dry-run")
    assert (
        output
        == "would delete 3 rows and 2 partitions (dt=__DEFAULT_PARTITION__, dt=a) of db.t; nothing was changed"
    )

    result = run(table, "drop-partitions", "--partitions", f"dt=a;{null}", "--yes")

    assert result == "snapshot 3: 3 rows deleted"
    assert rows_of(table) == [("b", 2, "y")]
    with pytest.raises(InputError, match="has no partition dt=a"):
        run(table, "drop-partitions", "--partitions", "dt=a")
    with pytest.raises(InputError, match="--partitions is empty"):
        run(table, "drop-partitions", "--partitions", ";")


def test_truncate_removes_all_rows(table: Table) -> None:
    assert "4 rows" in run(table, "truncate", "--dry-run")
    assert run(table, "truncate", "--yes") == "snapshot 3: 4 rows deleted"
    assert rows_of(table) == []


def test_a_watermark_selects_the_first_snapshot_at_or_after_it(table: Table) -> None:
    for number in (1, 2):
        path = Path(table.stores.snapshots.path(number))
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"watermark": number * 1000}))

    assert len(run(table, "read", "--watermark", "500", "--format", "jsonl").splitlines()) == 2
    late = run(table, "read", "--watermark", "1970-01-01T00:00:02Z", "--format", "jsonl")
    assert len(late.splitlines()) == 4
    assert run(table, "rollback", "--watermark", "1000", "--yes") == "rolled back to snapshot 1"


def test_a_dry_run_is_refused_like_the_command(table: Table) -> None:
    run(table, "branch create", "empty")

    for command, name, reason in (
        ("delete", "main", "must not be"),
        ("fast-forward", "main", "must not be"),
        ("fast-forward", "empty", "has no snapshot"),
        ("delete", "nope", "has no branch"),
    ):
        with pytest.raises(PaimonError, match=reason):
            run(table, f"branch {command}", name, "--dry-run")


def test_an_empty_branch_name_is_refused(table: Table) -> None:
    with pytest.raises(PaimonError, match="branch"):
        run(table, "read", "--branch", "")
