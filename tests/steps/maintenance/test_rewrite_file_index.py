"""Existing files get the indexes of changed options, and other indexes are removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import GOLDEN
from support.steps import run_units
from support.tables import assert_healthy, new_table, rows_of, stored_files, table_of
from typer.testing import CliRunner

from paimon_orch import Catalog
from paimon_orch.cli.app import app
from paimon_orch.errors import CommitConflictError, InputError, StorageError
from paimon_orch.files.file_index_reader import open_indexes
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.maintenance import rewrite_file_index as step
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetOption,
    UpdateType,
)
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
BITMAP, BLOOM = "file-index.bitmap.columns", "file-index.bloom-filter.columns"
BESIDE = SetOption("file-index.in-manifest-threshold", "0 b")


def alter(table: Table, *changes: SchemaChange) -> Table:
    catalog = Catalog(str(Path(table.paths.root).parents[1]))
    catalog.alter_table(table.identifier, changes)
    return catalog.table(table.identifier)


def rows(numbers: range, day: str = "a") -> pa.Table:
    return table_of("day k v", [(day, n, f"v{n % 3}" if n % 7 else None) for n in numbers])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(
        tmp_path, "day STRING, k BIGINT, v STRING", key=(), partition_by=["day"], bucket="-1"
    )
    created.append(rows(range(20)))
    created.append(rows(range(20, 40), "b"))
    return created


def files_of(table: Table) -> list[DataFileMeta]:
    return sorted(
        (f for split in table.files() for f in split.files), key=lambda f: f.min_sequence_number
    )


def indexes_of(table: Table) -> list[dict[str, list[str]]]:
    result = []
    for split in table.files():
        directory = table.paths.bucket_dir(table.load().schema, split.partition, split.bucket)
        for file in split.files:
            with open_indexes(table.io, f"{directory}/{file.file_name}", file) as indexes:
                result.append({name: list(kinds) for name, kinds in (indexes or {}).items()})
    return result


def test_files_get_the_index_in_one_snapshot_and_nothing_else_changes(table: Table) -> None:
    before = rows_of(table)
    names = [file.file_name for file in files_of(table)]
    table = alter(table, SetOption(BITMAP, "v"))

    result = step.rewrite_file_index(table, EXECUTOR)

    assert (result.files, result.embedded, result.snapshots) == (2, 2, 1)
    sizes = [len(file.embedded_index or b"") for file in files_of(table)]
    assert (result.embedded_bytes, min(sizes) > 0) == (sum(sizes), True)
    snapshot = table.snapshot()
    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.delta_record_count) == (CommitKind.COMPACT, 0)
    assert indexes_of(table) == [{"v": ["bitmap"]}] * 2
    assert sorted(file.file_name for file in files_of(table)) == sorted(names)
    assert rows_of(table) == before
    assert rows_of(table, filter="v = 'v1'") == [row for row in before if row[2] == "v1"]
    assert_healthy(table)


def test_a_plan_without_units_commits_nothing(table: Table) -> None:
    table = alter(table, SetOption(BITMAP, "v"))
    step.rewrite_file_index(table, EXECUTOR)
    newest = table.snapshot()

    again = step.rewrite_file_index(table, EXECUTOR)

    assert (again.snapshot_id, again.files) == (None, 0)
    assert table.snapshot() == newest


def test_an_index_file_gets_the_next_number(table: Table) -> None:
    table = alter(table, SetOption(BITMAP, "v"), BESIDE)
    step.rewrite_file_index(table, EXECUTOR)
    first = [file.extra_files for file in files_of(table)]
    table = alter(table, SetOption(BITMAP, "v,k"))
    step.rewrite_file_index(table, EXECUTOR)

    assert first == [(f"{file.file_name}.index",) for file in files_of(table)]
    assert [file.extra_files for file in files_of(table)] == [
        (f"{file.file_name}-1.index",) for file in files_of(table)
    ]
    assert [sorted(names) for names in indexes_of(table)] == [["k", "v"]] * 2


def test_an_index_type_removed_from_the_options_is_removed(table: Table) -> None:
    table = alter(
        table, SetOption(BLOOM, "k"), SetOption("file-index.bloom-filter.k.items", "10"), BESIDE
    )
    step.rewrite_file_index(table, EXECUTOR)
    table = alter(
        table,
        ResetOption(BLOOM),
        ResetOption("file-index.bloom-filter.k.items"),
        SetOption(BITMAP, "k"),
        ResetOption(BESIDE.key),
    )

    step.rewrite_file_index(table, EXECUTOR)

    assert indexes_of(table) == [{"k": ["bitmap"]}] * 2
    assert [file.extra_files for file in files_of(table)] == [(), ()]


def test_without_indexes_in_the_options_all_indexes_are_removed(table: Table) -> None:
    table = alter(table, SetOption(BITMAP, "v"), BESIDE)
    step.rewrite_file_index(table, EXECUTOR)
    table = alter(table, ResetOption(BITMAP))

    result = step.rewrite_file_index(table, EXECUTOR)

    assert result.files == 2
    assert indexes_of(table) == [{}, {}]
    assert not step.plan(table, step.RewriteFileIndexRequest())


def test_adding_and_removing_file_indexes_repeatedly_loses_no_row(table: Table) -> None:
    """Readers drop files with a deleted identity, which includes the index."""
    before = rows_of(table)
    for number in range(6):
        change = ResetOption(BITMAP) if number % 2 else SetOption(BITMAP, "v")
        table = alter(table, change)
        assert step.rewrite_file_index(table, EXECUTOR).files == 2

        assert rows_of(table) == before
        assert indexes_of(table) == [{} if number % 2 else {"v": ["bitmap"]}] * 2
        assert not step.plan(table, step.RewriteFileIndexRequest())
    assert_healthy(table)


def test_issue_10091_a_file_that_was_written_before_a_column_was_dropped_is_indexed_correctly(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, "k BIGINT, a STRING, v BIGINT", key=(), bucket="-1")
    table.append(table_of("k a v", [(n, f"a{n}", 100 + n) for n in range(5)]))
    table = alter(table, DropColumn("a"), SetOption(BITMAP, "v"))
    step.rewrite_file_index(table, EXECUTOR)  # the schema has fewer columns than the file
    assert rows_of(table, filter="v = 103") == [(3, 103)]

    table = alter(
        table, AddColumn(column="w", type="BIGINT"), ResetOption(BITMAP), SetOption(BITMAP, "v,w")
    )
    # The file has no column w, so it keeps its index of v.
    assert not step.plan(table, step.RewriteFileIndexRequest())
    table.append(table_of("k v w", [(9, 103, 1)]))
    table = alter(table, SetOption(BLOOM, "v"), SetOption("file-index.bloom-filter.v.items", "10"))
    # The options name as many columns as the file has indexes, but other columns.
    step.rewrite_file_index(table, EXECUTOR)

    assert rows_of(table, filter="v = 103") == [(3, 103, None), (9, 103, 1)]
    both = ["bloom-filter", "bitmap"]
    assert indexes_of(table) == [{"v": both}, {"v": both, "w": ["bitmap"]}]


def test_a_renamed_column_keeps_its_index_under_its_old_name(table: Table) -> None:
    table = alter(table, SetOption(BITMAP, "v"))
    step.rewrite_file_index(table, EXECUTOR)
    table = alter(table, RenameColumn("v", "w"), SetOption(BITMAP, "w"))

    assert not step.plan(table, step.RewriteFileIndexRequest())
    assert indexes_of(table) == [{"v": ["bitmap"]}] * 2
    assert list(table.scan(filter="w = 'v1'").explain().indexes) == ["bitmap(w)"]


def test_a_column_that_was_dropped_and_added_again_has_no_index_in_old_files(table: Table) -> None:
    table = alter(table, SetOption(BITMAP, "v"))
    step.rewrite_file_index(table, EXECUTOR)
    table = alter(table, ResetOption(BITMAP))
    table = alter(table, DropColumn("v"), AddColumn(column="v", type="STRING"))
    table = alter(table, SetOption(BITMAP, "v"))

    assert rows_of(table, filter="v = 'v1'") == []
    assert len(rows_of(table, filter="v is null")) == 40
    step.rewrite_file_index(table, EXECUTOR)
    assert indexes_of(table) == [{}, {}]


def test_an_index_of_an_old_file_uses_the_column_types_of_the_file(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, v INT", key=(), bucket="-1")
    table.append(pa.table({"k": pa.array([1, 2], pa.int32()), "v": pa.array([5, 6], pa.int32())}))
    table = alter(
        table, UpdateType("v", "BIGINT"), UpdateType("k", "STRING"), SetOption(BITMAP, "v,k")
    )

    step.rewrite_file_index(table, EXECUTOR)

    assert rows_of(table, filter="v = 6") == [("2", 6)]
    assert rows_of(table, filter="v > 4000000000") == []
    # An index of numbers is not used for a filter on strings.
    assert table.scan(filter="k = '1'").explain().indexes == {}
    assert rows_of(table, filter="k = '1'") == [("1", 5)]


def test_issue_6106_only_the_selected_partitions_are_rewritten(table: Table) -> None:
    table = alter(table, SetOption(BITMAP, "v"))

    result = step.rewrite_file_index(table, EXECUTOR, partitions=["day=b"])

    assert result.files == 1
    assert sorted(map(len, indexes_of(table))) == [0, 1]
    assert step.plan(table, step.RewriteFileIndexRequest(where="day = 'b'")).units == ()
    assert len(step.plan(table, step.RewriteFileIndexRequest(where="day = 'a'")).units) == 1
    with pytest.raises(InputError, match="not a partition column: k"):
        step.plan(table, step.RewriteFileIndexRequest(where="k = 1"))


def test_issue_6090_the_help_says_that_partitions_are_rewritten() -> None:
    shown = CliRunner().invoke(app, ["rewrite-file-index", "--help"], env={"COLUMNS": "200"})

    assert "Several are separated by semicolons" in " ".join(shown.output.split())


def test_the_command_prints_a_plan_and_reports_if_there_is_nothing_to_do(table: Table) -> None:
    root = str(Path(table.paths.root).parents[1])
    nothing = CliRunner().invoke(app, ["rewrite-file-index", root, "db.t"])
    assert "nothing to do" in nothing.output
    newest = table.snapshot()
    alter(table, SetOption(BITMAP, "v"))

    answer = CliRunner().invoke(app, ["rewrite-file-index", root, "db.t", "--dry-run", "--json"])

    assert json.loads(answer.output)["files"] == 2
    assert table.snapshot() == newest


def test_deleted_rows_are_included_in_index_positions(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING", deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(n, f"v{n % 2}") for n in range(10)]))
    compact(table, EXECUTOR)
    table.upsert(table_of("k v", [(0, "new"), (3, "new")]))
    compact(table, EXECUTOR)
    table = alter(table, SetOption(BITMAP, "v"), BESIDE)

    step.rewrite_file_index(table, EXECUTOR)

    assert [k for k, _ in rows_of(table, filter="v = 'v1'")] == [1, 5, 7, 9]
    assert [k for k, _ in rows_of(table, filter="v = 'new'")] == [0, 3]
    assert_healthy(table)


def test_each_group_of_files_is_a_snapshot(table: Table) -> None:
    table = alter(table, SetOption(BITMAP, "v"))
    planned = step.plan(table, step.RewriteFileIndexRequest(files_per_commit=1))

    assert run_step(step.REWRITE_FILE_INDEX, table, planned, EXECUTOR).snapshots == 2


def test_a_damaged_index_is_rebuilt(table: Table) -> None:
    table = alter(table, SetOption(BITMAP, "v"), BESIDE)
    step.rewrite_file_index(table, EXECUTOR)
    (index_file, _) = sorted(Path(table.paths.root).rglob("*.index"))
    index_file.write_bytes(b"no index")

    result = step.rewrite_file_index(table, EXECUTOR)

    assert result.files == 1
    assert [sorted(names) for names in indexes_of(table)] == [["v"]] * 2


def test_a_failed_unit_leaves_no_index_files(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.append(rows(range(40, 60)))
    table = alter(table, SetOption(BITMAP, "v"), BESIDE)
    before, last = stored_files(table), files_of(table)[-1].file_name
    build = step._build_container

    def fail(reader: object, unit: object, file: DataFileMeta, specs: object) -> bytes | None:
        if file.file_name == last:
            assert len(stored_files(table)) == len(before) + 1
            raise StorageError("the disk is full")
        return build(reader, unit, file, specs)  # type: ignore[arg-type]

    monkeypatch.setattr(step, "_build_container", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        step.rewrite_file_index(table, EXECUTOR, partitions=["day=a"])

    assert stored_files(table) == before


def test_a_rewrite_that_loses_a_conflict_deletes_its_index_files(table: Table) -> None:
    table = alter(table, SetOption(BITMAP, "v"), BESIDE)
    planned = step.plan(table, step.RewriteFileIndexRequest())
    messages = run_units(step.REWRITE_FILE_INDEX, table, planned)
    ours = set(Path(table.paths.root).rglob("*.index"))
    step.rewrite_file_index(table, EXECUTOR)

    with pytest.raises(CommitConflictError):
        step.commit(table, planned, messages)

    index_files = set(Path(table.paths.root).rglob("*.index"))
    assert len(index_files) == 2
    assert not index_files & ours
    assert len(rows_of(table, filter="v = 'v1'")) == len(
        [r for r in rows_of(table) if r[2] == "v1"]
    )


def test_an_expiration_deletes_replaced_index_files_and_keeps_used_index_files(
    table: Table,
) -> None:
    table = alter(table, SetOption(BITMAP, "v"), BESIDE)
    step.rewrite_file_index(table, EXECUTOR)
    table = alter(table, SetOption(BITMAP, "v,k"))
    step.rewrite_file_index(table, EXECUTOR)
    table.overwrite(rows(range(3)))  # all rows are of day a
    before = rows_of(table)

    expire_snapshots(table, retain_max=1, retain_min=1)
    for path in Path(table.paths.root).rglob("data-*"):
        os.utime(path, (0, 0))
    remove_orphan_files(table)

    names = {name for file in files_of(table) for name in (file.file_name, *file.extra_files)}
    assert len(names) == 4
    assert {path.name for path in Path(table.paths.root).rglob("data-*")} == names
    assert rows_of(table) == before
    assert [k for _, k, _ in rows_of(table, filter="k = 22")] == [22]


def test_the_plan_of_an_empty_table_is_empty(tmp_path: Path) -> None:
    assert not step.plan(
        new_table(tmp_path, file_index__bitmap__columns="v"), step.RewriteFileIndexRequest()
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("index", "option", "values"),
    [
        ("bloom-filter", "items", ["50", "60"]),
        ("bloom-filter", "fpp", ["0.1", "0.01"]),
        ("bitmap", "version", ["2", "1"]),
        ("bitmap", "index-block-size", ["16kb", "64 b", "96 b"]),
        ("range-bitmap", "chunk-size", ["16kb", "0b", "16b", "32b"]),
    ],
)
@pytest.mark.parametrize("column", ["k", "v"])
def test_changed_index_options_rebuild_the_index_once(
    table: Table, index: str, option: str, values: list[str], column: str
) -> None:
    table.append(table_of("day k v", [("a", n, f"long text {n}") for n in range(60)]))
    before = rows_of(table)
    table = alter(table, SetOption(f"file-index.{index}.columns", column))
    if index == "bloom-filter":
        table = alter(table, SetOption(f"file-index.bloom-filter.{column}.items", "70"))
    step.rewrite_file_index(table, EXECUTOR)
    for number, value in enumerate(values):
        table = alter(table, SetOption(f"file-index.{index}.{column}.{option}", value))
        rewritten = step.rewrite_file_index(table, EXECUTOR).files
        assert rewritten > 0 or (number == 0 and option != "items")  # value 0 is the default
        assert not step.plan(table, step.RewriteFileIndexRequest())
        assert rows_of(table, filter=f"{column} = '7'") == [
            row for row in before if str(row[["day", "k", "v"].index(column)]) == "7"
        ]


@pytest.mark.parametrize("name", ["fileindex_bitmap", "fileindex_bloom", "fileindex"])
def test_indexes_of_other_writers_are_not_rebuilt(name: str) -> None:
    for folder in GOLDEN.glob(f"*/{name}/warehouse"):
        for path in folder.glob("db.db/*"):
            planned = step.plan(
                Catalog(str(folder)).table(f"db.{path.name}"), step.RewriteFileIndexRequest()
            )
            assert not planned
            assert planned.skipped_files > 0
