"""Tags retain snapshots under a name; a rollback makes an older snapshot the newest."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.golden import GOLDEN, copy_warehouse
from support.tables import assert_healthy, new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, InputError, NotFoundError
from paimon_orch.table.metadata.tags import Tags
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with three snapshots; the value of key 1 is the snapshot id."""
    table = new_table(tmp_path)
    for text in ("1", "2", "3"):
        table.upsert(table_of("k v", [(1, text)]))
    return table


def files(directory: str) -> set[str]:
    return {path.name for path in Path(directory).iterdir()}


def read_tag_json(table: Table, tag: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(Path(table.tags.path(tag)).read_bytes())
    return value


def test_a_tag_is_a_copy_of_its_snapshot(table: Table) -> None:
    table.tags.create("newest")
    table.tags.create("older", 2)

    snapshot = Path(table.stores.snapshots.path(3)).read_bytes()
    assert Path(table.tags.path("newest")).read_bytes() == snapshot
    assert rows_of(table, tag="older") == [(1, "2")]
    assert table.tags.names() == ["newest", "older"]
    assert table.tags.get("older").id == 2


@pytest.mark.parametrize(
    ("moment", "parts"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 6), [2026, 1, 2, 3, 4, 5, 6000]),
        (datetime(2026, 1, 2, 3, 4, 5), [2026, 1, 2, 3, 4, 5]),
        (datetime(2026, 1, 2, 3, 4), [2026, 1, 2, 3, 4]),
        (datetime(2026, 1, 2, 3, 4, 0, 6), [2026, 1, 2, 3, 4, 0, 6000]),
    ],
)
def test_a_tag_with_a_retention_time_stores_its_creation_time_as_in_java(
    table: Table, moment: datetime, parts: list[int]
) -> None:
    Tags(table.stores.snapshots, lambda: moment).create("t", time_retained=timedelta(hours=1.5))

    assert (
        read_tag_json(table, "t")["tagCreateTime"],
        read_tag_json(table, "t")["tagTimeRetained"],
    ) == (
        parts,
        5400,
    )
    assert rows_of(table, tag="t") == [(1, "3")]


def test_a_tag_without_a_retention_time_has_no_time_fields(table: Table) -> None:
    table.tags.create("t")

    assert not {"tagCreateTime", "tagTimeRetained"} & read_tag_json(table, "t").keys()


def test_a_name_that_is_taken_is_not_overwritten(table: Table) -> None:
    table.tags.create("t", 1)

    with pytest.raises(InputError, match="already"):
        table.tags.create("t")
    table.tags.create("u")
    with pytest.raises(InputError, match="already"):
        table.tags.rename("t", "u")

    assert table.tags.get("t").id == 1


def test_a_tag_is_replaced_renamed_and_deleted(table: Table) -> None:
    table.tags.create("t", 1, time_retained=timedelta(days=1))
    table.tags.replace("t", 2)
    assert (table.tags.get("t").id, "tagTimeRetained" in read_tag_json(table, "t")) == (2, False)

    table.tags.rename("t", "u")
    assert table.tags.names() == ["u"]
    assert table.tags.get("u").id == 2

    table.tags.delete("u")
    assert table.tags.names() == []
    assert rows_of(table, snapshot_id=2) == [(1, "2")]


@pytest.mark.parametrize("name", ["", "  ", "a/b", "../x", "a\\b", "a\n"])
def test_a_tag_name_must_be_a_valid_file_name(table: Table, name: str) -> None:
    with pytest.raises(InputError, match="tag name"):
        table.tags.create(name)
    for act in (table.tags.delete, table.tags.replace):
        with pytest.raises(InputError, match=r"tag name|has no tag"):
            act(name)


def test_errors_of_missing_tags_and_snapshots_contain_their_names(
    table: Table, tmp_path: Path
) -> None:
    for act in (table.tags.delete, table.tags.replace, table.tags.get):
        with pytest.raises(NotFoundError, match="no tag 'nope'; it has none"):
            act("nope")
    with pytest.raises(NotFoundError, match="no snapshot 9"):
        table.tags.create("t", 9)
    with pytest.raises(NotFoundError, match="empty"):
        new_table(tmp_path / "other").tags.create("t")
    with pytest.raises(InputError, match="positive"):
        table.tags.create("t", time_retained=timedelta(0))
    assert table.tags.names() == []


def test_a_snapshot_that_expires_while_it_is_tagged_leaves_no_tag(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(table.stores.snapshots), "exists", lambda *_: False)

    with pytest.raises(NotFoundError, match="expired"):
        table.tags.create("t")

    assert files(table.paths.tag_dir) == set()


def test_an_expired_snapshot_is_tagged_from_another_tag(table: Table) -> None:
    table.tags.create("daily", 1, time_retained=timedelta(days=1))
    Path(table.stores.snapshots.path(1)).unlink()

    table.tags.create("kept", 1)

    assert "tagTimeRetained" not in read_tag_json(table, "kept")
    assert rows_of(table, tag="kept") == [(1, "1")]
    table.tags.create("newest")
    table.tags.replace("newest", 1)
    assert rows_of(table, tag="newest") == [(1, "1")]


def test_a_tag_can_be_renamed_to_its_own_name(table: Table) -> None:
    table.tags.create("one", 1)

    with pytest.raises(InputError, match="already"):
        table.tags.rename("one", "one")

    assert table.tags.names() == ["one"]


def test_a_tag_cannot_be_renamed_to_a_tag_of_another_snapshot(table: Table) -> None:
    table.tags.create("one", 1)
    table.tags.create("two", 2)

    with pytest.raises(InputError, match="already"):
        table.tags.rename("one", "two")

    assert [table.tags.get(name).id for name in ("one", "two")] == [1, 2]


@pytest.mark.parametrize("target", ["id", "tag", "timestamp"])
def test_a_rollback_restores_the_rows_of_its_snapshot(table: Table, target: str) -> None:
    for tag, snapshot_id in (("one", 1), ("two", 2), ("three", 3)):
        table.tags.create(tag, snapshot_id)
    when = table.stores.snapshots.get(2).time_millis
    arguments: dict[str, dict[str, Any]] = {
        "id": {"snapshot_id": 2},
        "tag": {"tag": "two"},
        "timestamp": {"timestamp": when},
    }

    snapshot = table.rollback(**arguments[target], delete_tags=True)

    # If several snapshots have the same time, the newest one is selected.
    assert snapshot.id == 2 or (target == "timestamp" and snapshot.time_millis == when)
    if snapshot.id == 2:
        assert rows_of(table) == [(1, "2")]
        assert files(table.paths.snapshot_dir) == {"snapshot-1", "snapshot-2", "LATEST"}
        assert table.tags.names() == ["one", "two"]
        table.upsert(table_of("k v", [(1, "new")]))
        assert table.stores.snapshots.latest_id() == 3
        assert rows_of(table) == [(1, "new")]
        assert_healthy(table)


def test_a_rollback_deletes_the_tags_of_later_snapshots_only_on_request(table: Table) -> None:
    table.tags.create("two", 2)
    table.tags.create("three", 3)
    before = stored_files(table)

    with pytest.raises(InputError, match=r"deletes the tags three; .*delete_tags=True"):
        table.rollback(2)
    assert stored_files(table) == before
    table.rollback(2, delete_tags=True)

    assert table.tags.names() == ["two"]


def test_a_rollback_deletes_no_snapshot_that_was_created_after_its_plan(table: Table) -> None:
    planned = table.plan_rollback(SnapshotSelector(2))
    table.upsert(table_of("k v", [(1, "4")]))
    before = stored_files(table)

    with pytest.raises(CommitConflictError, match="would also delete the snapshots 4"):
        table.run_rollback(planned)

    assert stored_files(table) == before


def test_a_rollback_to_the_newest_snapshot_changes_nothing(table: Table) -> None:
    before = files(table.paths.snapshot_dir)

    table.rollback(3)

    assert files(table.paths.snapshot_dir) == before
    assert rows_of(table) == [(1, "3")]


def test_a_rollback_keeps_newer_schemas(table: Table, tmp_path: Path) -> None:
    Catalog(str(tmp_path)).alter_table("db.t", [AddColumn(column="n", type="INT")])
    table.upsert(table_of("k v n", [(1, "4", 4)]))

    table.rollback(1)

    assert table.load().schema.id == 1
    assert rows_of(table) == [(1, "1", None)]


def test_a_rollback_restores_an_expired_snapshot_from_its_tag(table: Table) -> None:
    original = Path(table.stores.snapshots.path(1)).read_bytes()
    table.tags.create("kept", 1, time_retained=timedelta(days=1))
    for snapshot_id in (1, 2):  # an expiration deletes these files
        Path(table.stores.snapshots.path(snapshot_id)).unlink()
    table.stores.snapshots.write_hint("EARLIEST", 3)

    table.rollback(tag="kept")

    assert json.loads(Path(table.stores.snapshots.path(1)).read_bytes()) == json.loads(original)
    assert (table.stores.snapshots.earliest_id(), table.stores.snapshots.latest_id()) == (1, 1)
    assert rows_of(table) == [(1, "1")]


def test_a_rollback_deletes_later_changelogs(table: Table) -> None:
    directory = Path(table.paths.root) / "changelog"
    directory.mkdir()
    for name in ("changelog-1", "changelog-3", "LATEST", "EARLIEST"):
        (directory / name).write_text("1")

    table.rollback(2)

    assert files(str(directory)) == {"changelog-1"}


def test_a_rollback_to_a_missing_snapshot_changes_nothing(table: Table) -> None:
    before = files(table.paths.snapshot_dir)

    for arguments in ({"snapshot_id": 9}, {"tag": "nope"}, {"timestamp": 1}):
        with pytest.raises(NotFoundError):
            table.rollback(**arguments)
    with pytest.raises(InputError, match="needs a snapshot"):
        table.rollback()
    with pytest.raises(InputError, match="cannot be combined"):
        table.rollback(1, tag="x")

    assert files(table.paths.snapshot_dir) == before


def test_tags_written_by_java_are_read_and_kept(tmp_path: Path) -> None:
    folder = GOLDEN / "java-0.9" / "tags"
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table("db.t")
    # The rows are compared as strings, because NaN does not equal NaN.
    before = str(rows_of(table, tag="ttl"))

    table.tags.rename("ttl", "other")
    table.rollback(tag="other", delete_tags=True)

    assert str(rows_of(table)) == str(rows_of(table, tag="other")) == before


def test_a_rollback_to_a_snapshot_that_is_being_expired_is_refused(table: Table) -> None:
    """The expiration was killed after it moved the hint; some files may be deleted."""
    table.stores.snapshots.write_hint("EARLIEST", 3)
    before = files(table.paths.snapshot_dir)

    with pytest.raises(NotFoundError, match="is being expired"):
        table.rollback(2)

    assert files(table.paths.snapshot_dir) == before
    assert table.stores.snapshots.latest_id() == 3


def test_a_tagged_snapshot_that_is_being_expired_is_the_oldest_after_a_rollback(
    table: Table,
) -> None:
    table.tags.create("kept", 2)
    table.stores.snapshots.write_hint("EARLIEST", 3)

    table.rollback(2)

    assert rows_of(table) == [(1, "2")]
    assert (table.stores.snapshots.earliest_id(), table.stores.snapshots.latest_id()) == (2, 2)


def test_the_directory_of_success_files_is_not_a_tag(table: Table) -> None:
    """Other engines create it for the option 'tag.create-success-file'."""
    table.tags.create("kept", 1)
    folder = Path(table.paths.tag_dir) / "tag-success-file"
    folder.mkdir()
    (folder / "kept_SUCCESS").write_text("{}")

    assert table.tags.names() == ["kept"]
