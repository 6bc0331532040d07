"""Tables of the REST servers of Java Paimon and pypaimon."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.catalogs.rest_server import JAVA_2_0, REST_SERVERS, RestServer
from support.tables import rows_of, table_of

from paimon_orch import AccessDeniedError, AlreadyExistsError, Catalog, InputError, NotFoundError
from paimon_orch.catalog.rest import resource_paths
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.publication.mark_done import mark_done
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetOption,
    UpdateColumnComment,
    UpdateComment,
    UpdateNullability,
    UpdateType,
)
from paimon_orch.table.table import Table

StartRestServer = Callable[..., RestServer]


@pytest.fixture(params=REST_SERVERS)
def server(request: pytest.FixtureRequest, start_rest_server: StartRestServer) -> RestServer:
    return start_rest_server(request.param)


@pytest.fixture
def catalog(server: RestServer) -> Catalog:
    return Catalog(**server.options)


@pytest.fixture
def java_server(start_rest_server: StartRestServer) -> RestServer:
    return start_rest_server(JAVA_2_0)


@pytest.fixture
def table(java_server: RestServer) -> Table:
    return create_table(Catalog(**java_server.options))


def create_table(catalog: Catalog) -> Table:
    """Create `db.t` with a primary key."""
    columns = "k INT NOT NULL, v STRING"
    return catalog.create_table("db.t", columns, primary_key=["k"], options={"bucket": "1"})


def rows(*keys: int) -> pa.Table:
    return table_of("k v", [(key, f"v{key}") for key in keys])


def test_databases_and_tables_are_created_listed_and_dropped(catalog: Catalog) -> None:
    catalog.create_database("empty")
    create_table(catalog)
    assert catalog.databases() == ["db", "empty"]
    assert catalog.tables("db") == ["t"]
    with pytest.raises(AlreadyExistsError):
        catalog.create_database("db")
    with pytest.raises(AlreadyExistsError):
        create_table(catalog)
    catalog.drop_table("db.t")
    catalog.drop_database("empty")
    assert catalog.tables("db") == []
    with pytest.raises(NotFoundError, match=r"there is no table db\.t"):
        catalog.table("db.t")
    with pytest.raises(NotFoundError, match="has no database 'empty'; it has db"):
        catalog.tables("empty")


def test_rows_are_committed_by_the_server(catalog: Catalog) -> None:
    table = create_table(catalog)
    assert table.snapshot() is None
    table.upsert(rows(1, 2))
    table.upsert(rows(2, 3))
    compact(table, InProcessExecutor(), strategy="full")
    snapshot = catalog.table("db.t").snapshot()
    assert snapshot is not None
    assert snapshot.id == 3
    assert rows_of(catalog.table("db.t")) == [(1, "v1"), (2, "v2"), (3, "v3")]


def test_a_renamed_table_keeps_its_rows(catalog: Catalog) -> None:
    create_table(catalog).upsert(rows(1))
    catalog.rename_table("db.t", "db.u")
    assert catalog.tables("db") == ["u"]
    assert rows_of(catalog.table("db.u")) == [(1, "v1")]
    create_table(catalog)
    with pytest.raises(AlreadyExistsError, match=r"table db\.u already exists"):
        catalog.rename_table("db.t", "db.u")


CHANGES: list[tuple[SchemaChange, str]] = [
    (AddColumn(column="w", type="DOUBLE", comment="weight"), "k INT NOT NULL, v STRING, w DOUBLE"),
    (
        AddColumn(column="w", type="ARRAY<INT>", first=True),
        "w ARRAY<INT>, k INT NOT NULL, v STRING",
    ),
    (AddColumn(column="w", type="INT", after="k", default="7"), "k INT NOT NULL, w INT, v STRING"),
    (RenameColumn("v", "text"), "k INT NOT NULL, text STRING"),
    (DropColumn("v"), "k INT NOT NULL"),
    (UpdateType("k", "BIGINT"), "k BIGINT NOT NULL, v STRING"),
    (MoveColumn("v", "first"), "v STRING, k INT NOT NULL"),
    (MoveColumn("v", "before", "k"), "v STRING, k INT NOT NULL"),
]


@pytest.mark.parametrize(("change", "columns"), CHANGES)
def test_columns_are_changed_by_the_server(
    java_server: RestServer, change: SchemaChange, columns: str
) -> None:
    catalog = Catalog(**java_server.options)
    catalog.create_table("db.t", "k INT NOT NULL, v STRING")
    schema = catalog.alter_table("db.t", [change])
    expected = (
        Catalog(str(java_server.folder / "expected")).create_table("db.t", columns).load().schema
    )
    assert [(f.name, f.type) for f in schema.fields] == [(f.name, f.type) for f in expected.fields]
    assert schema.id == 1
    assert catalog.table("db.t").load().schema == schema


def test_options_comments_and_defaults_are_changed_by_the_server(java_server: RestServer) -> None:
    catalog = Catalog(**java_server.options)
    catalog.create_table("db.t", "k INT NOT NULL, v STRING", options={"a.b": "1", "c.d": "2"})
    changes: list[SchemaChange] = [
        SetOption("a.b", "3"),
        ResetOption("c.d"),
        UpdateComment("a table"),
        UpdateColumnComment("v", "a column"),
        UpdateNullability("k", True),
        AddColumn(column="w", type="INT", default="7"),
    ]
    schema = catalog.alter_table("db.t", changes)
    assert schema.id == 1
    assert (schema.options.get("a.b"), schema.options.get("c.d")) == ("3", None)
    assert schema.comment == "a table"
    assert [field.description for field in schema.fields] == [None, "a column", None]
    assert [field.default_value for field in schema.fields] == [None, None, "7"]
    assert schema.fields[0].type.nullable


def test_a_change_that_breaks_a_rule_is_refused_before_the_request(
    table: Table, java_server: RestServer
) -> None:
    catalog = Catalog(**java_server.options)
    with pytest.raises(InputError, match="column 'v' already exists"):
        catalog.alter_table("db.t", [AddColumn(column="v", type="INT")])
    assert table.load().schema.id == 0


def test_branches_are_created_and_merged_by_the_server(
    table: Table, java_server: RestServer
) -> None:
    table.upsert(rows(1))
    table.tags.create("start")
    table.branches.create("dev", tag="start")
    branch = Catalog(**java_server.options).table("db.t$branch_dev")
    branch.upsert(rows(2))
    assert rows_of(table) == [(1, "v1")]
    assert rows_of(branch) == [(1, "v1"), (2, "v2")]
    assert table.branches.names() == ["dev"]
    table.branches.fast_forward("dev")
    assert rows_of(table) == [(1, "v1"), (2, "v2")]
    table.branches.delete("dev")
    assert table.branches.names() == []
    with pytest.raises(NotFoundError, match="has no branch 'dev'"):
        Catalog(**java_server.options).table("db.t$branch_dev")


def test_the_server_rolls_back(table: Table) -> None:
    for key in range(3):
        table.upsert(rows(key))
    assert table.rollback(2).id == 2
    assert rows_of(table) == [(0, "v0"), (1, "v1")]
    table.tags.create("old", 1)
    table.rollback(tag="old")
    assert rows_of(table) == [(0, "v0")]
    table.upsert(rows(9))
    assert rows_of(table) == [(0, "v0"), (9, "v9")]


def test_a_recreated_table_gets_no_commit_for_the_old_one(
    table: Table, java_server: RestServer
) -> None:
    table.upsert(rows(1))
    catalog = Catalog(**java_server.options)
    catalog.drop_table("db.t")
    recreated = create_table(catalog)
    recreated.upsert(rows(5))
    with pytest.raises(NotFoundError):
        table.upsert(rows(2))
    assert rows_of(recreated) == [(5, "v5")]


def test_an_external_table_is_committed_in_its_files(
    java_server: RestServer, tmp_path: Path
) -> None:
    catalog = Catalog(**java_server.options)
    location = str(tmp_path / "elsewhere" / "t")
    options = {"bucket": "1", "path": location}
    columns = "k INT NOT NULL, v STRING"
    table = catalog.create_table("db.t", columns, primary_key=["k"], options=options)
    assert table.paths.root == location
    table.upsert(rows(1))
    assert (Path(location) / "snapshot" / "snapshot-1").exists()
    assert rows_of(catalog.table("db.t")) == [(1, "v1")]
    catalog.drop_table("db.t")
    assert (Path(location) / "snapshot" / "snapshot-1").exists()


def test_a_wrong_token_and_a_forbidden_table_are_refused(
    table: Table, java_server: RestServer
) -> None:
    with pytest.raises(AccessDeniedError, match="status 401"):
        Catalog(**{**java_server.options, "token": "wrong-token"}).databases()
    java_server.forbid_table("db", "t")
    with pytest.raises(AccessDeniedError, match="status 403"):
        Catalog(**java_server.options).table("db.t")
    with pytest.raises(AccessDeniedError, match="status 403"):
        table.upsert(rows(1))


def test_the_server_counts_partitions_from_commits_and_accepts_marks(
    java_server: RestServer,
) -> None:
    catalog = Catalog(**java_server.options)
    options = {"bucket": "1", "bucket-key": "k", "metastore.partitioned-table": "true"}
    options["partition.mark-done-action"] = "mark-event"
    table = catalog.create_table("db.t", "dt STRING, k INT", partition_by=["dt"], options=options)
    table.append(table_of("dt k", [("a", 1), ("a", 2), ("b", 3)]))
    table.append(table_of("dt k", [("a", 4)]))
    table.drop_partitions(["dt=b"])
    counts = {
        entry["spec"]["dt"]: (entry["recordCount"], entry["fileCount"], entry["fileSizeInBytes"])
        for entry in list_partitions(java_server)
    }
    [split] = table.files()
    assert counts["a"] == (3, 2, sum(file.file_size for file in split.files))
    assert counts.get("b", (0, 0, 0)) == (0, 0, 0)
    mark_done(table, ["dt=a"])


def list_partitions(server: RestServer) -> list[dict[str, Any]]:
    client = RestClient.connect(server.options)
    return list(client.get_pages(resource_paths.table("db", "t", "partitions"), "partitions"))


def test_a_table_that_is_created_again_has_no_rows(catalog: Catalog) -> None:
    create_table(catalog).upsert(rows(1))
    catalog.drop_table("db.t")
    table = catalog.create_table("db.t", "k INT NOT NULL, v STRING", partition_by=["v"])
    assert table.snapshot() is None
    table.append(rows(2))
    assert rows_of(table) == [(2, "v2")]
