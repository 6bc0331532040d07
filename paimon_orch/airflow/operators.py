"""Operators: one for each maintenance step, and one for all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import BaseOperator, Context

from paimon_orch.airflow.hooks import DEFAULT_CONNECTION, PaimonHook
from paimon_orch.airflow.links import PaimonReportLink
from paimon_orch.airflow.task_errors import build_failure, raise_airflow_errors
from paimon_orch.safe_text import escape_unstorable

_XCOM_RETURN_KEY = "return_value"
"""The key under which Airflow keeps what a task returns."""
_MAX_UNITS = 1000
"""The number of units, files or paths of a plan in XCom."""


class PaimonStepOperator(BaseOperator):
    """Plans a step, and runs the plan unless it is a dry run.

    The operator returns the report of the step, so that it is in XCom: the plan and the outcome as
    JSON values; see :func:`~paimon_orch.orchestration.step_runs.run_declared_step`. Work runs in
    processes of the worker, without Spark.

    Refusals, damage and commits whose outcome is unknown fail the task without a retry. After other
    errors, such as those of the network, the ``retries`` of the task apply.

    :param step: the name of the step, as on the command line
    :param table: ``database.table``, or the name of a database to drop
    :param arguments: the fields of the step's request; texts such as ``12 h`` are parsed
    :param dry_run: whether to return the plan without running it; required for steps whose command
        asks before it runs
    """

    template_fields: Sequence[str] = ("table", "arguments", "paimon_conn_id")
    operator_extra_links = (PaimonReportLink(),)

    def __init__(
        self,
        *,
        step: str,
        table: str,
        arguments: Mapping[str, Any] | None = None,
        dry_run: bool | None = None,
        paimon_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.table = table
        self.arguments = arguments
        self.is_dry_run = dry_run
        self.paimon_conn_id = paimon_conn_id

    def list_arguments(self) -> Mapping[str, Any]:
        """Return the arguments of the step by the names of its request's fields."""
        return self.arguments or {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the step, and return its plan and its outcome, also if a repair leaves damage."""
        # DAG files are parsed often, and do not need the steps
        from paimon_orch.airflow.step_arguments import convert_rendered
        from paimon_orch.orchestration.step_runs import run_declared_step
        from paimon_orch.steps import LocalExecutor
        from paimon_orch.steps.common.step_registry import load_declaration

        with raise_airflow_errors():
            declaration = load_declaration(self.step)
            arguments = convert_rendered(self.list_arguments(), declaration.arguments)
            catalog = PaimonHook(self.paimon_conn_id).get_conn()
            target = declaration.open_target(catalog, self.table)
            report = run_declared_step(
                self.step, target, arguments, LocalExecutor(), dry_run=self.is_dry_run
            )
        returned: dict[str, Any] = escape_unstorable(
            {name: _shorten(value) for name, value in report.items()}
        )
        if report["is_incomplete"]:
            context["ti"].xcom_push(key=_XCOM_RETURN_KEY, value=returned)
            raise build_failure(
                f"{self.step} of {self.table} leaves damage, which its plan in XCom lists"
            )
        return returned


def _shorten(value: object) -> object:
    """Return a plan or an outcome without the ends of long lists, and with their lengths."""
    if not isinstance(value, dict):
        return value
    long = {
        name: each
        for name, each in value.items()
        if isinstance(each, list) and len(each) > _MAX_UNITS
    }
    lengths = {f"{name}_total": len(each) for name, each in long.items()}
    return value | {name: each[:_MAX_UNITS] for name, each in long.items()} | lengths


class _NamedStepOperator(PaimonStepOperator):
    """An operator of one step, whose arguments are attributes of the operator."""

    argument_names: ClassVar[tuple[str, ...]]

    def list_arguments(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in self.argument_names}


class PaimonCompactOperator(_NamedStepOperator):
    """Compacts a table, or some of its partitions, in one snapshot.

    :param table: ``database.table``
    :param partitions: specs such as ``dt=2026-01-01``; None compacts all partitions
    :param where: a filter on partition columns
    :param strategy: ``minor`` follows the table's options, ``full`` rewrites all files
    :param idle_for: a duration such as ``12 h``: only partitions whose newest file is as old
    """

    argument_names = ("partitions", "where", "strategy", "idle_for")
    template_fields = ("table", "paimon_conn_id", *argument_names)

    def __init__(
        self,
        *,
        table: str,
        partitions: Sequence[str | Mapping[str, object]] | str | None = None,
        where: str | None = None,
        strategy: str = "minor",
        idle_for: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(step="compact", table=table, **kwargs)
        self.partitions = partitions
        self.where = where
        self.strategy = strategy
        self.idle_for = idle_for


class PaimonRewriteFileIndexOperator(_NamedStepOperator):
    """Builds the file indexes of the table's options for existing data files.

    :param table: ``database.table``
    :param partitions: specs such as ``dt=2026-01-01``; None selects all partitions
    :param where: a filter on partition columns
    """

    argument_names = ("partitions", "where")
    template_fields = ("table", "paimon_conn_id", *argument_names)

    def __init__(
        self,
        *,
        table: str,
        partitions: Sequence[str | Mapping[str, object]] | str | None = None,
        where: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(step="rewrite-file-index", table=table, **kwargs)
        self.partitions = partitions
        self.where = where


class PaimonExpireSnapshotsOperator(_NamedStepOperator):
    """Expires snapshots; limits that are None are those of the table's options.

    :param table: ``database.table``
    :param retain_max: the maximum number of snapshots to retain
    :param retain_min: the minimum number of snapshots to retain
    :param older_than: a duration such as ``1 d``, or a point in time
    :param max_deletes: the maximum number of snapshots to expire
    :param dry_run: whether to return the plan without running it
    """

    argument_names = ("retain_max", "retain_min", "older_than", "max_deletes")
    template_fields = ("table", "paimon_conn_id", *argument_names)

    def __init__(
        self,
        *,
        table: str,
        retain_max: int | str | None = None,
        retain_min: int | str | None = None,
        older_than: str | None = None,
        max_deletes: int | str | None = None,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(step="expire-snapshots", table=table, dry_run=dry_run, **kwargs)
        self.retain_max = retain_max
        self.retain_min = retain_min
        self.older_than = older_than
        self.max_deletes = max_deletes


class PaimonRemoveOrphanFilesOperator(_NamedStepOperator):
    """Lists the files that no snapshot references, and removes them with ``dry_run=False``.

    Removes nothing from a damaged table.

    :param table: ``database.table``
    :param older_than: a duration such as ``3 d``, or a point in time; None means one day
    :param partitions: specs such as ``dt=2026-01-01``; None searches all files of the table
    :param quarantine: whether to move the files to a dated folder of the table
    """

    argument_names = ("older_than", "partitions", "quarantine")
    template_fields = ("table", "paimon_conn_id", *argument_names)

    def __init__(
        self,
        *,
        table: str,
        older_than: str | None = None,
        partitions: Sequence[str | Mapping[str, object]] | str | None = None,
        quarantine: bool = False,
        dry_run: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(step="remove-orphan-files", table=table, dry_run=dry_run, **kwargs)
        self.older_than = older_than
        self.partitions = partitions
        self.quarantine = quarantine
