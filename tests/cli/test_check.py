"""The commands check and remove-unexisting-files."""

from __future__ import annotations

import json
from pathlib import Path

from support.commands import invoke
from support.tables import rows_of

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

    assert "would remove 4 files" in invoke(*command, "--dry-run").stdout
    assert json.loads(invoke(*command, "--json").stdout)["files"] == 4
    assert rows_of(old_table) == []
