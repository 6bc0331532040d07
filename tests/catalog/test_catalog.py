"""Warehouses: create, find, list and drop tables. Error messages contain the fix."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, NotFoundError, PaimonError, StorageError
from paimon_orch.format.types.data_types import type_to_sql


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(str(tmp_path / "warehouse"))


def test_tables_are_created_found_and_listed(catalog: Catalog) -> None:
    catalog.create_table("b.two", "id INT")
    catalog.create_table("a.one", "id INT")
    catalog.create_table("a.another", "id INT")

    assert catalog.databases() == ["a", "b"]
    assert catalog.tables("a") == ["another", "one"]
    assert catalog.table("a.one").load().schema.names == ["id"]


def test_a_warehouse_can_be_a_uri(tmp_path: Path) -> None:
    Catalog(f"file://{tmp_path}/with%20space").create_table("db.t", "id INT")

    assert Catalog(str(tmp_path / "with space")).tables("db") == ["t"]


def test_other_directories_are_not_tables(catalog: Catalog) -> None:
    catalog.create_table("a.one", "id INT")
    (Path(catalog.uri) / "a.db" / "scratch").mkdir()
    (Path(catalog.uri) / "logs").mkdir()
    (Path(catalog.uri) / "a.db" / "file").write_text("")

    assert catalog.tables("a") == ["one"]
    assert catalog.databases() == ["a"]


def test_the_error_for_a_missing_table_lists_existing_tables(catalog: Catalog) -> None:
    with pytest.raises(NotFoundError, match=r"no table a\.b: .*does not exist; check the path"):
        catalog.table("a.b")
    catalog.create_table("a.one", "id INT")
    with pytest.raises(NotFoundError, match=r"no table b\.b .*no database 'b' \(databases: a\)"):
        catalog.table("b.b")
    with pytest.raises(NotFoundError, match=r"no table a\.two .*\(tables of a: one\)"):
        catalog.table("a.two")
    for number in range(30):
        (Path(catalog.uri) / "a.db" / f"t{number}" / "schema").mkdir(parents=True)
        (Path(catalog.uri) / "a.db" / f"t{number}" / "schema" / "schema-0").write_text("{}")
    with pytest.raises(NotFoundError, match=r"\(tables of a: one, .* and 11 more\)"):
        catalog.table("a.onee")
    with pytest.raises(NotFoundError, match="has no database 'z'; it has a"):
        catalog.tables("z")
    with pytest.raises(NotFoundError, match=r"table a\.one has no branch 'dev'"):
        catalog.table("a.one$branch_dev")


@pytest.mark.parametrize(
    "name", ["t", "a.b.c", "", ".", "a.", ".t", "a/b.t", "../x.t", "a.t$x", "a\0.t", "a.b\\c"]
)
def test_invalid_table_names_are_refused(catalog: Catalog, name: str) -> None:
    with pytest.raises(InputError, match=r"must be 'database\.table'"):
        catalog.create_table(name, "id INT")
    with pytest.raises(PaimonError):
        catalog.table(name)
    assert not Path(catalog.uri).exists()


def test_creating_an_existing_table_is_refused(catalog: Catalog) -> None:
    catalog.create_table("a.t", "id INT")

    with pytest.raises(InputError, match=r"table a\.t already exists"):
        catalog.create_table("a.t", "id INT")
    again = catalog.create_table("a.t", "other STRING", if_not_exists=True)
    assert again.load().schema.names == ["id"]


def test_a_table_is_created_from_an_arrow_schema(catalog: Catalog) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("sizes", pa.map_(pa.string(), pa.int32())),
        ]
    )

    table = catalog.create_table("a.t", schema, primary_key=["id"], options={"bucket": "1"})

    assert [type_to_sql(field.type) for field in table.load().schema.fields] == [
        "BIGINT NOT NULL",
        "DECIMAL(10, 2)",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "ARRAY<STRING>",
        "MAP<STRING NOT NULL, INT>",
    ]


@pytest.mark.parametrize(
    ("columns", "keywords", "message"),
    [
        ("id FOO", {}, "unknown type 'FOO'"),
        ("id", {}, "type 'id' is not valid: unknown type"),
        ("", {}, "type '' is not valid"),
        ("id INT,", {"primary_key": ["nope"]}, "primary key column 'nope' is not among"),
        ("id INT, id INT", {}, "column 'id' is declared twice"),
        ("a ROW<x INT, x INT>", {}, "column 'a' has a ROW that declares field 'x' twice"),
        ("m MAP<INT, ARRAY<ROW<x INT, x INT>>>", {}, "column 'm' has a ROW that declares"),
        ("id INT, `` INT", {}, "column 2 has no name: ''"),
        ("_VALUE_KIND INT", {}, "is reserved"),
        ("id INT", {"partition_by": ["dt"]}, "partition column 'dt' is not among"),
        ("id INT", {"primary_key": ["id"], "partition_by": ["id"]}, "only partition columns"),
        ("id INT", {"options": {"bucket": "0"}}, "'bucket' = 0 must be positive"),
        ("id INT", {"options": {"bucket": "many"}}, "'bucket' = 'many' must be a whole number"),
        ("id INT", {"options": {"bucket": "2"}}, "needs option 'bucket-key'"),
        ("a ARRAY<INT>", {"primary_key": ["a"]}, "must have a simple type"),
        ("id INT", {"options": {"merge-engine": "magic"}}, "'magic' is not a merge engine"),
        ("p DECIMAL(3, 5)", {}, "scale is larger than the precision"),
        ("p DECIMAL(99)", {}, "99 is not between 1 and 38"),
        ("id INT NOT", {}, "is not valid: "),
        ("id INT; DROP", {}, "is not valid near '; DROP'"),
    ],
)
def test_definitions_that_break_a_rule_create_nothing(
    catalog: Catalog, columns: str, keywords: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        catalog.create_table("a.t", columns, **keywords)  # type: ignore[arg-type]
    assert not Path(catalog.uri).exists()


def test_the_database_of_system_tables_gets_no_table(catalog: Catalog) -> None:
    with pytest.raises(InputError, match="'sys' is reserved for system tables"):
        catalog.create_table("sys.t", "id INT")
    assert not Path(catalog.uri).exists()


def test_a_warehouse_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    catalog = Catalog(str(tmp_path / "file" / "warehouse"))

    with pytest.raises(StorageError, match=r"cannot be written .*Check that the warehouse"):
        catalog.create_table("a.t", "id INT")
    assert catalog.databases() == []


@pytest.mark.parametrize("uri", ["s4://bucket/x", "x+y://z"])
def test_schemes_that_are_not_supported_are_refused(uri: str) -> None:
    with pytest.raises(InputError, match="is not supported"):
        Catalog(uri)


def test_dropping_a_table_deletes_all_its_files(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    other = Catalog(str(tmp_path)).create_table("db.other", "id INT")
    other.append(pa.table({"id": [1]}))

    Catalog(str(tmp_path)).drop_table("db.t")

    assert Catalog(str(tmp_path)).tables("db") == ["other"]
    assert not Path(table.paths.root).exists()
    assert rows_of(other) == [(1,)]
    with pytest.raises(NotFoundError):
        Catalog(str(tmp_path)).drop_table("db.t")
    with pytest.raises(PaimonError):
        Catalog(str(tmp_path)).drop_table("db.other$branch_dev")
    assert Catalog(str(tmp_path)).tables("db") == ["other"]


def test_the_latest_snapshot_of_a_table_or_branch_is_read(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", "k INT")
    assert catalog.latest_snapshot("db.t") is None
    table.append(pa.table({"k": pa.array([1], pa.int32())}))
    table.tags.create("a")
    table.branches.create("b", tag="a")
    table.append(pa.table({"k": pa.array([2], pa.int32())}))

    ids = [catalog.latest_snapshot(name) for name in ("db.t", "db.t$branch_b")]
    assert [snapshot and snapshot.id for snapshot in ids] == [2, 1]
    assert catalog.served_snapshot("db.t") is None  # it is a file
    with pytest.raises(NotFoundError, match=r"there is no table db\.u"):
        catalog.latest_snapshot("db.u")
