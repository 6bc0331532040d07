"""Maintenance from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import invoke
from support.histories import backdate_files
from support.tables import new_table, rows_of, stored_files, table_of
from typer.testing import CliRunner, Result

from paimon_orch.cli.app import app
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.table.table import Table


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path)
    for text in "abcd":
        table.upsert(table_of("k v", [(1, text)]))
    return table


def test_snapshots_expire_and_a_dry_run_changes_nothing(tmp_path: Path, table: Table) -> None:
    command = ("expire-snapshots", str(tmp_path), "db.t", "--retain-max", "2", "--retain-min", "1")
    before = stored_files(table)

    dry = run(*command, "--dry-run", "--json")
    assert json.loads(dry.stdout)["snapshots"] == 2
    assert "would expire 2 snapshots" in run(*command, "--dry-run").stdout
    assert stored_files(table) == before

    assert "expired 2 snapshots" in run(*command).stdout
    assert table.stores.snapshots.ids() == [3, 4]
    assert rows_of(table) == [(1, "d")]
    assert json.loads(run(*command, "--json").stdout)["snapshots"] == 0


def test_a_dry_run_of_expiration_names_tags_branches_and_consumers(
    tmp_path: Path, table: Table
) -> None:
    table.tags.create("first", 1)
    table.branches.create("dev", "first")
    consumer = Path(table.paths.root) / "consumer" / "consumer-job"
    consumer.parent.mkdir()
    consumer.write_text('{"nextSnapshot": 3}')
    command = ("expire-snapshots", str(tmp_path), "db.t", "--retain-max", "1", "--dry-run")

    holders = json.loads(run(*command, "--json").stdout)["held_by"]

    assert holders[0] == "consumer job retains snapshot 3 and all later ones"
    assert "tag first retains the files of snapshot 1" in holders
    assert "snapshot 1 of branch dev retains the files of snapshot 1" in holders
    assert run(*command).stdout.splitlines()[: len(holders)] == holders


def test_snapshots_expire_by_time(tmp_path: Path, table: Table) -> None:
    command = ("expire-snapshots", str(tmp_path), "db.t", "--retain-min", "1", "--older-than")

    run(*command, "2020-01-01T00:00:00")
    assert table.stores.snapshots.ids() == [1, 2, 3, 4]
    run(*command, "1 h")
    assert table.stores.snapshots.ids() == [1, 2, 3, 4]
    run(*command, "2100-01-01T00:00:00", "--max-deletes", "1")
    assert table.stores.snapshots.ids() == [2, 3, 4]
    run(*command, "0 s")
    assert table.stores.snapshots.ids() == [4]


def test_orphan_files_are_quarantined_restored_and_deleted(tmp_path: Path, table: Table) -> None:
    orphan = Path(table.paths.manifest_dir) / "manifest-x"
    orphan.write_bytes(b"12345")
    backdate_files(table)
    where = (str(tmp_path), "db.t")

    dry = run("remove-orphan-files", *where, "--dry-run")
    assert str(orphan) in dry.stdout
    assert "would remove 1 files of 5 bytes" in dry.stdout
    aside = json.loads(run("remove-orphan-files", *where, "--quarantine", "--json").stdout)
    assert (aside["files"], aside["bytes"], orphan.exists()) == (1, 5, False)
    assert json.loads(run("quarantine", "list", *where, "--json").stdout) == [aside["quarantine"]]
    dry = run("quarantine", "restore", *where, "--dry-run")
    assert ("would restore 1 files" in dry.stdout, orphan.exists()) == (True, False)
    assert "restored 1" in run("quarantine", "restore", *where).stdout
    assert orphan.exists()
    assert "deleted 1 files of 5 bytes" in run("remove-orphan-files", *where).stdout
    assert not orphan.exists()


def test_quarantine_empty_deletes_only_old_files(tmp_path: Path, table: Table) -> None:
    (Path(table.paths.manifest_dir) / "manifest-x").write_bytes(b"12345")
    backdate_files(table)
    where = (str(tmp_path), "db.t")
    run("remove-orphan-files", *where, "--quarantine")

    assert "deleted 0" in run("quarantine", "empty", *where).stdout
    at_once = ("quarantine", "empty", *where, "--older-than", "0 s")
    assert "would delete 1 files" in run(*at_once, "--dry-run").stdout
    assert "deleted 1" in run(*at_once).stdout
    assert "none" in run("quarantine", "list", *where).stdout


def test_check_prints_one_line_per_finding_and_exits_with_1(tmp_path: Path, table: Table) -> None:
    sound = run("check", str(tmp_path), "db.t", "--deep")
    assert (sound.exit_code, sound.stdout) == (0, "0 findings in 4 versions and 4 data files\n")

    missing_file = next(Path(table.paths.root).glob("bucket-0/*"))
    missing_file.unlink()

    answer = run("check", str(tmp_path), "db.t")
    assert answer.exit_code == 1
    assert answer.stdout.splitlines()[0].startswith("missing-file: snapshot ")
    assert str(missing_file) in answer.stdout
    document = json.loads(run("check", str(tmp_path), "db.t", "--json").stdout)
    assert [finding["rule"] for finding in document["findings"]] == ["missing-file"]


def test_skipped_external_paths_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    new_table(
        tmp_path / "w",
        data_file__external_paths=f"file://{path}",
        data_file__external_paths__strategy="round-robin",
    )
    where = (str(tmp_path / "w"), "db.t")

    assert f"skipped: {path}: it does not end with" in run("remove-orphan-files", *where).stdout
    document = json.loads(run("remove-orphan-files", *where, "--json", "--dry-run").stdout)
    assert len(document["skipped_external_paths"]) == 1


def test_only_the_given_partition_is_cleaned(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p INT, k BIGINT", key=("p", "k"), partition_by=("p",))
    table.upsert(table_of("p k", [(1, 1), (2, 2)]))
    for number in (1, 2):
        (Path(table.paths.root) / f"p={number}/bucket-0/data-x.parquet").write_bytes(b"1")
    backdate_files(table)

    result = run("remove-orphan-files", str(tmp_path), "db.t", "--partitions", "p=2", "--json")

    assert json.loads(result.stdout)["files"] == 1
    assert not (Path(table.paths.root) / "p=2/bucket-0/data-x.parquet").exists()


def test_changelogs_expire(tmp_path: Path) -> None:
    options = {"changelog__num_retained__max": "20", "changelog__num_retained__min": "1"}
    table = new_table(tmp_path, changelog_producer="input", **options)
    for text in "abc":
        table.upsert(table_of("k v", [(1, text)]))
    run("expire-snapshots", str(tmp_path), "db.t", "--retain-max", "1")
    command = ("expire-changelogs", str(tmp_path), "db.t", "--retain-max", "2")

    assert "would expire 1 changelogs" in run(*command, "--dry-run").stdout
    assert "expired 1 changelogs" in run(*command).stdout
    assert json.loads(run(*command, "--json").stdout)["changelogs"] == 0


def test_the_dry_run_of_a_snapshot_expiration_shows_changelogs(tmp_path: Path) -> None:
    options = {"changelog__num_retained__max": "2", "changelog__num_retained__min": "1"}
    table = new_table(tmp_path, changelog_producer="input", **options)
    for text in "abcd":
        table.upsert(table_of("k v", [(1, text)]))
    command = ("expire-snapshots", str(tmp_path), "db.t", "--retain-max", "1", "--dry-run")

    assert ", and 2 changelogs with " in run(*command).stdout
    assert json.loads(run(*command, "--json").stdout)["changelogs"] == 2


def test_partitions_expire(tmp_path: Path) -> None:
    table = new_table(tmp_path, "dt STRING, k INT", key=(), partition_by=("dt",), bucket="-1")
    table.append(table_of("dt k", [("20200101", 1), ("29990101", 2)]))
    command = ("expire-partitions", str(tmp_path), "db.t", "--expiration-time", "30 d", "--timestamp-formatter", "yyyyMMdd")  # fmt: skip

    assert "would drop 1 partitions of 1 rows" in run(*command, "--dry-run").stdout
    assert json.loads(run(*command, "--json").stdout)["partitions"] == ["dt=20200101"]
    assert rows_of(table) == [("29990101", 2)]


def test_manifests_are_merged(tmp_path: Path, table: Table) -> None:
    command = ("compact-manifests", str(tmp_path), "db.t")

    assert "4 manifests" in run(*command, "--dry-run").stdout
    assert table.stores.snapshots.latest_id() == 4
    assert json.loads(run(*command, "--json").stdout)["snapshot_id"] == 5
    assert "nothing was changed" in run(*command).stdout


def test_missing_files_are_removed_from_the_metadata(tmp_path: Path, table: Table) -> None:
    for path in Path(table.paths.root).glob("bucket-0/*"):
        path.unlink()
    command = ("remove-unexisting-files", str(tmp_path), "db.t")

    assert "would remove 4 files" in run(*command, "--dry-run").stdout
    assert json.loads(run(*command, "--json").stdout)["files"] == 4
    assert rows_of(table) == []


def test_buckets_are_rescaled(tmp_path: Path, table: Table) -> None:
    command = ("rescale", str(tmp_path), "db.t", "--bucket-num", "3")

    assert "nothing was changed" in run(*command, "--dry-run").stdout
    assert json.loads(run(*command, "--json").stdout)["committed"] == 5
    assert rows_of(table) == [(1, "d")]
    assert "0 partitions" in run(*command).stdout


def test_due_tags_are_created_and_expire(tmp_path: Path) -> None:
    table = new_table(tmp_path, tag__automatic_creation="process-time")
    table.upsert(table_of("k v", [(1, "a")]))
    where = (str(tmp_path), "db.t")

    dry = run("trigger-tag-automatic-creation", *where, "--json", "--dry-run")
    assert table.tags.names() == []
    [name] = json.loads(run("trigger-tag-automatic-creation", *where, "--json").stdout)
    assert json.loads(dry.stdout) == [name]
    assert table.tags.names() == [name]
    assert run("expire-tags", *where).stdout == "none\n"
    old = ("--older-than", "2999-01-01T00:00:00")
    assert run("expire-tags", *where, *old, "--dry-run").stdout.strip() == name
    run("expire-tags", *where, *old)
    assert table.tags.names() == []


@pytest.mark.parametrize("command", ["expire-snapshots", "remove-orphan-files", "expire-tags"])
@pytest.mark.parametrize("text", ["20260131", "2026", "1769817600", "99999999999999999999"])
def test_dates_without_dashes_and_epoch_seconds_are_refused(
    tmp_path: Path, table: Table, command: str, text: str
) -> None:
    """Read as epoch milliseconds they are in 1970, so nothing would be deleted without a note."""
    with pytest.raises(InputError, match=f"--older-than '{text}' is neither a duration"):
        invoke(command, str(tmp_path), "db.t", "--older-than", text)


def test_quarantine_restore_reports_files_that_it_cannot_move(tmp_path: Path, table: Table) -> None:
    orphan = Path(table.paths.manifest_dir) / "manifest-x"
    orphan.write_bytes(b"12345")
    backdate_files(table)
    where = (str(tmp_path), "db.t")
    run("remove-orphan-files", *where, "--quarantine")

    for folder in ("nope", "../../.."):
        with pytest.raises(NotFoundError, match="has no folder"):
            invoke("quarantine", "restore", *where, "--folder", folder, "--dry-run")
    orphan.write_bytes(b"newer")
    expected = "restored 0 files; 1 remain: their paths are taken or lead through a symbolic link"
    assert run("quarantine", "restore", *where).stdout.strip() == expected


@pytest.mark.parametrize("command", ["rescale", "remove-orphan-files", "compact"])
def test_an_empty_list_of_partitions_is_refused(tmp_path: Path, table: Table, command: str) -> None:
    with pytest.raises(InputError, match="--partitions is empty"):
        invoke(command, str(tmp_path), "db.t", "--partitions", " ; ")


@pytest.mark.parametrize(
    "command", [["rescale"], ["remove-orphan-files"], ["compact"], ["rewrite-file-index"]]
)
def test_a_partition_that_does_not_exist_is_refused(tmp_path: Path, command: list[str]) -> None:
    table = new_table(tmp_path, "p INT, k BIGINT", key=("p", "k"), partition_by=("p",))
    table.upsert(table_of("p k", [(1, 1), (2, 2)]))
    before = stored_files(table)

    with pytest.raises(NotFoundError, match=r"db\.t has no partition p=3; .*db\.t\$partitions"):
        invoke(*command, str(tmp_path), "db.t", "--partitions", "p=1;p=3")

    assert stored_files(table) == before


def test_orphans_of_a_partition_without_rows_are_removed(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p INT, k BIGINT", key=("p", "k"), partition_by=("p",))
    table.upsert(table_of("p k", [(1, 1)]))
    orphan = Path(table.paths.root) / "p=2/bucket-0/data-x.parquet"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"1")
    backdate_files(table)

    invoke("remove-orphan-files", str(tmp_path), "db.t", "--partitions", "p=2")

    assert not orphan.exists()


@pytest.mark.parametrize(
    ("option", "number"), [("--retain-max", -3), ("--retain-min", 0), ("--max-deletes", -1)]
)
def test_the_error_of_a_number_out_of_range_contains_its_option(
    tmp_path: Path, table: Table, option: str, number: int
) -> None:
    result = run("expire-snapshots", str(tmp_path), "db.t", option, str(number))

    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in " ".join(result.stderr.split())
    limits: Any = {option[2:].replace("-", "_"): number}
    with pytest.raises(InputError, match=f"{option[2:]}\\) of snapshots is {number}, but must be"):
        expire_snapshots(table, **limits)


def test_a_maximum_below_the_minimum_is_refused(tmp_path: Path, table: Table) -> None:
    command = ("expire-snapshots", str(tmp_path), "db.t", "--retain-max", "2", "--retain-min", "3")

    with pytest.raises(
        InputError, match=r"\(retain-max\) of snapshots is 2, .*the minimum \(retain-min\), 3"
    ):
        invoke(*command)
    assert table.stores.snapshots.ids() == [1, 2, 3, 4]


def test_a_duration_out_of_range_is_refused(tmp_path: Path, table: Table) -> None:
    where = ("quarantine", "empty", str(tmp_path), "db.t", "--older-than")

    assert "deleted 0" in run(*where, "9000000 d").stdout
    with pytest.raises(InputError, match="--older-than '99999999999999 d' is too long"):
        invoke(*where, "99999999999999 d")
