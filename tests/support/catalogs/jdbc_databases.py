"""SQL databases for JDBC catalogs: a SQLite file, and databases of a PostgreSQL server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from support.postgres import find_postgres_home, run_postgres_server

from paimon_orch import Catalog

_PASSWORD = "a pass:word@%/"  # noqa: S105 - of a server that only tests can reach
_database_numbers = itertools.count()


@dataclass(frozen=True, kw_only=True)
class JdbcDatabase:
    """An SQL database: its address in Java's form, and a connection that skips the catalog."""

    uri: str
    """As in the option ``uri``."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The options ``jdbc.user`` and ``jdbc.password``, if the database requires them."""
    url: sa.URL

    @property
    def kind(self) -> str:
        """The name of the protocol in the URI: ``sqlite`` or ``postgresql``."""
        return self.uri.split(":")[1]

    def options(self, warehouse: Path, **more: str) -> dict[str, str]:
        """Return options of a catalog; in names of further options `__` is a dot and `_` a dash."""
        named = {name.replace("__", ".").replace("_", "-"): text for name, text in more.items()}
        catalog = {"metastore": "jdbc", "uri": self.uri, "warehouse": str(warehouse)}
        return {**catalog, **self.properties, **named}

    def open(self, warehouse: Path, **more: str) -> Catalog:
        """Open the catalog with :meth:`options`."""
        options: dict[str, Any] = self.options(warehouse, **more)
        return Catalog(**options)

    def run(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement, with parameters such as ``:name``, and return its rows."""
        with self._begin() as connection:
            result = connection.execute(sa.text(statement), parameters)
            return [tuple(row) for row in result] if result.returns_rows else []

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """Return the sorted rows of a table."""
        return sorted(self.run(f"SELECT * FROM {table}"))  # noqa: S608 - names are constants

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of all tables by their names."""
        with self._begin() as connection:
            names = sa.inspect(connection).get_table_names()
        return {name: self.rows(name) for name in sorted(names)}

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            yield connection


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server on this machine, with the password of the user ``postgres``."""

    port: int
    password: str

    def database(self, name: str) -> JdbcDatabase:
        """Return the address of a database of this server."""
        return JdbcDatabase(
            uri=f"jdbc:postgresql://127.0.0.1:{self.port}/{name}",
            properties={"jdbc.user": "postgres", "jdbc.password": self.password},
            # psycopg 3 is the default driver of SQLAlchemy 2.1, and is not installed.
            url=sa.URL.create(
                "postgresql+psycopg2",
                username="postgres",
                password=self.password,
                host="127.0.0.1",
                port=self.port,
                database=name,
            ),
        )

    def run(self, statement: str) -> None:
        """Run a statement outside a transaction, which CREATE DATABASE requires."""
        engine = sa.create_engine(
            self.database("postgres").url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.execute(sa.text(statement))


@contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    """Run a server that requires a password."""
    home = find_postgres_home()
    assert home is not None
    with run_postgres_server(home, _PASSWORD) as port:
        yield PostgresServer(port, _PASSWORD)


@contextmanager
def create_postgres_database(server: PostgresServer) -> Iterator[JdbcDatabase]:
    """Create an empty database, and drop it with the connections that peers left open."""
    name = f"catalog_{next(_database_numbers)}"
    server.run(f"CREATE DATABASE {name}")
    try:
        yield server.database(name)
    finally:
        server.run(f"DROP DATABASE {name} WITH (FORCE)")


def create_sqlite_database(path: Path) -> JdbcDatabase:
    """Create an empty SQLite file in WAL mode.

    In other modes, Java cannot commit with locks: the connection that looked for the lock table
    leaves its result open, and SQLite then refuses the writes of all other connections.
    """
    database = JdbcDatabase(
        uri=f"jdbc:sqlite:{path}", url=sa.URL.create("sqlite", database=str(path))
    )
    database.run("PRAGMA journal_mode=WAL")
    return database
