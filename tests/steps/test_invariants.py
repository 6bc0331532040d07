"""Invariants of maintenance over random histories (invariants 31 to 34 and 39 to 44).

Other tests: invariants 25 to 29 in ``test_expire_snapshots`` and ``test_kill``, 30 in
``test_expire_tags``, 35 to 38 in ``test_remove_orphan_files``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from steps.test_kill_rewrites import sort
from support.damage import data_files
from support.histories import (
    KINDS,
    Operation,
    apply_action,
    branch_of,
    make_table,
    operations,
    read_all_branches,
    read_versions,
    select_retained,
)
from support.tables import Row, deletion_vectors_of, new_table, rows_of, small_batches, table_of

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_partitions import (
    EXPIRE_PARTITIONS,
    ExpirePartitionsRequest,
)
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.analyze import analyze
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.steps.maintenance.rescale import rescale
from paimon_orch.steps.maintenance.rewrite_file_index import rewrite_file_index
from paimon_orch.steps.repairs.remove_unexisting_files import remove_unexisting_files
from paimon_orch.table.bucket_readers.open_bucket import open_bucket
from paimon_orch.table.bucket_readers.primary_key_reader import PrimaryKeyReader
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
FEW = settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
kinds = st.sampled_from(sorted(KINDS))


@contextmanager
def past(kind: str, history: list[Operation]) -> Iterator[Table]:
    """Create a table and apply a history, in small batches."""
    with tempfile.TemporaryDirectory() as root:
        yield make_table(Path(root), kind, history, batch_rows=3)


def go_on(table: Table, history: list[Operation], text: str) -> None:
    """Apply an action that needs no other branch to a table or a branch."""
    for number, (action, choice) in enumerate(history):
        if "branch" not in action:
            apply_action(table, action, choice, f"{text}{number}")


@FEW
@given(st.lists(st.integers(0, 400), min_size=1, max_size=8), st.integers(1, 365), st.integers(1, 4))  # fmt: skip
def test_only_partitions_above_the_age_limit_are_dropped(
    ages: list[int], days: int, limit: int
) -> None:
    """Invariant 31."""
    with tempfile.TemporaryDirectory() as root:
        table = new_table(Path(root), "dt STRING, k INT", key=(), partition_by=("dt",), bucket="-1")
        table = small_batches(table, 3)
        today = datetime.now()
        named = [(str((today - timedelta(days=age)).date()), age) for age in ages]
        table.append(table_of("dt k", named))

        request = ExpirePartitionsRequest(
            expiration_time=timedelta(days=days), max_expires=limit, now=today
        )
        shown = EXPIRE_PARTITIONS.plan(table, request)
        run_step(EXPIRE_PARTITIONS, table, shown)

        limit_of_age = today - timedelta(days=days)
        old = sorted({day for day, _ in named if datetime.fromisoformat(day) < limit_of_age})
        expired = set(old[:limit])
        assert {name.removeprefix("dt=") for name in shown.names} == expired
        assert rows_of(table) == sorted(row for row in named if row[0] not in expired)


@pytest.mark.slow
@FEW
@given(kinds, operations(8), st.integers(0, 20))
def test_a_rollback_restores_its_target_and_the_next_commit_follows_it(
    kind: str, history: list[Operation], choice: int
) -> None:
    """Invariant 32."""
    with past(kind, history) as table:
        before, ids = read_versions(table), table.stores.snapshots.ids()
        target = ids[choice % len(ids)]

        table.rollback(target, delete_tags=True)

        after = read_versions(table)
        assert after == select_retained(before, after)
        assert table.stores.snapshots.ids() == [number for number in ids if number <= target]
        assert all(table.tags.get(tag).id <= target for tag in table.tags.names())
        assert list(map(repr, rows_of(table))) == before[str(target)]
        snapshot = table.upsert(table_of("p k v", [(0, 77, "next")]))
        assert snapshot is not None
        assert snapshot.id == target + 1
        assert check(table, deep=True).findings == ()


@pytest.mark.slow
@FEW
@given(kinds, operations(6), operations(4))
def test_fast_forward_makes_main_equal_to_the_branch(
    kind: str, history: list[Operation], later: list[Operation]
) -> None:
    """Invariant 33."""
    with past(kind, [*history, ("tag", 7), ("branch", 7)]) as table:
        go_on(branch_of(table, "dev"), later, "b")
        go_on(table, later, "m")
        expected = rows_of(branch_of(table, "dev"))

        table.branches.fast_forward("dev")

        assert rows_of(table) == rows_of(branch_of(table, "dev")) == expected
        assert check(table, deep=True).findings == ()


@pytest.mark.slow
@FEW
@given(kinds, operations(6), operations(5), st.booleans())
def test_changes_of_a_branch_do_not_affect_main_and_vice_versa(
    kind: str, history: list[Operation], later: list[Operation], on_branch: bool
) -> None:
    """Invariant 34, also with an expiration, which deletes files that both may share."""
    with past(kind, [*history, ("tag", 7), ("branch", 7), ("on branch", 1)]) as table:
        branch = branch_of(table, "dev")
        changed, other = (branch, table) if on_branch else (table, branch)
        before = read_versions(other)

        go_on(changed, later, "x")
        expire_snapshots(changed, retain_max=1)

        assert read_versions(other) == before
        assert check(table, deep=True).findings == ()


@pytest.mark.slow
@FEW
@given(kinds, operations(6), st.sets(st.integers(0, 30), min_size=1, max_size=3))
def test_removing_missing_files_keeps_the_other_rows(
    kind: str, history: list[Operation], file_numbers: set[int]
) -> None:
    """Invariant 39; versions that a missing file replaced may be visible again."""
    with past(kind, history) as table:
        compact(table, EXECUTOR, strategy="full")  # each key is in only one file
        rows, files = rows_of(table), data_files(table)
        if not files:
            return
        missing_files = {files[number % len(files)] for number in file_numbers}
        lost_rows = rows_in(table, {path.name for path in missing_files})
        for path in missing_files:
            path.unlink()

        removed = remove_unexisting_files(table)

        assert set(removed.paths) == {str(path) for path in missing_files}
        assert all(path.exists() for path in data_files(table))
        assert rows_of(table) == [row for row in rows if row not in lost_rows]


def rows_in(table: Table, names: set[str]) -> set[Row]:
    """Return the visible rows of some files."""
    rows: set[Row] = set()
    for split in table.files():
        reader = open_bucket(table.stores.reader(), split, table.load().schema.fields)
        for file in split.files:
            if file.file_name in names:
                for batch in reader._read(file, table.load().schema.fields, None):
                    rows |= {tuple(row.values()) for row in batch.to_pylist()}
    return rows


@FEW
@given(kinds, operations(8))
def test_raw_reads_equal_merged_reads_and_each_file_is_in_one_split(
    kind: str, history: list[Operation]
) -> None:
    """Invariant 40."""
    with past(kind, history) as table:
        scan = table.scan()
        splits = scan.plan()
        names = [(split.bucket, file.file_name) for split in splits for file in split.files]
        assert len(names) == len(set(names))
        live = {file.file_name for split in table.files() for file in split.files if file.level > 0}
        assert live <= {name for _, name in names}
        for split in splits:
            reader = PrimaryKeyReader(table.stores.reader(), split, table.load().schema.fields)
            raw = [row for batch in reader.batches() for row in batch.to_pylist()]
            merged = [row for batch in reader.read_merged() for row in batch.to_pylist()]
            assert sorted(map(repr, raw)) == sorted(map(repr, merged))


@pytest.mark.slow
@FEW
@given(kinds, operations(8))
def test_every_row_of_the_read_optimized_table_was_in_some_snapshot(
    kind: str, history: list[Operation]
) -> None:
    """Invariant 41."""
    with past(kind, history) as table:
        rows_of_versions = {row for rows in read_versions(table).values() for row in rows}
        optimized = table.system("ro").scan().to_arrow().to_pylist()
        assert {repr(tuple(row.values())) for row in optimized} <= rows_of_versions

        compact(table, EXECUTOR, strategy="full")

        optimized = table.system("ro").scan().to_arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in optimized) == rows_of(table)


@pytest.mark.slow
@FEW
@given(kinds, operations(8), st.integers(0, 20))
def test_a_diff_transforms_one_snapshot_into_another(
    kind: str, history: list[Operation], choice: int
) -> None:
    """Invariant 42."""
    with past(kind, history) as table:
        ids = table.stores.snapshots.ids()
        start, end = ids[choice % len(ids)], ids[-1]
        before = rows_of(table, snapshot_id=start, merge_level_0=True)
        state = {row[:2]: row for row in before}

        for row in table.incremental(start, end, "diff").to_arrow().to_pylist():
            change, *values = row.values()
            if change in ("-D", "-U"):
                del state[values[0], values[1]]
            else:
                state[values[0], values[1]] = tuple(values)

        assert sorted(state.values()) == rows_of(table, snapshot_id=end, merge_level_0=True)


def reindex(table: Table) -> None:
    catalog = Catalog(str(Path(table.paths.root).parents[1]))
    catalog.alter_table("db.t", [SetOption("file-index.bloom-filter.columns", "v")])
    rewrite_file_index(table, EXECUTOR)


METADATA: list[Callable[[Table], object]] = [
    reindex,
    compact_manifests,
    lambda table: analyze(table, EXECUTOR, columns=None),
]


@pytest.mark.slow
@FEW
@given(kinds, operations(8), st.permutations(range(len(METADATA))))
def test_rewriting_metadata_keeps_rows_files_and_deletion_vectors(
    kind: str, history: list[Operation], order: list[int]
) -> None:
    """Invariant 43."""
    with past(kind, history) as table:
        before, rows = read_all_branches(table), rows_of(table)
        names = {path.name for path in data_files(table)}
        vectors = {
            name: list(vector.positions()) for name, vector in deletion_vectors_of(table).items()
        }
        value = rows[0][2] if rows else "none"
        matching = rows_of(table, filter=f"v = '{value}'")

        for number in order:
            METADATA[number](table)

        assert select_retained(read_all_branches(table), before) == before
        assert rows_of(table) == rows
        assert {path.name for path in data_files(table)} == names
        indexed_files = {
            name: list(vector.positions()) for name, vector in deletion_vectors_of(table).items()
        }
        assert indexed_files == vectors
        assert rows_of(table, filter=f"v = '{value}'") == matching
        assert check(table, deep=True).findings == ()


@pytest.mark.slow
@FEW
@given(st.sampled_from(["plain", "vectors", "lookup", "changelog"]), operations(8), st.integers(2, 7))  # fmt: skip
def test_rescaling_keeps_the_rows(kind: str, history: list[Operation], buckets: int) -> None:
    """Invariant 44, of rescale."""
    with past(kind, history) as table:
        compact(table, EXECUTOR)
        before, rows = read_all_branches(table), rows_of(table)

        rescale(table, buckets)

        assert rows_of(table) == rows
        assert select_retained(read_all_branches(table), before) == before
        assert check(table, deep=True).findings == ()


@FEW
@given(st.lists(st.lists(st.integers(-5, 5), max_size=6), min_size=1, max_size=5))
def test_sorting_keeps_the_rows(writes: list[list[int]]) -> None:
    """Invariant 44, of sort compaction."""
    with tempfile.TemporaryDirectory() as root:
        table = small_batches(new_table(Path(root), key=(), bucket="-1"), 3)
        for keys in filter(None, writes):
            table.append(table_of("k v", [(k, str(k)) for k in keys]))
        rows = rows_of(table)

        sort(table)

        assert rows_of(table) == rows
        assert check(table, deep=True).findings == ()


@pytest.mark.parametrize("number", range(25, 45))
def test_every_maintenance_invariant_has_a_test(number: int) -> None:
    """The tests contain the numbers of all invariants."""
    texts = [path.read_text() for path in Path(__file__).parent.rglob("test_*.py")]
    assert any(f"nvariant {number}" in text for text in texts)
