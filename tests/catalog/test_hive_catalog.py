"""Our objects in a Hive metastore equal those of Java Paimon, and both change them in turns."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.catalogs.hive_metastore import METASTORES, HiveMetastore
from support.peers.peers import Peer, PeerError

from paimon_orch import Catalog, InputError
from paimon_orch.catalog.hive.hive_settings import read_settings
from paimon_orch.errors import AlreadyExistsError, MissingFileError, NotFoundError, UnsupportedError
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import field_to_json, parse_columns
from paimon_orch.metastore.hive_client import HiveClient, import_thrift_types
from paimon_orch.table.catalog_environment import PartitionStatistics
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    ResetOption,
    SetOption,
    UpdateType,
)
from paimon_orch.table.table import Table

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("peers")]
# Answers of the metastore differ between releases; the client is tested with one of them.
EACH_RELEASE = pytest.mark.parametrize("hive_metastore", METASTORES, indirect=True)

TYPES = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(20, 3)",
    "CHAR(255)",
    "CHAR(256)",
    "VARCHAR(65535)",
    "VARCHAR(65536)",
    "STRING",
    "BINARY(3)",
    "BYTES",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(3)",
    "ARRAY<STRING>",
    "MAP<STRING, DECIMAL(5, 2)>",
    "MULTISET<STRING>",
    "ROW<Ab INT, c ARRAY<ROW<d DATE, e TIMESTAMP(6)>>>",
]
PARTITIONED = {"bucket": "1", "metastore.partitioned-table": "true"}
KEYED = "day STRING NOT NULL, k INT NOT NULL, v STRING"
# The metastore adds these parameters, and counts files; clocks differ.
ADDED = ("transient_lastDdlTime", "numFiles", "totalSize")
TIMES = ("createTime", "lastAccessTime")


def to_catalog(options: dict[str, str]) -> Catalog:
    opened: dict[str, Any] = {**options}
    return Catalog(**opened)


def to_spec(
    columns: str,
    primary_key: tuple[str, ...] = (),
    partition_by: tuple[str, ...] = (),
    **options: str,
) -> dict[str, Any]:
    """Return the spec of a Java peer."""
    schema = build_table_schema(parse_columns(columns))
    fields = [field_to_json(field) for field in schema.fields]
    return {
        "fields": fields,
        "primary_keys": [*primary_key],
        "partition_keys": [*partition_by],
        "options": options,
    }


def normalize(stored: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what a metastore stores about a table or partition, without its name and times."""
    text = {**stored, **dict.fromkeys(TIMES), "tableName": None}
    parameters = stored.get("parameters") or {}
    text["parameters"] = {
        key: value.replace(f"/{name}", "/NAME")
        for key, value in parameters.items()
        if key not in ADDED
    }
    location = stored["sd"].get("location", "").replace(f"/{name}", "/NAME")
    text["sd"] = {**stored["sd"], "location": location}
    return text


def partitions_of(metastore: HiveMetastore, name: str) -> list[dict[str, Any]]:
    stored = [each for each in metastore.stored()["partitions"] if each["tableName"] == name]
    return sorted((normalize(each, name) for each in stored), key=lambda each: each["values"])


def row(day: str, k: int, v: str = "x") -> dict[str, Any]:
    return {"day": day, "k": k, "v": v}


def to_arrow(*rows: dict[str, Any]) -> pa.Table:
    schema = pa.schema([("day", pa.string()), ("k", pa.int32()), ("v", pa.string())])
    return pa.Table.from_pylist([*rows], schema)


def read_rows(table: Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.scan(order_by="k").to_arrow().to_pylist()
    return rows


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of the metastore that are called."""
    sent: list[str] = []
    call = HiveClient._call

    def record(client: HiveClient, method: str, arguments: tuple[Any, ...]) -> Any:
        sent.append(method)
        return call(client, method, arguments)

    monkeypatch.setattr(HiveClient, "_call", record)
    return sent


def new_table(metastore: HiveMetastore, *, name: str = "db.t", **options: str) -> Table:
    return to_catalog(metastore.options()).create_table(
        name,
        KEYED,
        primary_key=["day", "k"],
        partition_by=["day"],
        options={**PARTITIONED, **options},
    )


CASES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "all types": (
        {},
        {"columns": ", ".join(f"c{number} {type_}" for number, type_ in enumerate(TYPES))},
    ),
    "comments": ({}, {"columns": "k INT COMMENT 'the key', v ARRAY<STRING> COMMENT 'it''s'"}),
    "primary key": ({}, {"columns": KEYED, "primary_key": ("k",), "bucket": "2"}),
    "bucket key": ({}, {"columns": KEYED, "bucket": "2", "bucket-key": "v,k"}),
    "partition columns": (
        {},
        {"columns": KEYED, "primary_key": ("day", "k"), "partition_by": ("day",), **PARTITIONED},
    ),
    "two partition columns in another order": (
        {},
        {"columns": KEYED, "partition_by": ("v", "day"), "metastore.partitioned-table": "true"},
    ),
    "partition columns that the metastore does not know": (
        {},
        {"columns": KEYED, "partition_by": ("day",)},
    ),
    "tags as partitions": ({}, {"columns": KEYED, "metastore.tag-to-partition": "tag"}),
    "external by the catalog": ({"table.type": "external"}, {"columns": KEYED}),
    "locations in properties": ({"location-in-properties": "true"}, {"columns": KEYED}),
    "without options": (
        {"sync-all-properties": "false"},
        {
            "columns": KEYED,
            "primary_key": ("day", "k"),
            "partition_by": ("day",),
            **PARTITIONED,
            "partition.expiration-time": "7 d",
            "partition.timestamp-formatter": "yyyy",
        },
    ),
}


@EACH_RELEASE
@pytest.mark.parametrize("case", CASES)
def test_java_stores_the_same_tables(
    hive_metastore: HiveMetastore, hive_java: Peer, case: str
) -> None:
    more, definition = CASES[case]
    options = {**hive_metastore.options(), **more}
    catalog, definition = to_catalog(options), {**definition}
    spec = {**to_spec(**definition), "comment": "all of them"}
    hive_java.run("create", options, "db.theirs", spec=spec)

    keys = {name: definition.pop(name, ()) for name in ("primary_key", "partition_by")}
    columns = definition.pop("columns")
    catalog.create_table("db.ours", columns, **keys, options=definition, comment="all of them")

    ours, theirs = hive_metastore.table("ours"), hive_metastore.table("theirs")
    assert normalize(ours, "ours") == normalize(theirs, "theirs")
    assert abs(ours["createTime"] - theirs["createTime"]) < 60

    hive_java.run("alter", options, "db.theirs", changes=[["add", "w", "INT"], ["set", "a.b", "c"]])
    catalog.alter_table("db.ours", [AddColumn(column="w", type="INT"), SetOption("a.b", "c")])
    ours, theirs = hive_metastore.table("ours"), hive_metastore.table("theirs")
    assert "w" in str(ours["sd"]["cols"])
    assert normalize(ours, "ours") == normalize(theirs, "theirs")

    hive_java.run("alter", options, "db.theirs", changes=[["reset", "a.b"]])
    catalog.alter_table("db.ours", [ResetOption("a.b")])
    ours, theirs = hive_metastore.table("ours"), hive_metastore.table("theirs")
    assert "a.b" not in ours["parameters"]
    assert normalize(ours, "ours") == normalize(theirs, "theirs")


@EACH_RELEASE
@pytest.mark.parametrize("in_properties", ["false", "true"])
def test_java_stores_the_same_databases(
    hive_metastore: HiveMetastore, hive_java: Peer, in_properties: str
) -> None:
    options = hive_metastore.options(location_in_properties=in_properties)
    hive_java.ask("create_database", options, database="one", options={})
    to_catalog(options).create_database("two")

    ours, theirs = (str(each) for each in reversed(hive_metastore.databases()))
    if "'name': 'one'" in ours:
        ours, theirs = theirs, ours
    assert ours.replace("two", "one") == theirs
    assert to_catalog(options).databases() == ["default", "one", "two"]
    assert (hive_metastore.warehouse / "two.db").is_dir()
    to_catalog(options).drop_database("one")
    hive_java.ask("drop_database", options, database="two", cascade=False)
    assert to_catalog(options).databases() == ["default"]
    assert not (hive_metastore.warehouse / "two.db").exists()
    assert not (hive_metastore.warehouse / "one.db").exists()


@EACH_RELEASE
def test_hive_3_has_a_type_for_local_timestamps(
    hive_metastore: HiveMetastore, hive_java: Peer
) -> None:
    options = hive_metastore.options()
    catalog = to_catalog(options)
    catalog.create_table("db.t", "k INT, a TIMESTAMP_LTZ(3), b ARRAY<TIMESTAMP_LTZ(6)>")
    long = "timestamp with local time zone"
    name = long if hive_metastore.release == "3.1" else "timestamp"
    assert [column["type"] for column in hive_metastore.table("t")["sd"]["cols"]] == [
        "int",
        name,
        f"array<{name}>",
    ]
    catalog.alter_table("db.t", [AddColumn(column="c", type="TIMESTAMP_LTZ(3)")])
    assert hive_metastore.table("t")["sd"]["cols"][3]["type"] == name

    # The client of Hive 2 that Java has here writes the short name, which must be kept.
    field = {"id": 0, "name": "a", "type": "TIMESTAMP(3) WITH LOCAL TIME ZONE"}
    spec = {"fields": [field], "primary_keys": [], "partition_keys": [], "options": {}}
    hive_java.run("create", options, "db.u", spec=spec)
    catalog.alter_table("db.u", [AddColumn(column="c", type="TIMESTAMP_LTZ(3)")])
    columns = [column["type"] for column in hive_metastore.table("u")["sd"]["cols"]]
    assert columns == ["timestamp", "timestamp"]


@EACH_RELEASE
def test_java_and_this_library_write_in_turns(
    hive_metastore: HiveMetastore, hive_java: Peer
) -> None:
    options = hive_metastore.options(lock__enabled="true")
    catalog = to_catalog(options)
    ours = new_table(hive_metastore)
    spec = to_spec(KEYED, ("day", "k"), ("day",), **PARTITIONED)
    hive_java.run("create", options, "db.theirs", spec=spec)
    theirs = catalog.table("db.theirs")
    rows = []
    for turn in range(3):
        mine, other = row("a", 2 * turn), row(f"b c/{turn}", 2 * turn + 1)
        for table in (ours, theirs):
            copy = pickle.loads(pickle.dumps(table))  # noqa: S301 - our own bytes
            copy.upsert(to_arrow(mine))
            hive_java.run("write", options, table.identifier, rows=[other])
        rows += [mine, other]
    for table in (ours, theirs):
        assert read_rows(table) == rows
        read = hive_java.read(options, table.identifier)
        assert sorted(read, key=lambda each: each["k"]) == rows
    names = [["a"], ["b c/0"], ["b c/1"], ["b c/2"]]
    for name in ("t", "theirs"):
        assert [part["values"] for part in partitions_of(hive_metastore, name)] == names
    assert hive_metastore.stored()["locks"] == []
    assert catalog.tables("db") == hive_java.ask("list_tables", options, database="db")


@EACH_RELEASE
@pytest.mark.parametrize("case", ["plain", "properties", "directory"])
def test_java_stores_the_same_partitions(
    hive_metastore: HiveMetastore, hive_java: Peer, case: str
) -> None:
    options = hive_metastore.options()
    table_options = {**PARTITIONED}
    if case == "properties":
        options["location-in-properties"] = "true"
    if case == "directory":
        table_options["data-file.path-directory"] = "data"
    days = ["a", "b c/d", "x=y%z"]
    spec = to_spec(KEYED, ("day", "k"), ("day",), **table_options)
    hive_java.run("create", options, "db.theirs", spec=spec)
    hive_java.run("write", options, "db.theirs", rows=[row(day, 1) for day in days])
    hive_java.run("create", options, "db.ours", spec=spec)
    table = to_catalog(options).table("db.ours")
    table.upsert(to_arrow(*(row(day, 1) for day in days)))

    ours, theirs = partitions_of(hive_metastore, "ours"), partitions_of(hive_metastore, "theirs")
    assert [part["values"] for part in ours] == [[day] for day in days]
    assert ours == theirs

    partitions = table.environment.partitions
    assert partitions is not None
    assert sorted(each["day"] for each in partitions.list()) == days
    partitions.add([{"day": "a"}, {"day": "new"}])
    partitions.drop([{"day": "b c/d"}, {"day": "never"}])
    assert sorted(each["day"] for each in partitions.list()) == ["a", "new", "x=y%z"]
    assert len(read_rows(table)) == 3


@EACH_RELEASE
def test_statistics_of_partitions_are_parameters(hive_metastore: HiveMetastore) -> None:
    table = new_table(hive_metastore)
    table.upsert(to_arrow(row("a", 1), row("b", 1)))
    partitions = table.environment.partitions
    assert partitions is not None
    figures = {"record_count": 5, "file_size": 600, "file_count": 7, "total_buckets": 8}
    statistics = [
        PartitionStatistics(
            spec={"day": day}, last_file_creation_millis=1_700_000_000_999, **figures
        )
        for day in ("a", "never")
    ]

    partitions.update_statistics(statistics)

    stored = {part["values"][0]: part for part in hive_metastore.stored()["partitions"]}
    assert sorted(stored) == ["a", "b"]
    assert stored["a"]["lastAccessTime"] == 1_700_000_000
    expected = {
        "numRows": "5",
        "totalSize": "600",
        "numFiles": "7",
        "totalBuckets": "8",
        "lastUpdateTime": "1700000000",
        "transient_lastDdlTime": "1700000000",
    }
    assert expected.items() <= stored["a"]["parameters"].items()
    assert "numRows" not in stored["b"]["parameters"]


@EACH_RELEASE
def test_complete_partitions_are_marked_in_the_metastore(
    hive_metastore: HiveMetastore, hive_java: Peer
) -> None:
    options = hive_metastore.options()
    table = new_table(hive_metastore, **{"partition.mark-done-action": "mark-event"})
    table.upsert(to_arrow(row("a", 1), row("b", 2), row("c", 3)))
    assert table.environment.marks is not None
    table.environment.marks.mark_done([{"day": "a"}, {"day": "never"}])
    hive_java.run("mark_done", options, partitions=[{"day": "b"}])

    client = HiveClient(read_settings(options).address)
    event = import_thrift_types().PartitionEventType.LOAD_DONE
    marked = [
        client.read("isPartitionMarkedForEvent", "db", "t", {"day": day}, event) for day in "abc"
    ]
    assert marked == [True, True, False]


@EACH_RELEASE
def test_tags_are_partitions(hive_metastore: HiveMetastore, hive_java: Peer) -> None:
    options = hive_metastore.options()
    tags: dict[str, Any] = {"bucket": "1", "metastore.tag-to-partition": "tag"}
    spec = to_spec(KEYED, ("k",), **tags)
    for name in ("ours", "theirs"):
        hive_java.run("create", options, f"db.{name}", spec=spec)
        hive_java.run("write", options, f"db.{name}", rows=[row("a", 1)])
    hive_java.run("tag", options, "db.theirs", name="2024-01-01")
    table = to_catalog(options).table("db.ours")
    table.tags.create("2024-01-01")

    ours, theirs = partitions_of(hive_metastore, "ours"), partitions_of(hive_metastore, "theirs")
    assert ours == theirs
    assert len(ours) == 1
    hive_java.run("delete_tag", options, "db.ours", name="2024-01-01")
    assert partitions_of(hive_metastore, "ours") == []


@EACH_RELEASE
def test_each_renames_and_drops_the_tables_of_the_other(
    hive_metastore: HiveMetastore, hive_java: Peer
) -> None:
    options = hive_metastore.options()
    catalog = to_catalog(options)
    spec = to_spec(KEYED, ("day", "k"), ("day",), **PARTITIONED)
    hive_java.run("create", options, "db.theirs", spec=spec)
    hive_java.run("write", options, "db.theirs", rows=[row("a", 1)])
    new_table(hive_metastore, name="db.ours").upsert(to_arrow(row("a", 1)))

    hive_java.run("rename", options, "db.ours", to="db.one")
    catalog.create_database("other")
    catalog.rename_table("db.theirs", "other.two")

    folder = hive_metastore.warehouse
    assert sorted(path.name for path in (folder / "db.db").iterdir()) == ["one"]
    assert hive_metastore.table("two", "other")["sd"]["location"] == f"file:{folder}/other.db/two"
    locations = [part["sd"]["location"] for part in hive_metastore.stored()["partitions"]]
    assert sorted(locations) == [
        f"file:{folder}/db.db/one/day=a",
        f"file:{folder}/other.db/two/day=a",
    ]
    assert hive_java.read(options, "other.two") == read_rows(catalog.table("db.one"))
    new_table(hive_metastore)
    with pytest.raises(AlreadyExistsError, match=r"table other\.two already exists"):
        catalog.rename_table("db.t", "other.two")
    catalog.drop_table("db.one")
    hive_java.run("drop", options, "other.two")
    assert catalog.tables("other") == []
    assert [path.name for path in folder.glob("*.db/*")] == ["t"]


def test_files_of_external_tables_are_kept(
    hive_metastore: HiveMetastore, hive_java: Peer, tmp_path: Path
) -> None:
    options = hive_metastore.options()
    catalog = to_catalog(options)
    place = str(tmp_path / "any where")
    spec = to_spec(KEYED, ("k",), bucket="1", path=place)
    hive_java.run("create", options, "db.t", spec=spec)
    table = catalog.table("db.t")
    assert table.paths.root == place
    table.upsert(to_arrow(row("a", 1)))

    renamed = catalog.rename_table("db.t", "db.u")
    assert renamed.paths.root == place
    assert hive_java.read(options, "db.u") == [row("a", 1)]
    catalog.alter_table("db.u", [SetOption("snapshot.num-retained.min", "5")])
    assert hive_metastore.table("u")["sd"]["location"] == f"file:{place}"
    catalog.drop_table("db.u")
    assert (tmp_path / "any where" / "snapshot" / "snapshot-1").exists()

    other = str(tmp_path / "theirs")
    hive_java.run("create", options, "db.theirs", spec=to_spec(KEYED, ("k",), path=other))
    place = str(tmp_path / "ours")
    ours = catalog.create_table("db.ours", KEYED, primary_key=["k"], options={"path": place})
    assert ours.paths.root == place
    ours.upsert(to_arrow(row("a", 1)))
    assert hive_java.read(options, "db.ours") == [row("a", 1)]
    stored = normalize(hive_metastore.table("theirs"), "theirs")
    assert stored["parameters"]["path"] == str(tmp_path / "NAME")
    assert normalize(hive_metastore.table("ours"), "ours") == stored
    hive_java.run("drop", options, "db.ours")
    assert (tmp_path / "ours" / "snapshot" / "snapshot-1").exists()


def test_an_external_table_is_created_from_its_files(hive_metastore: HiveMetastore) -> None:
    options = hive_metastore.options()
    catalog = to_catalog(options)
    outside = to_catalog({**options, "table.type": "external"})
    kept = outside.create_table("db.t", "k INT")
    assert hive_metastore.table("t")["tableType"] == "EXTERNAL_TABLE"
    outside.drop_table("db.t")
    again = outside.create_table("db.t", "k INT")
    assert again.load().schema == kept.load().schema
    outside.drop_table("db.t")
    with pytest.raises(InputError, match="different fields"):
        outside.create_table("db.t", "k BIGINT")
    with pytest.raises(AlreadyExistsError, match="has a Paimon table that the metastore does not"):
        catalog.create_table("db.t", "k INT")
    catalog.drop_database("db", cascade=True)
    assert catalog.databases() == ["default"]
    assert (hive_metastore.warehouse / "db.db" / "t" / "schema" / "schema-0").exists()


def add_foreign(
    metastore: HiveMetastore, name: str, kind: str = "MANAGED_TABLE", **parameters: str
) -> HiveClient:
    """Add a table of text files, or a view."""
    client, types = HiveClient(read_settings(metastore.options()).address), import_thrift_types()
    sd = types.StorageDescriptor(
        cols=[types.FieldSchema(name="a", type="int")],
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=types.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        ),
    )
    table = types.Table(
        dbName="db",
        tableName=name,
        sd=sd,
        tableType=kind,
        partitionKeys=[],
        parameters=parameters,
    )
    client.write("create_table", table)
    return client


@EACH_RELEASE
def test_tables_of_other_formats_are_neither_listed_nor_touched(
    hive_metastore: HiveMetastore, hive_java: Peer
) -> None:
    options = hive_metastore.options()
    catalog = to_catalog(options)
    new_table(hive_metastore)
    client = add_foreign(hive_metastore, "text")
    add_foreign(hive_metastore, "view", "VIRTUAL_VIEW")

    assert catalog.tables("db") == ["t"]
    with pytest.raises(UnsupportedError, match=r"db\.text in the metastore is a table of another"):
        catalog.table("db.text")
    with pytest.raises(UnsupportedError, match=r"db\.view in the metastore is a view"):
        catalog.drop_table("db.view", if_exists=True)
    with pytest.raises(UnsupportedError, match=r"db\.text"):
        catalog.create_table("db.text", "k INT", if_not_exists=True)
    with pytest.raises(AlreadyExistsError, match=r"db\.text already exists"):
        catalog.rename_table("db.t", "db.text")
    with pytest.raises(InputError, match="drop_database"):
        catalog.drop_database("db", cascade=True)
    assert sorted(client.read("get_all_tables", "db")) == ["text", "view"]
    with pytest.raises(PeerError, match=r"Table .?db\.text"):
        hive_java.run("create", options, "db.text", spec=to_spec(KEYED))


def test_transactional_tables_of_hive_do_not_disturb_a_listing(
    hive_metastores: Callable[[str], HiveMetastore],
) -> None:
    hive_metastore = hive_metastores("3.1")
    new_table(hive_metastore)
    # Hive refuses to describe such a table to clients that do not name the capability.
    insert_only = {"transactional": "true", "transactional_properties": "insert_only"}
    add_foreign(hive_metastore, "acid", **insert_only)
    catalog = to_catalog(hive_metastore.options())
    assert catalog.tables("db") == ["t"]
    with pytest.raises(UnsupportedError, match=r"db\.acid in the metastore is a table of another"):
        catalog.table("db.acid")
    hive_metastore.clear()


@EACH_RELEASE
def test_columns_of_partitions_change_with_those_of_the_table(
    hive_metastore: HiveMetastore,
) -> None:
    new_table(hive_metastore).upsert(to_arrow(row("a", 1)))
    more = {"alter-table-cascade": "false", "hive.skip-update-stats": "true"}
    keeping = to_catalog({**hive_metastore.options(), **more})

    keeping.alter_table("db.t", [AddColumn(column="w", type="INT")])
    [partition] = hive_metastore.stored()["partitions"]
    assert [column["name"] for column in partition["sd"]["cols"]] == ["k", "v"]

    to_catalog(hive_metastore.options()).alter_table("db.t", [AddColumn(column="x", type="INT")])
    [partition] = hive_metastore.stored()["partitions"]
    assert "x" in [column["name"] for column in partition["sd"]["cols"]]


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_table_with_its_location_in_properties_is_renamed(
    hive_metastore: HiveMetastore, hive_java: Peer, tmp_path: Path, is_moved: bool
) -> None:
    warehouse = hive_metastore.warehouse if is_moved else tmp_path / "elsewhere"
    options = hive_metastore.options(warehouse, location_in_properties="true")
    catalog = to_catalog(options)
    table = catalog.create_table("db.t", KEYED, primary_key=["k"])
    table.upsert(to_arrow(row("a", 1)))

    renamed = catalog.rename_table("db.t", "db.u")

    assert renamed.paths.root == f"{warehouse}/db.db/{'u' if is_moved else 't'}"
    assert hive_java.read(options, "db.u") == read_rows(renamed) == [row("a", 1)]
    catalog.drop_table("db.u")
    assert list((warehouse / "db.db").iterdir()) == []


def test_names_are_lower_case(hive_metastore: HiveMetastore) -> None:
    catalog = to_catalog(hive_metastore.options())
    for name in ("Db.t", "db.T"):
        with pytest.raises(InputError, match="must be lower case"):
            catalog.create_table(name, "k INT")
    catalog.create_table("db.t", "k INT")
    with pytest.raises(InputError, match="must be lower case"):
        catalog.rename_table("db.t", "db.U")
    assert catalog.tables("db") == ["t"]


@EACH_RELEASE
def test_missing_objects_have_the_errors_of_all_catalogs(hive_metastore: HiveMetastore) -> None:
    catalog = to_catalog(hive_metastore.options())
    with pytest.raises(NotFoundError, match="no database 'db'"):
        catalog.table("db.t")
    catalog.create_database("db")
    with pytest.raises(NotFoundError, match=r"there is no table db\.t .* \(tables of db: none\)"):
        catalog.table("db.t")
    with pytest.raises(AlreadyExistsError, match="database 'db' already exists"):
        catalog.create_database("db")
    table = catalog.create_table("db.t", "k INT")
    with pytest.raises(AlreadyExistsError, match=r"table db\.t already exists"):
        catalog.create_table("db.t", "k INT")
    with pytest.raises(NotFoundError, match="has no branch 'b'"):
        catalog.table("db.t$branch_b")
    Path(table.paths.root, "schema", "schema-0").unlink()
    with pytest.raises(MissingFileError, match=r"has the table db\.t; restore the files"):
        catalog.table("db.t")


def test_branches_do_not_reach_the_metastore(hive_metastore: HiveMetastore) -> None:
    catalog = to_catalog(hive_metastore.options(lock__enabled="true"))
    table = catalog.create_table("db.t", "k INT")
    table.append(pa.table({"k": pa.array([1], pa.int32())}))
    table.tags.create("base")
    table.branches.create("b", tag="base")

    catalog.alter_table("db.t$branch_b", [AddColumn(column="w", type="INT")])

    assert [column["name"] for column in hive_metastore.table("t")["sd"]["cols"]] == ["k"]
    branch = catalog.table("db.t$branch_b")
    branch.append(pa.table({"k": pa.array([2], pa.int32()), "w": pa.array([3], pa.int32())}))
    assert branch.scan(order_by="k").to_arrow()["k"].to_pylist() == [1, 2]
    assert catalog.table("db.t").scan().to_arrow()["k"].to_pylist() == [1]


def test_a_refused_table_leaves_no_files(hive_metastore: HiveMetastore) -> None:
    catalog = to_catalog(hive_metastore.options())
    catalog.create_database("db")
    with pytest.raises(InputError, match="create_table"):
        catalog.create_table("db.a b*", "k INT")  # no name for Hive
    assert list((hive_metastore.warehouse / "db.db").iterdir()) == []
    assert catalog.tables("db") == []


@EACH_RELEASE
def test_an_incompatible_change_leaves_no_schema_file(hive_metastore: HiveMetastore) -> None:
    catalog = to_catalog(hive_metastore.options())
    table = catalog.create_table("db.t", "k INT, s STRING")
    with pytest.raises(InputError, match="alter_table_with_environment_context"):
        catalog.alter_table("db.t", [UpdateType("s", "INT")])
    assert table.stores.schemas.ids() == [0]
    assert [column["type"] for column in hive_metastore.table("t")["sd"]["cols"]] == [
        "int",
        "string",
    ]


def test_requests_are_counted(hive_metastore: HiveMetastore, requests: list[str]) -> None:
    table = to_catalog(hive_metastore.options()).create_table("db.t", "k INT")
    for number in range(4):
        new_table(hive_metastore, name=f"db.t{number}")
    rows = pa.table({"k": pa.array([1], pa.int32())})

    requests.clear()
    table.append(rows)
    assert requests == []
    locked = to_catalog(hive_metastore.options(lock__enabled="true")).table("db.t")
    assert requests == ["get_table_req"]
    requests.clear()
    locked.append(rows)
    assert requests == ["lock", "unlock"]
    requests.clear()
    to_catalog(hive_metastore.options()).table("db.t0").upsert(to_arrow(row("a", 1)))
    assert requests == ["get_table_req", "get_table_req", "add_partitions_req"]
    requests.clear()
    options = {**hive_metastore.options(), "hive.metastore.batch.retrieve.max": "2"}
    assert to_catalog(options).tables("db") == ["t", "t0", "t1", "t2", "t3"]
    assert requests == ["get_database", "get_all_tables", *["get_table_objects_by_name_req"] * 3]


def test_no_option_of_the_store_is_in_texts(
    hive_metastore: HiveMetastore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options = {**hive_metastore.options(), "s3.secret-key": "my password"}
    catalog = to_catalog(options)
    table = catalog.create_table("db.t", "k INT")
    assert "my password" not in repr(table) + repr(catalog) + repr(catalog.backend) + caplog.text
    assert b"my password" not in pickle.dumps(table)
