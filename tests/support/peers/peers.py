"""Other implementations of Paimon, which read our tables and write tables for us.

Each runs in a process. The commands, and their arguments in addition to warehouse and table:

====================================  =========================================================================
create (spec)                         `fields` (as in a schema file), `partition_keys`, `primary_keys`, `options`,
                                      `comment` (Java only)
read (options, where)                 rows, as JSON records in the conventions of the golden README
write, overwrite, delete (rows)       one snapshot each
update (rows, gone)                   pypaimon only: by `_ROW_ID`
compact (full)                        Java and Spark only
alter (changes)                       lists of words: add NAME TYPE, drop NAME, rename NAME NAME, type NAME TYPE,
                                      set KEY VALUE, reset KEY
tag (name), branch (name, at)         of the newest snapshot; at a tag
delete_tag (name)                     Java only
rollback (snapshot)                   Java only
drop; rename (to)                     Java only
get_table                             Java only: location, schema, options, keys, comment, uuid
list_partitions; load_snapshot        Java only, not 0.9: what the catalog says
mark_done (partitions)                Java only, not 0.9
hold_lock (path)                      Java only: creates the file when it holds the lock, until the file is deleted
oracle (command, words)               Java 0.9 and 2.0 only: a command of the class Oracle, such as check; lines
====================================  =========================================================================

Java has commands without a table, too: `list_databases`, `create_database` (database, options),
`get_database` (database) returns the options, `alter_database` (database, options, removed; not
0.9), `drop_database` (database, cascade), `list_tables` (database).

A table name is `db.table` or `db.table$branch_x`. Instead of a warehouse path, the options of a
catalog can be given: `{"metastore": "jdbc", "uri": ..., "warehouse": ...}`. `PeerUnavailableError`
means that a peer cannot run on this machine; `PeerError` contains the error of a failed command.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.peers.environments import JAVA, PeerUnavailableError, peer_start
from support.peers.protocol import PeerError, PeerProcess

Record = dict[str, Any]
# The path of a warehouse, or the options of a catalog.
Warehouse = Path | Mapping[str, str]

# All tests use these peers. Spark has separate tests, because it is slow and may be missing.
PEERS = ("pypaimon", "pypaimon-rust", *JAVA)


class Peer:
    """The process of another implementation."""

    def __init__(self, name: str, zone: str = "UTC") -> None:
        """Start a peer; ``zone`` is the time zone of a process of Java."""
        self.name = name
        start = peer_start(name)
        setting = "-Duser.timezone="
        command = [f"{setting}{zone}" if w.startswith(setting) else w for w in start.command]
        self._talk = PeerProcess(tuple(command), start.environment)

    def run(self, do: str, warehouse: Warehouse, table: str = "db.t", **arguments: Any) -> None:
        """Change a table by one of the commands above."""
        self.ask(do, warehouse, table=table, **arguments)

    def ask(self, do: str, warehouse: Warehouse, **arguments: Any) -> Any:
        """Return the answer to one of the commands above."""
        address = str(warehouse.resolve()) if isinstance(warehouse, Path) else {**warehouse}
        answer, _ = self._talk.ask(do, warehouse=address, **arguments)
        return answer

    def read(self, warehouse: Warehouse, table: str = "db.t", **options: str) -> list[Record]:
        """Return all rows; in names of options `__` is a dot and `_` a dash (`scan__tag_name`)."""
        named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
        records = self.ask("read", warehouse, table=table, options=named)
        assert isinstance(records, list)
        return records

    def find(self, warehouse: Warehouse, where: list[Any], table: str = "db.t") -> list[Record]:
        """Return the rows of files and positions that may match (column, =, <>, < or >=, value).

        Only pypaimon-rust filters the rows themselves.
        """
        records = self.ask("read", warehouse, table=table, options={}, where=where)
        assert isinstance(records, list)
        return records

    def check(self, warehouse: Path, table: str = "db.t") -> list[str]:
        """Return the problems that the checker finds in a table; Java 0.9 and 2.0 only."""
        return self._oracle("check", warehouse, table)

    def expire(self, warehouse: Path, retain: int, table: str = "db.t") -> None:
        """Expire all snapshots but the last `retain`."""
        self._oracle("expire", warehouse, table, str(retain))

    def changelog(self, warehouse: Path, table: str = "db.t") -> list[Record]:
        """Return the rows of all changelog files."""
        return [json.loads(line) for line in self._oracle("changelog", warehouse, table)]

    def kill(self) -> None:
        """Kill the process, also during a command of another thread."""
        assert self._talk.pid is not None
        os.kill(self._talk.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process."""
        self._talk.close()

    def _oracle(self, command: str, warehouse: Path, table: str, *words: str) -> list[str]:
        """Return the lines of a command of the class `Oracle`, which Java 0.9 and 2.0 have."""
        lines = self.ask("oracle", warehouse, table=table, command=command, words=words)
        assert isinstance(lines, list)
        return lines


OpenPeer = Callable[[str], Peer]
"""From a name to a running peer, which other tests use too."""

__all__ = ["PEERS", "OpenPeer", "Peer", "PeerError", "PeerUnavailableError", "Record", "Warehouse"]
