"""Runs steps in other processes and clusters through the clients of Dagster Pipes.

The process there is ``python -m paimon_orch.run_step``. It gets the step as an extra of Dagster
Pipes, and its report is a custom message. Each client has its own way to start a program:
:data:`CLIENTS` puts ours into the options of the client, unless they have a program already.
"""

import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import dagster as dg

from paimon_orch.dagster.error_conversion import get_op_context
from paimon_orch.dagster.resources import (
    ExecutorChoice,
    PaimonCatalogResource,
    SparkSessionResource,
)
from paimon_orch.dagster.run_metadata import Metadata
from paimon_orch.errors import InputError
from paimon_orch.orchestration.reported_steps import check_report
from paimon_orch.orchestration.step_runs import STEP_EXTRA
from paimon_orch.safe_text import is_secret_name, mask_secrets
from paimon_orch.steps.definition.catalog_target import CatalogEntry
from paimon_orch.table.table import Table

_MODULE = ("-m", "paimon_orch.run_step")
_SUBPROCESS = "subprocess"

Options = dict[str, Any]
"""Keyword arguments of the method ``run`` of a client."""


def _set_default(options: Options, path: str, value: object) -> None:
    """Set a nested value unless it is set; ``path`` has the keys, separated by dots.

    Raises :class:`InputError` if there is no value either.
    """
    *parents, name = path.split(".")
    for parent in parents:
        options = options.setdefault(parent, {})
    if options.setdefault(name, value) is None:
        raise InputError(
            f"run_on needs 'script', the address of a Python file that calls run_step, or {path}"
        )


def _place_in_ecs(options: Options, _script: str | None) -> None:
    overrides = options.get("run_task_params", {}).get("overrides", {})
    for container in overrides.get("containerOverrides", [])[:1]:
        container.setdefault("command", ["python", *_MODULE])


def _place_in_emr(options: Options, script: str | None) -> None:
    step = {
        "Name": "paimon_orch",
        "ActionOnFailure": "TERMINATE_CLUSTER",
        "HadoopJarStep": {"Jar": "command-runner.jar", "Args": ["spark-submit", script]},
    }
    _set_default(options, "run_job_flow_params.Steps", script and [step])


def _place_in_databricks(options: Options, script: str | None) -> None:
    task = options.setdefault("task", {})
    task.setdefault("task_key", "paimon_orch")
    if "python_wheel_task" not in task:
        _set_default(task, "spark_python_task.python_file", script)


def _build_databricks_task(options: Options) -> Options:
    jobs = import_module("databricks.sdk.service.jobs")  # the client requires this package
    return {**options, "task": jobs.SubmitTask.from_dict(options["task"])}


def _build_dataproc_job(options: Options) -> Options:
    types = import_module("google.cloud.dataproc_v1.types")  # as above
    params = options["submit_job_params"]
    return {**options, "submit_job_params": {**params, "job": types.Job(params["job"])}}


def _place_at(path: str) -> "Callable[[Options, str | None], None]":
    return lambda options, script: _set_default(options, path, script)


class _Client(NamedTuple):
    place: Callable[[Options, str | None], None]
    """Puts the command, or the script, into the options."""
    convert: Callable[[Options], Options] = lambda options: options
    """Converts the options to types of the client's library."""


CLIENTS: Mapping[str, _Client] = MappingProxyType(
    {
        _SUBPROCESS: _Client(
            lambda options, _: _set_default(options, "command", [sys.executable, *_MODULE])
        ),
        "k8s": _Client(lambda options, _: _set_default(options, "command", ["python", *_MODULE])),
        "ecs": _Client(_place_in_ecs),
        "emr": _Client(_place_in_emr),
        "emr_containers": _Client(
            _place_at("start_job_run_params.jobDriver.sparkSubmitJobDriver.entryPoint")
        ),
        "emr_serverless": _Client(
            _place_at("start_job_run_params.jobDriver.sparkSubmit.entryPoint")
        ),
        "glue": _Client(lambda _options, _script: None),  # the script is that of the job
        "databricks": _Client(_place_in_databricks, _build_databricks_task),
        "dataproc": _Client(
            _place_at("submit_job_params.job.pyspark_job.main_python_file_uri"),
            _build_dataproc_job,
        ),
    }
)
"""The clients by the names that ``run_on`` accepts."""


@dataclass(frozen=True, slots=True)
class RunOn:
    """Where the work of a run is done: a client of Dagster Pipes, and the arguments of its ``run``.

    The client is the resource ``pipes_client``, except for ``subprocess``, which needs none.

    >>> RunOn("k8s", {"image": "lake:1", "namespace": "maintenance"})

    Raises :class:`InputError` for an unknown client, and without a program to run.
    """

    client: str
    options: Mapping[str, Any] = field(default_factory=dict)
    script: str | None = None
    """The address of a Python file that calls ``run_step``, for clients that run a file."""
    resource: str = "pipes_client"
    """The key of the resource that is the client."""
    from_tags: Callable[[Mapping[str, str]], Mapping[str, Any]] | None = None
    """Returns further options from the tags of a run, such as the size of its pod."""

    def __post_init__(self) -> None:
        if self.client not in list(CLIENTS):  # a value of YAML may have no hash
            raise InputError(
                f"run_on: unknown client {self.client!r}; possible are {', '.join(CLIENTS)}"
            )
        for name, kind in {"script": str | None, "resource": str}.items():
            if not isinstance(getattr(self, name), kind):
                raise InputError(f"run_on: {name} is {getattr(self, name)!r}, but must be a text")
        if self.from_tags is not None and not callable(self.from_tags):
            raise InputError(
                f"run_on: from_tags is {self.from_tags!r}, but must be a function; in YAML, a "
                "template such as '{{ size_pod }}' names it"
            )
        if unknown := self.options.keys() - self._list_accepted():
            raise InputError(f"run_on: {self.client} takes no {', '.join(map(str, unknown))}")
        try:
            CLIENTS[self.client].place(deepcopy(dict(self.options)), self.script)
        except (AttributeError, TypeError) as error:
            raise InputError(
                f"run_on: an argument of {self.client} has another type than the client takes, so "
                "that the program cannot be put into it"
            ) from error

    def _list_accepted(self) -> set[str]:
        """Return the accepted arguments; the packages of other clients may not be installed here."""
        accepted = set(self.options)
        if self.client == _SUBPROCESS:
            accepted = set(signature(dg.PipesSubprocessClient.run).parameters)
        return accepted - {"self", "context", "extras"}  # the last two are those of the run

    @classmethod
    def parse(cls, value: "RunOn | str | Mapping[str, Any] | None") -> Self | None:
        """Return the value of an attribute: the name of a client, or a mapping with ``client``.

        The other keys of a mapping are the fields of this class or options of the client.
        """
        if value is None or isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls(value)
        if not isinstance(value, Mapping) or "client" not in value:
            raise InputError("run_on is the name of a client, or an object with the key 'client'")
        options, names = dict(value), ("client", "script", "resource", "from_tags")
        fields = {name: options.pop(name) for name in names if name in options}
        return cls(**fields, options=options)

    def build_arguments(self, tags: Mapping[str, str]) -> Options:
        """Return the arguments of the client's ``run`` for a run with these tags.

        They are a copy, because some clients change them.
        """
        options = dict(self.options)
        if self.from_tags is not None:
            options |= self.from_tags(tags)
        options, client = deepcopy(options), CLIENTS[self.client]
        client.place(options, self.script)
        return client.convert(options)

    def check_secrets(self, values: Mapping[str, str]) -> None:
        """Raise :class:`InputError` for options with secrets, unless they stay on this machine."""
        names = [
            name
            for name, text in values.items()
            if is_secret_name(name) or mask_secrets(text) != text
        ]
        if names and self.client != _SUBPROCESS:
            raise InputError(
                f"run_on: {self.client} would show secrets in the description of its job: "
                f"{', '.join(names)}; set them there, for example as the environment variable "
                "PAIMON_STORAGE_OPTIONS, or name a catalog that is configured there"
            )


def list_resources(run_on: RunOn | None, prefix: str = "") -> set[str]:
    """Return the keys of the resources that runs require; those of a catalog begin with a prefix."""
    keys = {f"{prefix}paimon", f"{prefix}spark"}
    if run_on is not None and run_on.client != _SUBPROCESS:
        keys.add(run_on.resource)
    return keys


class RemoteReport(NamedTuple):
    """The report of a step, with metadata of the client such as a link to its job."""

    values: Mapping[str, Any]
    links: Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSteps:
    """Runs steps of tables elsewhere for a run of Dagster."""

    run_on: RunOn
    context: dg.OpExecutionContext | dg.AssetExecutionContext
    paimon: PaimonCatalogResource
    spark: SparkSessionResource

    @classmethod
    def of(
        cls,
        run_on: RunOn | None,
        context: dg.OpExecutionContext | dg.AssetExecutionContext,
        paimon: PaimonCatalogResource,
        spark: SparkSessionResource,
    ) -> Self | None:
        """Return the steps of a run with its resources, or None if its own process runs them."""
        if run_on is None:
            return None
        return cls(run_on=run_on, context=context, paimon=paimon, spark=spark)

    def run(
        self,
        step: str,
        target: Table | CatalogEntry,
        arguments: Mapping[str, object],
        *,
        executor: ExecutorChoice,
        dry_run: bool = False,
    ) -> RemoteReport:
        """Run a step, and return its report; raises the error of a failed step.

        Only the executor ``spark`` uses the cluster of the resource ``spark``.
        """
        request = self._build_request(target, executor) | {
            "step": step,
            "arguments": arguments,
            "dry_run": dry_run,
        }
        run_on, context = self.run_on, self.context
        client: Any = (
            dg.PipesSubprocessClient()
            if run_on.client == _SUBPROCESS
            else getattr(context.resources, run_on.resource)
        )
        context.log.info("%s of %s runs on %s", step, target.identifier, run_on.client)
        invocation = client.run(
            context=context,
            extras={STEP_EXTRA: request},
            **run_on.build_arguments(get_op_context(context).run.tags),
        )
        messages = invocation.get_custom_messages()  # a script may send its own
        reports = [each for each in messages if isinstance(each, dict) and each.get("step") == step]
        if not reports:
            raise dg.Failure(
                f"{step} of {target.identifier}: the process on {run_on.client} sent no report; "
                "look at its log",
                allow_retries=False,
            )
        report = reports[-1]
        check_report(report, step, dry_run=dry_run)
        return RemoteReport(report, dict(invocation.metadata))

    def _build_request(
        self, target: Table | CatalogEntry, executor: ExecutorChoice
    ) -> dict[str, Any]:
        """Return the catalog, the table and the executor as ``run_step`` takes them."""
        spark, paimon = self.spark, self.paimon
        catalog = paimon.catalog_name or paimon.warehouse
        master = spark.cluster if executor is ExecutorChoice.spark else None
        options, storage = paimon.list_options(), paimon.storage_options
        texts = {"warehouse": catalog or "", "spark": master or "", **options, **storage}
        self.run_on.check_secrets(texts)
        return {
            "catalog": catalog,
            "catalog_options": options,
            "storage_options": dict(storage),
            "table": target.identifier,
            "master": master,
            "executor": executor.value,
            "allow_stale_external": target.allowances.stale_external,
            "allow_unknown_options": target.allowances.unknown_options,
        }
