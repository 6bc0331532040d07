"""Catalogs in SQLite and PostgreSQL: databases, tables, and their rows and files."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy import Engine, event
from support.catalogs.jdbc_databases import JdbcDatabase as SqlDatabase
from support.catalogs.jdbc_databases import create_sqlite_database
from support.clocks import replace_waits
from support.tables import rows_of

from paimon_orch import Catalog
from paimon_orch.catalog.backend import LostTableError
from paimon_orch.catalog.jdbc.jdbc_backend import JdbcBackend
from paimon_orch.catalog.jdbc.jdbc_database import JdbcDatabase
from paimon_orch.catalog.jdbc.jdbc_lock import JdbcLock
from paimon_orch.catalog.jdbc.jdbc_tables import DATABASE_PROPERTIES, TABLES
from paimon_orch.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CatalogUnavailableError,
    InputError,
    NotFoundError,
    PaimonError,
    UnsupportedError,
)
from paimon_orch.steps import compact, expire_snapshots, remove_orphan_files
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption

COLUMNS = "k INT NOT NULL, v STRING"
# As Java 2.0 creates it.
VIEWS_OF_JAVA = """
CREATE TABLE paimon_views(catalog_key VARCHAR(255) NOT NULL,database_name VARCHAR(255) NOT NULL,
view_name VARCHAR(255) NOT NULL,view_schema TEXT NOT NULL,
PRIMARY KEY (catalog_key, database_name, view_name))
"""


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def catalog(jdbc_database: SqlDatabase, warehouse: Path) -> Catalog:
    return jdbc_database.open(warehouse)


def create(catalog: Catalog, name: str = "db.t") -> Any:
    return catalog.create_table(name, COLUMNS, primary_key=["k"], options={"bucket": "1"})


def rows(*pairs: tuple[int, str]) -> pa.Table:
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.string())])
    return pa.table({"k": [k for k, _ in pairs], "v": [v for _, v in pairs]}, schema=schema)


def test_a_table_is_created_written_and_read(
    catalog: Catalog, jdbc_database: SqlDatabase, warehouse: Path
) -> None:
    table = create(catalog)
    table.upsert(rows((1, "a")))

    assert rows_of(catalog.table("db.t")) == [(1, "a")]
    assert catalog.databases() == ["db"]
    assert catalog.tables("db") == ["t"]
    assert table.paths.root == f"{warehouse}/db.db/t"
    assert table.environment.lock is None, "as in Java, on a local file system"
    assert jdbc_database.tables() == {
        "paimon_database_properties": [
            ("jdbc", "db", "exists", "true"),
            ("jdbc", "db", "location", f"{warehouse}/db.db"),
        ],
        "paimon_table_properties": [
            ("jdbc", "db", "t", "bucket", "1"),
            ("jdbc", "db", "t", "bucket-key", "k"),
            ("jdbc", "db", "t", "primary-key", "k"),
        ],
        "paimon_tables": [("jdbc", "db", "t")],
    }


def test_existing_databases_and_tables_are_refused(catalog: Catalog) -> None:
    catalog.create_database("db")
    create(catalog)

    with pytest.raises(AlreadyExistsError, match="database 'db' already exists"):
        catalog.create_database("db")
    catalog.create_database("db", if_not_exists=True)
    with pytest.raises(AlreadyExistsError, match=r"table db\.t already exists"):
        create(catalog)
    assert catalog.create_table("db.t", "x INT", if_not_exists=True).load().schema.names == [
        "k",
        "v",
    ]
    with pytest.raises(InputError, match="reserved for system tables"):
        catalog.create_database("sys")


def test_missing_databases_and_tables_are_not_found(catalog: Catalog) -> None:
    with pytest.raises(NotFoundError, match="no database 'db'"):
        catalog.table("db.t")
    with pytest.raises(NotFoundError, match="no database 'db'"):
        catalog.tables("db")
    create(catalog, "db.u")
    with pytest.raises(NotFoundError, match=r"no table db\.t .*tables of db: u"):
        catalog.table("db.t")
    with pytest.raises(NotFoundError, match="has no branch 'b'"):
        catalog.table("db.u$branch_b")


def test_catalogs_of_other_keys_share_the_database(
    catalog: Catalog, jdbc_database: SqlDatabase, tmp_path: Path
) -> None:
    create(catalog)
    other = jdbc_database.open(tmp_path / "other", catalog_key="prod")

    assert other.databases() == []
    create(other, "db.u")
    assert (catalog.tables("db"), other.tables("db")) == (["t"], ["u"])
    assert ("prod", "db", "u") in jdbc_database.rows("paimon_tables")


def test_changes_of_options_are_copied_to_the_database(
    catalog: Catalog, jdbc_database: SqlDatabase
) -> None:
    create(catalog)

    catalog.alter_table("db.t", [SetOption("num-levels", "9"), AddColumn(column="w", type="INT")])

    assert catalog.table("db.t").load().schema.names == ["k", "v", "w"]
    properties = jdbc_database.rows("paimon_table_properties")
    assert ("jdbc", "db", "t", "num-levels", "9") in properties
    assert len(properties) == 4


def test_options_that_are_too_long_for_the_copy_are_kept_in_the_schema(
    catalog: Catalog, jdbc_database: SqlDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    create(catalog)
    text = "x" * 1001

    catalog.alter_table("db.t", [SetOption("my-note", text)])

    assert catalog.table("db.t").load().schema.options["my-note"] == text
    is_postgres = jdbc_database.kind == "postgresql"
    assert ("not copied to paimon_table_properties" in caplog.text) == is_postgres
    assert text not in caplog.text
    assert ("jdbc", "db", "t", "bucket", "1") in jdbc_database.rows("paimon_table_properties")


def test_options_are_not_copied_without_sync_all_properties(
    jdbc_database: SqlDatabase, warehouse: Path
) -> None:
    catalog = jdbc_database.open(warehouse, sync_all_properties="false")
    create(catalog)
    catalog.alter_table("db.t", [SetOption("num-levels", "9")])
    catalog.rename_table("db.t", "db.u")
    catalog.drop_table("db.u")

    assert "paimon_table_properties" not in jdbc_database.tables()


def test_a_table_is_renamed_with_its_rows_and_files(
    catalog: Catalog, jdbc_database: SqlDatabase, warehouse: Path
) -> None:
    create(catalog).upsert(rows((1, "a")))
    catalog.create_database("other")

    renamed = catalog.rename_table("db.t", "other.u")

    assert rows_of(renamed) == [(1, "a")]
    assert jdbc_database.rows("paimon_tables") == [("jdbc", "other", "u")]
    names = {row[1:3] for row in jdbc_database.rows("paimon_table_properties")}
    assert names == {("other", "u")}
    assert not (warehouse / "db.db" / "t").exists()
    with pytest.raises(NotFoundError):
        catalog.table("db.t")


def test_a_table_is_not_renamed_to_an_existing_table_directory_or_database(
    catalog: Catalog, jdbc_database: SqlDatabase, warehouse: Path
) -> None:
    create(catalog).upsert(rows((1, "a")))
    create(catalog, "db.u")
    (warehouse / "db.db" / "v").mkdir()
    before = jdbc_database.tables()

    with pytest.raises(AlreadyExistsError, match=r"table db\.u already exists"):
        catalog.rename_table("db.t", "db.u")
    with pytest.raises(AlreadyExistsError, match="exists, but is not a table"):
        catalog.rename_table("db.t", "db.v")
    with pytest.raises(NotFoundError, match="no database 'no'"):
        catalog.rename_table("db.t", "no.t")

    assert jdbc_database.tables() == before
    assert rows_of(catalog.table("db.t")) == [(1, "a")]


@pytest.mark.parametrize("committed", [False, True])
def test_rows_and_files_agree_after_a_rename_whose_connection_is_lost(
    catalog: Catalog, warehouse: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    create(catalog).upsert(rows((1, "a")))
    run = JdbcDatabase.run_transaction

    def lose_connection(database: JdbcDatabase, work: Callable[[Any], Any]) -> None:
        def work_and_fail(connection: Any) -> None:
            work(connection)
            if not committed:
                raise CatalogUnavailableError("connection lost")

        run(database, work_and_fail)
        raise CatalogUnavailableError("connection lost")

    monkeypatch.setattr(JdbcDatabase, "run_transaction", lose_connection)
    with nullcontext() if committed else pytest.raises(CatalogUnavailableError):
        catalog.rename_table("db.t", "db.u")

    name = "u" if committed else "t"
    assert catalog.tables("db") == [name]
    assert [path.name for path in (warehouse / "db.db").iterdir()] == [name]
    assert rows_of(catalog.table(f"db.{name}")) == [(1, "a")]


@pytest.fixture
def sqlite_catalog(tmp_path: Path, warehouse: Path) -> Catalog:
    return create_sqlite_database(tmp_path / "catalog.db").open(warehouse)


@pytest.mark.parametrize("error", [InputError("too long"), AccessDeniedError("no right")])
def test_a_table_whose_row_is_refused_leaves_no_files(
    sqlite_catalog: Catalog, warehouse: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    sqlite_catalog.create_database("db")
    with monkeypatch.context() as patch:
        patch.setattr(JdbcDatabase, "run_transaction", raise_always(error))
        with pytest.raises(type(error)) as caught:
            create(sqlite_catalog)
    assert caught.value is error
    assert [path for path in warehouse.rglob("*") if path.is_file()] == []
    create(sqlite_catalog)


def test_a_table_whose_row_may_exist_keeps_its_files(
    sqlite_catalog: Catalog, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_catalog.create_database("db")
    error = CatalogUnavailableError("the connection broke")
    monkeypatch.setattr(JdbcDatabase, "run_transaction", raise_always(error))
    with pytest.raises(CatalogUnavailableError, match="the connection broke"):
        create(sqlite_catalog)
    assert [path.name for path in warehouse.rglob("*") if path.is_file()] == ["schema-0"]


def test_a_rename_whose_connection_is_lost_at_its_start_changes_nothing(
    sqlite_catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(sqlite_catalog).append(rows((1, "a")))
    error = CatalogUnavailableError("the connection broke")
    with monkeypatch.context() as patch:
        patch.setattr(JdbcDatabase, "run_transaction", raise_always(error))
        with pytest.raises(CatalogUnavailableError, match="the connection broke"):
            sqlite_catalog.rename_table("db.t", "db.other")

    assert sqlite_catalog.tables("db") == ["t"]
    assert rows_of(sqlite_catalog.table("db.t")) == [(1, "a")]


def raise_always(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_a_database_whose_tables_cannot_be_created_is_an_error(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a table that another program has created meanwhile is no error."""
    statement = sa.schema.CreateTable

    def create_wrong(table: sa.Table, **_: object) -> sa.TextClause:
        return sa.text("CREATE TABLE") if table.name == TABLES.name else statement(table)  # type: ignore[return-value]

    monkeypatch.setattr(sa.schema, "CreateTable", create_wrong)
    with pytest.raises(PaimonError, match=r"syntax|incomplete"):
        create_sqlite_database(tmp_path / "catalog.db").open(warehouse).databases()


def test_a_dropped_table_leaves_no_row_and_no_file(
    catalog: Catalog, jdbc_database: SqlDatabase, warehouse: Path
) -> None:
    create(catalog).upsert(rows((1, "a")))

    catalog.drop_table("db.t")

    assert jdbc_database.rows("paimon_tables") == []
    assert jdbc_database.rows("paimon_table_properties") == []
    assert list((warehouse / "db.db").iterdir()) == []
    assert catalog.tables("db") == []
    create(catalog)


def test_a_database_is_dropped_with_its_tables(
    catalog: Catalog, jdbc_database: SqlDatabase
) -> None:
    create(catalog)
    create(catalog, "keep.t")

    with pytest.raises(InputError, match="has the tables t"):
        catalog.drop_database("db")
    catalog.drop_database("db", cascade=True)

    assert catalog.databases() == ["keep"]
    assert {row[1] for row in jdbc_database.rows("paimon_database_properties")} == {"keep"}
    assert {row[1] for row in jdbc_database.rows("paimon_table_properties")} == {"keep"}
    with pytest.raises(NotFoundError):
        catalog.drop_database("db")
    catalog.drop_database("db", if_exists=True)


def test_views_of_java_share_the_names_of_tables(
    catalog: Catalog, jdbc_database: SqlDatabase
) -> None:
    catalog.create_database("other")
    jdbc_database.run(VIEWS_OF_JAVA)
    jdbc_database.run("INSERT INTO paimon_views VALUES ('jdbc', 'db', 'v', '{}')")
    with pytest.raises(AlreadyExistsError, match=r"db\.v is a view"):
        create(catalog, "db.v")
    create(catalog)

    assert catalog.databases() == ["db", "other"]
    assert catalog.tables("db") == ["t"]
    with pytest.raises(AlreadyExistsError, match=r"db\.v is a view"):
        create(catalog, "db.v")
    with pytest.raises(AlreadyExistsError, match=r"db\.v is a view"):
        catalog.rename_table("db.t", "db.v")
    catalog.drop_table("db.t")
    with pytest.raises(InputError, match="has the views v"):
        catalog.drop_database("db")
    assert len(jdbc_database.rows("paimon_views")) == 1


@pytest.mark.slow
def test_files_without_a_row_are_not_adopted(
    catalog: Catalog, jdbc_database: SqlDatabase, warehouse: Path
) -> None:
    create(catalog).upsert(rows((1, "a")))
    jdbc_database.run("DELETE FROM paimon_tables")

    with pytest.raises(AlreadyExistsError, match="has the files of a table that is not in"):
        create(catalog)
    assert (warehouse / "db.db" / "t" / "snapshot" / "snapshot-1").exists()


def test_a_table_whose_row_another_process_inserts_during_the_wait_exists(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = create_sqlite_database(tmp_path / "catalog.db")
    catalog = database.open(warehouse)
    create(catalog)
    database.run("DELETE FROM paimon_tables")
    insertion = "INSERT INTO paimon_tables VALUES ('jdbc', 'db', 't')"
    replace_waits(monkeypatch, lambda _: database.run(insertion))

    with pytest.raises(AlreadyExistsError, match=r"table db\.t already exists"):
        create(catalog)


def test_a_table_without_files_is_an_error_and_can_be_dropped(
    catalog: Catalog, jdbc_database: SqlDatabase
) -> None:
    catalog.create_database("db")
    jdbc_database.run("INSERT INTO paimon_tables VALUES ('jdbc', 'db', 't')")

    with pytest.raises(LostTableError, match=r"has no schema, but .* has the table db\.t"):
        catalog.table("db.t")

    assert catalog.count_files("db.t") == (0, 0)
    catalog.drop_table("db.t")
    assert catalog.tables("db") == []


def test_branches_of_a_table_are_opened_by_name(catalog: Catalog) -> None:
    table = create(catalog)
    table.upsert(rows((1, "a")))
    table.branches.create("b")
    branch = catalog.table("db.t$branch_b")
    branch.upsert(rows((2, "b")))

    assert rows_of(catalog.table("db.t$branch_b")) == [(2, "b")]
    assert rows_of(catalog.table("db.t")) == [(1, "a")]


def test_concurrent_creations_of_a_table_have_one_winner(
    jdbc_database: SqlDatabase, warehouse: Path
) -> None:
    def try_to_create(_: int) -> bool:
        try:
            create(jdbc_database.open(warehouse))
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(try_to_create, range(6)))

    assert sorted(results) == [False] * 5 + [True]
    assert len(jdbc_database.rows("paimon_tables")) == 1


def test_other_programs_may_create_the_tables_of_a_new_database_meanwhile(
    jdbc_database: SqlDatabase, warehouse: Path
) -> None:
    if jdbc_database.kind == "sqlite":
        pytest.skip("SQLite creates tables one after the other")
    engine = sa.create_engine(jdbc_database.url, poolclass=sa.NullPool)

    def wait_until_blocked() -> None:
        end = time.monotonic() + 100
        while not jdbc_database.run("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert time.monotonic() < end, "no statement waits for another"
            time.sleep(0.02)

    with engine.connect() as first, engine.connect() as second, ThreadPoolExecutor(1) as pool:
        first.execute(sa.schema.CreateTable(TABLES))
        second.execute(sa.schema.CreateTable(DATABASE_PROPERTIES))
        created = pool.submit(jdbc_database.open(warehouse).create_database, "db")
        for connection in (first, second):
            # Each collides with one statement of the creation.
            wait_until_blocked()
            connection.commit()
        created.result(timeout=100)

    assert jdbc_database.open(warehouse).databases() == ["db"]


@pytest.mark.slow
def test_a_pickled_table_connects_by_itself(
    jdbc_database: SqlDatabase, warehouse: Path, tmp_path: Path
) -> None:
    catalog = jdbc_database.open(warehouse, lock__enabled="true")
    table = create(catalog)
    file = tmp_path / "table.pickle"
    file.write_bytes(pickle.dumps(table))
    program = (
        "import pickle, sys; import pyarrow as pa\n"
        "table = pickle.load(open(sys.argv[1], 'rb'))\n"
        "with table.environment.lock.hold():\n"
        "    pass\n"
        "table.upsert(pa.table({'k': pa.array([1], pa.int32()), 'v': ['a']}))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(file)], check=True)

    assert rows_of(catalog.table("db.t")) == [(1, "a")]
    assert isinstance(catalog.table("db.t").environment.lock, JdbcLock)
    assert jdbc_database.rows("paimon_distributed_locks") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"catalogkey": "x"}, "did you mean 'catalog-key'"),
        ({"lock.type": "hive"}, "needs lock.type=jdbc"),
        ({"lock.enabled": "maybe"}, "'lock.enabled' = 'maybe' must be true or false"),
        ({"lock-acquire-timeout": "soon"}, "'lock-acquire-timeout' = 'soon'"),
        ({"uri": ""}, "needs the option 'uri'"),
        ({"warehouse": ""}, "needs the option 'warehouse'"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    valid: dict[str, Any] = {"uri": f"jdbc:sqlite:{tmp_path}/c", "warehouse": str(tmp_path)}
    with pytest.raises(InputError, match=message):
        Catalog(metastore="jdbc", **{**valid, **options})


def test_a_missing_sqlite_file_is_not_found(tmp_path: Path) -> None:
    uri = f"jdbc:sqlite:{tmp_path}/c.db"
    catalog = Catalog(metastore="jdbc", uri=uri, warehouse=str(tmp_path))
    with pytest.raises(NotFoundError, match=r"c\.db does not exist"):
        catalog.require_exists()
    create(catalog)
    catalog.require_exists()


def test_tables_of_a_warehouse_in_an_object_store_are_locked_by_default(tmp_path: Path) -> None:
    uri, warehouse = f"jdbc:sqlite:{tmp_path}/c.db", f"memory://jdbc-{tmp_path.name}/wh"
    catalog = Catalog(metastore="jdbc", uri=uri, warehouse=warehouse)
    table = create(catalog)
    table.upsert(rows((1, "a")))

    lock = catalog.table("db.t").environment.lock
    assert isinstance(lock, JdbcLock)
    assert lock.lock_id == "jdbc.db.t"
    assert rows_of(catalog.table("db.t")) == [(1, "a")]
    options: dict[str, Any] = {"uri": uri, "warehouse": warehouse, "lock.enabled": "false"}
    unlocked = Catalog(metastore="jdbc", **options)
    assert unlocked.table("db.t").environment.lock is None


def test_a_table_in_an_object_store_is_not_renamed(tmp_path: Path) -> None:
    uri, warehouse = f"jdbc:sqlite:{tmp_path}/c.db", f"memory://jdbc-{tmp_path.name}/wh"
    catalog = Catalog(metastore="jdbc", uri=uri, warehouse=warehouse)
    create(catalog).upsert(rows((1, "a")))

    with pytest.raises(UnsupportedError):
        catalog.rename_table("db.t", "db.u")

    assert catalog.tables("db") == ["t"]
    assert rows_of(catalog.table("db.t")) == [(1, "a")]


def test_a_database_that_was_replaced_gets_its_tables_again(tmp_path: Path) -> None:
    file = tmp_path / "c.db"
    catalog = Catalog(metastore="jdbc", uri=f"jdbc:sqlite:{file}", warehouse=f"{tmp_path}/wh")
    create(catalog)
    file.unlink()

    with pytest.raises(InputError, match="no such table"):
        catalog.databases()
    assert catalog.databases() == []


def test_the_number_of_statements(jdbc_database: SqlDatabase, warehouse: Path) -> None:
    catalog = jdbc_database.open(warehouse, lock__enabled="true")
    for number in range(3):
        create(catalog, f"db.t{number}")
    unlocked = jdbc_database.open(warehouse).table("db.t0")
    table = catalog.table("db.t0")
    counted: dict[str, int] = {}

    def count(name: str, action: Callable[[], object]) -> None:
        statements = []

        def listen(*arguments: Any) -> None:
            statements.append(arguments[2])

        event.listen(Engine, "before_cursor_execute", listen)
        try:
            action()
        finally:
            event.remove(Engine, "before_cursor_execute", listen)
        counted[name] = len(statements)

    count("load", lambda: catalog.table("db.t0"))
    count("list", lambda: catalog.tables("db"))
    count("list databases", catalog.databases)
    count("read", lambda: rows_of(table))
    count("commit", lambda: table.upsert(rows((1, "a"))))
    count("commit without lock", lambda: unlocked.upsert(rows((2, "b"))))

    assert counted == {
        "load": 1,
        "list": 2,
        "list databases": 1,
        "read": 0,
        "commit": 2,
        "commit without lock": 0,
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_opens_its_own_connections(
    jdbc_database: SqlDatabase, warehouse: Path
) -> None:
    if jdbc_database.kind == "sqlite":
        pytest.skip("SQLite has no connections to a server")
    catalog = jdbc_database.open(warehouse)
    backend = catalog.backend
    assert isinstance(backend, JdbcBackend)

    def get_connection_id() -> int:
        [(number,)] = backend.database.read(sa.select(sa.func.pg_backend_pid()))
        return int(number)

    parent = get_connection_id()
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(Exception):
            code = 0 if get_connection_id() != parent else 2
        os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert get_connection_id() == parent


def test_maintenance_steps_run_in_a_catalog_with_locks(
    jdbc_database: SqlDatabase, warehouse: Path
) -> None:
    catalog = jdbc_database.open(warehouse, lock__enabled="true")
    table = create(catalog)
    for key in range(4):
        table.upsert(rows((key, "a")))
    table.tags.create("second", 2)
    in_future = 4102444800000

    compact(table, strategy="full")
    expire_snapshots(table, retain_max=1, retain_min=1, older_than=in_future)
    table.tags.delete("second")
    remove_orphan_files(table)

    assert [info.id for info in table.stores.snapshots.walk_back()] == [5]
    assert rows_of(catalog.table("db.t")) == [(key, "a") for key in range(4)]
    assert not check(table, deep=True).findings
    assert jdbc_database.rows("paimon_distributed_locks") == []
