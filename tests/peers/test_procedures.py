"""Java 2.0 reads, compacts and expires tables after our procedures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.peers.peers import Peer
from support.tables import new_table, rows_of, table_of

from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.rollback_as_latest import rollback_as_latest
from paimon_orch.steps.repairs.remove_unexisting_manifests import remove_unexisting_manifests


@pytest.mark.parametrize(
    "kind", [{}, {"deletion_vectors__enabled": "true"}, {"key": (), "bucket": "-1"}]
)
def test_java_continues_after_a_rollback_as_latest(
    tmp_path: Path, java20: Peer, kind: dict[str, Any]
) -> None:
    table = new_table(tmp_path, **kind)
    for text in ("a", "b"):
        table.append(table_of("k v", [(k, text) for k in range(9)]))
        compact(table, InProcessExecutor(), strategy="full")
    rows = rows_of(table, snapshot_id=2)
    rollback_as_latest(table, 2)

    def read() -> list[tuple[Any, ...]]:
        return sorted((row["k"], row["v"]) for row in java20.read(tmp_path))

    assert read() == rows
    assert java20.check(tmp_path) == []
    java20.expire(tmp_path, 1)
    assert (read(), rows_of(table)) == (rows, rows)
    java20.run("write", tmp_path, rows=[{"k": 100, "v": "z"}])
    java20.run("compact", tmp_path, full=True)
    assert len(read()) == len(rows) + 1
    assert check(table, deep=True).findings == ()


def test_java_keeps_the_rows_of_files_that_a_rollback_has_moved(
    tmp_path: Path, java20: Peer
) -> None:
    table = new_table(tmp_path)
    table.append(table_of("k v", [(k, "a") for k in range(9)]))
    compact(table, InProcessExecutor(), strategy="full")  # moves the file to level 5
    rows = rows_of(table)
    rollback_as_latest(table, 1)

    java20.run("compact", tmp_path, full=True)
    java20.expire(tmp_path, 1)

    assert sorted((row["k"], row["v"]) for row in java20.read(tmp_path)) == rows
    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()


def test_java_reads_a_table_without_lost_manifests(tmp_path: Path, java20: Peer) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.upsert(table_of("k v", [(2, "b")]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(3, "c")]))
    [meta] = table.stores.manifests.manifest_list(table.stores.snapshots.get(1).delta_manifest_list)
    (Path(table.paths.manifest_dir) / meta.file_name).unlink()
    remove_unexisting_manifests(table)

    assert sorted(row["k"] for row in java20.read(tmp_path)) == [1, 2, 3]
    java20.run("write", tmp_path, rows=[{"k": 4, "v": "d"}])
    java20.run("compact", tmp_path, full=True)
    assert [row[0] for row in rows_of(table)] == [1, 2, 3, 4]
