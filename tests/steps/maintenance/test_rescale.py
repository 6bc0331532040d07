"""Changing the number of buckets keeps the rows (invariant 44)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.damage import edit_delta
from support.histories import make_table, read_all_branches, select_retained, unreferenced_files
from support.tables import levels_of, new_table, rows_of, small_batches, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, CorruptFileError, InputError, UnsupportedError
from paimon_orch.files.data_file_writer import RollingFileWriter
from paimon_orch.format.types.data_types import parse_type
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance import rescale as step
from paimon_orch.steps.maintenance.rescale import rescale
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table


def bucket_counts(table: Table) -> set[int]:
    return {split.total_buckets for split in table.files()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["plain", "vectors", "lookup"])
def test_a_rescale_keeps_the_rows_and_later_writes_succeed(tmp_path: Path, kind: str) -> None:
    table = make_table(tmp_path, kind, [("upsert", 1), ("delete", 2), ("full", 0)])
    before = read_all_branches(table)

    planned = step.plan(table, step.RescaleRequest(bucket_num=4))
    assert table.stores.snapshots.latest_id() == planned.snapshot_id
    snapshot = rescale(table, 4)

    assert snapshot is not None
    assert bucket_counts(table) == {4}
    after = read_all_branches(table)
    assert select_retained(after, before) == before
    assert after[f"main {snapshot.id}"] == before[f"main {snapshot.id - 1}"]
    assert check(table, deep=True).findings == ()
    assert rescale(table, 4) is None
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("bucket", "4")])
    table.upsert(table_of("p k v", [(0, 0, "new")]))
    compact(table, InProcessExecutor())
    assert (0, 0, "new") in rows_of(table)
    assert check(table, deep=True).findings == ()


def test_the_table_option_is_the_default_and_partitions_can_be_selected(
    tmp_path: Path,
) -> None:
    table = make_table(tmp_path, "plain", [("upsert", 1)])
    assert rescale(table) is None
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("bucket", "3")])
    rows = rows_of(table)

    rescale(table, partitions=["p=1"])

    assert bucket_counts(table) == {1, 3}
    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()


def test_append_tables_with_a_bucket_key_are_rescaled(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="2", bucket_key="k")
    table.append(table_of("k v", [(k, str(k)) for k in range(20)]))
    rows = rows_of(table)

    rescale(table, 5)

    assert rows_of(table) == rows
    assert bucket_counts(table) == {5}
    assert check(table, deep=True).findings == ()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ["aggregation", "partial-update", "first-row"])
def test_a_rescale_does_not_change_merged_rows(tmp_path: Path, engine: str) -> None:
    options = {"fields__n__aggregate_function": "sum"} if engine == "aggregation" else {}
    table = new_table(tmp_path, "k BIGINT, n INT", merge_engine=engine, **options)
    for number in (1, 2, None):
        table.upsert(table_of("k n", [(1, number), (number, 5)] if number else [(1, None)]))
    compact(table, InProcessExecutor(), strategy="full")
    rows = rows_of(table)
    assert rows

    rescale(table, 3)

    assert rows_of(table) == rows
    table_rows = check(table, deep=True)
    assert table_rows.findings == ()


def test_rows_of_concurrent_commits_are_not_lost(tmp_path: Path) -> None:
    table = make_table(tmp_path, "plain", [("upsert", 1)])

    class Late(InProcessExecutor):
        def map(self, *arguments: object, **named: object) -> list[bytes]:
            results = super().map(*arguments, **named)  # type: ignore[arg-type]
            table.upsert(table_of("p k v", [(0, 50, "late")]))
            return results

    with pytest.raises(CommitConflictError):
        rescale(table, 4, Late())

    assert (0, 50, "late") in rows_of(table)
    assert unreferenced_files(table) == set()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 12), (6, 4), (3, 1)])
@pytest.mark.parametrize("key", [("k",), ()])
def test_each_row_is_written_once_to_its_bucket(
    tmp_path: Path, key: tuple[str, ...], before: int, after: int
) -> None:
    table = small_batches(new_table(tmp_path, key=key, bucket=str(before), bucket_key="k"), 5)
    for start in (0, 60):
        table.append(table_of("k v", [(start + k, str(k)) for k in range(90)]))
    rows = rows_of(table)

    planned = step.plan(table, step.RescaleRequest(bucket_num=after))
    read = [(unit.target_buckets, split.bucket) for unit in planned.units for split in unit.splits]
    assert len(read) == len(set(read))
    rescale(table, after)

    assert rows_of(table) == rows
    assert {split.bucket for split in table.files()} == set(range(after))
    assert max(levels_of(table)) == (5 if key else 0)
    assert check(table, deep=True).findings == ()


def test_a_rescale_buffers_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path, bucket="2")
    for start in (0, 1):
        table.upsert(table_of("k v", [(k, "x") for k in range(start, 4_000, 2)]))
    handed, write = [], RollingFileWriter.write

    def spy(writer: RollingFileWriter, rows: pa.Table) -> None:
        handed.append(rows.num_rows)
        write(writer, rows)

    monkeypatch.setattr(RollingFileWriter, "write", spy)
    rescale(small_batches(table, 100), 4)

    assert sum(handed) == 4_000
    assert max(handed) <= 400


def test_rows_whose_bucket_key_had_another_type_are_rescaled(tmp_path: Path) -> None:
    """Another engine changed the type; old rows were hashed with the old type."""
    table = new_table(tmp_path, "k INT", key=(), bucket="4", bucket_key="k")
    table.append(table_of("k", [(k,) for k in range(-9, 9)]))
    schema = table.load().schema
    field = replace(schema.fields[0], type=parse_type("BIGINT"))
    assert table.stores.schemas.create(replace(schema, id=1, fields=(field,)))

    rescale(table, 6)

    assert rows_of(table) == [(k,) for k in range(-9, 9)]
    assert check(table, deep=True).findings == ()


def test_rows_in_a_wrong_bucket_are_not_lost(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="2")
    table.upsert(table_of("k v", [(k, str(k)) for k in range(10)]))
    folder = Path(table.paths.root)
    (folder / "bucket-0").rename(folder / "other")
    (folder / "bucket-1").rename(folder / "bucket-0")
    (folder / "other").rename(folder / "bucket-1")
    edit_delta(table, 1, lambda entries: [replace(entry, bucket=1 - entry.bucket) for entry in entries])  # fmt: skip
    before = stored_files(table)

    with pytest.raises(CorruptFileError, match="contain rows of other buckets"):
        rescale(table, 4)

    assert stored_files(table) == before


def test_unsupported_tables_are_refused_and_not_changed(tmp_path: Path) -> None:
    dynamic = make_table(tmp_path / "a", "dynamic", [])
    with pytest.raises(UnsupportedError, match="fixed buckets"):
        rescale(dynamic, 4)
    waiting = make_table(tmp_path / "b", "vectors", [])
    before = stored_files(waiting)
    with pytest.raises(InputError, match="compact it"):
        rescale(waiting, 4)
    with pytest.raises(InputError, match="bucket_num is 0; the minimum is 1"):
        rescale(waiting, 0)
    assert stored_files(waiting) == before
    assert rescale(new_table(tmp_path / "c"), 4) is None


def test_rows_for_the_old_number_of_buckets_are_refused(tmp_path: Path) -> None:
    """The option was not changed; new versions of keys would be in other buckets."""
    table = new_table(tmp_path, bucket="1")
    rows = table_of("k v", [(k, "old") for k in range(8)])
    table.upsert(rows)
    rescale(table, 4)
    before = stored_files(table)

    with pytest.raises(CommitConflictError, match="has 4 buckets, but a file was written for 1"):
        table.upsert(rows)

    assert stored_files(table) == before
