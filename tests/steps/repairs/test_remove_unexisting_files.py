"""Missing data files are removed from a table (invariant 39)."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.damage import data_files
from support.histories import make_table
from support.tables import deletion_vectors_of, new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, InputError, PaimonError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule
from paimon_orch.steps.maintenance.rollback_as_latest import rollback_as_latest
from paimon_orch.steps.repairs import repair as repair_step
from paimon_orch.steps.repairs.remove_unexisting_files import (
    REMOVE_UNEXISTING_FILES,
    MissingFilesResult,
    plan,
    remove_unexisting_files,
)
from paimon_orch.steps.repairs.repair import RepairRequest, repair
from paimon_orch.table.commit.commit import TableCommit


def test_the_remaining_files_can_be_read(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    for number in range(3):
        table.append(table_of("k v", [(number, str(number))]))
    missing_file = data_files(table)[1]
    missing_file.unlink()
    with pytest.raises(PaimonError):
        rows_of(table)
    before = stored_files(table)

    planned = plan(table, EmptyRequest())
    assert (planned.paths, planned.rows, stored_files(table)) == ((str(missing_file),), 1, before)
    assert remove_unexisting_files(table) == planned

    assert rows_of(table) == [(0, "0"), (2, "2")]
    newest = table.stores.snapshots.latest()
    assert newest is not None
    assert (newest.commit_kind.value, newest.delta_record_count) == ("OVERWRITE", -1)
    assert not remove_unexisting_files(table)
    assert table.stores.snapshots.latest_id() == 4


@pytest.mark.parametrize(
    "to", ["p=01/bucket-0/{}", "p=1/bucket-1/{}", "p=1/bucket-0/.{}._COPYING_"]
)
def test_a_file_that_stands_under_another_name_is_not_removed(tmp_path: Path, to: str) -> None:
    table = new_table(tmp_path, "p INT, k INT", key=(), partition_by=["p"], bucket="-1")
    table.append(table_of("p k", [(1, 1)]))
    [file] = data_files(table)
    moved = Path(table.paths.root, to.format(file.name))
    moved.parent.mkdir(parents=True, exist_ok=True)
    file.rename(moved)

    with pytest.raises(
        InputError, match=f"{file.name} is missing, but .*{moved.parent.name}/.* exi"
    ):
        remove_unexisting_files(table)
    [refused] = repair(table, ["missing-files"]).plan.refused
    assert "Nothing was changed" in refused.reason
    assert table.stores.snapshots.latest_id() == 1
    moved.rename(file)
    assert rows_of(table) == [(1, 1)]


def test_older_values_that_become_visible_are_counted_and_put_aside(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "old"), (2, "old")]))
    table.upsert(table_of("k v", [(7, "x"), (8, "x"), (9, "x")]))
    table.upsert(table_of("k v", [(1, "new")]))
    newest = max(data_files(table), key=lambda path: path.stat().st_mtime_ns)
    data = newest.read_bytes()
    newest.unlink()

    planned = plan(table, EmptyRequest())

    assert (planned.rows, planned.older_rows) == (1, 2)
    assert planned.to_dict()["older_values"] == [
        {"bucket": "bucket-0", "min_key": "(1)", "max_key": "(1)", "rows": 2}
    ]
    [action] = repair_step.plan(table, RepairRequest(rules=(DoctorRule.MISSING_FILES,))).actions
    assert action.text == (
        "commit the state without 1 missing data file; 1 row of them is lost, and older values of "
        "the same keys become visible again: other files have 2 rows in the same key ranges "
        "(bucket-0, keys (1) to (1): 2 rows of older files)"
    )
    result = run_step(REMOVE_UNEXISTING_FILES, table, planned)
    assert rows_of(table)[:2] == [(1, "old"), (2, "old")]
    assert result.visible_rows == 1
    assert pq.read_table(result.visible_rows_path).to_pylist() == [{"k": 1, "v": "old"}]

    # The tag is comparable as soon as the lost file is restored, and then brings its rows back.
    newest.write_bytes(data)
    assert result.tag is not None
    assert result.tag.startswith("before-repair-2")
    changes = table.incremental(3, 4, mode="diff").to_arrow().to_pylist()
    assert [(row["rowkind"], row["v"]) for row in changes] == [("+U", "old")]
    rollback_as_latest(table, tag=result.tag)
    assert rows_of(table)[:2] == [(1, "new"), (2, "old")]


@pytest.mark.parametrize(
    ("options", "lost", "values"),
    [
        ({"sequence.field": "s"}, 0, [(1, 5)]),
        ({"merge-engine": "aggregation", "fields.s.aggregate-function": "max"}, 0, [(1, 5)]),
        ({"merge-engine": "partial-update"}, 1, [(1, 10)]),
    ],
)
def test_values_of_newer_files_that_become_visible_are_counted_and_put_aside(
    tmp_path: Path, options: dict[str, str], lost: int, values: list[tuple[int, int]]
) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "k INT, s INT", primary_key=["k"], options={"bucket": "1", **options}
    )
    for value in (10, 5):
        table.upsert(table_of("k s", [(1, value)]))
    sorted(data_files(table), key=lambda path: path.stat().st_mtime_ns)[lost].unlink()

    planned = plan(table, EmptyRequest())

    assert planned.describe_loss() == (
        "1 row of them is lost, and other values of the same keys become visible again: other "
        "files have 1 row in the same key ranges (bucket-0, keys (1) to (1): 1 row of other files)"
    )
    result = run_step(REMOVE_UNEXISTING_FILES, table, planned)
    assert rows_of(table) == values
    shown = pq.read_table(result.visible_rows_path).to_pylist()
    assert [(row["k"], row["s"]) for row in shown] == values


@pytest.mark.parametrize(("rows", "shown", "verb"), [(1, "1 row", "is"), (2, "2 rows", "are")])
def test_the_outcome_has_the_number_and_the_file_of_visible_rows(
    tmp_path: Path, rows: int, shown: str, verb: str
) -> None:
    planned = plan(new_table(tmp_path), EmptyRequest())
    result = MissingFilesResult(plan=planned, visible_rows=rows, visible_rows_path="/kept.parquet")
    assert result.describe_visible_rows() == (
        f"; {shown} that readers now see in the key ranges of the removed files {verb} in "
        "/kept.parquet: compare these with their source"
    )


def test_a_newer_value_stays_visible_without_the_older_file(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "old")]))
    table.upsert(table_of("k v", [(1, "new")]))
    min(data_files(table), key=lambda path: path.stat().st_mtime_ns).unlink()

    assert plan(table, EmptyRequest()).older_values == ()
    assert remove_unexisting_files(table).older_rows == 0
    assert rows_of(table) == [(1, "new")]


def test_rows_that_deletion_vectors_delete_stay_deleted_without_the_newer_file(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(1, "old"), (2, "old")]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(1, "new")]))
    compact(table, InProcessExecutor())
    newest = max(data_files(table), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()

    assert plan(table, EmptyRequest()).older_rows == 0
    remove_unexisting_files(table)

    assert rows_of(table) == [(2, "old")]


def test_the_tag_of_a_removal_that_is_refused_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CommitConflictError("another commit was first")

    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    data_files(table)[0].unlink()
    monkeypatch.setattr(TableCommit, "commit", fail)
    with pytest.raises(CommitConflictError):
        remove_unexisting_files(table)
    assert table.tags.names() == []


def test_the_index_of_a_missing_file_is_not_the_file(tmp_path: Path) -> None:
    options = {"file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b"}
    table = Catalog(str(tmp_path)).create_table("db.t", "k INT, v STRING", options=options)
    table.append(table_of("k v", [(1, "a")]))
    [file] = data_files(table)
    file.unlink()
    assert [path.name for path in file.parent.iterdir()] == [f"{file.name}.index"]

    assert remove_unexisting_files(table).paths == (str(file),)


def test_deletion_vectors_of_missing_files_are_removed(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(k, "old") for k in range(10)]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(3, "new")]))
    compact(table, InProcessExecutor())
    [name] = deletion_vectors_of(table)
    next(Path(table.paths.root).glob(f"bucket-*/{name}")).unlink()

    result = remove_unexisting_files(table)

    assert [Path(path).name for path in result.paths] == [name]
    assert deletion_vectors_of(table) == {}
    assert rows_of(table) == [(3, "new")]
    newest = table.stores.snapshots.latest_id()
    findings = check(table, deep=True).findings
    assert {finding.rule for finding in findings} == {"missing-file"}
    assert not [finding for finding in findings if finding.where == f"snapshot {newest}"]


def test_a_complete_table_is_not_changed(tmp_path: Path) -> None:
    table = make_table(tmp_path, "vectors", [("upsert", 1), ("minor", 0)])
    newest = table.stores.snapshots.latest_id()

    assert not remove_unexisting_files(table)
    assert table.stores.snapshots.latest_id() == newest
    assert not plan(new_table(tmp_path / "empty"), EmptyRequest())
