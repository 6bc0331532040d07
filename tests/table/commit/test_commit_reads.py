"""A commit reads only the manifests that may have entries of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support.tables import catalog_of, new_table, rows_of, table_of

from paimon_orch.errors import NotFoundError
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.compaction.compact import COMPACT, CompactRequest, compact
from paimon_orch.steps.compaction.compact import plan as plan_compaction
from paimon_orch.storage import FileInfo, LocalFileIO
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.metadata import manifest_io
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

Values = tuple[list[Any], Any]
PARTITIONS: dict[str, Values] = {
    "STRING": (["a", "b", "c"], "d"),
    "INT": ([-7, 0, 3], 4),
    "DATE": ([date(2026, 1, day) for day in (1, 2, 3)], date(2026, 1, 4)),
    "BOOLEAN": ([False], True),  # manifests are not selected by this type
}


@pytest.fixture
def count_opened_manifests(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[], object]], int]:
    """Count the manifests that are read."""
    decode, count = manifest_io._open_manifest, 0

    def counting(*arguments: Any) -> Manifest:
        nonlocal count
        count += 1
        return decode(*arguments)

    def during(work: Callable[[], object]) -> int:
        before = count
        work()
        return count - before

    monkeypatch.setattr(manifest_io, "_open_manifest", counting)
    return during


def upsert(table: Table, partition: object) -> None:
    table.upsert(table_of("p k", [(partition, k) for k in range(3)]))


@pytest.mark.parametrize("kind", PARTITIONS)
def test_a_write_reads_only_manifests_of_its_partitions(
    tmp_path: Path, kind: str, count_opened_manifests: Callable[[Callable[[], object]], int]
) -> None:
    existing, new = PARTITIONS[kind]
    table = new_table(tmp_path, f"p {kind}, k INT", key=("p", "k"), partition_by=["p"], bucket="2")
    for partition in existing:
        upsert(table, partition)

    # Before its commit, a write reads all manifests to assign sequence numbers.
    before, judged = len(existing), kind != "BOOLEAN"
    assert count_opened_manifests(lambda: upsert(table, new)) == before + (0 if judged else before)
    assert count_opened_manifests(lambda: upsert(table, existing[0])) == before + 1 + (
        1 if judged else before + 1
    )
    assert len(rows_of(table)) == 3 * (len(existing) + 1)


def test_a_compaction_reads_only_manifests_of_its_partitions(
    tmp_path: Path, count_opened_manifests: Callable[[Callable[[], object]], int]
) -> None:
    rows = [(1, "x", 1), (1, None, 1), (2, "x", 1), (1, "x", 2), (3, None, 1)]
    table = new_table(tmp_path, "p INT, q STRING, k INT", partition_by=["p", "q"])
    for row in rows:
        table.append(table_of("p q k", [row]))

    def work(partition: str) -> None:
        compact(table, InProcessExecutor(), partitions=[partition], strategy="full")

    # The plan and the conflict check each read two manifests.
    assert count_opened_manifests(lambda: work("p=1/q=x")) == 2 * 2
    assert sorted(rows_of(table), key=str) == sorted(rows, key=str)


def test_merging_manifests_reads_only_those_of_deleted_files(
    tmp_path: Path, count_opened_manifests: Callable[[Callable[[], object]], int]
) -> None:
    table = new_table(
        tmp_path,
        "p INT, k INT",
        partition_by=["p"],
        manifest__target_file_size="1 b",  # no manifest is small
        manifest__full_compaction_threshold_size="1 b",
    )
    for partition in range(5):
        for key in range(2):
            table.append(table_of("p k", [(partition, key)]))
    compact(table, InProcessExecutor(), partitions=["p=1"], strategy="full")

    # Before its commit, a write reads all manifests. The merge reads the manifest with the deletes
    # twice, and those of the deleted files.
    assert count_opened_manifests(lambda: table.append(table_of("p k", [(9, 9)]))) == 11 + 2 + 2
    assert len(rows_of(table)) == 11


def test_a_compaction_reads_only_manifests_of_its_buckets(
    tmp_path: Path, count_opened_manifests: Callable[[Callable[[], object]], int]
) -> None:
    table = new_table(tmp_path, "k INT", key=("k",), bucket="4")
    for key in (1, 1, 2, 3, 4, 5, 6):
        table.upsert(table_of("k", [(key,)]))
    [bucket] = {split.bucket for split in table.scan(filter="k = 1").plan()}
    in_bucket = [split for split in table.files() if split.bucket == bucket]
    plan = plan_compaction(table, CompactRequest(strategy="full"))
    units = tuple(unit for unit in plan.units if unit.bucket == bucket)
    part = replace(plan, units=units)

    opened = count_opened_manifests(lambda: run_step(COMPACT, table, part))
    assert opened == len(in_bucket[0].files) < 7
    assert {len(s.files) for s in table.files() if s.bucket == bucket} == {1}
    assert len(rows_of(table)) == 6


class StopError(Exception):
    """Ends a commit after it has read the newest schema."""


def read_schema_in_commit(state: TableState) -> TableSchema:
    """Return the schema by which a commit checks its options."""
    commit, schemas = state.new_commit(StepKind.WRITE_ROWS), list[TableSchema]()

    def stop(schema: TableSchema) -> None:
        schemas.append(schema)
        raise StopError

    commit.check = stop
    with pytest.raises(StopError):
        commit.commit(CommitChanges(kind=CommitKind.APPEND))
    return schemas[0]


class ListingFileIO(LocalFileIO):
    """Notes the directories that are listed."""

    def __init__(self) -> None:
        self.listed: list[str] = []

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        self.listed.append(path)
        return super().list_dir(path)


def test_a_commit_lists_no_schemas_if_the_table_has_the_planned_snapshot(tmp_path: Path) -> None:
    io, written = ListingFileIO(), new_table(tmp_path)
    written.upsert(table_of("k v", [(1, "a")]))
    table = Table(written.identifier, io, written.paths)
    state = table.load()
    written.upsert(table_of("k v", [(2, "b")]))
    assert io.listed == [table.paths.schema_dir]

    assert read_schema_in_commit(state) == read_schema_in_commit(table.load()) == state.schema
    assert io.listed == [table.paths.schema_dir] * 2, "once for each load"


@pytest.mark.parametrize("has_rows", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_a_commit_sees_a_schema_that_is_newer_than_its_plan(
    tmp_path: Path, has_rows: bool, commits: bool
) -> None:
    table = new_table(tmp_path)
    if has_rows:
        table.upsert(table_of("k v", [(1, "a")]))
    catalog_of(table).alter_table("db.t", [SetOption("file.format", "orc")])
    state = table.load()  # its schema is newer than that of its snapshot
    catalog_of(table).alter_table("db.t", [SetOption("file.format", "avro")])
    if commits:
        table.upsert(table_of("k v", [(2, "b")]))

    assert read_schema_in_commit(state).id == 2


@pytest.mark.parametrize("has_rows", [False, True])
def test_a_commit_sees_the_schema_of_a_table_that_was_created_again(
    tmp_path: Path, has_rows: bool
) -> None:
    """The new snapshot and schema have the ids of the old ones."""
    table = new_table(tmp_path, "k BIGINT, a STRING")
    if has_rows:
        table.upsert(table_of("k a", [(1, "old")]))
    state = table.load()
    catalog_of(table).drop_table("db.t")
    again = new_table(tmp_path, "k BIGINT, b STRING")
    if has_rows:
        again.upsert(table_of("k b", [(1, "new")]))

    assert read_schema_in_commit(state).names == ["k", "b"]


def test_a_commit_to_a_table_that_was_dropped_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    state = table.load()
    catalog_of(table).drop_table("db.t")

    with pytest.raises(NotFoundError, match="is not a Paimon table"):
        state.new_commit(StepKind.WRITE_ROWS).commit(CommitChanges(kind=CommitKind.APPEND))
