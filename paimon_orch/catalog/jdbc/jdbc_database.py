"""Connections to the SQL database of a JDBC catalog."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

import sqlalchemy as sa
import sqlalchemy.exc

from paimon_orch.catalog.jdbc.jdbc_errors import wrap_database_errors
from paimon_orch.catalog.jdbc.jdbc_tables import (
    DATABASE_PROPERTIES,
    TABLE_PROPERTIES,
    TABLES,
    VIEWS,
    build_lock_table,
)
from paimon_orch.catalog.jdbc.jdbc_url import JdbcAddress
from paimon_orch.errors import InputError

T = TypeVar("T")

_engines: dict[tuple[object, ...], sa.Engine] = {}
_complete: dict[tuple[object, ...], bool] = {}
"""The databases whose tables this process has created or found, and whether they have views."""
_engines_lock = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcDatabase:
    """A database by its address. Pickled without connections, which each process opens itself."""

    address: JdbcAddress
    has_properties: bool = True
    """Whether options of tables are copied to the database."""
    lock_key_length: int | None = None
    """The length of the key in the table of locks, or None if tables are not locked."""
    _key: tuple[object, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        url = self.address.url.render_as_string(hide_password=False)
        arguments = tuple(sorted(self.address.connect_arguments.items()))
        object.__setattr__(self, "_key", (url, arguments))

    def read(self, statement: sa.Executable) -> Sequence[sa.Row[Any]]:
        """Return the rows of one query."""
        return self.run_statement(lambda connection: connection.execute(statement).all())

    def run_statement(self, work: Callable[[sa.Connection], T]) -> T:
        """Run work of which each statement is a transaction, as Java does."""
        return self._run(work, lambda engine: engine)

    def run_transaction(self, work: Callable[[sa.Connection], T]) -> T:
        """Run work in one transaction; an error rolls it back."""
        level = "SERIALIZABLE" if self.address.kind == "sqlite" else "READ COMMITTED"
        return self._run(work, lambda engine: engine.execution_options(isolation_level=level))

    def _run(
        self, work: Callable[[sa.Connection], T], configure: Callable[[sa.Engine], sa.Engine]
    ) -> T:
        self.create_tables()
        try:
            with wrap_database_errors(self.address):
                return self._run_again_if_stale(work, configure(self._engine))
        except InputError:
            # A table may be missing, because the database was replaced: look again the next time.
            _complete.pop(self._process_key, None)
            raise

    @staticmethod
    def _run_again_if_stale(work: Callable[[sa.Connection], T], engine: sa.Engine) -> T:
        try:
            return _run_once(engine, work)
        except _StaleConnectionError:
            # The server has closed an idle connection.
            return _run_once(engine, work, retried=True)

    @property
    def _process_key(self) -> tuple[object, ...]:
        # A forked process must not use the connections of its parent.
        return os.getpid(), self._key, self.has_properties, self.lock_key_length

    def create_tables(self) -> None:
        """Create the tables that do not exist, once per process."""
        self.has_views()

    def has_views(self, *, is_certain: bool = False) -> bool:
        """Return whether Java Paimon 2.0 has used the database, which then has a table of views.

        Another program may create it later, which is noticed only by ``is_certain``.
        """
        key = self._process_key
        has_views = _complete.get(key)
        if has_views is None or (is_certain and not has_views):
            with wrap_database_errors(self.address):
                has_views = self._create_missing_tables()
            _complete[key] = has_views
        return has_views

    def _create_missing_tables(self) -> bool:
        """Create tables, and return whether there is a table of views, which only Java creates.

        A user without the right to create tables can then use those of an older Java Paimon.
        """
        tables = [TABLES, DATABASE_PROPERTIES]
        if self.has_properties:
            tables.append(TABLE_PROPERTIES)
        if self.lock_key_length is not None:
            tables.append(build_lock_table(self.lock_key_length))
        with self._engine.connect() as connection:
            existing = set(sa.inspect(connection).get_table_names())
        for table in tables:
            if table.name not in existing:
                self._create_table(table)
        return VIEWS.name in existing

    def _create_table(self, table: sa.Table) -> None:
        """Create a table that another program may create at the same time.

        PostgreSQL then fails in spite of IF NOT EXISTS, once for each table at most, as every
        table has its own transaction here.
        """
        try:
            with self._engine.begin() as connection:
                connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
        except sa.exc.DBAPIError:
            with self._engine.connect() as connection:
                if not sa.inspect(connection).has_table(table.name):
                    raise

    @property
    def _engine(self) -> sa.Engine:
        key = self._process_key[:2]
        with _engines_lock:
            if key not in _engines:
                _engines[key] = _open_engine(self.address)
            return _engines[key]


class _StaleConnectionError(Exception):
    """A pooled connection was closed before the work was committed."""


def _run_once(engine: sa.Engine, work: Callable[[sa.Connection], T], *, retried: bool = False) -> T:
    with engine.begin() as connection:
        try:
            return work(connection)
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated and not retried:
                raise _StaleConnectionError from None
            raise


def _open_engine(address: JdbcAddress) -> sa.Engine:
    # SQLite files are cheap to open, and may be replaced while a process runs.
    is_file = address.kind == "sqlite"
    pool: dict[str, Any] = {"poolclass": sa.NullPool} if is_file else {"pool_size": 2}
    return sa.create_engine(
        address.url,
        connect_args=dict(address.connect_arguments),
        hide_parameters=True,
        # Single statements are the most frequent work, and need no requests for a transaction.
        isolation_level="AUTOCOMMIT",
        **pool,
    )
