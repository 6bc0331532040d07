"""The commands remove-orphan-files and quarantine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import invoke
from support.histories import backdate_files
from support.tables import new_table, stored_files, table_of

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.table.table import Table


def test_orphan_files_are_quarantined_restored_and_deleted(
    tmp_path: Path, old_table: Table
) -> None:
    orphan = Path(old_table.paths.manifest_dir) / "manifest-x"
    orphan.write_bytes(b"12345")
    backdate_files(old_table)
    where = (str(tmp_path), "db.t")

    dry = invoke("remove-orphan-files", *where, "--dry-run")
    assert str(orphan) in dry.stdout
    assert "would delete 1 file of 5 bytes" in dry.stdout
    aside = json.loads(invoke("remove-orphan-files", *where, "--quarantine", "--json").stdout)
    assert (aside["files"], aside["bytes"], orphan.exists()) == (1, 5, False)
    assert json.loads(invoke("quarantine", "list", *where, "--json").stdout) == [
        aside["quarantine"]
    ]
    dry = invoke("quarantine", "restore", *where, "--dry-run")
    assert ("would restore 1 file" in dry.stdout, orphan.exists()) == (True, False)
    assert "restored 1" in invoke("quarantine", "restore", *where).stdout
    assert orphan.exists()
    assert "deleted 1 file of 5 bytes" in invoke("remove-orphan-files", *where).stdout
    assert not orphan.exists()


def test_the_command_quarantine_empty_deletes_only_old_files(
    tmp_path: Path, old_table: Table
) -> None:
    (Path(old_table.paths.manifest_dir) / "manifest-x").write_bytes(b"12345")
    backdate_files(old_table)
    where = (str(tmp_path), "db.t")
    invoke("remove-orphan-files", *where, "--quarantine")

    assert "deleted 0" in invoke("quarantine", "empty", *where).stdout
    at_once = ("quarantine", "empty", *where, "--older-than", "0 s")
    assert "would delete 1 quarantined file" in invoke(*at_once, "--dry-run").stdout
    assert "deleted 1" in invoke(*at_once, "--yes").stdout
    assert "none" in invoke("quarantine", "list", *where).stdout


def test_skipped_external_paths_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shared"
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", f"{path}/*")
    new_table(
        tmp_path / "w",
        data_file__external_paths=f"file://{path}",
        data_file__external_paths__strategy="round-robin",
    )
    where = (str(tmp_path / "w"), "db.t")

    assert f"skipped: {path}: it does not end with" in invoke("remove-orphan-files", *where).stdout
    document = json.loads(invoke("remove-orphan-files", *where, "--json", "--dry-run").stdout)
    assert len(document["skipped_external_paths"]) == 1


@pytest.mark.slow
def test_only_the_given_partition_is_cleaned(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p INT, k BIGINT", key=("p", "k"), partition_by=("p",))
    table.upsert(table_of("p k", [(1, 1), (2, 2)]))
    for number in (1, 2):
        (Path(table.paths.root) / f"p={number}/bucket-0/data-x.parquet").write_bytes(b"1")
    backdate_files(table)

    result = invoke("remove-orphan-files", str(tmp_path), "db.t", "--partitions", "p=2", "--json")

    assert json.loads(result.stdout)["files"] == 1
    assert not (Path(table.paths.root) / "p=2/bucket-0/data-x.parquet").exists()


def test_quarantine_restore_reports_files_that_it_cannot_move(
    tmp_path: Path, old_table: Table
) -> None:
    orphan = Path(old_table.paths.manifest_dir) / "manifest-x"
    orphan.write_bytes(b"12345")
    backdate_files(old_table)
    where = (str(tmp_path), "db.t")
    invoke("remove-orphan-files", *where, "--quarantine")

    for folder in ("nope", "../../.."):
        with pytest.raises(NotFoundError, match="has no folder"):
            invoke("quarantine", "restore", *where, "--folder", folder, "--dry-run")
    orphan.write_bytes(b"newer")
    expected = "restored 0 files; 1 remain: their paths are taken or lead through a symbolic link"
    assert invoke("quarantine", "restore", *where).stdout.strip() == expected


@pytest.mark.parametrize("command", ["rescale", "remove-orphan-files", "compact"])
def test_an_empty_list_of_partitions_is_refused(
    tmp_path: Path, old_table: Table, command: str
) -> None:
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


@pytest.mark.slow
def test_orphans_of_a_partition_without_rows_are_removed(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p INT, k BIGINT", key=("p", "k"), partition_by=("p",))
    table.upsert(table_of("p k", [(1, 1)]))
    orphan = Path(table.paths.root) / "p=2/bucket-0/data-x.parquet"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"1")
    backdate_files(table)

    invoke("remove-orphan-files", str(tmp_path), "db.t", "--partitions", "p=2")

    assert not orphan.exists()


def test_a_duration_out_of_range_is_refused(tmp_path: Path, old_table: Table) -> None:
    where = ("quarantine", "empty", str(tmp_path), "db.t", "--older-than")

    assert "deleted 0" in invoke(*where, "9000000 d").stdout
    with pytest.raises(InputError, match="--older-than '99999999999999 d' is too long"):
        invoke(*where, "99999999999999 d")
