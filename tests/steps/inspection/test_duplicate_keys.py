"""Keys that are live several times: in several files, or in several dynamic buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.damage import edit_files, edit_index, store_option
from support.damaged_tables import put_keys_into_two_buckets, write_into_bucket_1
from support.storage_state import read_storage_state
from support.tables import new_table, rows_of, small_batches, table_of

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.bucket.hash_index import decode_hash_index
from paimon_orch.format.manifest.index_manifest import HASH_INDEX
from paimon_orch.merge.sort.sort_merge_reader import MergeBatch
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import EmptyRequest
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule
from paimon_orch.steps.inspection.duplicate_keys import DuplicateKeyFinder
from paimon_orch.steps.repairs import delete_duplicate_keys
from paimon_orch.steps.repairs.repair import RepairPlan, RepairRequest, plan, repair
from paimon_orch.table.table import Table
from paimon_orch.table.write.dynamic_bucket import compute_key_hashes

DUPLICATE_KEYS = (DoctorRule.DUPLICATE_KEYS,)


def plan_repair(table: Table) -> RepairPlan:
    return plan(table, RepairRequest(rules=DUPLICATE_KEYS))


def read_hashes(table: Table) -> dict[int, set[int]]:
    """Return the hashes of the buckets of partition 0."""
    entries = table.stores.manifests.read_index_entries(table.snapshot())
    hashes = {}
    for entry in (entry for entry in entries if entry.index_type == HASH_INDEX):
        path = table.paths.index_file(table.load().schema, entry)
        if "p=0" in path or entry.partition == min(e.partition for e in entries):
            hashes[entry.bucket] = set(decode_hash_index(Path(path).read_bytes(), path).tolist())
    return hashes


@pytest.mark.parametrize(
    "options", [{}, {"key": ()}, {"key": (), "deletion_vectors__enabled": "true"}], ids=str
)
def test_a_table_whose_readers_merge_keys_has_no_duplicate_keys(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    table = new_table(tmp_path, **({"bucket": "-1"} if options else {}) | options)
    with pytest.raises(UnsupportedError, match="keys in several files are no damage"):
        delete_duplicate_keys.plan(table, EmptyRequest())


def find_problems(table: Table) -> list[str]:
    """Return the findings in the newest snapshot."""
    latest = f"snapshot {table.stores.snapshots.latest_id()}"
    return [str(f) for f in check(table, deep=True).findings if latest in f.where]


def rows_of_partition_0(table: Table) -> list[tuple[object, ...]]:
    return [row[1:3] for row in rows_of(table) if row[0] == 0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("with_vectors", ["true", "false"])
@pytest.mark.parametrize("compacts", [True, False])
def test_the_newest_row_of_a_key_in_two_buckets_wins(
    tmp_path: Path, with_vectors: str, *, compacts: bool
) -> None:
    compacts = compacts or with_vectors == "true"  # level 0 is compared without vectors only
    table = put_keys_into_two_buckets(
        tmp_path, compacts=compacts, deletion_vectors__enabled=with_vectors
    )
    assert len(rows_of_partition_0(table)) == 6
    [finding] = {f.text for f in check(table, deep=True).findings if f.rule == "live-twice"}
    assert finding.startswith("2 keys with more than one live row in several buckets")
    before = read_storage_state(tmp_path)

    [action] = plan_repair(table).actions

    assert action.text.startswith("delete 2 rows of keys with a newer row in 1 bucket")
    assert read_storage_state(tmp_path) == before, "a plan must change nothing"
    latest = table.stores.snapshots.latest_id()
    repair(table, ["duplicate-keys"])
    assert table.stores.snapshots.latest_id() == (latest or 0) + 1
    assert rows_of_partition_0(table) == [(1, "old"), (2, "new"), (3, "new"), (4, "new")]
    assert len(rows_of(table)) == 7
    hashes = [
        int(compute_key_hashes(table_of("k", [(k,)]), table.load().schema)[0]) for k in range(1, 5)
    ]
    assert read_hashes(table) == {0: {hashes[0]}, 1: {-1, -2, -3, *hashes[1:]} & set(hashes)}
    [path] = Path(table.paths.root).rglob("duplicates.parquet")
    assert pq.read_table(path).select(["k", "v"]).to_pylist() == [
        {"k": 2, "v": "old"},
        {"k": 3, "v": "old"},
    ]
    assert not plan_repair(table)
    assert find_problems(table) == []


def test_later_writes_find_the_remaining_bucket(tmp_path: Path) -> None:
    table = put_keys_into_two_buckets(tmp_path)
    repair(table, ["duplicate-keys"])

    table.upsert(table_of("p k v s", [(0, 2, "newer", 30), (0, 1, "newer", 30)]))

    expected = [(1, "newer"), (2, "newer"), (3, "new"), (4, "new")]
    assert rows_of_partition_0(table) == expected
    assert find_problems(table) == []


def test_the_sequence_field_decides_between_buckets(tmp_path: Path) -> None:
    table = put_keys_into_two_buckets(tmp_path, sequence__field="s")

    repair(table, ["duplicate-keys"])

    assert rows_of_partition_0(table) == [(1, "old"), (2, "new"), (3, "old"), (4, "new")]


def test_a_deleted_key_in_one_bucket_is_no_duplicate(tmp_path: Path) -> None:
    table = put_keys_into_two_buckets(tmp_path)
    repair(table, ["duplicate-keys"])
    table.delete(table_of("p k", [(0, 1)]))
    write_into_bucket_1(table, table_of("p k v s", [(0, 1, "again", 40)]))

    assert not plan_repair(table)
    ignoring = store_option(table, "ignore-delete", "true")
    assert rows_of_partition_0(ignoring)[:2] == [(1, "again"), (1, "old")]
    assert plan_repair(ignoring)


def test_a_first_row_table_keeps_the_first_row_of_all_buckets(tmp_path: Path) -> None:
    table = put_keys_into_two_buckets(tmp_path, compacts=True, merge_engine="first-row")

    repair(table, ["duplicate-keys"])

    assert rows_of_partition_0(table) == [(1, "old"), (2, "old"), (3, "old"), (4, "new")]


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_values_of_a_key_in_several_buckets_are_not_dropped(tmp_path: Path, engine: str) -> None:
    table = put_keys_into_two_buckets(tmp_path, merge_engine=engine)

    planned = plan_repair(table)

    assert planned.actions == ()
    assert "has a part of their values" in planned.refused[0].reason


def test_rows_of_level_0_are_compacted_before_a_bucket_is_chosen(tmp_path: Path) -> None:
    table = put_keys_into_two_buckets(
        tmp_path, compacts=True, deletion_vectors__enabled="true", write_only="true"
    )
    table.upsert(table_of("p k v s", [(0, 2, "newer", 30)]))

    planned = plan_repair(table)

    assert planned.actions == ()
    assert "compact the table" in planned.refused[0].reason


@pytest.mark.slow
def test_keys_are_compared_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = small_batches(new_table(tmp_path, deletion_vectors__enabled="true"), 1000)
    keys = pa.array(range(100_000))
    values = pa.array(["x" * 20] * len(keys))
    table.upsert(pa.table({"k": keys, "v": values}))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(pa.table({"k": keys, "v": values}))
    edit_files(table, 3, level=4)
    largest, allocated, before = [0], [0], pa.total_allocated_bytes()
    compare = DuplicateKeyFinder._compare

    def guard(finder: DuplicateKeyFinder, step: MergeBatch) -> None:
        largest.append(step.rows.num_rows)
        allocated.append(pa.total_allocated_bytes() - before)
        compare(finder, step)

    monkeypatch.setattr(DuplicateKeyFinder, "_compare", guard)

    [action] = plan_repair(table).actions

    assert action.text.startswith("delete 100,000 rows")
    assert max(largest) <= 4 * 1000
    assert max(allocated) < 2_000_000  # the keys of all rows have 4.2 MB


def test_keys_of_files_in_another_order_are_sorted_in_bounded_memory(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        pk_clustering_override="true",
        clustering__columns="v",
        deletion_vectors__enabled="true",
        write_buffer_size="64 kb",
        local_sort__max_num_file_handles="2",
    )
    for text, keys in (("old", range(10_000)), ("new", range(0, 10_000, 2))):
        values = [f"{text} {key * 7919 % 10_000}" for key in keys]
        table.upsert(pa.table({"k": list(keys), "v": values}))
        compact(table, InProcessExecutor())
    latest = table.stores.snapshots.latest_id()
    assert latest is not None
    edit_index(table, latest, lambda _: [])
    assert table.scan().to_arrow().num_rows == 15_000
    assert any("5,000 keys with more than one" in problem for problem in find_problems(table))

    repair(table, ["duplicate-keys"])

    kinds = [value[:3] for value in table.scan(["v"]).to_arrow()["v"].to_pylist()]
    assert (kinds.count("old"), kinds.count("new")) == (5_000, 5_000)
