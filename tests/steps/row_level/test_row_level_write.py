"""Deleting rows by a filter, in tables with and without primary key, with conflicts."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import (
    assert_healthy,
    deletion_vectors_of,
    new_table,
    rows_of,
    small_batches,
    stored_files,
    table_of,
)

from paimon_orch.errors import CommitConflictError, InputError, StorageError, UnsupportedError
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.row_level import delete_rows as hide_rows
from paimon_orch.steps.row_level.row_level_write import RowLevelRequest, delete, plan
from paimon_orch.steps.row_level.task_result import (
    RowLevelTaskResult,
    collect_changed_rows,
    first_row_address,
    group_rows_by_file,
)
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
VECTORS = {"deletion_vectors__enabled": "true"}
BUCKETS = {"bucket": "2", "bucket_key": "k"}


class RacingExecutor(InProcessExecutor):
    """Runs an action once, after the rows were found and before the commit."""

    def __init__(self, *races: Callable[[], object]) -> None:
        self._races = list(races)

    def map(self, *args: Any, **kwargs: Any) -> list[bytes]:
        results = super().map(*args, **kwargs)
        if self._races:
            self._races.pop(0)()
        return results


def create_table_with_key(root: Path, **options: str) -> Table:
    table = small_batches(new_table(root, **options), 5)
    table.upsert(table_of("k v", [(n, "old") for n in range(20)]))
    table.upsert(table_of("k v", [(n, "new") for n in range(5)]))
    return table


def append_table(root: Path, **options: str) -> Table:
    table = small_batches(new_table(root, key=(), **{"bucket": "-1"} | options), 5)
    for start in (0, 10):
        table.append(table_of("k v", [(n, "old") for n in range(start, start + 10)]))
    return table


@pytest.mark.parametrize("options", [{}, VECTORS, BUCKETS, BUCKETS | VECTORS], ids=str)
def test_rows_where_the_filter_is_null_are_kept(tmp_path: Path, options: dict[str, str]) -> None:
    table = small_batches(new_table(tmp_path, key=(), **{"bucket": "-1"} | options), 5)
    table.append(table_of("k v", [(1, "x"), (2, None), (3, "y"), (None, "x")]))

    assert delete(table, EXECUTOR, "v <> 'y'").deleted == 2
    assert rows_of(table) == [(2, None), (3, "y")]
    assert delete(table, EXECUTOR, "not (v = 'y' and k > 1)").deleted == 0
    assert delete(table, EXECUTOR, "not (v = 'y' and k > 2)").deleted == 1
    assert rows_of(table) == [(3, "y")]
    assert_healthy(table)


def test_with_deletion_vectors_no_data_file_changes_and_existing_vectors_grow(
    tmp_path: Path,
) -> None:
    table = append_table(tmp_path, **VECTORS)
    files = table.files()
    delete(table, EXECUTOR, "k in (1, 11)")
    first = deletion_vectors_of(table)

    result = delete(table, EXECUTOR, "k in (1, 2, 3)")

    second, snapshot = deletion_vectors_of(table), table.snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind is CommitKind.OVERWRITE
    assert [split.files for split in table.files()] == [split.files for split in files]
    for name, vector in first.items():
        assert set(vector.positions()) <= set(second[name].positions())
    assert (result.deleted, result.files_added, result.files_removed) == (2, 0, 0)
    index = table.stores.manifests.read_index_entries(snapshot)
    assert len(index) == 1 or {len(entry.ranges or ()) for entry in index} == {1}
    assert_healthy(table)


def test_without_deletion_vectors_only_files_with_matching_rows_are_rewritten(
    tmp_path: Path,
) -> None:
    table = append_table(tmp_path)
    (before,) = table.files()

    result = delete(table, EXECUTOR, "k = 13")

    (after,) = table.files()
    assert (result.files_added, result.files_removed) == (1, 1)
    assert len({f.file_name for f in before.files} & {f.file_name for f in after.files}) == 1
    assert rows_of(table) == [(n, "old") for n in range(20) if n != 13]


def test_rows_deleted_by_other_engines_remain_deleted_when_files_are_rewritten(
    tmp_path: Path,
) -> None:
    table = append_table(tmp_path, **VECTORS)
    delete(table, EXECUTOR, "k in (1, 11)")
    path = Path(table.paths.schema_dir, "schema-0")
    schema = json.loads(path.read_text(encoding="utf-8"))
    del schema["options"]["deletion-vectors.enabled"]  # our own commands refuse this change
    path.write_text(json.dumps(schema), encoding="utf-8")

    delete(table, EXECUTOR, "k = 2")

    assert [row[0] for row in rows_of(table)] == [0, *range(3, 11), *range(12, 20)]
    assert len(deletion_vectors_of(table)) == 1
    assert_healthy(table)


def test_a_deletion_without_matching_rows_commits_nothing(tmp_path: Path) -> None:
    table = append_table(tmp_path)
    before = stored_files(table)

    assert delete(table, EXECUTOR, "k = 100").snapshot_id is None
    assert delete(table, EXECUTOR, "k = 10 and v = 'none'").snapshot_id is None
    assert stored_files(table) == before


def test_deleting_all_rows_leaves_an_empty_table(tmp_path: Path) -> None:
    table = append_table(tmp_path)

    result = delete(table, EXECUTOR, "k >= 0")

    assert (result.deleted, result.files_added, result.files_removed) == (20, 0, 2)
    assert rows_of(table) == []
    assert_healthy(table)


def test_a_plan_includes_only_files_that_may_match(tmp_path: Path) -> None:
    table = append_table(tmp_path)

    planned = plan(table, RowLevelRequest(where="k = 13")).to_dict()

    assert (planned["snapshot_id"], planned["files"], planned["rows"]) == (2, 1, 10)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [{}, {"bucket": "3"}, {"bucket": "-1"}, VECTORS, {"changelog_producer": "input"}],
    ids=str,
)
def test_a_deletion_tests_only_the_newest_row_of_a_key(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = create_table_with_key(tmp_path, **options)

    result = delete(table, EXECUTOR, "v = 'old' and k < 8")
    compact(table, EXECUTOR)

    assert result.deleted == 3
    assert rows_of(table) == [(n, "new" if n < 5 else "old") for n in range(20) if not 5 <= n < 8]
    assert_healthy(table)


def test_with_deletion_vectors_rows_on_level_0_are_changed_too(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, **VECTORS)
    table.upsert(table_of("k v", [(1, "a"), (2, "a")]))
    compact(table, EXECUTOR)
    table.upsert(table_of("k v", [(1, "b"), (3, "a")]))

    delete(table, EXECUTOR, "v = 'a'")
    compact(table, EXECUTOR)

    assert rows_of(table) == [(1, "b")]


def test_the_changelog_of_a_deletion_has_complete_rows(tmp_path: Path) -> None:
    table = create_table_with_key(tmp_path, changelog_producer="input")

    result = delete(table, EXECUTOR, "k = 3")

    assert result.snapshot_id is not None
    changes = table.incremental(result.snapshot_id - 1, result.snapshot_id).to_arrow().to_pylist()
    assert changes == [{"rowkind": "-D", "k": 3, "v": "new"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"merge_engine": "aggregation"}, "needs 'aggregation.remove-record-on-delete' = true"),
        ({"merge_engine": "partial-update"}, "or 'partial-update.remove-record-on-sequence-group'"),
        ({"merge_engine": "first-row"}, "it keeps the first row of a key"),
        ({"ignore_delete": "true"}, "ignores deletes"),
    ],
    ids=str,
)
def test_merge_engines_that_do_not_delete_are_refused_with_the_reason(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        plan(new_table(tmp_path, **options), RowLevelRequest(where="k = 1"))


def test_rows_that_a_sequence_group_would_keep_are_not_deleted(tmp_path: Path) -> None:
    named = {
        "fields.s.sequence-group": "v",
        "partial-update.remove-record-on-sequence-group": "s",
    }
    table = new_table(
        tmp_path, "k BIGINT, s BIGINT, v STRING", merge_engine="partial-update", **named
    )
    table.upsert(table_of("k s v", [(1, 1, "a"), (2, 1, "b"), (3, None, None)]))
    before = stored_files(table)

    with pytest.raises(InputError, match=r"row k = 3 .* would not be deleted"):
        delete(table, EXECUTOR, "k >= 2")
    assert stored_files(table) == before
    delete(table, EXECUTOR, "k = 2")

    assert [row[0] for row in rows_of(table)] == [1, 3]


def test_partial_update_deletes_rows_if_remove_record_on_delete_is_set(tmp_path: Path) -> None:
    table = create_table_with_key(
        tmp_path,
        merge_engine="partial-update",
        **{"partial-update.remove-record-on-delete": "true"},
    )

    delete(table, EXECUTOR, "k >= 2")

    assert rows_of(table) == [(0, "new"), (1, "new")]


@pytest.mark.parametrize("options", [{}, VECTORS], ids=str)
def test_remaining_rows_keep_their_ids(tmp_path: Path, options: dict[str, str]) -> None:
    table = append_table(tmp_path, row_tracking__enabled="true", **options)
    columns = ["k", "_ROW_ID", "_SEQUENCE_NUMBER"]
    before = rows_of(table, columns=columns)

    delete(table, EXECUTOR, "k in (3, 13)")
    compact(table, EXECUTOR, strategy="full")

    expected = [row for row in before if row[0] not in (3, 13)]
    assert rows_of(table, columns=columns) == expected
    table.append(table_of("k v", [(20, "new")]))
    assert rows_of(table, columns=columns)[-1][:2] == (20, 20)


def test_postpone_buckets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="postpone buckets"):
        plan(new_table(tmp_path, bucket="-2"), RowLevelRequest(where="k = 1"))


keys = st.lists(st.integers(0, 30), min_size=1, max_size=12)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), keys),
        st.tuples(st.just("upsert"), keys),
        st.tuples(st.just("delete"), keys),
        st.tuples(st.just("delete values"), st.lists(st.integers(0, 3), min_size=1, max_size=2)),
        st.tuples(st.sampled_from(["minor", "full"]), st.just([])),
    ),
    min_size=3,
    max_size=14,
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{"bucket": "2"}, {"bucket": "2", **VECTORS}], ids=str)
def test_a_table_with_a_primary_key_equals_a_dictionary_model(options: dict[str, str]) -> None:
    @settings(max_examples=15)
    @given(steps)
    def check(operations: list[tuple[str, list[int]]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            table = small_batches(new_table(Path(folder), "k BIGINT, v BIGINT", **options), 5)
            model = dict[int, int]()
            for number, (column_name, values) in enumerate(operations):
                listed = ", ".join(map(str, values))
                if column_name == "upsert":
                    new = {key: (key + number) % 4 for key in values}
                    table.upsert(table_of("k v", new.items()))
                    model |= new
                elif column_name in ("minor", "full"):
                    compact(table, EXECUTOR, strategy="full" if column_name == "full" else "minor")
                else:
                    column = "k" if column_name == "delete" else "v"
                    deleted_keys = [
                        k for k, v in model.items() if (k if column == "k" else v) in values
                    ]
                    deleted = delete(table, EXECUTOR, f"{column} in ({listed})").deleted
                    assert deleted == len(deleted_keys)
                    for key in deleted_keys:
                        del model[key]
            compact(table, EXECUTOR)
            assert rows_of(table) == sorted(model.items())
            if table.snapshot() is not None:
                assert_healthy(table)

    check()


# --- races


@pytest.mark.parametrize("options", [{}, {"bucket": "-1"}], ids=str)
def test_a_concurrently_changed_key_is_matched_again(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = create_table_with_key(tmp_path, **options)

    def saved() -> None:
        table.upsert(table_of("k v", [(7, "saved")]))

    result = delete(table, RacingExecutor(saved), "v = 'old'")

    assert result.attempts == 2
    assert rows_of(table) == [*((n, "new") for n in range(5)), (7, "saved")]
    assert_healthy(table)


def test_a_concurrent_compaction_does_not_conflict_with_a_deletion_of_keys(tmp_path: Path) -> None:
    table = create_table_with_key(tmp_path)

    race = RacingExecutor(lambda: compact(table, EXECUTOR, strategy="full"))

    assert delete(table, race, "v = 'old'").attempts == 1
    assert rows_of(table) == [(n, "new") for n in range(5)]


def test_a_deletion_that_always_conflicts_raises_the_conflict_and_leaves_no_files(
    tmp_path: Path,
) -> None:
    table = create_table_with_key(tmp_path)
    races = [lambda: table.upsert(table_of("k v", [(7, "again")]))] * 3

    with pytest.raises(CommitConflictError, match="changed rows that this one was computed from"):
        delete(table, RacingExecutor(*races), "v = 'old'")

    assert rows_of(table)[7] == (7, "again")
    snapshots = list(table.stores.snapshots.ids())
    entries = [
        e
        for n in snapshots
        for e in table.stores.manifests.read_delta_entries(table.stores.snapshots.get(n))
    ]
    on_disk = {Path(path).name for path in stored_files(table) if "/data-" in path}
    assert on_disk == {entry.file.file_name for entry in entries}


def test_concurrently_appended_rows_are_kept(tmp_path: Path) -> None:
    table = append_table(tmp_path, **VECTORS)

    def appended() -> None:
        table.append(table_of("k v", [(3, "late")]))

    result = delete(table, RacingExecutor(appended), "k = 3")

    assert result.attempts == 1
    assert (3, "late") in rows_of(table)


@pytest.mark.parametrize("layout", [{}, BUCKETS], ids=str)
def test_concurrent_deletions_from_other_files_are_kept(
    tmp_path: Path, layout: dict[str, str]
) -> None:
    table = append_table(tmp_path, **VECTORS, **layout)

    result = delete(table, RacingExecutor(lambda: delete(table, EXECUTOR, "k = 15")), "k = 3")

    assert result.deleted == 1
    assert [row[0] for row in rows_of(table)] == [n for n in range(20) if n not in (3, 15)]
    assert_healthy(table)


def test_a_crash_leaves_the_table_and_its_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = append_table(tmp_path)
    before = stored_files(table)
    copied, calls = hide_rows._rewrite_files, iter(range(9))

    def fail_in_the_second(*args: Any) -> Iterator[Any]:
        yield from copied(*args)
        if next(calls) == 1:
            raise StorageError("the disk is full")

    monkeypatch.setattr(hide_rows, "_rewrite_files", fail_in_the_second)
    with pytest.raises(StorageError, match="the disk is full"):
        delete(table, EXECUTOR, "k in (3, 13)")

    assert stored_files(table) == before


def test_units_that_rewrite_files_contain_one_file_and_no_reader(tmp_path: Path) -> None:
    table, recorded = append_table(tmp_path), list[Any]()

    class RecordedUnits(InProcessExecutor):
        def map(self, run: Any, units: Any, **options: Any) -> list[bytes]:
            recorded.extend(units)
            return super().map(run, units, **options)

    delete(table, RecordedUnits(), "k in (3, 13)")

    rewrites = [unit for unit in recorded if isinstance(unit, hide_rows.DeleteRowsUnit)]
    assert [len(unit.split.files) for unit in rewrites] == [1, 1]
    assert not any(type(table.io).__name__.encode() in pickle.dumps(unit) for unit in rewrites)


# --- results of tasks


def test_addresses_consist_of_file_and_position() -> None:
    addresses = np.array([first_row_address(7) + 5, first_row_address(2) + (1 << 33)])

    rows = group_rows_by_file([addresses])

    assert {number: vector.positions().tolist() for number, vector in rows.items()} == {
        2: [1 << 33],
        7: [5],
    }


def test_a_round_trip_does_not_change_task_results() -> None:
    changes = RowLevelTaskResult(rows={3: DeletionVector.of([1, 1 << 32])}, counts={"deleted": 2})

    assert RowLevelTaskResult.decode(changes.encode()) == changes


def test_a_row_with_two_changes_is_refused() -> None:
    with pytest.raises(InputError, match="several rows of the source match"):
        group_rows_by_file([np.array([1, 2]), np.array([2])])
    change = RowLevelTaskResult(rows={0: DeletionVector.of([4])})
    with pytest.raises(InputError, match="several rows of the source match"):
        collect_changed_rows([], [change, change])
