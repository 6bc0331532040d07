"""Java and we alternately use a table whose metadata files have unknown fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.added_fields import (
    JAVA_ATOMS,
    KEY,
    PLACES,
    PREFIX,
    add_fields,
    added_values,
    assert_added_values_kept,
    avro_types,
    json_files,
)
from support.histories import apply_action, make_table
from support.peers.peers import Peer
from support.tables import Row, rows_of

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
HISTORY = [("upsert", 2), ("minor", 0), ("tag", 1), ("delete", 1), ("upsert", 3)]
ONCE = settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@st.composite
def fields(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Draw a field for every possible position, of types that Java skips."""
    return {
        kind: {
            f"{place}{PREFIX}_{n}": draw(avro_types(JAVA_ATOMS)) for n, place in enumerate(places)
        }
        for kind, places in PLACES.items()
    }


def records(rows: list[Row]) -> list[dict[str, Any]]:
    return [dict(zip("pkv", row, strict=True)) for row in rows]


def by_peer(peer: Peer, warehouse: Path) -> list[dict[str, Any]]:
    return sorted(peer.read(warehouse), key=lambda row: (row["p"], row["k"]))


def maintain(table: Table) -> None:
    """Compact, merge manifests, tag, expire and roll back."""
    compact(table, EXECUTOR)
    compact_manifests(table)
    table.tags.create("ours")
    compact(table, EXECUTOR, strategy="full")
    table.rollback(tag="ours")
    expire_snapshots(table, retain_min=1, retain_max=2)
    apply_action(table, "upsert", 1, "again")
    compact(table, EXECUTOR, strategy="full")


@pytest.mark.parametrize("peer", ["java-1.4", "java-2.0"], indirect=True)
@pytest.mark.parametrize("kind", ["plain", "vectors", "dynamic", "lookup"])
@ONCE
@given(added=fields(), seed=st.integers(0, 99))
def test_java_reads_and_extends_tables_with_additional_fields(
    peer: Peer, kind: str, added: Any, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    warehouse = tmp_path_factory.mktemp("w")
    root = Path(make_table(warehouse, kind, HISTORY).paths.root)
    add_fields(root, added, seed)
    table = Catalog(str(warehouse)).table("db.t")
    before = added_values(root)

    maintain(table)

    assert_added_values_kept(root, before)
    assert all(KEY in json.loads(p.read_bytes()) for p in json_files(root) if "schema" in p.name)
    rows = rows_of(table)
    assert by_peer(peer, warehouse) == records(rows)
    if peer.name == "java-2.0":
        assert peer.check(warehouse) == []
    new = [{"p": 0, "k": k, "v": "Java"} for k in (2, 4, 100)]
    peer.run("write", warehouse, rows=[{"_kind": "+I", **row} for row in new])
    peer.run("compact", warehouse, full=True)
    expected = {(p, k): v for p, k, v in rows} | {(r["p"], r["k"]): r["v"] for r in new}
    assert rows_of(Catalog(str(warehouse)).table("db.t")) == sorted(
        (*place, v) for place, v in expected.items()
    )
