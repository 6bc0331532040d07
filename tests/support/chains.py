"""Chain tables for tests."""

from __future__ import annotations

from pathlib import Path

from support.tables import Row, new_table, table_of

from paimon_orch import Catalog
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

OPTIONS = {
    "chain-table.enabled": "true",
    "scan.fallback-snapshot-branch": "full",
    "scan.fallback-delta-branch": "delta",
    "partition.timestamp-pattern": "$dt",
    "partition.timestamp-formatter": "yyyyMMdd",
}


def chain_table(
    root: Path,
    full: list[Row],
    delta: list[Row],
    main: list[Row] | None = None,
    *,
    options: dict[str, str] | None = None,
    vectors: bool = False,
    columns: str = "dt k seq v",
    types: str = "dt STRING, k INT, seq INT, v STRING",
) -> Table:
    """Return a chain table, whose branches are written before the options make it one."""
    keys = columns.split()[:-3]
    table = new_table(
        root,
        types,
        key=(*keys, "k"),
        partition_by=keys,
        sequence__field="seq",
        bucket="2",
        deletion_vectors__enabled=str(vectors).lower(),
    )
    catalog = Catalog(str(root))
    names = ["db.t"]
    for branch, rows in (("full", full), ("delta", delta)):
        table.branches.create(branch)
        names.append(f"db.t$branch_{branch}")
        if rows:
            catalog.table(names[-1]).upsert(table_of(columns, rows))
    if main:
        table.upsert(table_of(columns, main))
    for name in names:
        changes = [SetOption(key, value) for key, value in (OPTIONS | (options or {})).items()]
        catalog.alter_table(name, changes)
    return catalog.table("db.t")


FULL = [("20250101", 1, 1, "a"), ("20250101", 2, 1, "a"), ("20250104", 9, 9, "z")]
DELTA = [
    ("20250102", 2, 2, "b"),
    ("20250103", 3, 3, "c"),
    ("20250104", 4, 4, "d"),
    ("20250105", 5, 5, "e"),
]
