"""Counts the requests of operations, each in a process of its own, on a real S3 server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from unittest import mock

from support.request_log import BUCKET, LOG, Request, RequestCounts, count_requests
from support.request_operations import OPERATIONS, Warehouse
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
    """A server, a proxy that logs its requests, and local tables that are copied to the server."""

    server: SeaweedFS
    proxy: S3Proxy
    folder: Path

    def set_delay(self, seconds: float) -> None:
        """Delay each request that is logged."""
        self.proxy.delay = seconds

    def copy_table(self, original: Path, name: str) -> str:
        """Upload a copy of a warehouse; return its URI."""
        fs = self.open_store()
        files = [path for path in original.rglob("*") if path.is_file()]
        root = f"{BUCKET}/{name}"

        def upload(path: Path) -> None:
            fs.pipe_file(f"{root}/{path.relative_to(original)}", path.read_bytes())

        with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as threads:
            list(threads.map(upload, files))
        return f"s3://{root}"

    def open_store(self) -> Any:
        """Return the file system of fsspec without the proxy."""
        import fsspec

        return fsspec.filesystem("s3", **self.server.options, use_listings_cache=False)

    def measure(self, name: str) -> Measured:
        """Run an operation on its own copy of the table, and return its requests."""
        operation = OPERATIONS[name]
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        original = operation.find_original(self.folder)
        root = self.copy_table(original, folder.name)
        with mock.patch.dict(os.environ, build_environment(self.server.options)):
            operation.prepare(Warehouse(root=root, folder=folder))
        command = [sys.executable, "-m", "support.request_operations", name]
        return self.measure_process(command, self._describe(root, original, folder))

    def measure_peer(self, python: str, script: Path, command: str) -> Measured:
        """Run a command of another implementation in its environment."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        original = OPERATIONS["read all"].find_original(self.folder)
        arguments = self._describe(self.copy_table(original, folder.name), original, folder)
        options = self.server.options_for(self.proxy)
        return self.measure_process([python, str(script), command], arguments | options)

    def _describe(self, root: str, original: Path, folder: Path) -> dict[str, str]:
        return {"root": root, "original": str(original), "folder": str(folder)}

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
    with (
        run_seaweedfs(folder / "weed", BUCKET) as server,
        run_proxy(server.address, folder / LOG) as proxy,
    ):
        yield RequestMeter(server=server, proxy=proxy, folder=folder)
    shutil.rmtree(folder / "weed")
