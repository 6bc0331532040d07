"""Regression tests for issues of apache/paimon, named by the number of the issue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.commit_race import append_concurrently
from support.tables import (
    Row,
    assert_healthy,
    deletion_vectors_of,
    levels_of,
    new_table,
    rows_of,
    table_of,
)

from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.sort.sort_merge_reader import MergeRun, merge_runs
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.conform_rows import convert_rows
from paimon_orch.table.write.table_write import TableWriter
from paimon_orch.table.write.write_builder import WriteBuilder
from paimon_orch.table.write.write_plan import WritePlan

EXECUTOR = InProcessExecutor()
Rows = list[tuple[int, str]]


def test_issue_8778_a_full_compaction_deletes_the_deletion_vectors_of_rewritten_files(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(k, "v") for k in range(10)]))
    step.compact(table, EXECUTOR, strategy="full")
    table.delete(table_of("k", [(3,)]))
    step.compact(table, EXECUTOR)
    (file_name,) = deletion_vectors_of(table)

    step.compact(table, EXECUTOR, strategy="full")

    index = table.stores.manifests.read_index_entries(table.snapshot())
    assert not [r for entry in index for r in entry.ranges or ()]
    assert file_name not in {file.file_name for split in table.files() for file in split.files}
    assert rows_of(table) == [(k, "v") for k in range(10) if k != 3]
    assert_healthy(table)


def writer_of(table: Table) -> TableWriter:
    """Return a writer with the sequence numbers of the current snapshot."""
    return TableWriter(
        WritePlan(
            factory=table.stores.build_writer_factory(),
            first_sequence=WriteBuilder(table.load()).read_next_sequences(),
        )
    )


def finish(table: Table, writer: TableWriter, rows: Rows) -> None:
    writer.write(convert_rows(table_of("k v", rows), table.load().schema))
    WriteBuilder(table.load()).commit(writer.close())


STRATEGIES: tuple[step.CompactionStrategy, ...] = ("minor", "full")
MODES = {
    "merged on read": {},
    "vectors": {
        "deletion_vectors__enabled": "true",
        "deletion_vectors__merge_on_read": "true",
    },
    "lookup": {"changelog_producer": "lookup"},
}


@pytest.mark.parametrize("options", [pytest.param(v, id=k) for k, v in MODES.items()])
def test_issue_5872_compacting_rows_of_one_sequence_number_keeps_the_merged_value(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = new_table(tmp_path, **options)
    writers = [writer_of(table) for _ in range(4)]
    for number, writer in enumerate(writers):
        finish(table, writer, [(1, f"{number}"), (2, f"{number}")])
    before = rows_of(table)
    assert before == [(1, "3"), (2, "3")], "of equal numbers the one written last"

    for strategy in STRATEGIES:
        step.compact(table, EXECUTOR, strategy=strategy)
        assert rows_of(table) == before
    assert_healthy(table)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("options", [pytest.param(v, id=k) for k, v in MODES.items()])
def test_issue_5872_a_row_written_during_a_compaction_wins_over_equal_rows(
    tmp_path: Path, options: dict[str, str], strategy: step.CompactionStrategy
) -> None:
    table = new_table(tmp_path, num_sorted_run__compaction_trigger="2", **options)
    first, second, late = (writer_of(table) for _ in range(3))
    finish(table, first, [(1, "first")])
    finish(table, second, [(1, "second")])

    class Meanwhile(InProcessExecutor):
        """Commits the late row between the units of the compaction and its commit."""

        def map(self, *args: object, **kwargs: object) -> list[bytes]:
            results = super().map(*args, **kwargs)  # type: ignore[arg-type]
            if levels_of(table) == [0, 0]:
                finish(table, late, [(1, "late")])
            return results

    step.compact(table, Meanwhile(), strategy=strategy)
    assert rows_of(table) == [(1, "late")]

    step.compact(table, EXECUTOR, strategy="full")
    assert rows_of(table) == [(1, "late")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("options", [pytest.param(v, id=k) for k, v in MODES.items()])
def test_issue_5872_a_row_written_first_but_committed_late_loses_to_equal_rows(
    tmp_path: Path, options: dict[str, str], strategy: step.CompactionStrategy
) -> None:
    table = new_table(tmp_path, num_sorted_run__compaction_trigger="2", **options)
    first, second, late = (writer_of(table) for _ in range(3))
    finish(table, first, [(1, "first")])
    finish(table, second, [(1, "second")])
    late.write(convert_rows(table_of("k v", [(1, "late")]), table.load().schema))
    (written,) = late.close().entries
    before = replace(written, file=replace(written.file, creation_time=1))
    rows_read: list[Row] = []

    class Meanwhile(InProcessExecutor):
        """Commits the late row between the units of the compaction and its commit."""

        def map(self, *args: object, **kwargs: object) -> list[bytes]:
            results = super().map(*args, **kwargs)  # type: ignore[arg-type]
            if not rows_read:
                WriteBuilder(table.load()).commit(CommitMessage(entries=(before,)))
                rows_read.extend(rows_of(table))
            return results

    result = step.compact(table, Meanwhile(), strategy=strategy)

    assert result.attempts == 2
    assert rows_read == [(1, "second")]
    assert rows_of(table) == rows_read
    step.compact(table, EXECUTOR, strategy="full")
    assert rows_of(table) == rows_read
    assert_healthy(table)


def test_issue_5631_a_lookup_uses_the_row_of_the_nearest_higher_level() -> None:
    schema = build_table_schema(
        parse_columns("k INT, v INT"),
        primary_key=["k"],
        partition_by=[],
        options={"bucket": "1", "changelog-producer": "lookup"},
    )

    def run(level: int, value: int) -> MergeRun:
        columns = {
            "_SEQUENCE_NUMBER": pa.array([1], pa.int64()),
            "_VALUE_KIND": pa.array([0], pa.int8()),
            "k": pa.array([1], pa.int32()),
            "v": pa.array([value], pa.int32()),
        }
        return MergeRun([(level, pa.record_batch(columns))])

    def merged(runs: Iterable[MergeRun]) -> list[int]:
        engine = create_merge_engine(schema)
        tables = [engine.merge(engine.prepare(s)) for s in merge_runs(list(runs), ["k"])]
        return [value for rows in tables for value in rows["v"].to_pylist()]

    assert merged([run(1, 2), run(2, 1)]) == [2]
    assert merged([run(2, 1), run(1, 2)]) == [2]
    assert merged([run(3, 0), run(2, 1), run(1, 2), run(0, 7)]) == [7]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("merge_engine_name", ["deduplicate", "aggregation"])
def test_issue_5631_the_changelog_of_a_table_has_the_old_row_of_the_lowest_level(
    tmp_path: Path, merge_engine_name: str
) -> None:
    table = new_table(
        tmp_path,
        "k BIGINT, v BIGINT",
        changelog_producer="lookup",
        merge_engine=merge_engine_name,
        compaction__max_size_amplification_percent="1000000",
        compaction__size_ratio="0",
    )
    chance = np.random.default_rng(7)

    def upsert(value: int, others: int) -> None:
        noise = chance.integers(0, 2**60, others).tolist()
        table.upsert(table_of("k v", [(1, value), *enumerate(noise, 100)]))
        step.compact(table, EXECUTOR)

    upsert(1, 9000)
    for old, new, others in [(1, 10, 2000), (10, 100, 400), (100, 1000, 50)]:
        upsert(new, others)
        snapshot = table.snapshot()
        assert snapshot is not None
        changelog = (
            table.incremental(snapshot.id - 1, snapshot.id, "changelog").to_arrow().to_pylist()
        )
        assert [row["v"] for row in changelog if row["k"] == 1] == [old, new]
    assert levels_of(table) == [2, 3, 4, 5]
    assert (1, 1000) in rows_of(table)


@pytest.mark.slow
def test_issue_5762_the_rows_of_two_jobs_that_use_one_snapshot_id_are_kept(tmp_path: Path) -> None:
    table = new_table(tmp_path, "process BIGINT, number BIGINT", key=(), bucket="-1")

    written = append_concurrently(str(tmp_path), {}, processes=2, appends=8)

    assert rows_of(table) == sorted(written)
    assert table.stores.snapshots.ids() == list(range(1, 17))
    assert {table.stores.snapshots.get(number).delta_record_count for number in range(1, 17)} == {1}
