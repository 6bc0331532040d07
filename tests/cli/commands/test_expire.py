"""Commands that expire snapshots, changelogs, partitions and tags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import invoke
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch.errors import InputError
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.table.table import Table


def test_snapshots_expire_and_a_dry_run_changes_nothing(tmp_path: Path, old_table: Table) -> None:
    command = ("expire-snapshots", str(tmp_path), "db.t", "--retain-max", "2", "--retain-min", "1")
    before = stored_files(old_table)

    dry = invoke(*command, "--dry-run", "--json")
    assert json.loads(dry.stdout)["snapshots"] == 2
    assert "would expire 2 snapshots" in invoke(*command, "--dry-run").stdout
    assert stored_files(old_table) == before

    assert "expired 2 snapshots" in invoke(*command, "--yes").stdout
    assert old_table.stores.snapshots.ids() == [3, 4]
    assert rows_of(old_table) == [(1, "d")]
    assert json.loads(invoke(*command, "--json").stdout)["snapshots"] == 0


def test_a_dry_run_of_an_expiration_lists_tags_branches_and_consumers(
    tmp_path: Path, old_table: Table
) -> None:
    old_table.tags.create("first", 1)
    old_table.branches.create("dev", "first")
    consumer = Path(old_table.paths.root) / "consumer" / "consumer-job"
    consumer.parent.mkdir()
    consumer.write_text('{"nextSnapshot": 3}')
    command = ("expire-snapshots", str(tmp_path), "db.t", "--retain-max", "1", "--dry-run")

    holders = json.loads(invoke(*command, "--json").stdout)["held_by"]

    assert holders[0] == "consumer job retains snapshot 3 and all later ones"
    assert "tag first retains the files of snapshot 1" in holders
    assert "snapshot 1 of branch dev retains the files of snapshot 1" in holders
    assert invoke(*command).stdout.splitlines()[: len(holders)] == holders


def test_snapshots_expire_by_time(tmp_path: Path, old_table: Table) -> None:
    command = ("expire-snapshots", str(tmp_path), "db.t", "--retain-min", "1", "--older-than")

    invoke(*command, "2020-01-01T00:00:00")
    assert old_table.stores.snapshots.ids() == [1, 2, 3, 4]
    invoke(*command, "1 h")
    assert old_table.stores.snapshots.ids() == [1, 2, 3, 4]
    invoke(*command, "2100-01-01T00:00:00", "--max-deletes", "1", "--yes")
    assert old_table.stores.snapshots.ids() == [2, 3, 4]
    invoke(*command, "0 s", "--yes")
    assert old_table.stores.snapshots.ids() == [4]


def test_changelogs_expire(tmp_path: Path) -> None:
    options = {"changelog__num_retained__max": "20", "changelog__num_retained__min": "1"}
    table = new_table(tmp_path, changelog_producer="input", **options)
    for text in "abc":
        table.upsert(table_of("k v", [(1, text)]))
    invoke("expire-snapshots", str(tmp_path), "db.t", "--retain-max", "1", "--yes")
    command = ("expire-changelogs", str(tmp_path), "db.t", "--retain-max", "2")

    assert "would expire 1 changelog" in invoke(*command, "--dry-run").stdout
    assert "expired 1 changelog" in invoke(*command, "--yes").stdout
    assert json.loads(invoke(*command, "--json").stdout)["changelogs"] == 0


def test_the_dry_run_of_a_snapshot_expiration_shows_changelogs(tmp_path: Path) -> None:
    options = {"changelog__num_retained__max": "2", "changelog__num_retained__min": "1"}
    table = new_table(tmp_path, changelog_producer="input", **options)
    for text in "abcd":
        table.upsert(table_of("k v", [(1, text)]))
    command = ("expire-snapshots", str(tmp_path), "db.t", "--retain-max", "1", "--dry-run")

    assert " and 2 changelogs with " in invoke(*command).stdout
    assert json.loads(invoke(*command, "--json").stdout)["changelogs"] == 2


def test_partitions_expire(tmp_path: Path) -> None:
    table = new_table(tmp_path, "dt STRING, k INT", key=(), partition_by=("dt",), bucket="-1")
    table.append(table_of("dt k", [("20200101", 1), ("29990101", 2)]))
    command = ("expire-partitions", str(tmp_path), "db.t", "--expiration-time", "30 d", "--timestamp-formatter", "yyyyMMdd")  # fmt: skip

    assert (
        "would drop 1 partition (dt=20200101) with 1 row of db.t"
        in invoke(*command, "--dry-run").stdout
    )
    assert json.loads(invoke(*command, "--json", "--yes").stdout)["partitions"] == ["dt=20200101"]
    assert rows_of(table) == [("29990101", 2)]


def test_due_tags_are_created_and_expired_tags_are_deleted(tmp_path: Path) -> None:
    table = new_table(tmp_path, tag__automatic_creation="process-time")
    table.upsert(table_of("k v", [(1, "a")]))
    where = (str(tmp_path), "db.t")

    dry = invoke("trigger-tag-automatic-creation", *where, "--json", "--dry-run")
    assert table.tags.names() == []
    created = json.loads(invoke("trigger-tag-automatic-creation", *where, "--json").stdout)
    assert json.loads(dry.stdout) == created
    [name] = created["created_tags"]
    assert table.tags.names() == [name]
    assert invoke("expire-tags", *where).stdout == "deleted nothing\n"
    old = ("--older-than", "2999-01-01T00:00:00")
    assert f"would delete 1 tag ({name})" in invoke("expire-tags", *where, *old, "--dry-run").stdout
    invoke("expire-tags", *where, *old, "--yes")
    assert table.tags.names() == []


@pytest.mark.parametrize("command", ["expire-snapshots", "remove-orphan-files", "expire-tags"])
@pytest.mark.parametrize("text", ["20260131", "2026", "1769817600", "99999999999999999999"])
def test_dates_without_dashes_and_epoch_seconds_are_refused(
    tmp_path: Path, old_table: Table, command: str, text: str
) -> None:
    """As epoch milliseconds, these are times in 1970, and nothing would be deleted."""
    with pytest.raises(InputError, match=f"--older-than '{text}' is neither a duration"):
        invoke(command, str(tmp_path), "db.t", "--older-than", text)


@pytest.mark.parametrize(
    ("option", "number"), [("--retain-max", -3), ("--retain-min", 0), ("--max-deletes", -1)]
)
def test_the_error_of_a_number_out_of_range_contains_its_option(
    tmp_path: Path, old_table: Table, option: str, number: int
) -> None:
    name = option[2:].replace("-", "_")
    limits: Any = {name: number}

    with pytest.raises(InputError, match=f"^{option} is {number}; the minimum is "):
        invoke("expire-snapshots", str(tmp_path), "db.t", option, str(number))
    with pytest.raises(InputError, match=f"^{name} is {number}; the minimum is "):
        expire_snapshots(old_table, **limits)


def test_a_maximum_below_the_minimum_is_refused(tmp_path: Path, old_table: Table) -> None:
    command = ("expire-snapshots", str(tmp_path), "db.t", "--retain-max", "2", "--retain-min", "3")

    with pytest.raises(
        InputError, match=r"\(retain-max\) of snapshots is 2, .*the minimum \(retain-min\), 3"
    ):
        invoke(*command)
    assert old_table.stores.snapshots.ids() == [1, 2, 3, 4]
