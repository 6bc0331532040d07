"""Dynamic buckets: keys keep their bucket, also with two concurrent writers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import GOLDEN, copy_warehouse, golden_tables
from support.tables import assert_healthy, new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, CorruptFileError, InputError, UnsupportedError
from paimon_orch.format.bucket.hash_index import decode_hash_index
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import HASH_INDEX, IndexManifestEntry
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.steps import ingest
from paimon_orch.table.table import Table
from paimon_orch.table.write.dynamic_bucket import (
    BucketAssigner,
    HashIndexWriter,
    compute_key_hashes,
)
from paimon_orch.table.write.table_write import write_rows
from paimon_orch.table.write.write_builder import WriteBuilder


class Model:
    """The assigner as the format specifies it, one hash at a time."""

    def __init__(self, target: int, max_buckets: int) -> None:
        self.target, self.most = target, max_buckets
        self.bucket_of: dict[int, int] = {}
        self.counts: dict[int, int] = {}

    def assign(self, value: int) -> int:
        if value not in self.bucket_of:
            room = [bucket for bucket in sorted(self.counts) if self.counts[bucket] < self.target]
            free = [bucket for bucket in range(self.most) if bucket not in self.counts]
            used = sorted(self.counts)
            bucket = (room or free or [used[value % len(used)]])[0]
            self.bucket_of[value] = bucket
            self.counts[bucket] = self.counts.get(bucket, 0) + 1
        return self.bucket_of[value]


@given(
    st.lists(st.lists(st.integers(-20, 20), max_size=30), max_size=4),
    st.integers(1, 8),
    st.integers(1, 6),
)
def test_a_batch_gets_the_same_buckets_as_its_rows_in_sequence(
    batches: Sequence[Sequence[int]], target: int, max_buckets: int
) -> None:
    assigner, model = BucketAssigner({}, target, max_buckets), Model(target, max_buckets)

    for batch in batches:
        assert assigner.assign(np.array(batch, np.int32)).tolist() == [
            model.assign(v) for v in batch
        ]

    expected: dict[int, set[int]] = {}
    for value, bucket in model.bucket_of.items():
        expected.setdefault(bucket, set()).add(value)
    assert {b: set(h.tolist()) for b, h in assigner.changed.items()} == expected


def test_known_hashes_keep_their_bucket_and_gaps_are_filled_first() -> None:
    hashes = {1: np.array([10, 11], np.int32), 3: np.array([12], np.int32)}
    assigner = BucketAssigner(hashes, 2)

    assert assigner.assign(np.array([11, 20, 12, 21, 22, 10], np.int32)).tolist() == [
        1,
        3,
        3,
        0,
        0,
        1,
    ]
    assert {b: h.tolist() for b, h in assigner.changed.items()} == {0: [21, 22], 3: [12, 20]}


def test_the_error_of_too_many_keys_for_all_buckets_contains_the_option() -> None:
    assigner = BucketAssigner({}, 1)

    with pytest.raises(InputError, match=r"dynamic-bucket\.target-row-num"):
        assigner.assign(np.arange(40_000, dtype=np.int32))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path, bucket="-1", dynamic_bucket__target_row_num="10")
    table.upsert(numbered_rows(0, 25))
    return table


def numbered_rows(start: int, end: int, text: str = "a") -> pa.Table:
    return table_of("k v", [(k, text) for k in range(start, end)])


def indexes(table: Table) -> dict[PartitionBucket, IndexManifestEntry]:
    entries = table.stores.manifests.read_index_entries(table.snapshot())
    entries_by_bucket = {e.partition_bucket: e for e in entries if e.index_type == HASH_INDEX}
    assert len(entries_by_bucket) == sum(entry.index_type == HASH_INDEX for entry in entries)
    return entries_by_bucket


def assert_index_is_right(table: Table) -> None:
    """Assert that each key of a bucket's files is only in the index of this bucket."""
    index_by_bucket, seen_hashes = indexes(table), set()
    for (partition, bucket), entry in index_by_bucket.items():
        hashes = decode_hash_index(
            Path(f"{table.paths.index_dir}/{entry.file_name}").read_bytes(), "x"
        )
        assert entry.row_count * 4 == entry.file_size == 4 * len(hashes)
        for value in hashes.tolist():
            assert (partition, value) not in seen_hashes, (
                f"bucket {bucket} has a hash of another one"
            )
            seen_hashes.add((partition, value))
    rows = table.scan().to_arrow()
    assert set(compute_key_hashes(rows, table.load().schema).tolist()) <= {
        value for _, value in seen_hashes
    }
    assert_healthy(table)


def test_new_keys_fill_one_bucket_after_another(table: Table) -> None:
    assert {bucket: entry.row_count for (_, bucket), entry in indexes(table).items()} == {
        0: 10,
        1: 10,
        2: 5,
    }
    assert all(split.total_buckets == -1 for split in table.files())
    assert_index_is_right(table)


def test_known_keys_are_written_to_their_bucket(table: Table) -> None:
    before = indexes(table)

    snapshot = table.upsert(numbered_rows(0, 25, "b"))

    assert snapshot is not None
    assert snapshot.commit_kind == "APPEND"
    assert indexes(table) == before
    assert rows_of(table) == [(k, "b") for k in range(25)]
    assert_index_is_right(table)


def test_new_keys_change_only_the_index_of_their_bucket(table: Table) -> None:
    before = indexes(table)

    table.upsert(numbered_rows(20, 28, "c"))

    changed = {
        bucket
        for (_, bucket), entry in indexes(table).items()
        if before[PartitionBucket(EMPTY_ROW, bucket)] != entry
    }
    assert changed == {2}
    assert indexes(table)[PartitionBucket(EMPTY_ROW, 2)].row_count == 8
    assert len(rows_of(table)) == 28
    assert_index_is_right(table)


def test_deleted_keys_remain_in_the_index(table: Table) -> None:
    table.delete(table_of("k", [(3,)]))
    table.upsert(table_of("k v", [(3, "back")]))

    assert (3, "back") in rows_of(table)
    assert_index_is_right(table)


def test_partitions_have_separate_buckets(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "dt STRING, k BIGINT, v STRING",
        key=("dt", "k"),
        partition_by=("dt",),
        bucket="-1",
        dynamic_bucket__target_row_num="10",
    )
    rows = [(dt, k, "a") for k in range(12) for dt in ("x", "y")]
    table.upsert(table_of("dt k v", rows))
    table.upsert(table_of("dt k v", [("y", 11, "b"), ("z", 1, "b")]))

    assert sorted(entry.row_count for entry in indexes(table).values()) == [1, 2, 2, 10, 10]
    assert len(rows_of(table)) == 25
    assert_index_is_right(table)


def test_an_overwrite_resets_the_index(table: Table) -> None:
    table.overwrite(numbered_rows(100, 103))

    assert {b: e.row_count for (_, b), e in indexes(table).items()} == {0: 3}
    assert_index_is_right(table)


def test_truncate_resets_the_index(table: Table) -> None:
    table.truncate()
    assert indexes(table) == {}
    table.upsert(numbered_rows(20, 22))
    assert_index_is_right(table)


def test_a_missing_index_is_rebuilt_from_the_files_of_its_bucket(table: Table) -> None:
    planned = WriteBuilder(table.load()).plan().hashes
    assert planned is not None
    files = {s.partition_bucket: s.files for s in table.files()}
    without = type(planned)(planned.reader, {}, files)

    rows = numbered_rows(0, 25)

    assert (
        HashIndexWriter(without).assign(EMPTY_ROW, rows).tolist()
        == HashIndexWriter(planned).assign(EMPTY_ROW, rows).tolist()
    )


@pytest.mark.parametrize("second", [(10, 30), (27, 28)])
def test_the_second_writer_of_new_keys_to_a_bucket_is_refused(
    table: Table, second: tuple[int, int]
) -> None:
    planned = ingest.plan(table, ingest.IngestRequest(columns=["k", "v"]))
    result = write_rows(planned, planned.prepare(numbered_rows(*second, "late").to_batches()))
    table.upsert(numbered_rows(0, 30, "early"))
    files = stored_files(table)

    with pytest.raises(CommitConflictError, match="dynamic bucket"):
        ingest.commit(table, planned, [result])

    assert rows_of(table) == [(k, "early") for k in range(30)]
    assert stored_files(table) < files
    assert_index_is_right(table)


def test_a_writer_of_known_keys_does_not_conflict_with_new_keys_in_other_buckets(
    table: Table,
) -> None:
    planned = ingest.plan(table, ingest.IngestRequest(columns=["k", "v"]))
    result = write_rows(planned, planned.prepare(numbered_rows(0, 3, "late").to_batches()))
    table.upsert(numbered_rows(25, 30, "early"))

    ingest.commit(table, planned, [result])

    assert len(rows_of(table)) == 30
    assert_index_is_right(table)


def test_a_writer_whose_bucket_was_overwritten_concurrently_is_refused(table: Table) -> None:
    planned = ingest.plan(table, ingest.IngestRequest(columns=["k", "v"]))
    result = write_rows(planned, planned.prepare(numbered_rows(0, 3, "late").to_batches()))
    table.overwrite(numbered_rows(0, 3, "new"))

    with pytest.raises(CommitConflictError, match="dynamic bucket"):
        ingest.commit(table, planned, [result])

    assert rows_of(table) == [(k, "new") for k in range(3)]


def test_a_writer_is_refused_if_a_concurrent_overwrite_added_its_keys(table: Table) -> None:
    """The keys were assigned to a bucket that neither the old nor the new rows use."""
    table.upsert(numbered_rows(25, 30))
    planned = ingest.plan(table, ingest.IngestRequest(columns=["k", "v"]))
    result = write_rows(planned, planned.prepare(numbered_rows(30, 33, "late").to_batches()))
    table.overwrite(numbered_rows(30, 33, "new"))

    with pytest.raises(CommitConflictError, match="dynamic bucket"):
        ingest.commit(table, planned, [result])

    assert rows_of(table) == [(k, "new") for k in range(30, 33)]


def test_two_concurrent_first_writers_do_not_both_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="-1")
    planned = ingest.plan(table, ingest.IngestRequest(columns=["k", "v"]))
    result = write_rows(planned, planned.prepare(numbered_rows(0, 5).to_batches()))
    table.upsert(numbered_rows(3, 8, "first"))

    with pytest.raises(CommitConflictError):
        ingest.commit(table, planned, [result])

    assert rows_of(table) == [(k, "first") for k in range(3, 8)]


def test_two_tasks_that_assigned_one_partition_are_refused(table: Table) -> None:
    files = stored_files(table)
    planned = ingest.plan(table, ingest.IngestRequest(columns=["k", "v"]))
    results = [
        write_rows(planned, planned.prepare(numbered_rows(*keys).to_batches()))
        for keys in ((30, 32), (32, 34))
    ]

    with pytest.raises(InputError, match="must be sent to one task"):
        ingest.commit(table, planned, results)

    assert stored_files(table) == files


def test_a_retried_task_assigns_the_same_buckets(table: Table) -> None:
    planned = WriteBuilder(table.load()).plan().hashes
    assert planned is not None
    rows = numbered_rows(5, 60)

    once, again = (HashIndexWriter(planned).assign(EMPTY_ROW, rows) for _ in range(2))

    assert once.tolist() == again.tolist()


def test_a_write_that_fails_leaves_no_file(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    files = stored_files(table)
    monkeypatch.setattr("paimon_orch.table.write.dynamic_bucket.encode_hash_index", lambda _: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        table.upsert(numbered_rows(0, 99))

    assert stored_files(table) == files


def test_a_damaged_index_stops_the_writer(table: Table) -> None:
    path = Path(table.paths.index_dir) / indexes(table)[PartitionBucket(EMPTY_ROW, 1)].file_name
    path.write_bytes(path.read_bytes()[:-1])
    files = stored_files(table)

    with pytest.raises(CorruptFileError, match=path.name):
        table.upsert(numbered_rows(0, 3))

    assert stored_files(table) == files


def test_cross_partition_keys_are_refused(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "dt STRING, k BIGINT", key=("k",), partition_by=("dt",), bucket="-1"
    )

    with pytest.raises(UnsupportedError, match="lacks a partition column"):
        table.upsert(table_of("dt k", [("x", 1)]))


DYNAMIC = [
    pytest.param(folder, entry["table"], id=name)
    for name, folder, entry in golden_tables(GOLDEN)
    if "dynamic" in name and entry.get("bucket_mode") != "KEY_DYNAMIC"
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("folder", "name"), DYNAMIC)
def test_indexes_written_by_other_engines_are_continued(
    folder: Path, name: str, tmp_path: Path
) -> None:
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table(name)
    rows = table.scan().to_arrow()
    before = {index: entry.row_count for index, entry in indexes(table).items()}
    text = next(
        name
        for name in rows.column_names
        if name not in table.load().schema.primary_keys and pa.types.is_string(rows[name].type)
    )
    index = rows.schema.get_field_index(text)

    table.upsert(rows.set_column(index, text, pa.array(["ours"] * len(rows))))

    assert {index: entry.row_count for index, entry in indexes(table).items()} == before
    if table.load().schema.typed_options.has_deletion_vectors:
        return  # new rows are visible after the next compaction
    again = table.scan().to_arrow()
    assert len(again) == len(rows)
    assert set(again.column(text).to_pylist()) == {"ours"}
