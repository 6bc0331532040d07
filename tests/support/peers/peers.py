"""Other implementations of Paimon, which read our tables and write tables for us.

Each runs in a process. The commands, and their arguments in addition to warehouse and table:

====================================  =========================================================================
create (spec)                         `fields` (as in a schema file), `partition_keys`, `primary_keys`, `options`
read (options, where)                 rows, as JSON records in the conventions of the golden README
write, overwrite, delete (rows)       one snapshot each
update (rows, gone)                   pypaimon only: by `_ROW_ID`
compact (full)                        Java and Spark only
alter (changes)                       lists of words: add NAME TYPE, drop NAME, rename NAME NAME, type NAME TYPE,
                                      set KEY VALUE, reset KEY
tag (name), branch (name, at)         of the newest snapshot; at a tag
delete_tag (name)                     Java only
rollback (snapshot)                   Java only
====================================  =========================================================================

A table name is `db.table` or `db.table$branch_x`. `PeerUnavailableError` means that a peer cannot
run on this machine; `PeerError` contains the error of a failed command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.peers.environments import JAVA, ORACLES, PeerUnavailableError, peer_start
from support.peers.protocol import PeerError, PeerProcess

Record = dict[str, Any]

# All tests use these peers. Spark has separate tests, because it is slow and may be missing.
PEERS = ("pypaimon", "pypaimon-rust", *JAVA)


class Peer:
    """The process of another implementation."""

    def __init__(self, name: str) -> None:
        self.name = name
        start = peer_start(name)
        self._talk = PeerProcess(start.command, start.environment)

    def run(self, do: str, warehouse: Path, table: str = "db.t", **arguments: Any) -> None:
        """Change a table by one of the commands above."""
        self._talk.ask(do, warehouse=str(warehouse.resolve()), table=table, **arguments)

    def read(self, warehouse: Path, table: str = "db.t", **options: str) -> list[Record]:
        """Return all rows; in names of options `__` is a dot and `_` a dash (`scan__tag_name`)."""
        named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
        arguments = {"warehouse": str(warehouse.resolve()), "table": table}
        records, _ = self._talk.ask("read", options=named, **arguments)
        assert isinstance(records, list)
        return records

    def find(self, warehouse: Path, where: list[Any], table: str = "db.t") -> list[Record]:
        """Return the rows of files and positions that may match (column, =, <>, < or >=, value).

        Only pypaimon-rust filters the rows themselves.
        """
        arguments = {"warehouse": str(warehouse.resolve()), "table": table}
        records, _ = self._talk.ask("read", options={}, where=where, **arguments)
        assert isinstance(records, list)
        return records

    def check(self, warehouse: Path, table: str = "db.t") -> list[str]:
        """Return the problems that the checker of ../shared/oracle finds in a table."""
        lines = self._oracle("check", warehouse, table, "--deep")
        return [line for line in lines if line.startswith("PROBLEM")]

    def expire(self, warehouse: Path, retain: int, table: str = "db.t") -> None:
        """Expire all snapshots but the last `retain`."""
        self._oracle("expire", warehouse, table, "--retain", str(retain))

    def changelog(self, warehouse: Path, table: str = "db.t") -> list[Record]:
        """Return the rows of all changelog files."""
        lines = self._oracle("changelog", warehouse, table)
        return [json.loads(line) for line in lines if line.startswith("{")]

    def close(self) -> None:
        """End the process."""
        self._talk.close()

    def _oracle(self, command: str, warehouse: Path, *arguments: str) -> list[str]:
        oracle = ORACLES[self.name]
        if not oracle.exists():
            raise PeerUnavailableError(f"no ../shared/oracle/{oracle.name} next to the checkout")
        arguments = (command, str(warehouse.resolve()), *arguments)
        _, printed = self._talk.ask("oracle", program=oracle.stem, words=arguments)
        return printed


__all__ = ["PEERS", "Peer", "PeerError", "PeerUnavailableError", "Record"]
