"""Other implementations read append tables after our deletes, compactions and sorts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support.golden import (
    GOLDEN,
    assert_rows_equal,
    canonical_rows,
    copy_warehouse,
    expected_rows,
    golden_tables,
    records_to_rows,
)
from support.peers.peers import PEERS, Peer
from support.tables import (
    assert_healthy,
    deletion_vectors_of,
    new_table,
    small_batches,
    stored_files,
    table_of,
)

from paimon_orch import Catalog
from paimon_orch.format.options.core_options import DATA_EVOLUTION_ENABLED
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.sort_compact import (
    SortOrder,
    SortRequest,
    commit,
    plan,
    plan_read_units,
)
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.steps.row_level.row_target import RowSource
from paimon_orch.table.table import Table
from paimon_orch.table.write.table_write import write_rows

EXECUTOR = InProcessExecutor()
VECTORS = {"deletion_vectors__enabled": "true"}
BUCKETS = {"bucket": "2", "bucket_key": "k"}
COLUMNS = "p STRING, k BIGINT, v DOUBLE"
every_peer = pytest.mark.parametrize("peer", PEERS, indirect=True)


def assert_agrees(peer: Peer, warehouse: Path, table: Table) -> None:
    ours = table.scan().to_arrow()
    peer_rows = records_to_rows(peer.read(warehouse), ours.column_names)
    assert_rows_equal(canonical_rows(ours), peer_rows, [str(kind) for kind in ours.schema.types])
    assert_healthy(table)


def create_filled_table(root: Path, **options: str) -> Table:
    table = new_table(root, COLUMNS, key=(), partition_by=["p"], **{"bucket": "-1"} | options)
    table = small_batches(table, 5)  # so that compactions copy row groups
    for batch in range(6):
        append(table, batch * 20)
    return table


def append(table: Table, start: int) -> None:
    rows = [("ab"[n % 2], n, None if n % 7 == 0 else n / 8) for n in range(start, start + 20)]
    table.append(table_of("p k v", rows))


@every_peer
@pytest.mark.parametrize("options", [{}, VECTORS, BUCKETS, BUCKETS | VECTORS], ids=str)
def test_peers_read_the_same_rows_after_deletes_and_compactions(
    peer: Peer, referee: Peer, tmp_path: Path, options: dict[str, str]
) -> None:
    table = create_filled_table(tmp_path, **options)

    delete(table, EXECUTOR, "k < 30 or v is null")
    assert_agrees(peer, tmp_path, table)
    append(table, 200)
    compact(table, EXECUTOR)
    delete(table, EXECUTOR, "k in (41, 101, 205)")
    assert bool(deletion_vectors_of(table)) == (options.get("deletion_vectors__enabled") == "true")
    assert_agrees(peer, tmp_path, table)
    assert referee.check(tmp_path) == []
    compact(table, EXECUTOR, strategy="full")
    assert_agrees(peer, tmp_path, table)
    assert referee.check(tmp_path) == []


@every_peer
def test_peers_read_the_same_rows_of_sorted_tables(peer: Peer, tmp_path: Path) -> None:
    table = create_filled_table(tmp_path, **VECTORS)
    delete(table, EXECUTOR, "k < 30")
    planned = plan(table, SortRequest(order=SortOrder(("v", "k"), "zorder")))
    writing = ingest.plan(table, ingest.IngestRequest(columns=table.load().schema.names))
    batches = (
        batch
        for unit in plan_read_units(planned)
        for rows in unit.read(RowSource(table.stores.reader()), table.load().schema.fields)
        for batch in rows.select(table.load().schema.names).combine_chunks().to_batches()
    )

    commit(table, planned, [write_rows(writing, writing.prepare(batches))])

    assert_agrees(peer, tmp_path, table)


@pytest.mark.parametrize("options", [{}, VECTORS, BUCKETS, BUCKETS | VECTORS], ids=str)
def test_java_and_we_compact_one_table_alternately(
    java: Peer, referee: Peer, tmp_path: Path, options: dict[str, str]
) -> None:
    table, chance = create_filled_table(tmp_path, **options), random.Random(3)  # noqa: S311 - data, not a secret
    for turn in range(4):
        append(table, 1000 + 20 * turn)
        keys = ", ".join(str(chance.randrange(1080)) for _ in range(200))
        delete(table, EXECUTOR, f"k in ({keys})")
        if turn % 2:
            java.run("compact", tmp_path, full=turn == 3)
        else:
            compact(table, EXECUTOR, strategy="full" if turn else "minor")

        assert_agrees(java, tmp_path, table)
        assert referee.check(tmp_path) == []


@pytest.mark.parametrize("options", [{}, VECTORS], ids=str)
def test_java_reads_row_ids_after_our_compaction(
    java: Peer, tmp_path: Path, options: dict[str, str]
) -> None:
    table = create_filled_table(tmp_path, row_tracking__enabled="true", **options)
    columns = [*table.load().schema.names, "_ROW_ID", "_SEQUENCE_NUMBER"]

    for step in (
        lambda: delete(table, EXECUTOR, "k in (3, 44)"),
        lambda: compact(table, EXECUTOR, strategy="full"),
        lambda: delete(table, EXECUTOR, "k in (5, 46)"),
    ):
        step()
        ours = table.scan(columns=columns).to_arrow()
        java_rows = records_to_rows(java.read(tmp_path, "db.t$row_tracking"), columns)
        assert_rows_equal(
            canonical_rows(ours), java_rows, [str(kind) for kind in ours.schema.types]
        )


# --- tables of other writers


def append_tables() -> list[Any]:
    # Tables of Java 2.0 have separate tests.
    tables = [case for case in golden_tables() if not case[0].startswith("java-2.0")]
    without_key = [
        (name, folder, entry) for name, folder, entry in tables if not entry["primary_keys"]
    ]
    return [pytest.param(folder, entry, id=name) for name, folder, entry in without_key]


@pytest.mark.parametrize(("folder", "entry"), append_tables())
def test_a_compaction_of_append_tables_of_other_writers_keeps_their_rows(
    tmp_path: Path, folder: Path, entry: dict[str, Any]
) -> None:
    if entry.get("branch"):
        pytest.skip("a branch has the files of its table")
    warehouse = copy_warehouse(folder, tmp_path / "warehouse")
    table = Catalog(str(warehouse)).table(entry["table"])
    table = small_batches(table, 5)  # so that row groups are copied
    for _ in range(3):
        compact(table, EXECUTOR, strategy="full")

    ours = table.scan().to_arrow()
    types = [str(kind) for kind in ours.schema.types]
    assert_rows_equal(expected_rows(entry["snapshots"][-1]), canonical_rows(ours), types)
    if not table.load().schema.typed_options.get(
        DATA_EVOLUTION_ENABLED
    ):  # row ids stay, so deleted rows do
        assert not deletion_vectors_of(table)
    before = stored_files(table)
    assert compact(table, EXECUTOR, strategy="full").snapshot_id is None
    assert stored_files(table) == before


@pytest.mark.parametrize("name", ["append_dv", "append_bucketed_compacted", "append_compacted"])
def test_java_reads_its_own_tables_after_our_deletes_and_compactions(
    java: Peer, referee: Peer, tmp_path: Path, name: str
) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-0.9" / name, tmp_path / "warehouse")
    table = Catalog(str(warehouse)).table("db.t")
    column = next(
        c for c in table.load().schema.names if c not in table.load().schema.partition_keys
    )

    for step in (
        lambda: delete(table, EXECUTOR, f"{column} in (3, 11, 20, 31, 44)"),
        lambda: compact(table, EXECUTOR, strategy="full"),
    ):
        step()
        assert_agrees(java, warehouse, table)
        assert referee.check(warehouse) == []
