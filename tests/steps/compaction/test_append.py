"""Compaction of append tables, interleaved with row-level deletes, against a list as a model."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.steps import run_units
from support.tables import (
    Row,
    assert_healthy,
    deletion_vectors_of,
    new_table,
    rows_of,
    small_batches,
    stored_files,
    table_of,
)

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, InputError, StorageError
from paimon_orch.files.data_file_writer import RollingFileWriter
from paimon_orch.format.manifest.manifest_entry import FileSource
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.compaction.compact import (
    COMPACT,
    CompactionPlan,
    CompactRequest,
    commit,
    compact,
    plan,
    run_compaction,
)
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.schema_change.schema_changes import AddColumn, RenameColumn, SchemaChange
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage

EXECUTOR = InProcessExecutor()
PARTITIONS = ("a", "b")


@dataclass(frozen=True)
class Append:
    rows: int
    partition: str


@dataclass(frozen=True)
class Delete:
    keys: list[int]
    partition: str


@dataclass(frozen=True)
class Compact:
    strategy: Literal["minor", "full"]
    partition: str | None


@dataclass
class Model:
    """A list of the rows in the order in which they were written."""

    table: Table
    rows: list[Row] = field(default_factory=list)
    written: int = 0

    def apply(self, operation: Append | Delete | Compact) -> None:
        before = self.table.snapshot()
        match operation:
            case Append(count, partition):
                numbers = range(self.written, self.written + count)
                new: list[Row] = [(partition, number % 20, number) for number in numbers]
                self.table.append(table_of("p k n", new))
                self.rows += new
                self.written += count
            case Delete(keys, partition):
                listed = ", ".join(map(str, keys))
                where = f"p = '{partition}' and k in ({listed})"
                deleted = delete(self.table, EXECUTOR, where).deleted
                remaining = [row for row in self.rows if row[0] != partition or row[1] not in keys]
                assert deleted == len(self.rows) - len(remaining)
                self.rows = remaining
                self.check_deletion(None if before is None else before.id)
            case Compact(strategy, partition):
                specs = None if partition is None else [f"p={partition}"]
                request = CompactRequest(partitions=specs, strategy=strategy)
                result = run_compaction(self.table, plan(self.table, request), EXECUTOR)
                assert bool(result.plan) == (result.snapshot_id is not None)
                assert result.deleted_rows <= sum(
                    v.cardinality for v in deletion_vectors_of(self.table).values()
                )

    def check_deletion(self, before: int | None) -> None:
        """Check that a deletion changes either data files or deletion vectors."""
        snapshot = self.table.snapshot()
        if snapshot is None or snapshot.id == before:
            return
        assert snapshot.commit_kind is CommitKind.OVERWRITE
        if self.table.load().schema.typed_options.has_deletion_vectors:
            assert not self.table.stores.manifests.read_delta_entries(snapshot)
        else:
            assert not deletion_vectors_of(self.table)

    def check(self) -> None:
        assert rows_of(self.table) == sorted(self.rows)
        if self.table.snapshot() is None:
            return
        assert_healthy(self.table)
        index = self.table.stores.manifests.read_index_entries(self.table.snapshot())
        named = Counter(item.data_file for entry in index for item in entry.ranges or ())
        assert set(named.values()) <= {1}, "a data file has two vectors"
        if self.table.load().schema.typed_options.bucket > 0:
            buckets = Counter(entry.partition_bucket for entry in index)
            assert set(buckets.values()) <= {1}, "a bucket has two index files"
            self.check_order()

    def check_order(self) -> None:
        for split in self.table.files():
            ranges = sorted((f.min_sequence_number, f.max_sequence_number) for f in split.files)
            assert all(lower[1] < upper[0] for lower, upper in pairwise(ranges))
            scan = self.table.scan()
            rows = pa.Table.from_batches(scan.read_split(split), scan.arrow_schema)
            numbers = rows["n"].to_pylist()
            assert numbers == sorted(numbers), "the order of the bucket is lost"


partitions = st.sampled_from(PARTITIONS)
operations = st.lists(
    st.one_of(
        st.builds(Append, st.integers(1, 30), partitions),
        st.builds(Append, st.integers(1, 30), partitions),
        st.builds(Delete, st.lists(st.integers(0, 19), min_size=1, max_size=6), partitions),
        st.builds(Compact, st.sampled_from(["minor", "full"]), st.none() | partitions),
    ),
    min_size=4,
    max_size=16,
)
BUCKETS = {"bucket": "2", "bucket_key": "k"}
VECTORS = {"deletion_vectors__enabled": "true"}
VARIANTS: dict[str, dict[str, str]] = {
    "unaware": {},
    "unaware, 32-bit vectors": VECTORS,
    "unaware, 64-bit vectors, many index files": VECTORS
    | {
        "deletion_vectors__bitmap64": "true",
        "deletion_vector__index_file__target_size": "50 b",
    },
    "bucketed": BUCKETS,
    "bucketed, 32-bit vectors": BUCKETS | VECTORS,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("variant", [pytest.param(v, id=name) for name, v in VARIANTS.items()])
def test_readers_see_the_rows_of_a_list_model(variant: dict[str, str]) -> None:
    @settings(max_examples=15)
    @given(operations)
    def check(operations: list[Append | Delete | Compact]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            table = append_table(
                Path(folder),
                "p STRING, k BIGINT, n BIGINT",
                partition_by="p",
                target_file_size="2 kb",
                source__split__open_file_cost="100 b",
                compaction__min__file_num="3",
                **variant,
            )
            model = Model(table)
            for operation in operations:
                model.apply(operation)
                model.check()

    check()


def append_table(
    root: Path,
    columns: str = "k BIGINT, v STRING",
    *,
    partition_by: str = "",
    **options: str,
) -> Table:
    named = {"bucket": "-1"} | options
    table = new_table(root, columns, key=(), partition_by=partition_by.split(), **named)
    return small_batches(table, 5)


def append(table: Table, *batches: range, value: str = "x") -> None:
    for numbers in batches:
        table.append(table_of("k v", [(number, value) for number in numbers]))


def five_files(root: Path, **options: str) -> Table:
    table = append_table(root, **options)
    append(table, *(range(start, start + 10) for start in range(0, 50, 10)))
    return table


def test_small_files_are_merged_in_a_compact_snapshot(tmp_path: Path) -> None:
    table = five_files(tmp_path)
    before = rows_of(table)

    result = compact(table, EXECUTOR)

    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind is CommitKind.COMPACT
    (split,) = table.files()
    (file,) = split.files
    assert (file.file_source, file.level, split.bucket) == (FileSource.COMPACT, 0, 0)
    assert file.max_sequence_number - file.min_sequence_number == 49
    assert (result.files_before, result.files_after, result.rows_written) == (5, 1, 50)
    assert rows_of(table) == before


@pytest.mark.parametrize("strategy", ["minor", "full"])
def test_a_plan_without_units_commits_nothing(
    tmp_path: Path, strategy: Literal["minor", "full"]
) -> None:
    table = five_files(tmp_path)
    compact(table, EXECUTOR, strategy="full")
    before = stored_files(table)

    assert compact(table, EXECUTOR, strategy=strategy).snapshot_id is None
    assert stored_files(table) == before


def test_an_empty_table_has_nothing_to_compact(tmp_path: Path) -> None:
    assert compact(append_table(tmp_path), EXECUTOR).snapshot_id is None


def test_a_plan_shows_the_work_and_changes_nothing(tmp_path: Path) -> None:
    table = five_files(tmp_path)
    before = stored_files(table)

    planned = plan(table, CompactRequest()).to_dict()

    assert stored_files(table) == before
    assert (planned["snapshot_id"], planned["buckets"], planned["files"]) == (5, 1, 5)
    units = planned["units"]
    assert isinstance(units, list)
    assert (units[0]["reason"], units[0]["rows"]) == ("small files", 50)
    assert (units[0]["level0_files"], units[0]["output_level"]) == (5, 0)


def test_only_the_selected_partitions_are_compacted(tmp_path: Path) -> None:
    table = append_table(tmp_path, "p INT, k BIGINT", partition_by="p")
    for _ in range(5):
        table.append(table_of("p k", [(p, 1) for p in range(4)]))

    by_spec = plan(table, CompactRequest(partitions=["p=1", {"p": 2}]))
    by_filter = plan(table, CompactRequest(where="p >= 3"))

    assert sorted(unit.partition_text for unit in by_spec.units) == ["p=1", "p=2"]
    assert [unit.partition_text for unit in by_filter.units] == ["p=3"]
    with pytest.raises(InputError, match="not a partition column: k"):
        plan(table, CompactRequest(where="k = 1"))


def test_large_results_roll_into_files_of_the_target_size(tmp_path: Path) -> None:
    table = append_table(tmp_path, target_file_size="3 kb", source__split__open_file_cost="1 b")
    append(table, *(range(start, start + 20) for start in range(0, 400, 20)))

    result = compact(table, EXECUTOR)

    assert 1 < result.files_after < result.files_before
    assert [row[0] for row in rows_of(table)] == list(range(400))


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_files_of_older_schemas_are_written_in_the_newest_one(tmp_path: Path, form: str) -> None:
    table = five_files(tmp_path, file__format=form)
    changes: list[SchemaChange] = [
        RenameColumn("v", "w"),
        AddColumn(column="n", type="INT", first=True),
    ]
    Catalog(str(tmp_path)).alter_table("db.t", changes)
    before = rows_of(table)

    compact(table, EXECUTOR)

    assert table.scan().arrow_schema.names == ["n", "k", "w"]
    assert rows_of(table) == before
    assert {file.schema_id for split in table.files() for file in split.files} == {1}


def test_a_crash_leaves_the_table_and_its_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = append_table(tmp_path, "p INT, k BIGINT", partition_by="p", **VECTORS)
    for _ in range(5):
        table.append(table_of("p k", [(p, k) for p in range(3) for k in range(10)]))
    delete(table, EXECUTOR, "k = 3")
    before, snapshot = stored_files(table), table.snapshot()
    close, calls = RollingFileWriter.close, iter(range(9))

    def crash_in_the_last(self: RollingFileWriter) -> object:
        result = close(self)
        if next(calls) == 2:
            raise StorageError("the disk is full")
        return result

    monkeypatch.setattr(RollingFileWriter, "close", crash_in_the_last)
    with pytest.raises(StorageError, match="the disk is full"):
        compact(table, EXECUTOR)

    assert stored_files(table) == before
    assert table.snapshot() == snapshot


# --- deletion vectors and races


def results(table: Table, planned: CompactionPlan) -> list[CommitMessage]:
    return run_units(COMPACT, table, planned)


@pytest.mark.parametrize("layout", [{}, BUCKETS], ids=["unaware", "bucketed"])
def test_compaction_removes_deleted_rows_and_their_deletion_vectors(
    tmp_path: Path, layout: dict[str, str]
) -> None:
    table = five_files(tmp_path, **VECTORS, **layout)
    delete(table, EXECUTOR, "k >= 5 and k < 25")
    before = rows_of(table)

    result = compact(table, EXECUTOR, strategy="full")

    assert rows_of(table) == before
    assert not deletion_vectors_of(table)
    assert (result.rows_written, result.deleted_rows) == (30, 0)


def test_deletion_vectors_of_kept_files_move_to_a_new_index_file(tmp_path: Path) -> None:
    table = append_table(tmp_path, target_file_size="700 b", **VECTORS)
    append(table, range(300), range(300, 305))
    delete(table, EXECUTOR, "k in (0, 302)")
    (index,) = table.stores.manifests.read_index_entries(table.snapshot())

    result = compact(table, EXECUTOR)

    (rewritten,) = table.stores.manifests.read_index_entries(table.snapshot())
    assert rewritten.file_name != index.file_name
    assert (result.files_before, result.deleted_rows) == (1, 1)
    assert [vector.cardinality for vector in deletion_vectors_of(table).values()] == [1]
    assert [row[0] for row in rows_of(table)] == [*range(1, 302), 303, 304]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{}, VECTORS, BUCKETS, BUCKETS | VECTORS], ids=str)
@pytest.mark.parametrize("first", ["compaction", "deletion"])
def test_rows_deleted_during_a_compaction_remain_deleted(
    tmp_path: Path, options: dict[str, str], first: str
) -> None:
    """Both start from one snapshot; the second commit is refused and planned again."""
    table = five_files(tmp_path, **options)

    def deleted(executor: Executor) -> int:
        return delete(table, executor, "k = 7").attempts

    def compacted(executor: Executor) -> int:
        return compact(table, executor, strategy="full").attempts

    winner, loser = (deleted, compacted) if first == "deletion" else (compacted, deleted)
    races = [lambda: winner(EXECUTOR)]

    assert loser(RacingExecutor(lambda: races and races.pop()())) == 2
    assert [row[0] for row in rows_of(table)] == [*range(7), *range(8, 50)]
    assert_healthy(table)


class RacingExecutor(InProcessExecutor):
    """Makes another commit after all units have run."""

    def __init__(self, race: Callable[[], object]) -> None:
        self._race = race

    def map(self, *args: Any, **kwargs: Any) -> list[bytes]:
        results = super().map(*args, **kwargs)
        self._race()
        return results


def test_rows_of_concurrent_commits_are_kept(tmp_path: Path) -> None:
    table = five_files(tmp_path)
    planned = plan(table, CompactRequest())
    results_of_units = results(table, planned)
    append(table, range(50, 60))

    commit(table, planned, results_of_units)

    assert [row[0] for row in rows_of(table)] == list(range(60))
    assert sorted(len(split.files) for split in table.files()) == [2]


def test_the_second_of_two_compactions_of_a_snapshot_is_refused(tmp_path: Path) -> None:
    table = five_files(tmp_path)
    first, second = plan(table, CompactRequest()), plan(table, CompactRequest())
    results_of_units = results(table, first), results(table, second)
    commit(table, first, results_of_units[0])
    before, rows = stored_files(table), rows_of(table)
    written = {entry.file.file_name for message in results_of_units[1] for entry in message.added}

    with pytest.raises(CommitConflictError, match="removed by another commit"):
        commit(table, second, results_of_units[1])

    assert rows_of(table) == rows
    assert {Path(path).name for path in before - stored_files(table)} == written


def test_concurrent_deletions_from_one_file_are_both_applied(tmp_path: Path) -> None:
    table = five_files(tmp_path, **VECTORS)
    raced = list[int]()

    def race() -> None:
        if not raced:
            raced.append(1)
            delete(table, EXECUTOR, "k = 3")

    result = delete(table, RacingExecutor(race), "k = 4")

    assert (result.attempts, result.deleted) == (2, 1)
    assert [row[0] for row in rows_of(table)] == [0, 1, 2, *range(5, 50)]
    assert_healthy(table)
