"""Postpone buckets: rows are postponed, or written to real buckets, depending on options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.steps import commit_plan, run_units
from support.tables import assert_healthy, new_table, rows_of, stored_files, table_of

from paimon_orch.errors import CommitConflictError, InputError, UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.format.bucket.bucket_function import compute_buckets
from paimon_orch.format.schema import VALUE_KIND
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.compaction import move_postponed as postpone
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table
from paimon_orch.table.write.postpone_bucket import sort_postponed_files
from paimon_orch.table.write.table_write import write_rows

Made = tuple[int, int]


def waiting_table(root: Path, **options: str) -> Table:
    return new_table(
        root,
        "p INT, k INT, v STRING",
        key=("p", "k"),
        partition_by=["p"],
        **{"bucket": "-2", "postpone__batch_write_fixed_bucket": "false"} | options,
    )


def read_bucket_counts(table: Table) -> list[Made]:
    """Return (bucket, bucket count) of every bucket with files."""
    return sorted((split.bucket, split.total_buckets) for split in table.files())


def test_postponed_rows_are_invisible_until_they_are_moved(tmp_path: Path) -> None:
    table = waiting_table(tmp_path)
    table.upsert(table_of("p k v", [(1, 1, "a"), (1, 2, "b"), (2, 1, "c")]))
    table.upsert(table_of("p k v", [(1, 2, "new"), (1, 2, "newer"), (1, 3, "d")]))
    table.delete(table_of("p k", [(1, 1)]))
    assert rows_of(table) == []
    assert read_bucket_counts(table) == [(-2, -2), (-2, -2)]

    snapshot = postpone.move_postponed(table, InProcessExecutor())

    assert snapshot is not None
    assert snapshot.commit_kind is CommitKind.COMPACT
    assert read_bucket_counts(table) == [(0, 1), (0, 1)]
    assert rows_of(table) == [(1, 2, "newer"), (1, 3, "d"), (2, 1, "c")]
    assert_healthy(table)
    assert postpone.move_postponed(table, InProcessExecutor()) is None


def test_a_compaction_moves_the_postponed_rows_of_its_partitions(tmp_path: Path) -> None:
    table = waiting_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("p k v", [(1, 1, "a"), (2, 1, "b")]))

    compact.compact(table, InProcessExecutor(), partitions=["p=2"])
    assert rows_of(table) == [(2, 1, "b")]
    table.upsert(table_of("p k v", [(2, 1, "c")]))
    compact.compact(table, InProcessExecutor())

    assert rows_of(table) == [(1, 1, "a"), (2, 1, "c")]
    assert_healthy(table)


def test_postponed_files_keep_the_arrival_order_of_rows(tmp_path: Path) -> None:
    table = waiting_table(tmp_path, data_file__prefix="x-")
    rows = table_of("p k v kind", [(1, 2, "b", "+I"), (1, 1, "a", "+I"), (1, 2, "b", "-D")])
    table.upsert(rows, row_kind="kind")

    [split] = table.files()
    [file] = split.files
    assert file.file_name.startswith("x--u-")
    assert "-s-0-w-" in file.file_name
    assert file.file_name.endswith(".avro")
    assert (Path(table.paths.root) / "p=1" / "bucket-postpone" / file.file_name).is_file()
    assert (file.level, file.row_count, file.delete_row_count) == (0, 3, 1)
    assert (file.min_sequence_number, file.max_sequence_number) == (0, 2)
    assert file.value_stats_cols == ()
    fields = [VALUE_KIND, *table.load().schema.fields]
    file_rows = pa.Table.from_batches(
        table.stores.reader().read(BucketFile(split.partition, split.bucket, file), fields)
    )
    assert file_rows.to_pydict() == {
        "_VALUE_KIND": [0, 0, 3],
        "p": [1] * 3,
        "k": [2, 1, 2],
        "v": ["b", "a", "b"],
    }


def test_postponed_files_with_types_that_avro_lacks_use_the_format_of_the_table(
    tmp_path: Path,
) -> None:
    table = waiting_table(tmp_path, file__format="parquet")
    wide = new_table(
        tmp_path / "wide",
        "k INT, at TIMESTAMP(9)",
        bucket="-2",
        postpone__batch_write_fixed_bucket="false",
    )
    wide.upsert(pa.table({"k": [1], "at": pa.array([1], pa.timestamp("ns"))}))
    table.upsert(table_of("p k v", [(1, 1, "a")]))

    names = [split.files[0].file_name for one_table in (wide, table) for split in one_table.files()]
    assert [name.rsplit(".", 1)[1] for name in names] == ["parquet", "avro"]


def test_rows_are_routed_by_the_default_function_and_the_count_of_their_partition(
    tmp_path: Path,
) -> None:
    table = waiting_table(tmp_path, postpone__default_bucket_num="3")
    table.upsert(table_of("p k v", [(1, k, "a") for k in range(50)]))
    postpone.move_postponed(table, InProcessExecutor())
    assert read_bucket_counts(table) == [(0, 3), (1, 3), (2, 3)]

    schema = table.load().schema
    for split in table.files():
        reader = table.stores.reader()
        for file in split.files:
            bucket_file = BucketFile(split.partition, split.bucket, file)
            keys = pa.Table.from_batches(reader.read(bucket_file, schema.key_fields))[
                "k"
            ].combine_chunks()
            types = [field.type for field in schema.key_fields]
            assert set(compute_buckets([keys], types, 3, "default").tolist()) == {split.bucket}

    changed = replace(
        table.load().schema, id=1, options={**schema.options, "postpone.default-bucket-num": "5"}
    )
    assert table.stores.schemas.create(changed)
    table.upsert(table_of("p k v", [(1, 7, "new"), (2, 1, "b")]))
    postpone.move_postponed(table, InProcessExecutor())
    counts = {row[0]: set() for row in rows_of(table)}  # type: ignore[var-annotated]
    for split in table.files():
        counts[1 if split.total_buckets == 3 else 2].add(split.total_buckets)
    assert counts == {1: {3}, 2: {5}}
    assert (1, 7, "new") in rows_of(table)


def test_batch_writes_use_real_buckets_by_default(tmp_path: Path) -> None:
    table = waiting_table(
        tmp_path, postpone__batch_write_fixed_bucket="true", postpone__default_bucket_num="2"
    )
    table.upsert(table_of("p k v", [(1, k, "a") for k in range(9)]))
    planned = ingest.plan(table, ingest.IngestRequest(columns=["p", "k", "v"]))
    messages = write_rows(
        planned, planned.prepare(table_of("p k v", [(1, 3, "b"), (2, 3, "b")]).to_batches())
    )
    ingest.commit(table, planned, [messages])

    assert {count for _, count in read_bucket_counts(table)} == {2}
    assert [row[2] for row in rows_of(table)].count("b") == 2
    assert not postpone.plan(table, postpone.MovePostponedRequest())
    compact.compact(table, InProcessExecutor(), strategy="full")
    assert len(rows_of(table)) == 10
    assert_healthy(table)


def test_new_rows_are_postponed_while_older_rows_are_postponed(tmp_path: Path) -> None:
    """Otherwise the older row would be moved later, and would replace the newer row."""
    table = waiting_table(tmp_path)
    table.upsert(table_of("p k v", [(1, 1, "old")]))
    changed = replace(
        table.load().schema,
        id=1,
        options={**table.load().schema.options, "postpone.batch-write-fixed-bucket": "true"},
    )
    assert table.stores.schemas.create(changed)

    table.upsert(table_of("p k v", [(1, 1, "new"), (2, 1, "there")]))
    assert rows_of(table) == [(2, 1, "there")]
    postpone.move_postponed(table, InProcessExecutor())

    assert rows_of(table) == [(1, 1, "new"), (2, 1, "there")]
    table.upsert(table_of("p k v", [(1, 1, "newest")]))
    assert rows_of(table)[0] == (1, 1, "newest")


def test_an_overwrite_replaces_postponed_rows(tmp_path: Path) -> None:
    table = waiting_table(tmp_path)
    table.upsert(table_of("p k v", [(1, 1, "a"), (2, 1, "b")]))
    table.overwrite(table_of("p k v", [(1, 5, "x")]))
    postpone.move_postponed(table, InProcessExecutor())

    assert rows_of(table) == [(1, 5, "x"), (2, 1, "b")]


def test_postponed_files_are_moved_once(tmp_path: Path) -> None:
    table = waiting_table(tmp_path)
    table.upsert(table_of("p k v", [(1, 1, "a")]))
    planned = postpone.plan(table, postpone.MovePostponedRequest())
    messages = run_units(postpone.MOVE_POSTPONED, table, planned)
    again = run_units(postpone.MOVE_POSTPONED, table, planned)
    postpone.commit(table, planned, messages)
    before = stored_files(table)

    with pytest.raises(CommitConflictError, match="removed by another commit"):
        postpone.commit(table, planned, again)

    assert len(before - stored_files(table)) == 1
    assert rows_of(table) == [(1, 1, "a")]


def test_postponed_files_are_moved_while_others_are_written(tmp_path: Path) -> None:
    table = waiting_table(tmp_path)
    table.upsert(table_of("p k v", [(1, k, "a") for k in range(9)]))
    planned = postpone.plan(table, postpone.MovePostponedRequest())
    table.upsert(table_of("p k v", [(1, 5, "b")]))

    commit_plan(postpone.MOVE_POSTPONED, table, planned)

    assert rows_of(table) == [(1, k, "a") for k in range(9)]
    postpone.move_postponed(table, InProcessExecutor())
    assert rows_of(table)[5] == (1, 5, "b")


def test_a_check_accepts_postponed_rows_in_arrival_order(tmp_path: Path) -> None:
    table = waiting_table(tmp_path)
    table.upsert(table_of("p k v", [(1, 4, "a"), (1, 9, "b"), (1, 1, "c"), (1, 4, "d")]))

    assert check(table, deep=True).findings == ()


def test_the_files_of_a_writer_keep_their_order(tmp_path: Path) -> None:
    table = waiting_table(tmp_path)
    table.upsert(table_of("p k v", [(1, 1, "a")]))
    [split] = table.files()
    newer_files = [
        replace(split.files[0], file_name=f"data--u-x-s-0-w-y-{number}.avro")
        for number in range(12)
    ]
    older = replace(newer_files[0], file_name="data--u-a-s-0-w-z-30.avro", creation_time=0)

    assert sort_postponed_files([*reversed(newer_files), older]) == [older, *newer_files]


def test_errors_contain_the_option_that_conflicts_with_postpone_buckets(tmp_path: Path) -> None:
    table = waiting_table(tmp_path / "changelog", changelog_producer="input")
    with pytest.raises(UnsupportedError, match="'changelog-producer' = input"):
        table.upsert(table_of("p k v", [(1, 1, "a")]))
    table = waiting_table(tmp_path / "function", bucket_function__type="mod")
    with pytest.raises(UnsupportedError, match=r"'bucket-function\.type' = mod"):
        table.upsert(table_of("p k v", [(1, 1, "a")]))
    table = waiting_table(tmp_path / "shuffled")
    planned = ingest.plan(table, ingest.IngestRequest(columns=["p", "k", "v"]))
    shuffled = table_of("p k v _SEQUENCE_NUMBER", [(1, 1, "a", 5)])
    with pytest.raises(UnsupportedError, match=r"postpone\.batch-write-fixed-bucket"):
        write_rows(planned, planned.prepare(shuffled.to_batches()))
    with pytest.raises(InputError, match="has no postpone buckets"):
        postpone.plan(new_table(tmp_path / "other"), postpone.MovePostponedRequest())


@pytest.mark.parametrize(("target", "counts"), [("2", [3, 1]), ("5", [1, 1]), ("100", [1, 1])])
def test_new_partitions_get_buckets_by_the_number_of_postponed_rows(
    tmp_path: Path, target: str, counts: list[int]
) -> None:
    table = waiting_table(
        tmp_path,
        postpone__target_row_num_per_bucket=target,
        postpone__default_bucket_num="7",
    )
    table.upsert(table_of("p k v", [(1, key, "a") for key in range(5)] + [(2, 1, "b")]))
    assert [
        unit.buckets for unit in postpone.plan(table, postpone.MovePostponedRequest()).units
    ] == counts
    postpone.move_postponed(table, InProcessExecutor())

    table.upsert(table_of("p k v", [(1, key, "c") for key in range(50)]))
    [unit] = postpone.plan(table, postpone.MovePostponedRequest()).units
    assert unit.buckets == counts[0], "a partition keeps its number of buckets"


def test_a_target_of_no_rows_per_bucket_is_refused(tmp_path: Path) -> None:
    table = waiting_table(tmp_path, postpone__target_row_num_per_bucket="0")
    table.upsert(table_of("p k v", [(1, 1, "a")]))
    with pytest.raises(InputError, match="must be at least 1"):
        postpone.plan(table, postpone.MovePostponedRequest())
