"""A local S3 server, started once; each test uses its own bucket."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from support.catalogs.fixtures import start_rest_server  # noqa: F401 - a fixture
from support.clocks import replace_waits

from paimon_orch.storage import FileIO, resolve_warehouse

SECRET = "very-secret-value-4711"  # noqa: S105 - opens nothing
_START_SECONDS = 120
# Moto checks whether a key exists before it puts the object, so two concurrent conditional requests
# may both succeed, unlike in S3. The lock serializes requests. Keys like expires-1700000000000 are
# refused after that time.
_SERVER = """
import re, sys, threading, time
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

moto, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

def application(environ, start_response):
    expiring = re.search(r"Credential=expires-([0-9]+)/", environ.get("HTTP_AUTHORIZATION", ""))
    if expiring and int(expiring[1]) < time.time() * 1000:
        start_response("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"]
    with lock:
        return moto(environ, start_response)

run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)
"""


@dataclass(frozen=True)
class Bucket:
    """A warehouse in a bucket of the test server, and its storage options."""

    root: str
    options: dict[str, Any] = field(repr=False)

    @property
    def io(self) -> FileIO:
        return resolve_warehouse(self.root, self.options)[0]


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a moto server; skip without moto or s3fs."""
    for package in ("moto", "flask", "s3fs"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the S3 tests need moto[server] and s3fs; {package} is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("moto") / "server.log"
    with log.open("wb") as sink:
        command = [sys.executable, "-c", _SERVER, str(port)]
        server = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        _wait_for(server, port, log.read_text)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()  # the server inherits ignored signals, and then SIGTERM does not end it
        server.wait()


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Callable[[], str]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the S3 server did not start: {log()}")
            time.sleep(0.05)


@pytest.fixture
def s3(s3_endpoint: str) -> Bucket:
    """Return a new bucket; moto accepts any credentials."""
    import fsspec

    options = {"key": "access-key-0815", "secret": SECRET, "endpoint_url": s3_endpoint}
    name = f"paimon-{uuid4()}"
    fsspec.filesystem("s3", **options).mkdir(name)
    return Bucket(f"s3://{name}/warehouse", options)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without waiting."""
    replace_waits(monkeypatch, lambda _: None)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the requests of this process to S3 so far, as the names of their methods."""
    s3fs = pytest.importorskip("s3fs")
    from fsspec.asyn import sync_wrapper

    sent, original = list[str](), s3fs.S3FileSystem._call_s3

    async def call(self: object, method: str, *args: object, **options: object) -> object:
        sent.append(method)
        return await original(self, method, *args, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", call)
    monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", sync_wrapper(call))
    return sent
