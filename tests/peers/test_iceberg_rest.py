"""Iceberg tables in a REST catalog, as Iceberg readers find them, and what happens in faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import IntegerType, NestedField
from support.catalogs.iceberg_rest_server import (
    TOKEN,
    IcebergRestServer,
    iceberg_rest_command,
    run_iceberg_rest_server,
)
from support.iceberg_readers import SparkReader
from support.peers.environments import PeerUnavailableError

from paimon_orch import Catalog
from paimon_orch.errors import AccessDeniedError, UnsupportedError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.publication.sync_iceberg import sync_iceberg
from paimon_orch.table.iceberg.publish import IcebergPublisher
from paimon_orch.table.iceberg.rest_entry import RestEntry
from paimon_orch.table.iceberg.status import IcebergStatus, read_iceberg_status
from paimon_orch.table.schema_change.schema_changes import AddColumn, RenameColumn, SetOption
from paimon_orch.table.table import Table

STORAGE = "metadata.iceberg.storage"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRestServer]:
    try:
        iceberg_rest_command()
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    with run_iceberg_rest_server(tmp_path_factory.mktemp("iceberg") / "rest") as server:
        yield server


@pytest.fixture
def served(server: IcebergRestServer) -> Iterator[IcebergCatalog]:
    """A client of the server, whose tables are dropped afterwards."""
    catalog = load_catalog("served", type="rest", **server.properties)
    yield catalog
    for namespace in catalog.list_namespaces():
        for table in catalog.list_tables(namespace):
            catalog.drop_table(table)
        catalog.drop_namespace(namespace)
    catalog.close()


@pytest.fixture(scope="module")
def spark_reader() -> Iterator[SparkReader]:
    try:
        reader = SparkReader()
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    yield reader
    reader.close()


def options(server: IcebergRestServer, **more: str) -> dict[str, str]:
    """Return options of a table; in names of further options `_` is a dash."""
    rest = {f"metadata.iceberg.rest.{key}": text for key, text in server.properties.items()}
    named = {f"metadata.iceberg.{name.replace('_', '-')}": text for name, text in more.items()}
    return {STORAGE: "rest-catalog", "bucket": "-1"} | rest | named


def append(table: Table, *keys: int) -> None:
    """Append rows with these keys; the other columns are null."""
    nulls = {name: pa.nulls(len(keys)) for name in table.load().schema.names}
    table.append(pa.table(nulls | {"k": pa.array(keys, pa.int32())}))


@pytest.fixture
def table(server: IcebergRestServer, served: IcebergCatalog, tmp_path: Path) -> Table:
    """A table with one published snapshot."""
    catalog = Catalog(str(tmp_path))
    created = catalog.create_table("db.t", "k INT NOT NULL, a STRING", options=options(server))
    append(created, 1)
    return created


def status_of(table: Table) -> IcebergStatus:
    status = read_iceberg_status(table.stores.iceberg)
    assert status is not None
    return status


def keys_of(table: IcebergTable, snapshot_id: int | None = None) -> list[int]:
    rows = table.scan(snapshot_id=snapshot_id).to_arrow()
    return sorted(rows["k"].to_pylist())


def read_with_spark(
    reader: SparkReader, server: IcebergRestServer, snapshot_id: int | None = None
) -> list[int]:
    properties: dict[str, Any] = server.properties
    rows = reader.read_from_catalog("db.t", snapshot_id, type="rest", **properties)
    return sorted(row["k"] for row in rows)


def test_readers_follow_commits_and_changes_of_the_schema(
    server: IcebergRestServer,
    served: IcebergCatalog,
    table: Table,
    spark_reader: SparkReader,
    tmp_path: Path,
) -> None:
    uuid = served.load_table("db.t").metadata.table_uuid
    append(table, 2)
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SetOption("num-levels", "7")])
    catalog.alter_table("db.t", [AddColumn(column="b", type="BIGINT")])
    catalog.alter_table("db.t", [RenameColumn(column="a", to="c")])
    append(table, 3)
    table.tags.create("three")
    append(table, 4)

    shown = served.load_table("db.t")

    assert shown.metadata.table_uuid == uuid
    assert [snapshot.snapshot_id for snapshot in shown.metadata.snapshots] == [1, 2, 3, 4]
    assert [field.name for field in shown.schema().fields] == ["k", "c", "b"]
    assert [field.field_id for field in shown.schema().fields] == [0, 1, 2]
    # Schema 0 of the server is the one of its creation, and two of ours are equal.
    assert sorted(schema.schema_id for schema in shown.metadata.schemas) == [0, 1, 2, 3]
    assert [snapshot.schema_id for snapshot in shown.metadata.snapshots] == [1, 1, 3, 3]
    assert shown.metadata.refs["three"].snapshot_id == 3
    assert shown.properties["write.metadata.previous-versions-max"] == "0"
    assert shown.properties["write.metadata.delete-after-commit.enabled"] == "true"
    assert keys_of(shown) == [1, 2, 3, 4]
    assert keys_of(shown, 2) == [1, 2]
    assert read_with_spark(spark_reader, server) == [1, 2, 3, 4]
    assert read_with_spark(spark_reader, server, 2) == [1, 2]
    assert status_of(table).is_current
    table.tags.delete("three")
    assert set(served.load_table("db.t").metadata.refs) == {"main"}


# What the committer of Java Paimon 2.0.0 left after two commits, with Iceberg 1.11.0 as client and
# the same server. Its module is not in a Maven repository, so it was compiled once for this record.
JAVA_2_0: dict[str, dict[str, Any]] = {
    "k, p": {"schemas": {0: [], 1: [0, 1]}, "specs": {0: []}},
    "k, p by p": {"schemas": {0: [1], 1: [0, 1]}, "specs": {0: [(1, 1000, "p")]}},
    # We add no spec that no file has.
    "p, k by p": {"schemas": {0: [], 1: [0, 1]}, "specs": {0: [], 1: [(0, 1000, "p")]}},
}
OF_EACH: dict[str, Any] = {
    "current": 1,
    "snapshots": [(1, 1, None), (2, 1, 1)],
    "refs": {"main": 2},
    "default": 0,
    "properties": {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "0",
        "write.parquet.compression-codec": "zstd",
    },
    "version": 2,
    "last": 1,
}


@pytest.mark.parametrize("kind", JAVA_2_0)
def test_the_server_has_what_java_sends(
    server: IcebergRestServer, served: IcebergCatalog, tmp_path: Path, kind: str
) -> None:
    names, _, partition = kind.partition(" by ")
    created = Catalog(str(tmp_path)).create_table(
        "db.t",
        ", ".join(f"{name} INT" for name in names.split(", ")),
        partition_by=[partition] if partition else [],
        options=options(server),
    )
    for key in (1, 2):
        created.append(pa.table({"k": [key], "p": [1]}).select(names.split(", ")))

    shown = served.load_table("db.t").metadata

    specs = {
        spec.spec_id: [(field.source_id, field.field_id, field.name) for field in spec.fields]
        for spec in shown.partition_specs
    }
    assert specs[0] == JAVA_2_0[kind]["specs"][0]
    assert OF_EACH | {"schemas": JAVA_2_0[kind]["schemas"]} == {
        "schemas": {s.schema_id: [f.field_id for f in s.fields] for s in shown.schemas},
        "current": shown.current_schema_id,
        "snapshots": [(s.snapshot_id, s.schema_id, s.parent_snapshot_id) for s in shown.snapshots],
        "refs": {name: ref.snapshot_id for name, ref in shown.refs.items()},
        "default": shown.default_spec_id,
        "properties": shown.properties,
        "version": shown.format_version,
        "last": shown.last_column_id,
    }


@pytest.mark.parametrize("columns", ["p INT, k INT NOT NULL", "k INT NOT NULL, x STRING, p INT"])
@pytest.mark.parametrize("version", ["2", "3"])
def test_partitioned_tables_can_be_read(
    server: IcebergRestServer,
    served: IcebergCatalog,
    spark_reader: SparkReader,
    tmp_path: Path,
    columns: str,
    version: str,
) -> None:
    created = Catalog(str(tmp_path)).create_table(
        "db.t", columns, partition_by=["p"], options=options(server, format_version=version)
    )
    for partition, key in ((1, 10), (2, 20), (1, 11)):
        values = {"p": pa.array([partition], pa.int32()), "k": pa.array([key], pa.int32())}
        created.append(
            pa.table({n: values.get(n, pa.nulls(1)) for n in created.load().schema.names})
        )

    shown = served.load_table("db.t")

    assert shown.metadata.format_version == int(version)
    # A server numbers the columns of a new table from 1, so a partition column 0 is not shown.
    names = [item.name for item in shown.spec().fields]
    assert names == ([] if columns.startswith("p") else ["p"])
    assert sorted(shown.scan("p = 1").to_arrow()["k"].to_pylist()) == [10, 11]
    assert read_with_spark(spark_reader, server) == [10, 11, 20]
    assert status_of(created).is_current


def test_deletion_vectors_and_compaction_are_published(
    server: IcebergRestServer, served: IcebergCatalog, spark_reader: SparkReader, tmp_path: Path
) -> None:
    vectors = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"}
    created = Catalog(str(tmp_path)).create_table(
        "db.t",
        "k INT NOT NULL, a STRING",
        primary_key=["k"],
        options=options(server, format_version="3") | vectors | {"bucket": "1"},
    )
    for keys in ([1, 2, 3], [2]):
        rows = {"k": pa.array(keys, pa.int32()), "a": [f"{len(keys)}"] * len(keys)}
        created.upsert(pa.table(rows))
        compact(created, InProcessExecutor(), strategy="full")
    created.delete(pa.table({"k": pa.array([3], pa.int32())}))
    compact(created, InProcessExecutor())

    assert read_with_spark(spark_reader, server) == [1, 2]
    assert status_of(created).is_current


def test_a_commit_succeeds_without_the_server_and_the_next_one_catches_up(
    server: IcebergRestServer,
    served: IcebergCatalog,
    table: Table,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.kill()
    try:
        with caplog.at_level(logging.DEBUG):
            append(table, 2)
            append(table, 3)
        assert "Iceberg metadata is stale" in caplog.text
        assert TOKEN not in caplog.text
        unreachable = status_of(table)
        assert (unreachable.is_current, unreachable.published_id) == (False, None)
    finally:
        server.start()

    stale = status_of(table)
    assert (stale.is_current, stale.published_id, stale.missing_snapshots) == (False, 1, 2)
    assert "has snapshot 1, and the newest metadata is" in (stale.problem or "")
    assert keys_of(served.load_table("db.t")) == [1]
    result = sync_iceberg(table)
    assert (result.status.is_current, result.status.published_id) == (True, 3)
    shown = served.load_table("db.t")
    assert (keys_of(shown), keys_of(shown, 2)) == ([1, 2, 3], [1, 2])


def test_expired_snapshots_leave_the_catalog_before_their_files(
    served: IcebergCatalog, table: Table
) -> None:
    for key in (2, 3):
        append(table, key)

    expire_snapshots(table, retain_max=1, retain_min=1)

    shown = served.load_table("db.t")
    assert [snapshot.snapshot_id for snapshot in shown.metadata.snapshots] == [3]
    assert keys_of(shown) == [1, 2, 3]


def test_after_a_rollback_the_table_is_created_again(served: IcebergCatalog, table: Table) -> None:
    for key in (2, 3):
        append(table, key)
    uuid = served.load_table("db.t").metadata.table_uuid

    table.rollback(2)

    shown = served.load_table("db.t")
    assert shown.metadata.table_uuid != uuid
    assert (keys_of(shown), keys_of(shown, 1)) == ([1, 2], [1])
    append(table, 4)
    assert keys_of(served.load_table("db.t")) == [1, 2, 4]
    assert status_of(table).is_current


def test_a_later_publication_is_not_replaced_by_an_earlier_one(
    served: IcebergCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, calls = RestEntry._find_table, list[int]()
    uuid = served.load_table("db.t").metadata.table_uuid

    def find_late(entry: RestEntry, catalog: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            append(table, 3)
        return find(entry, catalog)

    with monkeypatch.context() as patch:
        patch.setattr(RestEntry, "_find_table", find_late)
        append(table, 2)

    shown = served.load_table("db.t")
    assert (keys_of(shown), keys_of(shown, 2)) == ([1, 2, 3], [1, 2])
    assert shown.metadata.table_uuid == uuid


def test_a_commit_that_another_client_precedes_is_repeated(
    served: IcebergCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, calls = RestEntry._commit, list[int]()

    def commit_late(entry: RestEntry, catalog: Any, found: Any, updates: Any) -> bool:
        calls.append(1)
        if len(calls) == 1:
            append(table, 3)
        return commit(entry, catalog, found, updates)

    with monkeypatch.context() as patch:
        patch.setattr(RestEntry, "_commit", commit_late)
        append(table, 2)

    assert len(calls) >= 2
    assert keys_of(served.load_table("db.t")) == [1, 2, 3]
    assert status_of(table).is_current


def test_another_table_of_that_name_is_not_replaced(
    server: IcebergRestServer, served: IcebergCatalog, tmp_path: Path
) -> None:
    served.create_namespace("db")
    other = served.create_table("db.t", Schema(NestedField(1, "x", IntegerType(), required=False)))
    other.append(pa.table({"x": pa.array([1], pa.int32())}))
    created = Catalog(str(tmp_path)).create_table("db.t", "k INT", options=options(server))

    append(created, 1)

    assert served.load_table("db.t").scan().to_arrow()["x"].to_pylist() == [1]
    with pytest.raises(UnsupportedError, match=r"db\.t in the Iceberg REST .* is another table"):
        sync_iceberg(created)


def test_a_wrong_token_is_not_shown(
    served: IcebergCatalog, table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog(str(tmp_path))
    wrong = "metadata.iceberg.rest.token", "a-secret-token"

    with caplog.at_level(logging.DEBUG):
        catalog.alter_table("db.t", [SetOption(*wrong)])
        with pytest.raises(AccessDeniedError) as error:
            sync_iceberg(table)

    assert wrong[1] not in caplog.text + str(error.value) + repr(error.value.__context__)
    assert not status_of(table).is_current


def test_a_table_with_history_is_switched_on_later(
    server: IcebergRestServer,
    served: IcebergCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = Catalog(str(tmp_path))
    created = catalog.create_table("db.t", "k INT NOT NULL")
    append(created, 1)
    monkeypatch.setattr(IcebergPublisher, "publish", lambda _: None)
    named = options(server, database="other", table="u") | {"num-levels": "7"}
    catalog.alter_table(
        "db.t", [SetOption(key, text) for key, text in named.items() if key != "bucket"]
    )
    monkeypatch.undo()

    assert sync_iceberg(created).status.is_current
    assert keys_of(served.load_table("other.u")) == [1]


def test_an_entry_with_a_name_of_its_own_follows_a_renamed_table(
    server: IcebergRestServer, served: IcebergCatalog, tmp_path: Path
) -> None:
    catalog = Catalog(str(tmp_path / "one"))
    named = options(server, table="shown")
    append(catalog.create_table("db.t", "k INT NOT NULL", options=named), 1)
    catalog.rename_table("db.t", "db.u")
    assert status_of(catalog.table("db.u")).is_current
    assert keys_of(served.load_table("db.shown")) == [1]

    other = Catalog(str(tmp_path / "two")).create_table("db.u", "k INT NOT NULL", options=named)
    append(other, 7)

    with pytest.raises(UnsupportedError, match="is another table"):
        sync_iceberg(other)
    assert keys_of(served.load_table("db.shown")) == [1]
