"""The commands check, remove-unexisting-files and sync-iceberg."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import invoke, run_command
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import InputError
from paimon_orch.table.iceberg.publish import IcebergPublisher
from paimon_orch.table.table import Table


def test_check_prints_one_line_per_finding_and_exits_with_1(
    tmp_path: Path, old_table: Table
) -> None:
    sound = invoke("check", str(tmp_path), "db.t", "--deep")
    assert (sound.exit_code, sound.stdout) == (0, "0 findings in 4 versions and 4 data files\n")

    missing_file = next(Path(old_table.paths.root).glob("bucket-0/*"))
    missing_file.unlink()

    answer = invoke("check", str(tmp_path), "db.t")
    assert answer.exit_code == 1
    assert answer.stdout.splitlines()[0].startswith("missing-file: snapshot ")
    assert str(missing_file) in answer.stdout
    document = json.loads(invoke("check", str(tmp_path), "db.t", "--json").stdout)
    assert [finding["rule"] for finding in document["findings"]] == ["missing-file"]


def test_missing_files_are_removed_from_the_metadata(tmp_path: Path, old_table: Table) -> None:
    for path in Path(old_table.paths.root).glob("bucket-0/*"):
        path.unlink()
    command = ("remove-unexisting-files", str(tmp_path), "db.t")

    assert (
        "would remove 4 missing files from the metadata of db.t"
        in invoke(*command, "--dry-run").stdout
    )
    assert json.loads(invoke(*command, "--json", "--yes").stdout)["files"] == 4
    assert rows_of(old_table) == []


def test_missing_snapshots_are_published_as_iceberg_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, metadata__iceberg__storage="table-location")
    command = ("sync-iceberg", str(tmp_path), "db.t")
    assert run_command(*command) == "the table has no snapshot; nothing to publish"
    table.upsert(table_of("k v", [(1, "a")]))
    with monkeypatch.context() as patch:
        patch.setattr(IcebergPublisher, "publish", lambda _: None)
        table.upsert(table_of("k v", [(2, "b")]))
    metadata = Path(table.paths.root) / "metadata"
    stale = "not up to date: Iceberg readers see snapshot 1, and LATEST is 2 (1 missing)"

    assert run_command(*command, "--dry-run").splitlines() == [
        stale,
        "would publish the newest snapshot of db.t; nothing was changed",
    ]
    assert json.loads(run_command(*command, "--dry-run", "--json")) == {
        "iceberg_snapshot_id": 1,
        "latest_snapshot_id": 2,
        "missing_snapshots": 1,
        "metadata_path": str(metadata / "v1.metadata.json"),
        "is_current": False,
        "problem": "Iceberg readers see snapshot 1, and LATEST is 2",
    }
    assert (metadata / "version-hint.text").read_text() == "1"
    current = "Iceberg readers see snapshot 2, the newest one"
    assert run_command(*command) == f"published 1 snapshot; {current}"
    assert run_command(*command) == current
    assert (metadata / "version-hint.text").read_text() == "2"


def test_a_table_without_iceberg_metadata_is_refused(tmp_path: Path, old_table: Table) -> None:
    with pytest.raises(InputError, match=f"{old_table.identifier} has no Iceberg metadata"):
        invoke("sync-iceberg", str(tmp_path), "db.t")
