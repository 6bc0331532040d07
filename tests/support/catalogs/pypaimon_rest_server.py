"""Runs REST servers of pypaimon's tests, one after the other; commands: see `rest_server`.

As published, the server accepts every token, keeps the old name of a renamed table and the files of
a dropped one, which a new table of its name then shows. A commit replaces the snapshot of the same
id and loses most of its fields. With `corrected`, tokens are checked, files are deleted, and a
commit writes the snapshot as it is received, unless a snapshot of its id exists or the table has
another id.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from pypaimon.api.api_response import ConfigResponse, ErrorResponse
from pypaimon.api.auth import BearTokenAuthProvider
from pypaimon.catalog.catalog_exception import TableNotExistException
from pypaimon.common.identifier import Identifier
from pypaimon.tests.rest.rest_server import RESTCatalogServer

sys.path.append(str(Path(__file__).resolve().parents[2]))
from support.peers.protocol import serve

SUCCESS = 200
_TABLE_PATH = re.compile(r"/databases/([^/]+)/tables/([^/]+)$")

_server: RESTCatalogServer


class _CorrectedServer(RESTCatalogServer):
    token: str

    def _route_request(
        self,
        method: str,
        resource_path: str,
        parameters: dict[str, str],
        data: str,
        headers: dict[str, str],
    ) -> tuple[str, int]:
        received = {name.lower(): value for name, value in headers.items()}
        answer: tuple[str, int]
        if received.get("authorization") != f"Bearer {self.token}":
            error = ErrorResponse(None, None, "the token is missing or wrong", 401)
            answer = self._mock_response(error, 401)
            return answer
        answer = super()._route_request(method, resource_path, parameters, data, headers)
        if resource_path == self.resource_paths.rename_table() and answer[1] == SUCCESS:
            source = json.loads(data)["source"]
            name = Identifier.create(source["database"], source["object"]).get_full_name()
            del self.table_metadata_store[name]
        dropped = _TABLE_PATH.search(resource_path)
        if method == "DELETE" and dropped and answer[1] == SUCCESS:
            database, table = dropped.groups()
            shutil.rmtree(Path(self.data_path, self.warehouse, database, table), ignore_errors=True)
        return answer

    def _table_commit_handle(
        self, _method: str, data: str, identifier: Identifier, _branch: str | None = None
    ) -> tuple[str, int]:
        request = json.loads(data)
        metadata = self.table_metadata_store.get(identifier.get_full_name())
        if metadata is None or str(metadata.uuid) != request["tableId"]:
            raise TableNotExistException(identifier)
        database, table = identifier.get_database_name(), identifier.get_object_name()
        folder = Path(self.data_path, self.warehouse, database, table, "snapshot")
        folder.mkdir(exist_ok=True)
        snapshot = request["snapshot"]
        try:
            # Requests are handled one after the other, so readers meet no incomplete file.
            with (folder / f"snapshot-{snapshot['id']}").open("x", encoding="utf-8") as file:
                json.dump(snapshot, file)
        except FileExistsError:
            return json.dumps({"success": False}), 200
        (folder / "LATEST").write_text(str(snapshot["id"]), encoding="utf-8")
        return json.dumps({"success": True}), 200


def start(
    folder: str, warehouse: str, config: dict[str, Any], auth: dict[str, str], *, corrected: bool
) -> str:
    """Start the server; return its address."""
    global _server  # noqa: PLW0603 - one server per process
    if corrected:
        _CorrectedServer.token = auth["token"]
    kind = _CorrectedServer if corrected else RESTCatalogServer
    provider = BearTokenAuthProvider(auth["token"])
    _server = kind(folder, provider, ConfigResponse(defaults=config["defaults"]), warehouse)
    _server.start()
    return str(_server.get_url())


def stop() -> None:
    """Stop the server, and do not wait until its thread notices it."""
    threading.Thread(target=_server.shutdown, daemon=True).start()


def forbid_database(database: str) -> None:
    """Answer 403 to requests for a database."""
    _server.add_no_permission_database(database)


def forbid_table(database: str, table: str) -> None:
    """Answer 403 to requests for a table."""
    _server.add_no_permission_table(Identifier.create(database, table))


def set_data_token(
    database: str, table: str, token: dict[str, str], expires_at_millis: int
) -> None:
    """Set the data token of a table; pypaimon 1.3 has none."""
    from pypaimon.catalog.rest.rest_token import RESTToken

    _server.set_table_token(Identifier.create(database, table), RESTToken(token, expires_at_millis))


serve(
    {
        "start": start,
        "stop": stop,
        "forbid_database": forbid_database,
        "forbid_table": forbid_table,
        "set_data_token": set_data_token,
    }
)
