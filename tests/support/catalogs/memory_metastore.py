"""A Thrift server with the methods of a Hive metastore that a catalog needs, and its tables in memory.

It answers as Hive 3.1 does, as far as tests of errors need it; what a metastore stores is tested with
real ones.
"""

from __future__ import annotations

import copy
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException


class MemoryMetastore:
    """The handler of the requests."""

    def __init__(self) -> None:
        self.uri = ""
        self.refusals: dict[str, Exception] = {}
        """What to answer to the next request with a method."""
        self.databases: dict[str, Any] = {}
        self.tables: dict[tuple[str, str], Any] = {}

    def set_ugi(self, _user: str, groups: list[str]) -> list[str]:
        return groups

    def get_all_databases(self) -> list[str]:
        return sorted(self.databases)

    def get_database(self, name: str) -> Any:
        if name not in self.databases:
            raise ttypes.NoSuchObjectException(message=name)
        return self.databases[name]

    def create_database(self, database: Any) -> None:
        if database.name in self.databases:
            raise ttypes.AlreadyExistsException(message=database.name)
        self.databases[database.name] = database

    def drop_database(self, name: str, *_options: bool) -> None:
        del self.databases[name]

    def get_all_tables(self, database: str) -> list[str]:
        return sorted(table for name, table in self.tables if name == database)

    def get_table_objects_by_name_req(self, request: Any) -> Any:
        names = [(request.dbName, name) for name in request.tblNames]
        return ttypes.GetTablesResult(tables=[self.tables[name] for name in names])

    def get_table_req(self, request: Any) -> Any:
        table = self.tables.get((request.dbName, request.tblName))
        if table is None:
            raise ttypes.NoSuchObjectException(message=request.tblName)
        return ttypes.GetTableResult(table=copy.deepcopy(table))

    def create_table(self, table: Any) -> None:
        if (table.dbName, table.tableName) in self.tables:
            raise ttypes.AlreadyExistsException(message=table.tableName)
        self._refuse("create_table")
        self.tables[table.dbName, table.tableName] = table

    def drop_table_with_environment_context(
        self, database: str, name: str, *_options: object
    ) -> None:
        del self.tables[database, name]

    def alter_table(self, database: str, name: str, table: Any) -> None:
        del self.tables[database, name]
        self.tables[table.dbName, table.tableName] = table

    def alter_table_with_environment_context(
        self, database: str, name: str, table: Any, _context: object
    ) -> None:
        self._refuse("alter_table_with_environment_context")
        self.alter_table(database, name, table)

    def _refuse(self, method: str) -> None:
        if error := self.refusals.pop(method, None):
            raise error

    def serve(self, listener: socket.socket) -> None:
        """Answer the requests of each connection in a thread, until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        transport = TSocket()
        transport.setHandle(client)
        protocol = TBinaryProtocol(TBufferedTransport(transport))
        processor = ThriftHiveMetastore.Processor(self)
        with client, suppress(TTransportException, OSError):
            while True:
                processor.process(protocol, protocol)


@contextmanager
def run_memory_metastore() -> Iterator[MemoryMetastore]:
    """Run a server in threads of this process."""
    metastore = MemoryMetastore()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        metastore.uri = f"thrift://127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=metastore.serve, args=(listener,), daemon=True).start()
        yield metastore
        listener.shutdown(socket.SHUT_RDWR)
