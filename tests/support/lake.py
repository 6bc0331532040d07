"""A warehouse whose tables need maintenance."""

from __future__ import annotations

from pathlib import Path

from support.tables import table_of

from paimon_orch import Catalog

ROWS = table_of("k v", [(1, "a"), (2, "b")])
_OPTIONS = {"source.split.open-file-cost": "32 mb"}  # small files cost readers more than an action


def create_lake(root: Path) -> Catalog:
    """Create ``sales.orders`` with nine sorted runs, and ``web.events`` with twelve small files."""
    catalog = Catalog(str(root))
    orders = catalog.create_table(
        "sales.orders",
        "k BIGINT NOT NULL, v STRING",
        primary_key=["k"],
        options={**_OPTIONS, "bucket": "1", "write-only": "true"},
    )
    for _ in range(9):
        orders.upsert(ROWS)
    events = catalog.create_table(
        "web.events", "k BIGINT, v STRING", options={**_OPTIONS, "bucket": "-1"}
    )
    for _ in range(12):
        events.append(ROWS)
    return catalog
