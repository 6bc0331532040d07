"""A Hive metastore whose answers do not end, or are no Thrift, is left with an error."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.limited_process import refuse

from paimon_orch import Catalog
from paimon_orch.errors import CatalogUnavailableError

pytest.importorskip("pymetastore")

LIST, STRUCT, TEXT, STOP = 15, 12, 11, b"\0"
Send = Callable[[bytes], None]


def encode_answer(method: bytes, content: bytes) -> bytes:
    """Return an answer to the first request of a connection, whose fields are given."""
    return struct.pack(">II", 0x80010002, len(method)) + method + bytes(4) + content


def encode_list(count: int, items: bytes) -> bytes:
    """Return the result of a method: a list of texts that states a number of items."""
    return struct.pack(">bhbi", LIST, 0, TEXT, count) + items


def send_without_end(send: Send, pause: float, data: bytes) -> None:
    waiting = threading.Event()
    while not waiting.wait(pause):
        send(data)


UNKNOWN_TYPE = struct.pack(">bh", 99, 0)
ENDLESS = encode_list((1 << 31) - 1, b"")
ATTACKS: dict[str, tuple[bytes, Callable[[Send], None]]] = {
    "a byte now and then": (ENDLESS, lambda send: send_without_end(send, 0.05, b"\0")),
    "texts without end": (ENDLESS, lambda send: send_without_end(send, 0, bytes(1 << 16))),
    "bytes that are no text": (
        encode_list(1, struct.pack(">i", 2) + b"\xff\xfe") + STOP,
        lambda _: None,
    ),
    "structs in structs": (struct.pack(">bh", STRUCT, 9) * 200, lambda _: None),
    "an answer in another one": (
        UNKNOWN_TYPE + encode_answer(b"get_all_databases", encode_list(0, STOP)),
        lambda _: None,
    ),
}


@pytest.fixture
def metastore(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that accepts each user, and answers all other requests with an attack."""
    content, go_on = ATTACKS[request.param]

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(1 << 16):
                method = data[8 : 8 + struct.unpack(">I", data[4:8])[0]]
                if method == b"set_ugi":
                    user = encode_list(1, struct.pack(">i", 1) + b"u") + STOP
                    connection.sendall(encode_answer(method, user))
                else:
                    connection.sendall(encode_answer(method, content))
                    go_on(connection.sendall)

    def serve() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"thrift://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("metastore", ATTACKS, indirect=True)
def test_a_hostile_answer_is_an_error_of_the_catalog(tmp_path: Path, metastore: str) -> None:
    def list_databases() -> object:
        options: dict[str, Any] = {"hive.metastore.client.socket.timeout": "500 ms"}
        catalog = Catalog(metastore="hive", warehouse=str(tmp_path), uri=metastore, **options)
        return list(catalog.databases())

    assert "127.0.0.1" in refuse(list_databases, seconds=30)


@pytest.mark.parametrize("metastore", ["an answer in another one"], indirect=True)
def test_the_rest_of_an_answer_is_not_taken_for_the_next_one(
    tmp_path: Path, metastore: str
) -> None:
    catalog = Catalog(metastore="hive", warehouse=str(tmp_path), uri=metastore)
    for _ in range(2):
        with pytest.raises(CatalogUnavailableError, match="invalid TType"):
            catalog.databases()
