"""Branches: separate schemas and snapshots over the same data files, and fast-forward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.golden import GOLDEN, copy_warehouse
from support.tables import assert_healthy, catalog_of, new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import (
    CommitConflictError,
    InputError,
    NotAllowedError,
    NotFoundError,
    UnsupportedError,
)
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.rollback_as_latest import rollback_as_latest
from paimon_orch.storage import FileInfo, LocalFileIO
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with three snapshots.

    The second one is tagged ``base``; the value of key 1 is the snapshot id.
    """
    table = new_table(tmp_path)
    for text in ("1", "2", "3"):
        table.upsert(table_of("k v", [(1, text)]))
    table.tags.create("base", 2)
    return table


def branch(table: Table, name: str) -> Table:
    return Catalog(str(Path(table.paths.root).parents[1])).table(f"db.t$branch_{name}")


def value(table: Table, **scan: Any) -> list[Any]:
    return [row[1] for row in rows_of(table, **scan)]


def test_a_branch_starts_at_its_tag_and_is_independent_of_main(table: Table) -> None:
    table.branches.create("dev", "base")
    dev = branch(table, "dev")
    assert value(dev) == ["2"]

    dev.upsert(table_of("k v", [(1, "dev")]))
    table.upsert(table_of("k v", [(1, "main")]))

    assert (value(dev), value(table)) == (["dev"], ["main"])
    assert (dev.stores.snapshots.ids(), table.stores.snapshots.ids()) == ([2, 3], [1, 2, 3, 4])
    assert value(dev, tag="base") == ["2"]
    assert table.branches.names() == ["dev"]
    assert_healthy(dev)


def test_other_entries_of_the_directory_of_branches_are_no_branches(table: Table) -> None:
    table.branches.create("dev")
    directory = Path(table.paths.root) / "branch"
    (directory / "branch-file").write_bytes(b"")
    (directory / "other").mkdir()

    assert table.branches.names() == ["dev"]


def test_a_branch_has_all_schemas_up_to_that_of_its_tag(table: Table, tmp_path: Path) -> None:
    Catalog(str(tmp_path)).alter_table("db.t", [AddColumn(column="n", type="INT")])

    table.branches.create("dev", "base")
    table.branches.create("all")

    assert branch(table, "dev").stores.schemas.ids() == [0]
    assert branch(table, "all").stores.schemas.ids() == [0, 1]


def test_an_empty_branch_has_no_rows(table: Table) -> None:
    table.branches.create("dev")
    dev = branch(table, "dev")

    assert value(dev) == []
    dev.upsert(table_of("k v", [(7, "x")]))

    assert rows_of(dev) == [(7, "x")]
    assert value(table) == ["3"]


def test_a_fast_forward_moves_main_to_a_branch(table: Table, tmp_path: Path) -> None:
    table.branches.create("dev", "base")
    dev = branch(table, "dev")
    Catalog(str(tmp_path)).alter_table("db.t$branch_dev", [AddColumn(column="n", type="INT")])
    dev.upsert(table_of("k v n", [(1, "dev", 5)]))
    dev.tags.create("release")
    Catalog(str(tmp_path)).alter_table(
        "db.t", [AddColumn(column="other", type="INT"), SetOption("x", "y")]
    )
    table.upsert(table_of("k v other", [(1, "lost", 1)]))
    table.tags.create("lost")

    for _ in range(2):  # a second call changes nothing
        table.branches.fast_forward("dev")

        assert rows_of(table) == rows_of(dev) == [(1, "dev", 5)]
        assert table.stores.snapshots.ids() == [1, 2, 3]
        assert table.stores.snapshots.hint("LATEST") == 3
        assert table.tags.names() == ["base", "release"]
        assert table.load().schema == dev.load().schema
        assert value(table, snapshot_id=1) == ["1"]
    table.upsert(table_of("k v n", [(1, "on", 6)]))
    assert (value(table), value(dev)) == (["on"], ["dev"])
    assert_healthy(table)


def test_a_fast_forward_replaces_tags_of_the_same_name(table: Table) -> None:
    """One of main's tags has a snapshot before the start of the branch, which main keeps."""
    table.branches.create("dev", "base")
    dev = branch(table, "dev")
    dev.upsert(table_of("k v", [(1, "dev")]))
    for name, snapshot_id in (("older", 1), ("newer", 3), ("kept", 1)):
        table.tags.create(name, snapshot_id)
    for name in ("older", "newer"):
        dev.tags.create(name, 3)

    table.branches.fast_forward("dev")

    assert {name: value(table, tag=name) for name in table.tags.names()} == {
        "base": ["2"], "kept": ["1"], "newer": ["dev"], "older": ["dev"]
    }  # fmt: skip


def test_a_fast_forward_deletes_tags_of_lost_snapshots(table: Table) -> None:
    table.branches.create("dev", "base")
    for name, snapshot_id in (("before", 1), ("first", 2), ("after", 3)):
        table.tags.create(name, snapshot_id)

    table.branches.fast_forward("dev")

    assert table.tags.names() == ["base", "before"]


def test_a_fast_forward_without_a_hint_of_the_earliest_snapshot_keeps_old_snapshots(
    table: Table,
) -> None:
    table.branches.create("dev", "base")

    table.branches.fast_forward("dev")

    assert table.stores.snapshots.hint("EARLIEST") is None
    assert value(table, snapshot_id=1) == ["1"]


def test_a_fast_forward_deletes_only_files_that_differ(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of main then finds the files that main and the branch have in common."""
    table.branches.create("dev", "base")
    branch(table, "dev").upsert(table_of("k v", [(1, "dev")]))
    deleted: list[str] = []
    delete = LocalFileIO.delete

    def record(io: LocalFileIO, path: str) -> None:
        deleted.append(path.rpartition("/")[2])
        delete(io, path)

    monkeypatch.setattr(LocalFileIO, "delete", record)
    table.branches.fast_forward("dev")
    table.branches.fast_forward("dev")

    assert deleted == ["LATEST", "snapshot-3", "LATEST"]


def test_a_fast_forward_copies_the_schemas_of_all_files_of_the_branch(table: Table) -> None:
    """The branch has files of an older schema than its snapshots, which main has changed."""
    catalog = catalog_of(table)
    table.branches.create("dev", "base")
    dev = branch(table, "dev")
    for name in "xyz":
        catalog.alter_table(dev.identifier, [AddColumn(column=name, type="STRING")])
        dev.upsert(table_of(f"k v {name}", [(ord(name), "dev", name)]))
    dev.tags.delete("base")
    expire_snapshots(dev, retain_max=1, retain_min=1)
    expected = rows_of(dev)
    catalog.alter_table("db.t", [AddColumn(column="other", type="STRING")])
    table.upsert(table_of("k v other", [(1, "main", "m")]))
    table.tags.delete("base")

    with pytest.raises(InputError, match="differ from schema 1 on, and main keeps snapshot 4"):
        table.branches.fast_forward("dev")
    assert rows_of(table) == [(1, "main", "m")]

    table.upsert(table_of("k v other", [(1, "main", "m")]))
    expire_snapshots(table, retain_max=1, retain_min=1)
    table.branches.fast_forward("dev")

    assert rows_of(table) == expected


def test_a_fast_forward_that_would_change_the_columns_of_an_older_snapshot_is_refused(
    table: Table,
) -> None:
    catalog = catalog_of(table)
    catalog.alter_table("db.t", [AddColumn(column="n", type="INT")])
    table.upsert(table_of("k v n", [(2, "b", 5)]))
    rows, number = rows_of(table), table.history()[0].id
    target = rollback_as_latest(table, 1).snapshot
    table.tags.create("start", target.id)
    table.branches.create("dev", "start")
    catalog.alter_table("db.t$branch_dev", [AddColumn(column="other", type="STRING")])
    branch(table, "dev").upsert(table_of("k v other", [(3, "c", "o")]))

    with pytest.raises(InputError, match=f"main keeps snapshot {number}, which is older"):
        table.branches.fast_forward("dev")

    assert rows_of(table, snapshot_id=number) == rows


def test_a_fast_forward_to_a_branch_without_snapshots_is_refused(table: Table) -> None:
    table.branches.create("dev")

    with pytest.raises(InputError, match="no snapshot"):
        table.branches.fast_forward("dev")

    assert value(table) == ["3"]


def test_changes_of_branches_are_checked_first_and_only_a_moved_main_is_reported(
    table: Table,
) -> None:
    table.branches.create("dev", "base")
    changes: list[str] = []

    def refuse() -> None:
        raise UnsupportedError("not this table")

    reporting = replace(table.branches, on_change=lambda: changes.append("moved"))
    refusing = replace(reporting, check=refuse)
    for act, names in (
        (refusing.create, ["new"]),
        (refusing.delete, ["dev"]),
        (refusing.rename, ["dev", "new"]),
        (refusing.fast_forward, ["dev"]),
    ):
        with pytest.raises(UnsupportedError, match="not this table"):
            act(*names)
    assert (table.branches.names(), value(table), changes) == (["dev"], ["3"], [])

    reporting.create("new")
    reporting.rename("new", "other")
    reporting.delete("other")
    assert changes == []
    reporting.fast_forward("dev")
    assert changes == ["moved"]


def test_the_plan_of_a_fast_forward_lists_the_tags_once_and_changes_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.branches.create("dev", "base")
    for name in ("a", "b", "c"):
        table.tags.create(name)
    before, listed = stored_files(table), Counter[str]()
    list_dir = LocalFileIO.list_dir

    def count(io: LocalFileIO, path: str) -> Iterator[FileInfo]:
        listed[path] += 1
        return list_dir(io, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileIO, "list_dir", count)
        planned = table.branches.plan_fast_forward("dev")

    assert {path: number for path, number in listed.items() if path.endswith("/tag")} == {
        table.paths.tag_dir: 1,
        f"{table.paths.root}/branch/branch-dev/tag": 1,
    }
    assert planned.replaced_tags == ["a", "b", "c"]
    assert stored_files(table) == before


def test_a_fast_forward_replaces_no_snapshot_that_was_created_after_its_plan(table: Table) -> None:
    table.branches.create("dev", "base")
    planned = table.branches.plan_fast_forward("dev")
    table.upsert(table_of("k v", [(1, "later")]))

    with pytest.raises(CommitConflictError, match="the newest snapshot of main is"):
        table.branches.run_fast_forward(planned)

    assert value(table) == ["later"]


def test_a_partially_created_branch_is_completed(table: Table) -> None:
    table.branches.create("dev", "base")
    folder = Path(table.paths.root) / "branch" / "branch-dev"
    (folder / "tag" / "tag-base").unlink()
    (folder / "snapshot" / ".snapshot-2.1234.tmp").write_bytes(b"{")

    table.branches.create("dev", "base")

    assert value(branch(table, "dev"), tag="base") == ["2"]
    with pytest.raises(InputError, match="already has a branch 'dev'"):
        table.branches.create("dev", "base")


@pytest.mark.parametrize("changed", ["schema/schema-0", "snapshot/snapshot-9"])
def test_a_branch_with_other_files_is_not_taken_for_a_partially_created_one(
    table: Table, changed: str
) -> None:
    table.branches.create("dev", "base")
    folder = Path(table.paths.root) / "branch" / "branch-dev"
    (folder / "tag" / "tag-base").unlink()
    (folder / changed).write_bytes(b"other")

    with pytest.raises(InputError, match="already has a branch 'dev'"):
        table.branches.create("dev", "base")

    assert (folder / changed).read_bytes() == b"other"
    assert not (folder / "tag" / "tag-base").exists()


def test_a_branch_is_not_created_if_its_tag_is_deleted_at_the_same_time(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = LocalFileIO.create

    def delete_tag(io: LocalFileIO, path: str, data: bytes) -> bool:
        io.delete(f"{table.paths.root}/tag/tag-base")
        return create(io, path, data)

    monkeypatch.setattr(LocalFileIO, "create", delete_tag)
    with pytest.raises(NotFoundError, match="no tag 'base'"):
        table.branches.create("dev", "base")

    assert table.branches.names() == []


def test_deleting_a_branch_does_not_change_main(table: Table) -> None:
    table.branches.create("dev", "base")

    table.branches.delete("dev")

    assert table.branches.names() == []
    with pytest.raises(NotFoundError, match="no branch 'dev'"):
        branch(table, "dev")
    assert value(table) == ["3"]
    assert_healthy(table)


@pytest.mark.parametrize("kind", ["fallback", "primary", "fallback-snapshot", "fallback-delta"])
def test_a_branch_that_readers_use_is_not_deleted(table: Table, tmp_path: Path, kind: str) -> None:
    table.branches.create("dev", "base")
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption(f"scan.{kind}-branch", "dev")])

    with pytest.raises(InputError, match=rf"scan\.{kind}-branch"):
        table.branches.delete("dev")


@pytest.mark.parametrize("name", ["", " ", "main", "123", "a/b", "../x", "a$b"])
def test_invalid_branch_names_are_refused(table: Table, name: str) -> None:
    for act in (table.branches.create, table.branches.delete, table.branches.fast_forward):
        with pytest.raises(InputError, match="branch"):
            act(name)
    assert value(table) == ["3"]


def test_errors_of_missing_and_existing_branches_contain_their_names(table: Table) -> None:
    table.branches.create("dev")

    with pytest.raises(InputError, match="already has a branch 'dev'"):
        table.branches.create("dev")
    with pytest.raises(NotFoundError, match="no tag 'nope'"):
        table.branches.create("new", "nope")
    for act in (table.branches.delete, table.branches.fast_forward):
        with pytest.raises(NotFoundError, match="no branch 'nope'; it has dev"):
            act("nope")
    assert table.branches.names() == ["dev"]


def test_a_fast_forward_moves_main_to_a_branch_written_by_java(tmp_path: Path) -> None:
    folder = GOLDEN / "java-0.9" / "branches"
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table("db.t")
    assert table.branches.names() == ["dev", "empty"]
    # The rows are compared as strings, because NaN does not equal NaN.
    expected = str(rows_of(branch(table, "dev")))

    table.branches.fast_forward("dev")

    assert str(rows_of(table)) == expected


def test_a_fast_forward_to_snapshots_before_the_earliest_one_changes_the_hint(
    tmp_path: Path,
) -> None:
    """Snapshots below the EARLIEST hint count as expired, except those copied from the branch."""
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.tags.create("base")
    table.branches.create("dev", "base")
    for text in "bc":
        table.upsert(table_of("k v", [(1, text)]))
    expire_snapshots(table, retain_max=1)
    assert table.stores.snapshots.hint("EARLIEST") == 3

    table.branches.fast_forward("dev")

    assert (table.stores.snapshots.hint("EARLIEST"), table.stores.snapshots.ids()) == (1, [1])
    assert rows_of(table) == [(1, "a")]
    assert check(table, deep=True)


def test_files_of_a_symbolically_linked_branch_are_kept(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of the branch was moved to an allowed place and replaced by a link."""
    table.branches.create("dev", "base")
    folder = Path(table.paths.root) / "branch" / "branch-dev"
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    table.tags.delete("base")
    with pytest.raises(NotAllowedError, match="leads through a symbolic link"):
        expire_snapshots(table, retain_max=1)
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", f"{tmp_path}/moved/*")
    table = Catalog(str(Path(table.paths.root).parents[1])).table("db.t")

    expire_snapshots(table, retain_max=1)

    assert table.branches.names() == ["dev"]
    assert value(branch(table, "dev")) == ["2"]
    with pytest.raises(InputError, match="is a symbolic link"):
        table.branches.delete("dev")
    assert value(branch(table, "dev")) == ["2"]


def test_a_fast_forward_to_snapshots_that_are_being_expired_is_refused(table: Table) -> None:
    """The expiration was killed after it moved the hint; some files may be deleted."""
    table.branches.create("dev", "base")
    dev = branch(table, "dev")
    for text in ("x", "y"):
        dev.upsert(table_of("k v", [(1, text)]))
    dev.stores.snapshots.write_hint("EARLIEST", 4)

    table.branches.fast_forward("dev")

    assert table.stores.snapshots.ids() == [1, 2, 3, 4]
    assert [value(table, snapshot_id=number) for number in (3, 4)] == [["3"], ["y"]]
