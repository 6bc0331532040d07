"""What Java's JDBC catalog stores in SQL tables, and how it locks tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.catalogs.jdbc_databases import JdbcDatabase
from support.peers.environments import JAVA
from support.peers.peers import Peer, PeerError

# PostgreSQL has locks since 1.1, and table properties are stored since 1.4.
NEWER = [name for name in JAVA if name != "java-0.9"]
KEY_IN_LOCKS = "jdbc.db.t"

SPEC: dict[str, Any] = {
    "fields": [
        {"id": 0, "name": "day", "type": "STRING NOT NULL"},
        {"id": 1, "name": "k", "type": "INT NOT NULL"},
        {"id": 2, "name": "v", "type": "STRING"},
    ],
    "partition_keys": ["day"],
    "primary_keys": ["day", "k"],
    "options": {"bucket": "1"},
}
ROW = {"day": "a", "k": 1, "v": "x"}
TABLE_PROPERTIES = [
    ("jdbc", "db", "t", "bucket", "1"),
    ("jdbc", "db", "t", "bucket-key", "k"),
    ("jdbc", "db", "t", "partition", "day"),
    ("jdbc", "db", "t", "primary-key", "day,k"),
]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.mark.parametrize("jdbc_peer", NEWER, indirect=True)
def test_java_stores_databases_tables_and_their_options(
    warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    catalog = jdbc_database.options(warehouse)
    location = f"{warehouse}/db.db"

    jdbc_peer.run("create", catalog, spec=SPEC)
    jdbc_peer.run("write", catalog, rows=[ROW])

    stored = jdbc_database.tables()
    # Java 2.0 has views too.
    assert stored.pop("paimon_views", []) == []
    assert stored == {
        "paimon_database_properties": [
            ("jdbc", "db", "exists", "true"),
            ("jdbc", "db", "location", location),
        ],
        "paimon_table_properties": TABLE_PROPERTIES,
        "paimon_tables": [("jdbc", "db", "t")],
    }
    assert jdbc_peer.read(catalog) == [ROW]
    table = jdbc_peer.ask("get_table", catalog, table="db.t")
    assert table["location"] == f"{location}/t"

    options = {"owner": "me"}
    jdbc_peer.ask("alter_database", catalog, database="db", options=options, removed=["location"])
    assert jdbc_database.rows("paimon_database_properties") == [
        ("jdbc", "db", "exists", "true"),
        ("jdbc", "db", "owner", "me"),
    ]
    database = jdbc_peer.ask("get_database", catalog, database="db")
    assert database == {"location": "db.db", "owner": "me"}

    changes = [["set", "num-sorted-run.stop-trigger", "9"], ["add", "w", "INT"]]
    jdbc_peer.run("alter", catalog, changes=changes)
    assert jdbc_database.rows("paimon_table_properties") == [
        *TABLE_PROPERTIES[:2],
        ("jdbc", "db", "t", "num-sorted-run.stop-trigger", "9"),
        *TABLE_PROPERTIES[2:],
    ]

    jdbc_peer.run("rename", catalog, to="db.u")
    assert jdbc_database.rows("paimon_tables") == [("jdbc", "db", "u")]
    assert {row[2] for row in jdbc_database.rows("paimon_table_properties")} == {"u"}
    assert [path.name for path in Path(location).iterdir()] == ["u"]
    assert jdbc_peer.read(catalog, "db.u") == [{**ROW, "w": None}]

    jdbc_peer.run("drop", catalog, "db.u")
    assert jdbc_database.rows("paimon_tables") == []
    assert jdbc_database.rows("paimon_table_properties") == []
    assert list(Path(location).iterdir()) == []
    jdbc_peer.ask("drop_database", catalog, database="db", cascade=False)
    assert jdbc_peer.ask("list_databases", catalog) == []


@pytest.mark.parametrize("jdbc_peer", ["java-0.9"], indirect=True)
def test_java_0_9_stores_no_table_options(
    warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    catalog = jdbc_database.options(warehouse, catalog_key="prod")

    jdbc_peer.run("create", catalog, spec=SPEC)
    jdbc_peer.run("write", catalog, rows=[ROW])

    assert jdbc_database.tables() == {
        "paimon_database_properties": [
            ("prod", "db", "exists", "true"),
            ("prod", "db", "location", f"{warehouse}/db.db"),
        ],
        "paimon_tables": [("prod", "db", "t")],
    }
    assert jdbc_peer.read(catalog) == [ROW]


@pytest.mark.parametrize("jdbc_peer", NEWER, indirect=True)
def test_java_leaves_the_files_of_a_dropped_database(
    warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    catalog = jdbc_database.options(warehouse)
    jdbc_peer.run("create", catalog, spec=SPEC)

    jdbc_peer.ask("drop_database", catalog, database="db", cascade=True)

    assert not any(jdbc_database.tables().values())
    assert (warehouse / "db.db" / "t" / "schema" / "schema-0").exists()
    with pytest.raises(PeerError, match="Schema in filesystem exists"):
        jdbc_peer.run("create", catalog, spec=SPEC)


@contextmanager
def held_lock(peer: Peer, catalog: dict[str, str], file: Path) -> Iterator[Future[None]]:
    """Hold the lock of the table in a peer, which answers no other command meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(peer.run, "hold_lock", catalog, path=str(file))
        try:
            while not file.exists():
                assert not holding.done(), holding.result()
                time.sleep(0.02)
            yield holding
        finally:
            file.unlink(missing_ok=True)


@pytest.mark.parametrize("jdbc_peer", NEWER, indirect=True)
def test_java_waits_for_the_lock_of_a_table(
    warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    catalog = jdbc_database.options(warehouse, lock__enabled="true")
    impatient = {**catalog, "lock-acquire-timeout": "2 s", "lock-check-max-sleep": "100 ms"}
    jdbc_peer.run("create", catalog, spec=SPEC)
    assert jdbc_database.rows("paimon_distributed_locks") == [], "released after the creation"

    jdbc_database.run(
        "INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES (:id, 60)",
        id=KEY_IN_LOCKS,
    )
    commands: dict[str, dict[str, Any]] = {
        "write": {"rows": [ROW], "options": {"commit.max-retries": "0"}},
        "alter": {"changes": [["add", "w", "INT"]]},
    }
    for command, arguments in commands.items():
        with pytest.raises(PeerError, match="Acquire lock failed with time"):
            jdbc_peer.run(command, impatient, **arguments)
    assert [row[0] for row in jdbc_database.rows("paimon_distributed_locks")] == [KEY_IN_LOCKS]
    assert jdbc_peer.read(catalog) == []

    jdbc_database.run("DELETE FROM paimon_distributed_locks")
    jdbc_peer.run("write", impatient, rows=[ROW])
    assert jdbc_peer.read(catalog) == [ROW]


@pytest.mark.parametrize("jdbc_peer", NEWER, indirect=True)
def test_java_holds_a_row_while_it_holds_the_lock(
    tmp_path: Path, warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    catalog = jdbc_database.options(warehouse, lock__enabled="true", lock_acquire_timeout="90 s")
    jdbc_peer.run("create", catalog, spec=SPEC)

    with held_lock(jdbc_peer, catalog, tmp_path / "held") as holding:
        [(lock, _, seconds)] = jdbc_database.rows("paimon_distributed_locks")
        assert (lock, seconds) == (KEY_IN_LOCKS, 90)
    holding.result()

    assert jdbc_database.rows("paimon_distributed_locks") == []


@pytest.mark.parametrize("jdbc_peer", NEWER, indirect=True)
def test_java_takes_the_lock_of_a_killed_process_when_it_expires(
    tmp_path: Path, warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    waiting, killed = jdbc_peer, Peer(jdbc_peer.name)
    catalog = jdbc_database.options(warehouse, lock__enabled="true", lock_check_max_sleep="200 ms")
    waiting.run("create", catalog, spec=SPEC)

    try:
        with held_lock(
            killed, {**catalog, "lock-acquire-timeout": "3 s"}, tmp_path / "held"
        ) as died:
            killed.kill()
            with pytest.raises(PeerError, match="exited"):
                died.result()
    finally:
        killed.close()
    [(lock, _, seconds)] = jdbc_database.rows("paimon_distributed_locks")
    assert (lock, seconds) == (KEY_IN_LOCKS, 3), "it outlives the process"

    waiting.run("write", catalog, rows=[ROW])

    assert waiting.read(catalog) == [ROW]
    assert jdbc_database.rows("paimon_distributed_locks") == []
