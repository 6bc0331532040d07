"""A deployment of Airflow with SQLite: an API server, a scheduler, a DAG processor and a triggerer."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

PARALLEL_TASKS = 4
_PROCESSES = ("api-server", "scheduler", "dag-processor", "triggerer")
_FINISHED = {"success", "failed"}
_LOG_LINES = 40
_Found = TypeVar("_Found")


def _find_children() -> dict[int, list[int]]:
    """Return the child processes of each process of this machine."""
    children = defaultdict[int, list[int]](list)
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # the name, in parentheses, may contain spaces
            parent = int(file.read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(file.parent.name))
    return children


def find_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@dataclass(slots=True)
class AirflowDeployment:
    """The processes of a deployment, and what its API says."""

    python: Path
    variables: dict[str, str]
    """The environment variables, with ``AIRFLOW_HOME``; the database is migrated."""
    port: int = field(default_factory=find_port)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _token: str = ""

    def __post_init__(self) -> None:
        self.variables |= {
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(32),
            "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(32),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            # without it the processes, which start together, may read keys of unfinished files
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__PARALLELISM": str(PARALLEL_TASKS),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            # each file is parsed once, which may take long on a busy machine
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "100",
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "120",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
            # the first request to the API of tasks is slow
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        }

    @property
    def url(self) -> str:
        """The address of the UI."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def home(self) -> Path:
        """The folder with the database, the DAGs and the logs."""
        return Path(self.variables["AIRFLOW_HOME"])

    def start(self) -> None:
        """Start all processes, and wait for the API."""
        for name in _PROCESSES:
            arguments = {
                "api-server": ["--host", "127.0.0.1", "--port", str(self.port)],
                "scheduler": ["--skip-serve-logs"],
                "triggerer": ["--skip-serve-logs"],
            }
            self._start(name, *arguments.get(name, []))
        self.wait_for(self._is_ready, 300, "the API server")

    def close(self) -> None:
        """Kill all processes and their child processes, which may have sessions of their own."""
        children = _find_children()
        victims = [process.pid for process in self._running.values()]
        for pid in victims:
            victims += children.get(pid, [])
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._running.values():
            process.wait()

    def kill_tasks(self) -> list[int]:
        """Kill the workers that run a task, with the task and its child processes."""
        children = _find_children()
        workers = children.get(self._running["scheduler"].pid, [])
        victims = [pid for pid in workers if children.get(pid)]
        for pid in victims:
            victims += children.get(pid, [])
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return victims

    def knows(self, dag: str) -> bool:
        """Return whether the DAG was parsed."""
        try:
            self.api(f"/api/v2/dags/{dag}")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return False
            raise
        return True

    def cli(self, *arguments: str) -> str:
        """Run a command of Airflow, and return its output."""
        finished = subprocess.run(
            [str(self.python), "-m", "airflow", *arguments],
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, f"{finished.stdout}\n{finished.stderr}"
        return finished.stdout

    def api(self, path: str, body: Any = None, *, method: str | None = None) -> Any:
        """Send a request to the API, and return the JSON of its answer."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - our own server
            self.url + path, data, headers, method=method
        )
        with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - as above
            return json.load(response)

    def trigger(self, dag: str, run: str) -> None:
        """Start a run of a DAG as soon as the DAG is known."""

        self.wait_for(lambda: self.knows(dag), 60, f"the DAG {dag}")
        body = {"dag_run_id": run, "logical_date": None}
        self.api(f"/api/v2/dags/{dag}/dagRuns", body)

    def list_runs(self, dag: str) -> list[dict[str, Any]]:
        """Return the runs of a DAG; there are none before the DAG is known."""
        if not self.knows(dag):
            return []
        return list(self.api(f"/api/v2/dags/{dag}/dagRuns?limit=100")["dag_runs"])

    def wait_for_run(self, dag: str, run: str | None = None, seconds: float = 120) -> Any:
        """Wait until a run has ended, by default the first one, and return it."""

        def find() -> Any:
            runs = [each for each in self.list_runs(dag) if run in {None, each["dag_run_id"]}]
            return next((each for each in runs if each["state"] in _FINISHED), None)

        return self.wait_for(find, seconds, f"a run of {dag}")

    def list_tasks(self, dag: str, run: str) -> list[dict[str, Any]]:
        """Return the tasks of a run."""
        path = f"/api/v2/dags/{dag}/dagRuns/{quote(run, safe='')}/taskInstances?limit=1000"
        return list(self.api(path)["task_instances"])

    def read_task_log(self, dag: str, run: str, task: str, attempt: int = 1) -> str:
        """Return the log of a task, as the UI shows it."""
        path = f"/api/v2/dags/{dag}/dagRuns/{quote(run, safe='')}/taskInstances/{task}"
        return json.dumps(self.api(f"{path}/logs/{attempt}?full_content=true"))

    def wait_for(self, find: Callable[[], _Found], seconds: float, what: str) -> _Found:
        """Return the first result that is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            result = find()
            if result:
                return result
            time.sleep(1)
        raise AssertionError(f"{what} is not there after {seconds:g} seconds\n{self.logs()}")

    def logs(self) -> str:
        """Return the end of the log of each process."""
        files = sorted(self.home.glob("*.log"))
        tails = (path.read_text(errors="replace").splitlines()[-_LOG_LINES:] for path in files)
        return "\n".join(
            f"--- {path.stem}\n" + "\n".join(tail) for path, tail in zip(files, tails, strict=True)
        )

    def _is_ready(self) -> bool:
        try:
            self._token = self.api("/auth/token")["access_token"]
            health = self.api("/api/v2/monitor/health")
        except urllib.error.HTTPError:
            raise
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        parts = ("scheduler", "triggerer", "dag_processor")
        return all(health[part]["status"] == "healthy" for part in parts)

    def _start(self, name: str, *arguments: str) -> None:
        with (self.home / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [str(self.python), "-m", "airflow", name, *arguments],
                env=self.variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
