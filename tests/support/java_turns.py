"""A table that Java and we alternately write, delete from, compact and expire."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
from support.peers.peers import Peer
from support.tables import rows_of

from paimon_orch import Catalog
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

_OPTIONS = {"bucket": "2"}
_FIELDS = [
    {"id": 0, "name": "k", "type": "INT NOT NULL"},
    {"id": 1, "name": "v", "type": "STRING"},
]


def run_turns(
    java: Peer, catalog: Catalog, warehouse: dict[str, str], *, creator: str, turns: range
) -> None:
    """Create `db.t`, and let both sides work on it; each operation must leave the same rows."""
    if creator == "java":
        spec = {
            "fields": _FIELDS,
            "partition_keys": [],
            "primary_keys": ["k"],
            "options": _OPTIONS,
        }
        java.run("create", warehouse, spec=spec)
    else:
        columns = "k INT NOT NULL, v STRING"
        catalog.create_table("db.t", columns, primary_key=["k"], options=_OPTIONS)
    both = _Turns(java, catalog.table("db.t"), warehouse)
    for turn in turns:
        for operation in (
            both.java_writes,
            both.we_write,
            both.java_compacts,
            both.we_delete,
            both.java_deletes,
            both.we_compact,
            both.java_expires if turn % 2 else both.we_expire,
        ):
            operation(turn)
            both.assert_same(f"{operation.__name__}, turn {turn}")
    assert java.ask("oracle", warehouse, table="db.t", command="check", words=[]) == []


class _Turns:
    """A table, its expected rows, and the operations of both sides."""

    def __init__(self, java: Peer, table: Table, warehouse: dict[str, str]) -> None:
        self.java, self.table, self.warehouse = java, table, warehouse
        self.rows: dict[int, str] = {}

    def java_writes(self, turn: int) -> None:
        rows: list[dict[str, Any]] = [{"k": key, "v": f"java {turn}"} for key in self._keys(turn)]
        self.java.run("write", self.warehouse, rows=rows)
        self.rows.update({row["k"]: row["v"] for row in rows})

    def java_deletes(self, turn: int) -> None:
        self.java.run("delete", self.warehouse, rows=[{"k": turn, "v": self.rows.pop(turn)}])

    def java_compacts(self, turn: int) -> None:
        self.java.run("compact", self.warehouse, full=turn % 2 == 0)

    def java_expires(self, turn: int) -> None:
        words = [str(1 + turn % 2)]
        self.java.ask("oracle", self.warehouse, table="db.t", command="expire", words=words)

    def we_write(self, turn: int) -> None:
        keys = [key + 1 for key in self._keys(turn)]
        text = f"ours {turn}"
        self.table.upsert(pa.table({"k": pa.array(keys, pa.int32()), "v": [text] * len(keys)}))
        self.rows.update(dict.fromkeys(keys, text))

    def we_delete(self, turn: int) -> None:
        del self.rows[turn + 10]
        self.table.delete(pa.table({"k": pa.array([turn + 10], pa.int32())}))

    def we_compact(self, turn: int) -> None:
        compact(self.table, strategy="minor" if turn % 2 == 0 else "full")

    def we_expire(self, turn: int) -> None:
        expire_snapshots(self.table, retain_max=1 + turn % 3, retain_min=1)
        remove_orphan_files(self.table, older_than=int(time.time() * 1000) - 3_600_000)

    def assert_same(self, operation: str) -> None:
        expected = sorted(self.rows.items())
        assert rows_of(self.table) == expected, operation
        read = self.java.read(self.warehouse)
        assert sorted((row["k"], row["v"]) for row in read) == expected, operation
        assert check(self.table, deep=True).findings == (), operation

    @staticmethod
    def _keys(turn: int) -> range:
        return range(turn, 40, 2)
