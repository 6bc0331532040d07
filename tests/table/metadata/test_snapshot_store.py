"""Snapshots are found with correct, stale, damaged and missing hints."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from support.flat_store import FlatFileIO
from support.histories import CountingFileIO
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import CorruptFileError, MissingFileError, NotFoundError, UnsupportedError
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.metadata.time_travel import find_at_time
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with three snapshots of one row each."""
    created = new_table(tmp_path)
    for number in (1, 2, 3):
        created.upsert(table_of("k v", [(number, "x")]))
    return created


def snapshot_file(table: Table, name: str) -> Path:
    return Path(table.paths.snapshot_dir) / name


@pytest.mark.parametrize(
    "text",
    ["3", "2", "1", "0", "-3", "", "  3\n", "three", "3.0", "9" * 30, "\xff\xfe", "٣"],
)
def test_the_newest_snapshot_is_found_if_the_hint_is_stale_or_damaged(
    table: Table, text: str
) -> None:
    snapshot_file(table, "LATEST").write_text(text, encoding="latin-1" if "\xff" in text else None)

    assert table.stores.snapshots.latest_id() == 3
    assert len(rows_of(table)) == 3


@pytest.mark.parametrize("hint", ["4", "99"])
def test_a_missing_newest_snapshot_is_an_error_for_readers_and_writers(
    table: Table, hint: str
) -> None:
    snapshot_file(table, "LATEST").write_text(hint)
    message = rf"snapshot-{hint}: is missing, but LATEST names .* roll back to snapshot 3"

    with pytest.raises(MissingFileError, match=message):
        rows_of(table)
    with pytest.raises(MissingFileError, match=message):
        table.upsert(table_of("k v", [(9, "x")]))

    table.rollback(3)
    assert len(rows_of(table)) == 3


def test_a_table_that_lost_all_snapshots_is_not_treated_as_empty(table: Table) -> None:
    for number in (1, 2, 3):
        snapshot_file(table, f"snapshot-{number}").unlink()

    with pytest.raises(MissingFileError, match=r"LATEST names snapshot 3; no snapshot exists"):
        rows_of(table)


def test_a_stale_hint_to_an_expired_snapshot_is_ignored(table: Table) -> None:
    snapshot_file(table, "LATEST").write_text("1")
    snapshot_file(table, "snapshot-1").unlink()
    snapshot_file(table, "snapshot-2").unlink()

    assert table.stores.snapshots.latest_id() == 3


def test_without_hints_the_directory_is_listed(table: Table) -> None:
    snapshot_file(table, "LATEST").unlink()

    assert table.stores.snapshots.latest_id() == 3
    assert table.stores.snapshots.earliest_id() == 1


def test_a_hint_that_is_a_directory_is_ignored(table: Table) -> None:
    snapshot_file(table, "LATEST").unlink()
    snapshot_file(table, "LATEST").mkdir()

    assert table.stores.snapshots.latest_id() == 3


@pytest.mark.parametrize("text", ["1", "7", "", "x"])
def test_the_oldest_snapshot_is_found_if_the_hint_is_wrong(table: Table, text: str) -> None:
    snapshot_file(table, "EARLIEST").write_text(text)

    assert table.stores.snapshots.earliest_id() == 1
    snapshot_file(table, "snapshot-1").unlink()
    assert table.stores.snapshots.earliest_id() == 2


def test_other_files_are_not_snapshots(table: Table) -> None:
    for name in (
        ".snapshot-9.f2a3.tmp",
        "snapshot-9.tmp",
        "snapshot-",
        "snapshot-x",
        "snapshot--9",
        "snapshot-٩",
        "9",
    ):
        snapshot_file(table, name).write_text("{}")

    assert table.stores.snapshots.ids() == [1, 2, 3]


def test_gaps_between_snapshots_are_skipped(table: Table) -> None:
    snapshot_file(table, "snapshot-2").unlink()

    assert [snapshot.id for snapshot in table.stores.snapshots.walk_back()] == [3, 1]
    assert table.stores.snapshots.latest_id() == 3


@pytest.mark.parametrize("missing", [(), (4,), (2, 3)])
def test_a_walk_in_a_slow_store_reads_ahead_but_little_at_first(
    tmp_path: Path, missing: tuple[int, ...]
) -> None:
    table = new_table(tmp_path)
    for number in range(1, 13):
        table.upsert(table_of("k v", [(number, "x")]))
    for number in missing:
        snapshot_file(table, f"snapshot-{number}").unlink()
    snapshot_file(table, "snapshot-8").write_text("damaged")
    io = FlatFileIO()
    walk = SnapshotStore(io, table.paths).walk_back()

    assert [snapshot.id for snapshot in islice(walk, 4)] == [12, 11, 10, 9]
    with pytest.raises(CorruptFileError, match="snapshot-8"):
        next(walk)
    snapshot_file(table, "snapshot-8").unlink()
    io.reads.clear()
    walk = SnapshotStore(io, table.paths).walk_back()

    assert [snapshot.id for snapshot in islice(walk, 2)] == [12, 11]
    assert "snapshot-10" not in io.names_read()
    expected = [number for number in range(10, 0, -1) if number not in (8, *missing)]
    assert [snapshot.id for snapshot in walk] == expected


def test_an_empty_table_has_no_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path)

    assert table.snapshot() is None
    assert table.stores.snapshots.earliest_id() is None
    assert list(table.stores.snapshots.walk_back()) == []
    assert rows_of(table) == []
    with pytest.raises(NotFoundError, match="no snapshot at or before"):
        find_at_time(table.stores.snapshots, 2**60)
    with pytest.raises(NotFoundError, match="has no snapshot 1; it has none"):
        table.snapshot(1)


def test_the_error_for_a_missing_snapshot_lists_existing_snapshots(table: Table) -> None:
    with pytest.raises(NotFoundError, match="has no snapshot 7; it has 1 to 3"):
        table.snapshot(7)


def test_the_error_of_a_damaged_snapshot_contains_its_name(table: Table) -> None:
    snapshot_file(table, "snapshot-3").write_bytes(b'{"version": 3, "id"')
    with pytest.raises(CorruptFileError, match="snapshot-3: is not JSON, or is truncated"):
        table.snapshot()


def test_a_snapshot_of_a_newer_version_is_refused(table: Table) -> None:
    path = snapshot_file(table, "snapshot-3")
    path.write_text(path.read_text().replace('"version": 3', '"version": 9'))
    with pytest.raises(UnsupportedError, match="version 9 is newer than 3"):
        table.snapshot()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", -3),
        ("id", "3"),
        ("id", 3.0),
        ("id", True),
        ("id", None),
        ("id", 2**70),
        ("id", 2),
        ("schemaId", -1),
        ("schemaId", "0"),
        ("schemaId", [0]),
        ("commitIdentifier", "x"),
        ("timeMillis", None),
        ("totalRecordCount", "many"),
        ("baseManifestListSize", -1),
        ("nextRowId", -5),
        ("nextRowId", {}),
        ("watermark", "late"),
        ("version", 0),
    ],
)
def test_invalid_snapshot_numbers_are_refused(table: Table, key: str, value: object) -> None:
    path = snapshot_file(table, "snapshot-3")
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {key: value}))

    with pytest.raises(CorruptFileError, match="snapshot-3: "):
        table.snapshot()


def test_a_snapshot_cannot_reference_files_outside_the_table(table: Table) -> None:
    path, snapshot = snapshot_file(table, "snapshot-3"), table.snapshot()
    assert snapshot is not None
    path.write_text(path.read_text().replace(snapshot.base_manifest_list, "../../x"))
    with pytest.raises(CorruptFileError, match="is outside its directory"):
        table.snapshot()


def test_tags_are_found_by_name(table: Table) -> None:
    tag = Path(table.paths.tag_dir) / "tag-monthly"
    tag.parent.mkdir()
    tag.write_bytes(snapshot_file(table, "snapshot-2").read_bytes())

    assert table.stores.snapshots.tags() == ["monthly"]
    assert table.stores.snapshots.tag("monthly").id == 2
    with pytest.raises(NotFoundError, match="has no tag 'weekly'; it has monthly"):
        table.stores.snapshots.tag("weekly")


def test_the_newest_snapshot_is_found_behind_one_that_is_known(table: Table) -> None:
    snapshots = table.stores.snapshots
    first, third = snapshots.get(1), snapshots.get(3)

    assert snapshots.latest_after(third) == (third, True)
    assert snapshots.latest_after(first) == (third, True)
    snapshot_file(table, "snapshot-1").write_text("{")
    assert snapshots.latest_after(first) == (third, False)
    snapshot_file(table, "snapshot-1").unlink()
    assert snapshots.latest_after(first) == (third, False)


def test_a_snapshot_that_has_the_id_of_a_known_one_is_another(table: Table) -> None:
    snapshots = table.stores.snapshots
    third = snapshots.get(3)
    table.rollback(2)
    assert snapshots.latest_after(third) == (snapshots.get(2), False)

    other = table.upsert(table_of("k v", [(4, "x")]))
    assert other is not None
    assert other.id == third.id
    assert snapshots.latest_after(third) == (other, False)


def test_a_listing_that_shows_the_newest_snapshot_needs_no_other_request(table: Table) -> None:
    io = CountingFileIO()
    snapshots = SnapshotStore(io, table.paths)
    third = snapshots.get(3)
    io.reads.clear()

    assert snapshots.latest_since(3, {3: third, 4: None}) is third
    assert not io.reads


@pytest.mark.parametrize("hint", [2, 3, 4], ids=["older", "of the listing", "newer"])
def test_a_snapshot_that_was_created_after_a_listing_is_found(table: Table, hint: int) -> None:
    """The hint was read before or after the listing, and the listing is not the newest state."""
    snapshots = table.stores.snapshots
    listed = {3: snapshots.get(3), 4: None}
    fourth = table.upsert(table_of("k v", [(4, "x")]))

    newest = snapshots.latest_since(hint, listed)

    assert newest == (listed[3] if hint == 3 else fourth)


def test_a_lost_snapshot_is_an_error_although_a_listing_shows_an_older_one(table: Table) -> None:
    snapshots = table.stores.snapshots
    listed = {2: snapshots.get(2), 3: None}
    snapshot_file(table, "snapshot-3").unlink()

    with pytest.raises(MissingFileError, match="LATEST names snapshot 3"):
        snapshots.latest_since(3, listed)
