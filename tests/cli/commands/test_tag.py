"""Commands on tags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import run_on
from support.histories import unreferenced_files
from support.tables import stored_files, table_of

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.table.table import Table


def test_tags_are_created_moved_renamed_and_deleted(partitioned: Table) -> None:
    assert run_on(partitioned, "tag list") == "none"
    assert run_on(partitioned, "tag create", "one", "--snapshot", "1") == "tag one keeps snapshot 1"
    run_on(partitioned, "tag create", "two", "--time-retained", "30 d")
    assert json.loads(run_on(partitioned, "tag list", "--json")) == ["one", "two"]
    assert (
        run_on(partitioned, "tag create", "one", "--replace", "--yes") == "tag one keeps snapshot 2"
    )
    run_on(partitioned, "tag rename", "one", "uno")
    run_on(partitioned, "tag delete", "two", "--yes")

    assert run_on(partitioned, "tag list") == "uno"
    with pytest.raises(InputError, match="already"):
        run_on(partitioned, "tag create", "uno")
    with pytest.raises(InputError, match="--time-retained"):
        run_on(partitioned, "tag create", "x", "--time-retained", "soon")


def test_a_tag_is_deleted_with_files_that_only_it_references(partitioned: Table) -> None:
    partitioned.tags.create("kept", 1)
    partitioned.overwrite(table_of("dt k v", [("a", 5, "e")]))
    expire_snapshots(partitioned, retain_max=1)
    before = stored_files(partitioned)

    output = run_on(partitioned, "tag delete", "kept", "--dry-run")
    assert (
        output.startswith("would delete tag kept and 3 files of db.t"),
        stored_files(partitioned),
    ) == (
        True,
        before,
    )
    result = run_on(partitioned, "tag delete", "kept", "--yes")

    deleted = before - stored_files(partitioned)
    assert result == f"deleted tag kept and {len(deleted) - 1} files"
    assert any("/bucket-0/data-" in path for path in deleted)
    assert unreferenced_files(partitioned) == set()


def test_a_tag_is_created_from_a_time_or_a_watermark(partitioned: Table) -> None:
    first, second = (partitioned.stores.snapshots.get(number).time_millis for number in (1, 2))
    run_on(partitioned, "tag create", "a", "--from-timestamp", str(first))
    run_on(partitioned, "tag create", "b", "--from-timestamp", str(second))
    assert (partitioned.tags.get("a").id, partitioned.tags.get("b").id) == (1, 2)
    with pytest.raises(NotFoundError, match="no snapshot or tag at or after"):
        run_on(partitioned, "tag create", "c", "--from-timestamp", str(second + 1))
    with pytest.raises(NotFoundError, match="with a watermark of 5 or more"):
        run_on(partitioned, "tag create", "c", "--from-watermark", "5")
    with pytest.raises(InputError, match="cannot be combined"):
        run_on(partitioned, "tag create", "c", "--snapshot", "1", "--from-timestamp", "1")
    # The tag of an expired snapshot is earlier than the first snapshot.
    partitioned.append(table_of("dt k v", [("a", 5, "e")]))
    partitioned.tags.delete("b")
    expire_snapshots(partitioned, retain_max=1)
    run_on(partitioned, "tag create", "c", "--from-timestamp", str(first))
    assert partitioned.tags.get("c").id == 1


def test_a_watermark_selects_the_first_snapshot_at_or_after_it(partitioned: Table) -> None:
    for number in (1, 2):
        path = Path(partitioned.stores.snapshots.path(number))
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"watermark": number * 1000}))

    assert (
        len(run_on(partitioned, "read", "--watermark", "500", "--format", "jsonl").splitlines())
        == 2
    )
    late = run_on(partitioned, "read", "--watermark", "1970-01-01T00:00:02Z", "--format", "jsonl")
    assert len(late.splitlines()) == 4
    assert (
        run_on(partitioned, "rollback", "--watermark", "1000", "--yes")
        == "rolled back to snapshot 1"
    )
