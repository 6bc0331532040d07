"""A Dagster deployment: processes of a code server, a webserver and a daemon with one instance."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg

T = TypeVar("T")
LOCATION = "definitions"
LIVE_LOCATION = ["-f", str(Path(__file__).with_name("location.py"))]
"""Arguments of the code server for :mod:`support.dagster.location`."""
Commit = Callable[..., None]
"""Commits rows of the given partitions to a table."""

FAST_ENVIRONMENT = {"DAGSTER_EVENT_LOG_CONSUMER_DAEMON_INTERVAL_SECONDS": "1"}


class Deployment:
    """The processes of a deployment; :meth:`close` stops them and their child processes."""

    def __init__(
        self,
        home: Path,
        repository: Path,
        location: list[str],
        environment: Mapping[str, str],
        config: Mapping[str, Any] | None = None,
        more_config: str = "",
    ) -> None:
        self.home, self.port = home, free_port()
        self._code_port = free_port()
        self._location = location
        self._repository = repository
        self._environment = environment
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        home.mkdir(parents=True)
        base = (repository / "definitions" / "dagster.yaml").read_text()
        settings = [f"{key}: {json.dumps(value)}" for key, value in (config or {}).items()]
        (home / "dagster.yaml").write_text("\n".join([base, *settings, more_config]))
        server = {"port": self._code_port, "host": "127.0.0.1", "location_name": LOCATION}
        workspace = {"load_from": [{"grpc_server": server}]}
        (home / "workspace.yaml").write_text(json.dumps(workspace))  # JSON is valid YAML

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the code server and the webserver."""
        port = ("--port", self._code_port)
        self._start("code-server", "dagster", "api", "grpc", *port, *self._location)
        wait_for_result(lambda: is_listening(self._code_port), self.logs)
        workspace = ("-w", self.home / "workspace.yaml")
        self._start("webserver", "dagster_webserver", "-p", self.port, *workspace)
        wait_for_result(self._is_ready, self.logs)

    def start_daemon(self) -> None:
        workspace = ("-w", self.home / "workspace.yaml")
        self._start("daemon", "dagster._daemon", "run", *workspace)

    def stop(self, name: str) -> None:
        """Terminate a process; kill it and its child processes after a timeout."""
        process = self._running[name]
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        self._kill(name)

    def close(self) -> None:
        """Kill all processes and their child processes."""
        for name in list(self._running):
            self._kill(name)

    def graphql(self, query: str, **variables: Any) -> Any:
        """Send a query to the webserver, as the UI does."""
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.url}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - as above
            result = json.load(response)
        assert "errors" not in result, result
        return result["data"]

    def instance(self) -> dg.DagsterInstance:
        return dg.DagsterInstance.from_config(str(self.home))

    def logs(self) -> str:
        """The end of the log of each process, without ticks that requested no runs."""
        files = sorted(self.home.glob("*.log"))
        return "\n".join(f"--- {file.stem}\n{end_of_log(file)}" for file in files)

    def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _is_ready(self) -> bool:
        try:
            nodes = self.graphql(
                "{workspaceOrError {... on Workspace {locationEntries {loadStatus}}}}"
            )
        except (urllib.error.URLError, TimeoutError):
            return False
        entries = nodes["workspaceOrError"]["locationEntries"]
        return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)

    def _start(self, name: str, module: str, *arguments: object) -> None:
        environment = {
            **os.environ,
            **FAST_ENVIRONMENT,
            **self._environment,
            "DAGSTER_HOME": str(self.home),
            "PYTHONPATH": str(self._repository),
        }
        with (self.home / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                env=environment,
                cwd=self._repository,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def wait_for_result(
    probe: Callable[[], T], logs: Callable[[], str] = str, *, seconds: float = 120
) -> T:
    """Return the first truthy result of a probe; fail with the logs after ``seconds``."""
    end = time.monotonic() + seconds
    while not (result := probe()):
        assert time.monotonic() < end, f"no result after {seconds:g} s\n{logs()}"
        time.sleep(0.1)
    return result


def end_of_log(log: Path) -> str:
    idle = ("Checking for new runs for sensor", "already handled")
    lines = log.read_text().splitlines()
    return "\n".join([line for line in lines if not any(map(line.__contains__, idle))][-60:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
