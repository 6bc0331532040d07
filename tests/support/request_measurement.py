"""Counts the requests of operations, each in a process of its own, on a real S3 server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from unittest import mock

from support.request_log import BUCKET, LOG, Request, RequestCounts, count_requests
from support.request_operations import OPERATIONS, Warehouse, build_table
from support.s3_proxy import S3Proxy, run_proxy
from support.seaweedfs import SeaweedFS, run_seaweedfs

_TESTS = Path(__file__).resolve().parents[1]
_UPLOADS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The requests of one operation, and its seconds with all that it does besides."""

    requests: tuple[Request, ...]
    seconds: float

    @property
    def counts(self) -> RequestCounts:
        """The figures of the requests."""
        return count_requests(self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMeter:
    """A server, a proxy that logs its requests, and a local copy of the table."""

    server: SeaweedFS
    proxy: S3Proxy
    folder: Path
    original: Path

    def set_delay(self, seconds: float) -> None:
        """Delay each request that is logged."""
        self.proxy.delay = seconds

    def copy_table(self, name: str) -> str:
        """Upload a copy of the table's warehouse; return its URI."""
        fs = self.open_store()
        files = [path for path in self.original.rglob("*") if path.is_file()]
        root = f"{BUCKET}/{name}"

        def upload(path: Path) -> None:
            fs.pipe_file(f"{root}/{path.relative_to(self.original)}", path.read_bytes())

        with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as threads:
            list(threads.map(upload, files))
        return f"s3://{root}"

    def open_store(self) -> Any:
        """Return the file system of fsspec without the proxy."""
        import fsspec

        return fsspec.filesystem("s3", **self.server.options, use_listings_cache=False)

    def measure(self, name: str, number: int = 0) -> Measured:
        """Run an operation on its own copy of the table, and return its requests."""
        folder = self.folder / f"{list(OPERATIONS).index(name)}-{number}"
        folder.mkdir()
        root = self.copy_table(folder.name)
        with mock.patch.dict(os.environ, build_environment(self.server.options)):
            OPERATIONS[name].prepare(Warehouse(root=root, folder=folder))
        command = [sys.executable, "-m", "support.request_operations", name]
        arguments = {"root": root, "original": str(self.original), "folder": str(folder)}
        return self.measure_process(command, arguments)

    def measure_process(self, command: Sequence[str], arguments: dict[str, Any]) -> Measured:
        """Run a process that prints ``ready`` before it begins, and its seconds at the end."""
        environment = {
            **os.environ,
            **build_environment(self.server.options_for(self.proxy)),
            "PYTHONPATH": f"{_TESTS.parent}{os.pathsep}{_TESTS}",
        }
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            _send(process.stdin, json.dumps(arguments))
            _expect_ready(process.stdout, command)
            first = self.proxy.count()
            _send(process.stdin, "")
            seconds = process.stdout.readline()
            process.wait()
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
        return Measured(requests=tuple(self.proxy.read(first)), seconds=float(seconds))


def build_environment(options: Mapping[str, str]) -> dict[str, str]:
    """Return the variable with storage options."""
    return {"PAIMON_STORAGE_OPTIONS": json.dumps(options)}


def _send(sink: IO[str], line: str) -> None:
    sink.write(f"{line}\n")
    sink.flush()


def _expect_ready(source: IO[str], command: Sequence[str]) -> None:
    line = source.readline()
    if line != "ready\n":
        raise RuntimeError(f"{' '.join(command)}: printed {line!r} instead of ready")


@contextmanager
def run_request_meter(folder: Path) -> Iterator[RequestMeter]:
    """Start the server and the proxy, and build the table in a local directory."""
    original = folder / "original"
    build_table(original)
    with (
        run_seaweedfs(folder / "weed", BUCKET) as server,
        run_proxy(server.address, folder / LOG) as proxy,
    ):
        yield RequestMeter(server=server, proxy=proxy, folder=folder, original=original)
    shutil.rmtree(folder / "weed")
