"""What Java's Hive catalog stores in a metastore, and how it locks tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.catalogs.hive_metastore import METASTORES, HiveMetastore
from support.peers.environments import JAVA
from support.peers.peers import Peer, PeerError

NEWER = [name for name in JAVA if name != "java-0.9"]
HIVE = "org.apache.paimon.hive"
PARTITIONED = {"bucket": "1", "metastore.partitioned-table": "true"}
ROW = {"day": "a", "k": 1, "v": "x"}
KEYS = {"bucket-key": "k", "partition": "day", "primary-key": "day,k"}
HANDLER = {"storage_handler": f"{HIVE}.PaimonStorageHandler", "table_type": "PAIMON"}
# The metastore adds these parameters; it counts files of tables without partitions.
COUNTED = {"transient_lastDdlTime", "numFiles", "totalSize"}


def spec(keys: list[str], **options: str) -> dict[str, Any]:
    return {
        "fields": [
            {"id": 0, "name": "day", "type": "STRING NOT NULL"},
            {"id": 1, "name": "k", "type": "INT NOT NULL"},
            {"id": 2, "name": "v", "type": "STRING"},
        ],
        "partition_keys": keys,
        "primary_keys": [*keys, "k"],
        "options": options,
    }


def parameters(stored: dict[str, Any]) -> dict[str, str]:
    """Return the parameters that the client sent."""
    return {name: text for name, text in stored["parameters"].items() if name not in COUNTED}


def columns(fields: list[dict[str, str]]) -> dict[str, str]:
    return {field["name"]: field["type"] for field in fields}


@pytest.mark.parametrize("peer", NEWER, indirect=True)
def test_java_stores_databases_tables_and_partitions(
    hive_metastore: HiveMetastore, peer: Peer
) -> None:
    catalog = hive_metastore.options()
    location = f"file:{hive_metastore.warehouse}/db.db"
    options = {"comment": "c", "owner": "me", "p": "q"}

    peer.ask("create_database", catalog, database="db", options=options)
    [database] = hive_metastore.databases()
    database.pop("catalogName", None)  # since Hive 3
    assert database == {
        "name": "db",
        "description": "c",
        "locationUri": location,
        "ownerName": "me",
        "ownerType": 1,
        "parameters": {"p": "q"},
    }

    peer.run("create", catalog, spec=spec(["day"], **PARTITIONED))
    peer.run("write", catalog, rows=[ROW, {**ROW, "day": "b c/d"}])
    table = hive_metastore.table("t")
    assert parameters(table) == {**PARTITIONED, **KEYS, **HANDLER}
    assert table["tableType"] == "MANAGED_TABLE"
    assert table["retention"] == 2**31 - 1
    assert columns(table["partitionKeys"]) == {"day": "string"}
    storage = table["sd"]
    assert storage["inputFormat"] == f"{HIVE}.mapred.PaimonInputFormat"
    assert storage["outputFormat"] == f"{HIVE}.mapred.PaimonOutputFormat"
    serializer = {"serializationLib": f"{HIVE}.PaimonSerDe", "parameters": {}}
    assert storage["serdeInfo"] == serializer
    assert storage["location"] == f"{location}/t"
    assert columns(storage["cols"]) == {"k": "int", "v": "string"}
    partitions = hive_metastore.stored()["partitions"]
    assert {tuple(each["values"]): each["sd"]["location"] for each in partitions} == {
        ("a",): f"{location}/t/day=a",
        ("b c/d",): f"{location}/t/day=b c%2Fd",
    }
    assert peer.ask("get_table", catalog, table="db.t")["uuid"] == f"db.t.{table['createTime']}"

    peer.run("alter", catalog, changes=[["add", "w", "INT"], ["set", "file.format", "orc"]])
    assert hive_metastore.table("t")["parameters"]["file.format"] == "orc"
    cascaded = hive_metastore.stored()["partitions"]
    for stored in (hive_metastore.table("t"), *cascaded):
        assert columns(stored["sd"]["cols"]) == {"k": "int", "v": "string", "w": "int"}
    peer.run("alter", catalog, changes=[["reset", "file.format"]])
    assert parameters(hive_metastore.table("t")) == {**PARTITIONED, **KEYS, **HANDLER}

    peer.run("rename", catalog, to="db.u")
    assert hive_metastore.table("u")["sd"]["location"] == f"{location}/u"
    assert (hive_metastore.warehouse / "db.db" / "u" / "schema" / "schema-0").exists()
    moved = [each["sd"]["location"] for each in hive_metastore.stored()["partitions"]]
    assert sorted(moved) == [f"{location}/u/day=a", f"{location}/u/day=b c%2Fd"]
    peer.run("drop", catalog, "db.u")
    assert hive_metastore.stored()["tables"] == []
    assert list((hive_metastore.warehouse / "db.db").iterdir()) == []


@pytest.mark.parametrize("peer", ["java-0.9"], indirect=True)
def test_java_0_9_stores_no_options(hive_metastore: HiveMetastore, peer: Peer) -> None:
    catalog = hive_metastore.options()

    peer.run("create", catalog, spec=spec(["day"], **PARTITIONED))

    assert parameters(hive_metastore.table("t")) == {**HANDLER, "table_type": "PAIMON"}
    peer.run("write", catalog, rows=[ROW])
    assert [each["values"] for each in hive_metastore.stored()["partitions"]] == [["a"]]
    assert peer.read(catalog) == [ROW]


@pytest.mark.parametrize("peer", NEWER, indirect=True)
def test_java_keeps_the_files_of_external_tables(
    tmp_path: Path, hive_metastore: HiveMetastore, peer: Peer
) -> None:
    catalog = hive_metastore.options()
    folder = tmp_path / "external"

    peer.run("create", catalog, spec=spec(["day"], bucket="1", path=str(folder)))
    peer.run("write", catalog, rows=[ROW])

    table = hive_metastore.table("t")
    assert table["tableType"] == "EXTERNAL_TABLE"
    assert table["parameters"]["EXTERNAL"] == "TRUE"
    assert table["sd"]["location"] == f"file:{folder}"
    # Without metastore.partitioned-table, partition keys are columns.
    assert table["partitionKeys"] == []
    assert columns(table["sd"]["cols"]) == {"day": "string", "k": "int", "v": "string"}
    peer.run("drop", catalog)
    assert hive_metastore.stored()["tables"] == []
    assert (folder / "snapshot" / "snapshot-1").exists()


@pytest.mark.parametrize("peer", NEWER, indirect=True)
def test_java_stores_tags_as_partitions(hive_metastore: HiveMetastore, peer: Peer) -> None:
    catalog = hive_metastore.options()
    options = {"bucket": "1", "metastore.tag-to-partition": "dt"}
    peer.run("create", catalog, spec=spec([], **options))
    peer.run("write", catalog, rows=[ROW])
    assert columns(hive_metastore.table("t")["partitionKeys"]) == {"dt": "string"}
    assert hive_metastore.stored()["partitions"] == []

    peer.run("tag", catalog, name="2024-01-01")

    [partition] = hive_metastore.stored()["partitions"]
    assert partition["values"] == ["2024-01-01"]
    assert partition["sd"]["location"].endswith("/db.db/t/dt=2024-01-01")
    peer.run("delete_tag", catalog, name="2024-01-01")
    assert hive_metastore.stored()["partitions"] == []


@pytest.mark.parametrize("peer", NEWER, indirect=True)
def test_java_stores_locations_in_parameters(hive_metastore: HiveMetastore, peer: Peer) -> None:
    catalog = hive_metastore.options(location_in_properties="true")
    location = f"{hive_metastore.warehouse}/db.db"

    peer.run("create", catalog, spec=spec(["day"], **PARTITIONED))
    peer.run("write", catalog, rows=[ROW])

    [database] = hive_metastore.databases()
    assert database["parameters"] == {"paimon_location": location}
    assert hive_metastore.table("t")["parameters"]["paimon_location"] == f"{location}/t"
    [partition] = hive_metastore.stored()["partitions"]
    assert partition["parameters"]["paimon_location"] == f"{location}/t/day=a/"


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


@pytest.mark.parametrize("hive_metastore", METASTORES, indirect=True)
def test_java_takes_the_lock_of_a_killed_process_when_it_expires(
    tmp_path: Path, hive_metastore: HiveMetastore, java: Peer
) -> None:
    catalog = hive_metastore.options(lock__enabled="true", lock_check_max_sleep="200 ms")
    killed, waiting = Peer(java.name), java
    try:
        waiting.run("create", catalog, spec=spec(["day"], bucket="1"))
        assert hive_metastore.stored()["locks"] == [], "released after the creation"
        with held_lock(killed, catalog, tmp_path / "held") as died:
            [lock] = hive_metastore.stored()["locks"]
            killed.kill()
            with pytest.raises(PeerError, match="exited"):
                died.result()
        assert (lock["dbname"], lock["tablename"]) == ("db", "t")
        exclusive, acquired = 3, 1
        assert (lock["type"], lock["state"]) == (exclusive, acquired)
        assert len(hive_metastore.stored()["locks"]) == 1, "it outlives the process"
        impatient = {**catalog, "lock-acquire-timeout": "200 ms"}
        with pytest.raises(PeerError, match="Acquire lock failed"):
            waiting.run("alter", impatient, changes=[["add", "w", "INT"]])

        hive_metastore.expire_locks()
        waiting.run("write", catalog, rows=[ROW])

        assert waiting.read(catalog) == [ROW]
        assert hive_metastore.stored()["locks"] == []
    finally:
        killed.close()


@pytest.mark.parametrize("hive_metastore", ["2.3"], indirect=True)
@pytest.mark.parametrize("peer", ["java-1.4"], indirect=True)
def test_a_restarted_metastore_has_its_tables(peer: Peer, hive_metastore: HiveMetastore) -> None:
    catalog = hive_metastore.options()
    peer.run("create", catalog, spec=spec(["day"], **PARTITIONED))

    hive_metastore.kill()
    hive_metastore.start()

    peer.run("write", catalog, rows=[ROW])
    assert peer.read(catalog) == [ROW]
    assert [each["values"] for each in hive_metastore.stored()["partitions"]] == [["a"]]
