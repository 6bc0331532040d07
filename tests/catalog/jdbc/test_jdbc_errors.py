"""Errors of SQL databases by type, without secrets."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
import sqlalchemy as sa
import sqlalchemy.exc
from support.catalogs.jdbc_databases import (
    JdbcDatabase,
    PostgresServer,
    create_postgres_database,
    run_postgres,
)
from support.postgres import find_postgres_home

from paimon_orch import Catalog
from paimon_orch.catalog.jdbc.jdbc_errors import wrap_database_errors
from paimon_orch.catalog.jdbc.jdbc_url import JdbcAddress
from paimon_orch.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CatalogUnavailableError,
    InputError,
    PaimonError,
)
from paimon_orch.table.schema_change.schema_changes import SetOption

ADDRESS = JdbcAddress("jdbc:mysql://h/d", sa.make_url("mysql+pymysql://me:hush@h/d"))


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> Iterator[JdbcDatabase]:
    with create_postgres_database(postgres) as database:
        yield database


def open_catalog(database: JdbcDatabase, warehouse: Path, **properties: str) -> Catalog:
    changed: dict[str, Any] = {f"jdbc.{key}": text for key, text in properties.items()}
    return Catalog(**{**database.options(warehouse), **changed})


def open_sqlite(path: Path) -> Catalog:
    return Catalog(metastore="jdbc", uri=f"jdbc:sqlite:{path}", warehouse=str(path.parent))


@contextmanager
def raises_without(kind: type[PaimonError], match: str, *secrets: str) -> Iterator[None]:
    with pytest.raises(kind, match=match) as caught:
        yield
    assert type(caught.value) is kind
    text = "".join(traceback.format_exception(caught.value))
    for secret in secrets:
        assert secret not in text


@pytest.mark.slow
def test_a_stopped_server_is_unavailable(tmp_path: Path) -> None:
    if find_postgres_home() is None:
        pytest.skip("PostgreSQL is not installed")
    with run_postgres() as server:
        database = server.database("postgres")
        catalog = database.open(tmp_path, lock__enabled="true")
        table = catalog.create_table("db.t", "k INT")
    password = database.properties["jdbc.password"]
    actions: list[Callable[[], object]] = [
        catalog.databases,
        lambda: catalog.create_table("db.u", "k INT"),
        lambda: catalog.drop_table("db.t"),
        lambda: catalog.alter_table("db.t", [SetOption("num-levels", "9")]),
        lambda: table.append(pa.table({"k": pa.array([1], pa.int32())})),
        lambda: database.open(tmp_path, catalog_key="new").tables("db"),
    ]
    for action in actions:
        with raises_without(CatalogUnavailableError, "Check that the database runs", password):
            action()
    assert table.snapshot() is None
    assert list((tmp_path / "db.db" / "t" / "manifest").iterdir()) == []
    assert not (tmp_path / "db.db" / "u").exists()


@pytest.mark.parametrize("properties", [{"password": "wrong hush"}, {"user": "stranger"}])
def test_a_refused_login_is_denied(
    tmp_path: Path, postgres_database: JdbcDatabase, properties: dict[str, str]
) -> None:
    secrets = (postgres_database.properties["jdbc.password"], "wrong hush")
    with raises_without(AccessDeniedError, "Check 'jdbc.user', 'jdbc.password'", *secrets):
        open_catalog(postgres_database, tmp_path, **properties).databases()


def test_a_missing_permission_is_denied(tmp_path: Path, postgres_database: JdbcDatabase) -> None:
    open_catalog(postgres_database, tmp_path).create_table("db.t", "k INT")
    postgres_database.run("DROP ROLE IF EXISTS reader")
    postgres_database.run("CREATE ROLE reader LOGIN PASSWORD 'hush'")
    catalog = open_catalog(postgres_database, tmp_path, user="reader", password="hush")  # noqa: S106
    with raises_without(AccessDeniedError, "permission denied", "hush"):
        catalog.tables("db")

    postgres_database.run("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    assert catalog.tables("db") == ["t"], "readers need no right to create tables"
    with raises_without(AccessDeniedError, "permission denied", "hush"):
        catalog.create_table("db.u", "k INT")
    assert not (tmp_path / "db.db/u/schema/schema-0").exists(), "it would block the name"
    postgres_database.run("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM reader")
    postgres_database.run("DROP ROLE reader")


def test_a_connection_that_the_server_closed_is_replaced(
    tmp_path: Path, postgres: PostgresServer, postgres_database: JdbcDatabase
) -> None:
    catalog = open_catalog(postgres_database, tmp_path)
    catalog.create_table("db.t", "k INT")
    name = postgres_database.url.database
    postgres.run(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"  # noqa: S608
    )
    assert catalog.tables("db") == ["t"]


def test_a_sqlite_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    with raises_without(CatalogUnavailableError, "unable to open database file"):
        open_sqlite(tmp_path / "missing" / "c.db").databases()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.db").write_text("not a database" * 100, encoding="utf-8")
    with raises_without(InputError, "file is not a database"):
        open_sqlite(tmp_path / "c.db").databases()


def test_values_of_options_are_in_no_text(
    tmp_path: Path, jdbc_database: JdbcDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    catalog = jdbc_database.open(tmp_path)
    catalog.create_table("db.t", "k INT")
    jdbc_database.run("DROP TABLE paimon_table_properties")

    catalog.alter_table("db.t", [SetOption("my-token", "hush-hush")])

    assert "not copied to paimon_table_properties" in caplog.text
    assert "hush-hush" not in caplog.text


def test_objects_of_the_catalog_show_no_password(
    tmp_path: Path, postgres_database: JdbcDatabase
) -> None:
    catalog = open_catalog(postgres_database, tmp_path)
    table = catalog.create_table("db.t", "k INT")
    password = postgres_database.properties["jdbc.password"]
    for value in (catalog, catalog.backend, table, table.environment, catalog.uri):
        assert password not in repr(value)
        assert quote(password) not in repr(value)


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (sa.exc.IntegrityError, 1062, AlreadyExistsError),
        (sa.exc.DataError, 1406, InputError),
        (sa.exc.OperationalError, 1045, AccessDeniedError),
        (sa.exc.OperationalError, 2003, CatalogUnavailableError),
        (sa.exc.OperationalError, 1213, CatalogUnavailableError),
        (sa.exc.ProgrammingError, 1146, InputError),
    ],
)
def test_codes_of_mysql(error: type[sa.exc.DBAPIError], code: int, kind: type[PaimonError]) -> None:
    original = RuntimeError(code, "refused for me:hush")
    message = r"mysql://h/d: \(\d+, 'refused for me:\*\*\*'\)"
    with raises_without(kind, message, *ADDRESS.secrets), wrap_database_errors(ADDRESS):
        raise error("SELECT 'hush'", {"value": "hush"}, original)
