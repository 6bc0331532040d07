"""Iceberg tables in a Hive metastore: as Java Paimon stores them, and as Iceberg readers find them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from support.catalogs.hive_metastore import HiveMetastore
from support.iceberg_readers import SparkReader
from support.peers.environments import PeerUnavailableError
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.errors import StorageError, UnsupportedError
from paimon_orch.metastore.hive_client import HiveClient
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.publication.sync_iceberg import sync_iceberg
from paimon_orch.table.iceberg.hive_entry import HiveEntry
from paimon_orch.table.iceberg.metadata_store import IcebergMetadataStore
from paimon_orch.table.iceberg.open_catalog_entry import open_catalog_entry
from paimon_orch.table.iceberg.publication_input import read_publication_input
from paimon_orch.table.iceberg.publish import describe_published
from paimon_orch.table.iceberg.status import IcebergStatus, read_iceberg_status
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption
from paimon_orch.table.table import Table

INTEGERS = pa.schema([("p", pa.int32()), pa.field("k", pa.int32(), nullable=False)])
STORAGE = "metadata.iceberg.storage"
COLUMNS = {
    "k": "INT NOT NULL",
    "a": "STRING",
    "d": "DECIMAL(10, 2)",
    "ts": "TIMESTAMP(6)",
}
# The metastore adds these.
OF_THE_SERVER = {"transient_lastDdlTime", "numFiles", "totalSize"}


@pytest.fixture(scope="module")
def spark_reader() -> Iterator[SparkReader]:
    try:
        reader = SparkReader()
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    yield reader
    reader.close()


def options(metastore: HiveMetastore, **more: str) -> dict[str, str]:
    """Return options of a table; in names of further options `_` is a dash."""
    named = {f"metadata.iceberg.{name.replace('_', '-')}": text for name, text in more.items()}
    own = {STORAGE: "hive-catalog", "metadata.iceberg.uri": metastore.uri, "bucket": "-1"}
    return own | named


def spec(metastore: HiveMetastore, **more: str) -> dict[str, Any]:
    fields = [
        {"id": number, "name": name, "type": kind}
        for number, (name, kind) in enumerate(COLUMNS.items())
    ]
    return {
        "fields": fields,
        "partition_keys": [],
        "primary_keys": [],
        "options": options(metastore, **more),
    }


def append(table: Table, *keys: int) -> None:
    """Append rows with these keys; the other columns are null."""
    nulls = {name: pa.nulls(len(keys)) for name in table.load().schema.names}
    table.append(pa.table(nulls | {"k": pa.array(keys, pa.int32())}))


@pytest.fixture
def table(hive_metastore: HiveMetastore, tmp_path: Path) -> Table:
    """A table of a plain directory with one published snapshot."""
    catalog = Catalog(str(tmp_path))
    created = catalog.create_table(
        "db.t", "k INT NOT NULL, a STRING", options=options(hive_metastore)
    )
    append(created, 1)
    return created


def open_client(table: Table) -> HiveClient:
    entry = open_catalog_entry("db.t", table.load().schema, table.paths)
    assert isinstance(entry, HiveEntry)
    return entry.client


def metadata_file(table: Table, version: int) -> str:
    directory = Path(table.paths.root).parents[1] / "iceberg" / "db" / "t" / "metadata"
    return str(directory / f"v{version}.metadata.json")


def pointer(metastore: HiveMetastore, name: str = "t", database: str = "db") -> str:
    location = metastore.table(name, database)["parameters"]["metadata_location"]
    assert isinstance(location, str)
    return location


def status_of(table: Table) -> IcebergStatus:
    status = read_iceberg_status(table.stores.iceberg)
    assert status is not None
    return status


def comparable(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored table without its name, its times, and what the server counts."""
    rest = {key: item for key, item in stored.items() if not key.endswith("Time")}
    rest.pop("tableName")
    rest["parameters"] = {
        key: text for key, text in stored["parameters"].items() if key not in OF_THE_SERVER
    }
    return rest


def spelled(stored: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a comparable table with `<table>` for its name, and paths without a scheme."""
    parameters = stored["parameters"]
    for key in ("metadata_location", "previous_metadata_location"):
        if key in parameters:
            parameters[key] = (
                parameters[key].removeprefix("file:").replace(f"/{name}/", "/<table>/")
            )
    stored["sd"]["location"] = stored["sd"]["location"].replace(f"/{name}", "/<table>")
    return stored


@pytest.mark.parametrize("more", [{}, {"hive_skip_update_stats": "true", "database": "x; y"}])
def test_our_entry_is_that_of_java(
    hive_metastore: HiveMetastore, java20: Peer, tmp_path: Path, more: dict[str, str]
) -> None:
    stored = []
    for name in ("java", "ours"):
        java20.run("create", tmp_path, f"db.{name}", spec=spec(hive_metastore, **more))
        if name == "java":
            for key in (1, 2):
                java20.run("write", tmp_path, "db.java", rows=[{"k": key}])
        else:
            for key in (1, 2):
                append(Catalog(str(tmp_path)).table("db.ours"), key)
        databases = ["x", "y"] if more else ["db"]
        entries = [hive_metastore.table(name, database) for database in databases]
        stored.append([spelled(comparable(entry), name) for entry in entries])

    assert stored[1] == stored[0]
    assert "previous_metadata_location" in stored[0][0]["parameters"]


def read_with_iceberg(
    reader: SparkReader, metastore: HiveMetastore, snapshot_id: int | None = None
) -> list[int]:
    """Return the keys that Spark's Iceberg finds by the metastore."""
    rows = reader.read_from_catalog("db.t", snapshot_id, type="hive", uri=metastore.uri)
    return sorted(row["k"] for row in rows)


def test_java_and_this_library_publish_one_table_in_turns(
    hive_metastore: HiveMetastore, java20: Peer, spark_reader: SparkReader, tmp_path: Path
) -> None:
    java20.run("create", tmp_path, spec=spec(hive_metastore))
    table = Catalog(str(tmp_path)).table("db.t")
    for key in range(1, 7):
        if key in (1, 3, 6):
            java20.run("write", tmp_path, rows=[{"k": key}])
        else:
            append(table, key)
        assert pointer(hive_metastore).removeprefix("file:") == metadata_file(table, key)
        assert status_of(table).is_current
    parameters = hive_metastore.table("t")["parameters"]
    previous = parameters["previous_metadata_location"].removeprefix("file:")
    assert previous == metadata_file(table, 5)
    assert read_with_iceberg(spark_reader, hive_metastore) == [1, 2, 3, 4, 5, 6]
    assert read_with_iceberg(spark_reader, hive_metastore, 4) == [1, 2, 3, 4]

    java20.run("alter", tmp_path, changes=[["add", "w", "INT"]])
    append(table, 7)
    assert [c["name"] for c in hive_metastore.table("t")["sd"]["cols"]][-1] == "w"
    Catalog(str(tmp_path)).alter_table("db.t", [AddColumn(column="x", type="INT")])
    assert [c["name"] for c in hive_metastore.table("t")["sd"]["cols"]][-2:] == ["w", "x"]
    assert read_with_iceberg(spark_reader, hive_metastore) == [1, 2, 3, 4, 5, 6, 7]


def test_pyiceberg_reads_by_the_metastore(hive_metastore: HiveMetastore, table: Table) -> None:
    append(table, 2)

    catalog = load_catalog("hive", type="hive", uri=hive_metastore.uri)

    rows = catalog.load_table("db.t").scan().to_arrow()
    assert sorted(rows["k"].to_pylist()) == [1, 2]


def test_a_paimon_table_of_the_same_metastore_is_also_an_iceberg_table(
    hive_metastore: HiveMetastore, java20: Peer, spark_reader: SparkReader
) -> None:
    catalog_options: dict[str, Any] = {**hive_metastore.options()}
    catalog = Catalog(**catalog_options)
    more = {"metastore.partitioned-table": "true"}
    for name in ("t", "java"):
        catalog.create_table(
            f"db.{name}",
            "p INT, k INT NOT NULL",
            partition_by=["p"],
            options=options(hive_metastore) | more,
        )
    java20.run("write", hive_metastore.options(), "db.java", rows=[{"p": 1, "k": 1}])
    for key in (1, 2):
        catalog.table("db.t").append(pa.table({"p": [1], "k": [key]}).cast(INTEGERS))

    stored = hive_metastore.table("t")
    assert stored["parameters"]["table_type"] == "ICEBERG"
    assert stored["parameters"]["storage_handler"].endswith("PaimonStorageHandler")
    # Java repeats the partition column among the columns, which Hive does not allow.
    assert [column["name"] for column in stored["sd"]["cols"]] == ["k"]
    assert [c["name"] for c in hive_metastore.table("java")["sd"]["cols"]] == ["p", "k"]
    assert read_with_iceberg(spark_reader, hive_metastore) == [1, 2]
    assert catalog.tables("db") == ["java", "t"]
    catalog.alter_table("db.t", [SetOption("num-levels", "7")])
    assert status_of(catalog.table("db.t")).is_current
    assert java20.read(hive_metastore.options()) == [{"p": 1, "k": 1}, {"p": 1, "k": 2}]
    catalog.drop_table("db.t")
    assert [each["tableName"] for each in hive_metastore.stored()["tables"]] == ["java"]


def test_a_commit_succeeds_without_the_metastore_and_the_next_one_catches_up(
    hive_metastore: HiveMetastore, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    hive_metastore.kill()
    try:
        with caplog.at_level(logging.WARNING):
            append(table, 2)
        assert "Iceberg metadata is stale" in caplog.text
        unreachable = status_of(table)
        assert (unreachable.is_current, unreachable.published_id) == (False, None)
        assert "no connection to the Hive metastore" in (unreachable.problem or "")
        # Readers still use the metadata of the first snapshot, so nothing of it is deleted.
        with pytest.raises(StorageError, match="no file was deleted"):
            expire_snapshots(table, retain_max=1, retain_min=1)
        assert Path(metadata_file(table, 1)).exists()
    finally:
        hive_metastore.start()

    stale = status_of(table)
    assert (stale.is_current, stale.published_id, stale.missing_snapshots) == (False, 1, 1)
    assert "v1.metadata.json, and the newest metadata is" in (stale.problem or "")
    result = sync_iceberg(table)
    assert (result.status.is_current, result.status.published_id) == (True, 2)
    assert pointer(hive_metastore) == metadata_file(table, 2)
    assert not Path(metadata_file(table, 1)).exists()


def test_a_rollback_moves_the_pointer_back_before_the_metadata_is_deleted(
    hive_metastore: HiveMetastore, table: Table, spark_reader: SparkReader
) -> None:
    for key in (2, 3):
        append(table, key)

    table.rollback(2)

    assert pointer(hive_metastore) == metadata_file(table, 2)
    assert read_with_iceberg(spark_reader, hive_metastore) == [1, 2]
    append(table, 4)
    assert read_with_iceberg(spark_reader, hive_metastore) == [1, 2, 4]


def test_a_pointer_that_another_process_changed_meanwhile_is_corrected(
    hive_metastore: HiveMetastore, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publication reads the entry, and another one publishes the next snapshot."""
    find, calls = HiveEntry._find_table, list[int]()

    def find_late(entry: HiveEntry, database: str) -> Any:
        found = find(entry, database)
        calls.append(1)
        if len(calls) == 1:
            append(table, 3)
            assert pointer(hive_metastore) == metadata_file(table, 3)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(HiveEntry, "_find_table", find_late)
        append(table, 2)

    assert len(calls) > 2
    assert pointer(hive_metastore) == metadata_file(table, 3)
    assert status_of(table).is_current


def test_a_metastore_that_compares_refuses_a_late_pointer(
    hive_metastores: Callable[[str], HiveMetastore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Since 2.3.10 the metastore compares the previous location; 3.1 does not."""
    metastore = hive_metastores("2.3")
    metastore.clear()
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "k INT NOT NULL", options=options(metastore)
    )
    append(table, 1)
    [entry] = filter(None, [open_catalog_entry("db.t", table.load().schema, table.paths)])
    find = HiveEntry._find_table

    def find_late(entry: HiveEntry, database: str) -> Any:
        found = find(entry, database)
        with monkeypatch.context() as patch:
            patch.setattr(HiveEntry, "_find_table", find)
            append(table, 2)
        return found

    state = read_publication_input(table.stores.schemas, table.stores.snapshots)
    assert state is not None
    store = IcebergMetadataStore(table.io, state.settings.directory)
    published = replace(
        describe_published(store, store.read_metadata(1), state), path="/v7.metadata.json"
    )
    with monkeypatch.context() as patch:
        patch.setattr(HiveEntry, "_find_table", find_late)
        assert not entry.update(published, lambda: True)

    assert pointer(metastore) == metadata_file(table, 2)
    metastore.clear()


@pytest.mark.parametrize("name", ["00001-a.metadata.json", "v1.metadata.json", None])
def test_another_table_of_that_name_is_not_replaced(
    hive_metastore: HiveMetastore, table: Table, tmp_path: Path, name: str | None
) -> None:
    client = open_client(table)
    entry = client.read("get_table", "db", "t")
    if name is None:
        entry.parameters = {}
        entry.sd.inputFormat = "org.apache.hadoop.mapred.TextInputFormat"
    else:
        (tmp_path / name).write_text("{}")
        entry.parameters["metadata_location"] = f"file:{tmp_path}/{name}"
    client.write("alter_table", "db", "t", entry)
    before = hive_metastore.table("t")

    append(table, 2)

    assert hive_metastore.table("t") == before
    with pytest.raises(UnsupportedError, match=r"db\.t in the metastore .* is another table"):
        sync_iceberg(table)


def test_a_renamed_table_gets_an_entry_of_its_new_name(
    hive_metastore: HiveMetastore, table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog(str(tmp_path))

    with caplog.at_level(logging.WARNING):
        catalog.rename_table("db.t", "db.u")

    assert pointer(hive_metastore, "u") == metadata_file(table, 1).replace("/t/", "/u/")
    assert status_of(catalog.table("db.u")).is_current
    assert "still has the entry db.t, drop it" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        catalog.drop_table("db.u")
    # As in Java, the entries remain.
    assert "still has the entry db.u, drop it" in caplog.text
    assert {each["tableName"] for each in hive_metastore.stored()["tables"]} == {"t", "u"}


def test_an_entry_with_a_name_of_its_own_follows_a_renamed_table(
    hive_metastore: HiveMetastore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog(str(tmp_path))
    named = options(hive_metastore, table="shown")
    append(catalog.create_table("db.t", "k INT NOT NULL", options=named), 1)

    with caplog.at_level(logging.WARNING):
        catalog.rename_table("db.t", "db.u")

    assert caplog.text == ""
    assert "/iceberg/db/u/metadata/v1.metadata.json" in pointer(hive_metastore, "shown")
    location = [SetOption("metadata.iceberg.storage-location", "table-location")]
    catalog.alter_table("db.u", location)
    assert pointer(hive_metastore, "shown").endswith("/db.db/u/metadata/v1.metadata.json")
    assert status_of(catalog.table("db.u")).is_current
