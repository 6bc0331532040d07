"""A server for Azure Blob Storage: Azurite, a package of npm, which runs with Node.js."""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.local_server import LocalServer, find_free_port, run_local_server
from support.peers.downloads import PeerUnavailableError, npm_package

PACKAGE = "azurite@3.35.0"
_ACCOUNT = "devstoreaccount1"
_KEY = b64encode(b"opens nothing but a server of the tests").decode()


def find_azurite() -> list[str]:
    """Return the command of the server; download it if it is missing."""
    node = shutil.which("node")
    if node is None:
        raise PeerUnavailableError("Azurite needs Node.js: no node on PATH")
    return [node, str(npm_package(PACKAGE) / "dist/src/blob/main.js")]


def build_options(url: str) -> dict[str, Any]:
    """Return the storage options for a server on this machine."""
    settings = {
        "DefaultEndpointsProtocol": "http",
        "AccountName": _ACCOUNT,
        "AccountKey": _KEY,
        "BlobEndpoint": f"{url}/{_ACCOUNT}",
    }
    return {"connection_string": ";".join("=".join(entry) for entry in settings.items())}


@contextmanager
def run_azurite(folder: Path, container: str) -> Iterator[tuple[dict[str, Any], LocalServer]]:
    """Run a server with a container; return the storage options for it, and its process."""
    import fsspec

    port = find_free_port()
    command = [*find_azurite(), "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    command += [f"--location={folder}", "--blobHost=127.0.0.1", f"--blobPort={port}"]
    options = build_options(f"http://127.0.0.1:{port}")
    environment = {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"}
    with run_local_server(command, port, folder, environment) as server:
        fsspec.filesystem("abfs", **options).mkdir(container)
        yield options, server
