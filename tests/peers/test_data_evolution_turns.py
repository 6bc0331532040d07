"""Java 2.0 and we alternately change one table with data evolution; row ids stay the same."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.data_evolution import RowChanges, evolving_table, rows_by_id
from support.golden import assert_rows_equal, canonical_rows, records_to_rows
from support.peers.kinds import write
from support.peers.peers import Peer
from support.tables import deletion_vectors_of, table_of

from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.materialize_deletion_vectors import materialize_deletion_vectors
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.reassign_row_ids import reassign_row_ids
from paimon_orch.table.table import Table

TURNS = 12
VECTORS = {"deletion_vectors__enabled": "true"}
NAMES = ("p", "a", "b")


def change_rows(table: Table, chance: random.Random, turn: int, *, deletes: bool) -> None:
    """Update, delete and insert random rows in one commit."""
    row_ids = sorted(rows_by_id(table))
    chosen = chance.sample(row_ids, min(6, len(row_ids)))
    names = chance.sample(["a", "b"], chance.randint(1, 2))
    RowChanges(
        updated={n: dict.fromkeys(names, 1000 * turn + n) for n in chosen[2:]},
        deleted=chosen[:2] if deletes else (),
        inserted=[(n % 2, turn, n) for n in range(chance.randint(0, 3))],
    ).commit(table)


def by_partition(item: tuple[int, tuple[object, ...]]) -> tuple[str, int]:
    """Return the sort key of a row by partition, then by row id."""
    return str(item[1][0]), item[0]


@pytest.mark.parametrize("options", [{}, VECTORS, VECTORS | {"deletion_vectors__bitmap64": "true"}])
def test_java_and_we_change_one_table_alternately(
    java20: Peer, tmp_path: Path, options: Mapping[str, str]
) -> None:
    chance = random.Random(str(options))  # noqa: S311 - data, not a secret
    table = evolving_table(
        tmp_path, "p INT, a BIGINT, b BIGINT", ["p"], compaction__min__file_num="2", **options
    )
    columns = [*NAMES, "_ROW_ID", "_SEQUENCE_NUMBER"]
    for turn in range(TURNS):
        rows = [(chance.randrange(2), turn, n) for n in range(chance.randint(3, 12))]
        step = chance.choice(["write", "java write", "change", "change", "compact", "java compact"])
        step = "materialize" if options and turn in (5, TURNS - 1) else step
        step = "reassign" if turn == 7 else step
        before = rows_by_id(table) if "compact" in step else {}
        match step if turn else "java write":
            case "write":
                table.append(table_of(" ".join(NAMES), rows))
            case "java write":
                records = [dict(zip(NAMES, row, strict=True)) for row in rows]
                java20.run(warehouse=tmp_path, **write(records))
            case "change":
                change_rows(table, chance, turn, deletes=bool(options))
            case "compact":
                compact(table, InProcessExecutor(), strategy=chance.choice(["minor", "full"]))
            case "reassign":
                ordered = [row for _, row in sorted(rows_by_id(table).items(), key=by_partition)]
                assert reassign_row_ids(table).snapshot_id
                assert [row for _, row in sorted(rows_by_id(table).items())] == ordered
            case "materialize":
                values = sorted(map(str, rows_by_id(table).values()))
                materialize_deletion_vectors(table, InProcessExecutor())
                assert sorted(map(str, rows_by_id(table).values())) == values
                assert deletion_vectors_of(table) == {}
            case "java compact":
                java20._oracle("compact", tmp_path, "db.t")
        if before:
            assert rows_by_id(table) == before
        ours = canonical_rows(table.scan(columns).to_arrow())
        java = records_to_rows(java20.read(tmp_path, "db.t$row_tracking"), columns)
        assert_rows_equal(java, ours)

    expire_snapshots(table, retain_max=2)
    assert java20.check(tmp_path) == []
    assert check(table, deep=True).findings == ()
