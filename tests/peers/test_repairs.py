"""Java 2.0 reads and continues tables after repairs and changes of indexed tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.damaged_tables import put_keys_into_two_buckets, stop_to_merge_levels
from support.data_evolution import change_an_indexed_table
from support.peers.peers import Peer
from support.tables import rows_of

from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule
from paimon_orch.steps.repairs.repair import RepairRequest, plan, repair


@pytest.mark.parametrize("with_vectors", ["true", "false"])
def test_java_continues_a_table_whose_duplicate_keys_were_deleted(
    java20: Peer, tmp_path: Path, with_vectors: str
) -> None:
    table = put_keys_into_two_buckets(
        tmp_path, compacts=with_vectors == "true", deletion_vectors__enabled=with_vectors
    )
    repair(table, ["duplicate-keys"])
    rows = rows_of(table)
    assert sorted(tuple(row.values()) for row in java20.read(tmp_path)) == rows
    assert java20.check(tmp_path) == []

    changed = [{"p": 0, "k": k, "v": "java", "s": 50} for k in (1, 2, 3, 4)]
    java20.run("write", tmp_path, rows=changed)
    java20.run("compact", tmp_path, full=True)

    expected = [tuple(row.values()) for row in changed] + [row for row in rows if row[0] == 1]
    assert rows_of(table) == expected
    assert not plan(table, RepairRequest(rules=(DoctorRule.DUPLICATE_KEYS,)))


def test_java_sees_each_key_once_after_levels_that_it_does_not_merge_are_merged(
    java20: Peer, tmp_path: Path
) -> None:
    vectors = {"deletion-vectors.enabled": "true"}
    table = stop_to_merge_levels(tmp_path, newer=vectors, merge_engine="partial-update")
    assert len(java20.read(tmp_path)) == len(rows_of(table)) == 8

    repair(table)

    rows = rows_of(table)
    assert sorted(tuple(row.values()) for row in java20.read(tmp_path)) == rows
    assert java20.check(tmp_path) == []
    java20.run("write", tmp_path, rows=[{"k": 2, "v": None, "w": 1}])
    java20.run("compact", tmp_path, full=True)
    assert rows_of(table) == [row if row[0] != 2 else (2, 7, 1) for row in rows]


def test_java_filters_an_indexed_table_after_changes(java20: Peer, tmp_path: Path) -> None:
    changes = change_an_indexed_table(
        tmp_path,
        global_index__column_update_action="DROP_PARTITION_INDEX",
        global_index__search_mode="full",
        scalar_index__search_mode="full",
    )
    for change, table in changes:
        if change not in ("merge", "delete", "compaction", "drop partitions"):
            continue
        rows = rows_of(table)
        for column, index, value in (("a", 1, 3), ("b", 2, "b1")):
            lines = java20._oracle("rows-where", tmp_path, "db.t", column, "=", json.dumps(value))
            records = [json.loads(line) for line in lines if line.startswith("{")]
            found = [tuple(record[name] for name in ("p", "a", "b")) for record in records]
            expected = [row for row in rows if row[index] == value]
            matching = [row for row in found if row[index] == value]
            assert sorted(matching, key=str) == sorted(expected, key=str), change
