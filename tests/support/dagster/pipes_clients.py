"""Clients of Dagster Pipes that run steps in this process, with the arguments of real clients."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
from dagster_pipes import PipesContext

from paimon_orch import run_step

ARGUMENTS = {
    "k8s": "image command namespace env base_pod_meta base_pod_spec ignore_containers "
    "enable_multi_container_logs pod_wait_timeout delete_pod_on_completion",
    "ecs": "run_task_params pipes_container_name waiter_config",
    "emr": "run_job_flow_params",
    "emr_containers": "start_job_run_params",
    "emr_serverless": "start_job_run_params",
    "glue": "start_job_run_params",
    "databricks": "task submit_args",
    "dataproc": "submit_job_params",
}
"""The keyword arguments of ``run`` of Dagster's clients, except ``context`` and ``extras``."""


@contextmanager
def open_session_in_process(
    context: Any, extras: dict[str, Any] | None
) -> Iterator[dg.PipesSession]:
    """Open a session for a step that this process runs, and wait for its last message.

    Dagster's reader may find the end of the file before this message and the end of the session
    after it, and then leaves out what was written between. Processes end too slowly for this.
    """
    with dg.open_pipes_session(
        context=context,
        extras=extras,
        context_injector=dg.PipesTempFileContextInjector(),
        message_reader=dg.PipesTempFileMessageReader(),
    ) as session:
        try:
            with patch.dict(os.environ, session.get_bootstrap_env_vars()):
                yield session
        finally:
            PipesContext._instance = None  # a process has one
            deadline = time.monotonic() + 10
            received = session.message_handler
            while not received.received_closed_message and time.monotonic() < deadline:
                time.sleep(0.001)


class InProcessPipesClient(dg.PipesClient):
    """Records the arguments of ``run``, and runs the step in this process.

    The step and its report take the way of Dagster Pipes: environment variables and files.
    """

    def __init__(self, kind: str = "k8s") -> None:
        self._accepted = set(ARGUMENTS[kind].split())
        self.calls: list[dict[str, Any]] = []
        self.extras: list[dict[str, Any]] = []

    def run(  # type: ignore[override]  # as Dagster's clients
        self, *, context: Any, extras: dict[str, Any] | None = None, **arguments: Any
    ) -> dg.PipesClientCompletedInvocation:
        """Run the step of the extras."""
        assert set(arguments) <= self._accepted
        self.calls.append(arguments)
        self.extras.append(dict(extras or {}))
        with open_session_in_process(context, extras) as session:
            run_step.main()
        return dg.PipesClientCompletedInvocation(
            session, metadata={"job": dg.MetadataValue.url("https://cluster.example.com/jobs/1")}
        )


class ScriptClient(dg.PipesClient):
    """Runs a file in a process that has the parameters of Dagster Pipes as arguments.

    The clients of Dataproc, and of Databricks on existing clusters, do the same.
    """

    def run(  # type: ignore[override]  # as Dagster's clients
        self, *, context: Any, extras: dict[str, Any] | None = None, submit_job_params: Any
    ) -> dg.PipesClientCompletedInvocation:
        """Run the file of the job."""
        script = submit_job_params["job"]["pyspark_job"]["main_python_file_uri"]
        with dg.open_pipes_session(
            context=context,
            extras=extras,
            context_injector=dg.PipesTempFileContextInjector(),
            message_reader=dg.PipesTempFileMessageReader(),
        ) as session:
            arguments = session.get_bootstrap_cli_arguments()
            flat = [text for pair in arguments.items() for text in pair]
            subprocess.run([sys.executable, Path(script), *flat], check=True)
        return dg.PipesClientCompletedInvocation(session)
