"""Servers whose answers do not end are left after the time for a whole answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.faulty_server import Answer, run_faulty_server
from support.limited_process import refuse

from paimon_orch import Catalog
from paimon_orch.catalog.rest import rest_client
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.errors import NotAllowedError, PaimonError
from paimon_orch.retry_policy import SINGLE_ATTEMPT

SECONDS, PAUSE = 0.5, 0.05
HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a status": (HEAD[:-2], b"x"),
    "a header": (HEAD, b"x"),
    "a body": (HEAD + b"Content-Length: 60000\r\n\r\n", b" "),
    "a size of a chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;", b"x"),
    "trailers": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"X: y\r\n"),
}
"""The start of an answer, and the bytes that are then sent again and again."""


@pytest.fixture
def slow_uri(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that sends some more bytes all the time."""
    start, more = ENDLESS[request.param]
    stopped = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(start)
            while not stopped.wait(PAUSE):
                connection.sendall(more)

    def serve() -> None:
        with suppress(OSError):  # the listener is closed
            while not stopped.is_set():
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        stopped.set()
        listener.shutdown(socket.SHUT_RDWR)


def connect_to_paimon(uri: str, _root: Path) -> object:
    rest_client.READ_TIMEOUT = SECONDS
    vars(rest_client)["CATALOG_REQUEST"] = SINGLE_ATTEMPT
    return RestClient.connect({"metastore": "rest", "uri": uri, "token": "t"})


def with_credential(uri: str) -> dict[str, str]:
    return {"uri": uri, "credential": "id:secret", "oauth2-server-uri": f"{uri}/tokens"}


def connect_to_iceberg(uri: str, _root: Path) -> object:
    from paimon_orch.table.iceberg import confined_rest_catalog
    from paimon_orch.table.iceberg.iceberg_rest_client import open_rest_catalog

    confined_rest_catalog._READ_TIMEOUT = SECONDS
    with open_rest_catalog(with_credential(uri)):
        return None


def report(uri: str, root: Path) -> object:
    options = {
        "partition.mark-done-action": "http-report",
        "partition.mark-done-action.http.url": uri,
        "partition.mark-done-action.http.timeout": f"{SECONDS * 1000:.0f} ms",
    }
    catalog = Catalog(str(root), allowed_hosts=["127.0.0.1"])
    table = catalog.create_table("db.t", "p INT", partition_by=["p"], options=options)
    table.stores.build_marker().mark([{"p": "1"}])
    return None


CLIENTS: dict[str, Callable[[str, Path], object]] = {
    "a REST catalog": connect_to_paimon,
    "an Iceberg REST catalog": connect_to_iceberg,
    "a report": report,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slow_uri", ENDLESS, indirect=True)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_answers_without_end_is_left(
    tmp_path: Path, slow_uri: str, client: str
) -> None:
    if "Iceberg" in client:
        pytest.importorskip("pyiceberg")
    start = time.monotonic()
    message = refuse(lambda: CLIENTS[client](slow_uri, tmp_path), seconds=30)
    assert "timed out" in message.lower() or "in time" in message
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("status", [307, 308])
def test_the_credentials_for_a_token_are_sent_to_no_other_host(status: int) -> None:
    pytest.importorskip("pyiceberg")
    from paimon_orch.table.iceberg.iceberg_rest_client import open_rest_catalog

    with run_faulty_server() as server, run_faulty_server() as other:
        other.answers = [Answer(body={"access_token": "x", "token_type": "bearer"})]
        server.answers = [Answer(status=status, headers={"Location": f"{other.uri}/stolen"})]
        with (
            pytest.raises(PaimonError),
            open_rest_catalog(with_credential(server.uri)),
        ):
            pytest.fail("the context was entered")
        assert len(server.requests) == 1
        assert other.requests == []


@pytest.mark.parametrize("change", ["port", "scheme"])
def test_the_server_moves_requests_neither_to_another_port_nor_out_of_tls(change: str) -> None:
    pytest.importorskip("pyiceberg")
    from paimon_orch.table.iceberg.iceberg_rest_client import open_rest_catalog

    with run_faulty_server() as server:
        moved = {"port": "http://127.0.0.1:22", "scheme": server.uri.replace("http:", "https:")}
        server.config = {"overrides": {"uri": moved[change]}}
        with (
            pytest.raises(NotAllowedError, match="another server"),
            open_rest_catalog({"uri": server.uri, "token": "secret"}),
        ):
            pytest.fail("the context was entered")
