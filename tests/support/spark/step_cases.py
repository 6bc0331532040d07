"""Cases for all steps that run on executors: a small table, the call, and the expected result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from support.tables import Row, levels_of, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.catalog.named_catalogs import find_named_catalog
from paimon_orch.spark import SparkExecutor
from paimon_orch.spark.frame_writer import write
from paimon_orch.spark.sort_compact import sort_table
from paimon_orch.spark.update_and_merge import merge_into, update
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.move_postponed import move_postponed
from paimon_orch.steps.compaction.sort_compact import SortOrder
from paimon_orch.steps.expiration.delete_tag import delete_tag
from paimon_orch.steps.expiration.expire_changelogs import expire_changelogs
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.analyze import analyze
from paimon_orch.steps.maintenance.rescale import rescale
from paimon_orch.steps.maintenance.rewrite_file_index import rewrite_file_index
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

KEYS = 40
COLUMNS, NAMES = "p INT, k BIGINT, v STRING", "p k v"
FAR_FUTURE_MILLIS = 2**60  # epoch milliseconds


@dataclass(frozen=True)
class StepCase:
    """A step: ``run`` must return ``result``; ``rows`` maps the rows before to the rows after."""

    make: Callable[[Path], Table]
    run: Callable[[SparkSession, Table], object]
    result: object
    rows: Callable[[list[Row]], list[Row]] = lambda rows: rows


@dataclass(frozen=True)
class OnExecutor:
    """A step that needs only an executor, so that it can run without Spark too."""

    run: Callable[[Executor, Table], object]

    def __call__(self, session: SparkSession, table: Table) -> object:
        """Run the step on Spark."""
        return self.run(SparkExecutor(session), table)


def rows_for(keys: range, text: str) -> pa.Table:
    """Return a row for each key."""
    return table_of(NAMES, [(k % 2, k, f"{text}-{k}") for k in keys])


def rows_in(table: pa.Table) -> list[Row]:
    """Return the rows of a table with these columns, sorted."""
    columns = (table[name].to_pylist() for name in NAMES.split())
    return sorted(zip(*columns, strict=True))


SECOND, THIRD = rows_for(range(0, KEYS, 6), "b"), rows_for(range(0, KEYS, 9), "c")


def primary_key_table(root: Path, **options: str) -> Table:
    """Return a primary-key table in which rows of level 0 replace rows of the highest level."""
    key, options = ("p", "k"), {"bucket": "2"} | options
    table = new_table(root, COLUMNS, key=key, partition_by=("p",), **options)
    table.upsert(rows_for(range(KEYS), "a"))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(SECOND)
    table.upsert(THIRD)
    return table


def table_with_file_indexes(root: Path) -> Table:
    """Return a primary-key table with file indexes in index files."""
    options = {"file_index__bloom_filter__columns": "k", "file_index__in_manifest_threshold": "1 b"}
    return primary_key_table(root, **options)


def table_with_deletion_vectors(root: Path) -> Table:
    """Return a primary-key table with deletion vectors."""
    return primary_key_table(root, deletion_vectors__enabled="true")


def postponed_table(root: Path) -> Table:
    """Return a table with rows in postpone buckets."""
    options = {"bucket": "-2", "postpone__batch_write_fixed_bucket": "false"}
    table = new_table(root, COLUMNS, key=("p", "k"), partition_by=("p",), **options)
    table.upsert(rows_for(range(KEYS), "a"))
    return table


def append_table(root: Path, **options: str) -> Table:
    """Return an append table of several small files in each partition."""
    table = new_table(root, COLUMNS, key=(), partition_by=("p",), **({"bucket": "-1"} | options))
    for start in range(0, KEYS, 8):
        table.append(rows_for(range(start, start + 8), "a"))
    return table


def table_without_file_indexes(root: Path) -> Table:
    """Return an append table with an option for file indexes that its files lack."""
    append_table(root)
    options = {"file-index.bitmap.columns": "k", "file-index.in-manifest-threshold": "1 b"}
    catalog = Catalog(str(root))
    catalog.alter_table("db.t", [SetOption(*option) for option in options.items()])
    return catalog.table("db.t")


def table_with_changelogs(root: Path) -> Table:
    """Return a table with changelogs of expired snapshots."""
    options = {"changelog_producer": "input", "changelog__num_retained__max": "50"}
    table = primary_key_table(root, **options)
    expire_snapshots(table, retain_max=1, retain_min=1, older_than=FAR_FUTURE_MILLIS)
    return table


def compacted_table(root: Path) -> Table:
    """Return a table with files that only older snapshots reference."""
    table = primary_key_table(root)
    compact(table, InProcessExecutor(), strategy="full")
    return table


def tagged_table(root: Path) -> Table:
    """Return a table with files that only a tag references."""
    table = primary_key_table(root)
    table.tags.create("old")
    compact(table, InProcessExecutor(), strategy="full")
    expire_snapshots(table, retain_max=1, retain_min=1, older_than=FAR_FUTURE_MILLIS)
    return table


def table_with_orphan_files(root: Path) -> Table:
    """Return a table with unreferenced files in its folders."""
    table = primary_key_table(root)
    for place in sorted(Path(table.paths.root).glob("p=*/bucket-*")):
        (place / "data-stray-0.parquet").write_bytes(b"stray")
    return table


def _ingest(session: SparkSession, table: Table) -> object:
    frame = session.createDataFrame(rows_for(range(20, 60), "n"))
    result = write(frame.repartition(3), table)
    return [result.rows, result.snapshot_id]


def _overwrite(session: SparkSession, table: Table) -> object:
    frame = session.createDataFrame(table_of(NAMES, [(1, k, "new") for k in range(5)]))
    return write(frame, table, mode="overwrite").rows


def _sort(session: SparkSession, table: Table) -> object:
    result = sort_table(session, table, SortOrder(("k", "v"), "hilbert"))
    return [result.rows_written, result.files_after]


def _merge(session: SparkSession, table: Table) -> object:
    source = session.createDataFrame(rows_for(range(30, 50), "m"))
    result = merge_into(
        source,
        table,
        "target.k = source.k AND target.p = source.p",
        when_matched_update={"v": "source.v"},
        when_matched_delete="source.k = 30",
        when_not_matched_insert="*",
    )
    return [result.deleted, result.updated, result.inserted]


@OnExecutor
def _compact_full(executor: Executor, table: Table) -> object:
    result = compact(table, executor, strategy="full")
    return [result.buckets, result.rows_written, levels_of(table)]


@OnExecutor
def _compact_lookup(executor: Executor, table: Table) -> object:
    result = compact(table, executor)
    return [result.buckets, result.level0_after, result.deleted_rows]


@OnExecutor
def _delete(executor: Executor, table: Table) -> object:
    return row_level.delete(table, executor, "k < 10").deleted


def _update(session: SparkSession, table: Table) -> object:
    return update(session, table, {"v": "concat(v, '!')"}, "k >= 30").updated


@OnExecutor
def _rewrite_file_index(executor: Executor, table: Table) -> object:
    result = rewrite_file_index(table, executor)
    return [result.files, result.index_files]


@OnExecutor
def _analyze(executor: Executor, table: Table) -> object:
    result = analyze(table, executor, columns=["k"])
    assert result.statistics is not None
    return [result.statistics.row_count, result.statistics.columns["k"].distinct_count]


@OnExecutor
def _expire_snapshots(executor: Executor, table: Table) -> object:
    result = expire_snapshots(
        table, executor, retain_max=1, retain_min=1, older_than=FAR_FUTURE_MILLIS
    )
    return [result.snapshots, result.data_files]


@OnExecutor
def _remove_orphan_files(executor: Executor, table: Table) -> object:
    return remove_orphan_files(table, executor, older_than=int(time.time() * 1000)).files


@OnExecutor
def _expire_changelogs(executor: Executor, table: Table) -> object:
    return len(expire_changelogs(table, executor, retain_max=1, retain_min=1).changelogs)


@OnExecutor
def _delete_tag(executor: Executor, table: Table) -> object:
    return len(delete_tag(table, "old", executor).data)


@OnExecutor
def _rescale(executor: Executor, table: Table) -> object:
    result = rescale(table, 3, executor)
    assert result is not None
    return result.commit_kind.value


@OnExecutor
def _move_postponed(executor: Executor, table: Table) -> object:
    result = move_postponed(table, executor)
    assert result is not None
    return result.commit_kind.value


@OnExecutor
def _check(executor: Executor, table: Table) -> object:
    missing = min(Path(table.paths.root).rglob("data-*"))
    elsewhere = missing.rename(Path(table.paths.root).parent / missing.name)
    report = check(table, executor=executor)
    elsewhere.rename(missing)
    found = {(finding.rule, missing.name in str(finding)) for finding in report.findings}
    return [report.versions, report.data_files, *map(list, sorted(found))]


def source_options(table: Table) -> dict[str, str]:
    """Return the options of the data source for a table.

    Spark starts the processes that open it with the first session, so they know neither the
    variables nor the configuration of the test.
    """
    name = table.environment.command_argument
    if name is None:
        return {"path": table.paths.root}
    options = {**(find_named_catalog(name) or {})}
    if places := os.environ.get("PAIMON_ALLOWED_EXTERNAL_PATHS"):
        options["allowed-external-paths"] = places
    return {"table": table.identifier} | {f"catalog.{key}": v for key, v in options.items()}


def _read(session: SparkSession, table: Table) -> object:
    frame = session.read.format("paimon").options(**source_options(table)).load()
    rows = frame.where("k >= 3").toArrow()
    return [len(rows_in(rows)), list(rows_in(rows)[0])]


def _append(session: SparkSession, table: Table) -> object:
    frame = session.createDataFrame(rows_for(range(60, 64), "w"))
    writer = frame.repartition(1).write.format("paimon").mode("append")
    writer.options(**source_options(table)).save()
    return None


def _with_rows(*changed: pa.Table) -> Callable[[list[Row]], list[Row]]:
    """Return a function that upserts the rows of tables by key."""

    def after(rows: list[Row]) -> list[Row]:
        by_key = {row[:2]: row for row in rows}
        for table in changed:
            by_key.update({row[:2]: row for row in rows_in(table)})
        return sorted(by_key.values())

    return after


def _after_overwrite(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[0] == 0] + [(1, k, "new") for k in range(5)]


def _after_merge(rows: list[Row]) -> list[Row]:
    changed = _with_rows(rows_for(range(31, 50), "m"))(rows)
    return [row for row in changed if row[1] != 30]


def _after_update(rows: list[Row]) -> list[Row]:
    return [(p, k, f"{v}!" if k >= 30 else v) for p, k, v in rows]


def _after_delete(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[1] >= 10]


STEP_CASES: Mapping[str, StepCase] = {
    "ingest": StepCase(
        primary_key_table, _ingest, [40, 5], _with_rows(rows_for(range(20, 60), "n"))
    ),
    "ingest in place of partitions": StepCase(primary_key_table, _overwrite, 5, _after_overwrite),
    "compact, full": StepCase(table_with_file_indexes, _compact_full, [3, 31, [5, 5, 5, 5]]),
    "compact by lookup": StepCase(
        table_with_deletion_vectors, _compact_lookup, [3, 0, 9], _with_rows(SECOND, THIRD)
    ),
    "compact an append table": StepCase(append_table, _compact_full, [2, 40, [0, 0]]),
    "sort compaction": StepCase(append_table, _sort, [40, 2]),
    "delete": StepCase(primary_key_table, _delete, 10, _after_delete),
    "delete from an append table": StepCase(append_table, _delete, 10, _after_delete),
    "update": StepCase(primary_key_table, _update, 10, _after_update),
    "merge-into": StepCase(primary_key_table, _merge, [1, 9, 10], _after_merge),
    "rewrite file indexes": StepCase(table_without_file_indexes, _rewrite_file_index, [10, 10]),
    "analyze": StepCase(primary_key_table, _analyze, [40, 40]),
    "expire snapshots": StepCase(compacted_table, _expire_snapshots, [4, 8]),
    "expire changelogs": StepCase(table_with_changelogs, _expire_changelogs, 2),
    "delete a tag": StepCase(tagged_table, _delete_tag, 8),
    "remove orphan files": StepCase(table_with_orphan_files, _remove_orphan_files, 4),
    "check": StepCase(primary_key_table, _check, [4, 9, ["missing-file", True]]),
    "rescale": StepCase(primary_key_table, _rescale, "OVERWRITE"),
    "move postponed rows": StepCase(
        postponed_table, _move_postponed, "COMPACT", lambda _: rows_in(rows_for(range(KEYS), "a"))
    ),
    "read as a data source": StepCase(primary_key_table, _read, [37, [0, 4, "a-4"]]),
    "write as a data source": StepCase(
        primary_key_table, _append, None, _with_rows(rows_for(range(60, 64), "w"))
    ),
}


def assert_step_done(name: str, root: Path, run: Callable[[], object]) -> Table:
    """Create the table of a step, run it, and check its result and the table."""
    step = STEP_CASES[name]
    before = rows_of(step.make(root))
    assert run() == step.result
    table = Catalog(str(root)).table("db.t")
    assert rows_of(table) == step.rows(before)
    assert check(table, deep=True).findings == ()
    return table
