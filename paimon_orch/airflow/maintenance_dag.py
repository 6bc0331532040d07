"""A DAG that maintains the tables of a catalog.

>>> dag = maintenance_dag("maintain_shop", select=["shop.*"], schedule="@daily")
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from airflow.sdk import DAG, TaskGroup, chain, task, task_group

from paimon_orch.airflow.hooks import DEFAULT_CONNECTION, PaimonHook
from paimon_orch.airflow.operators import PaimonStepOperator
from paimon_orch.airflow.task_errors import raise_airflow_errors
from paimon_orch.errors import InputError
from paimon_orch.safe_text import escape_unstorable, get_logger

_NOT_IN_GROUPS = re.compile(r"[^\w-]")
"""Characters that Airflow does not allow in the id of a task group."""

logger = get_logger(__name__)

_ONE_RUN: dict[str, Any] = {"catchup": False, "max_active_runs": 1}

DEFAULT_STEPS: Mapping[str, Mapping[str, Any]] = {"compact": {}, "expire-snapshots": {}}
"""Steps that a table needs regularly, as its options configure them."""


def maintenance_dag(  # noqa: PLR0913 - all but the id are keywords
    dag_id: str,
    *,
    tables: Sequence[str] | None = None,
    select: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    steps: Mapping[str, Mapping[str, Any]] = DEFAULT_STEPS,
    dry_run: bool = False,
    paimon_conn_id: str = DEFAULT_CONNECTION,
    pool: str | Callable[[str, str], str] | None = None,
    schedule: Any = None,
    **dag_arguments: Any,
) -> DAG:
    """Return a DAG that runs steps on each table of a catalog, several tables at the same time.

    The first task lists the tables, so parsing the DAG reads nothing, and new tables need no
    deployment. Each table is an instance of a mapped task group, with one task per step, one after
    the other: a step that fails ends the work on its table only. The DAG has one run at a time, so
    it never runs two steps of one table at the same time.

    With ``tables`` the DAG has a task group for each of them instead, and the tasks of a table can
    have a pool, which other DAGs use too: Airflow reads the pool of a task when it parses the DAG.

    :param tables: the tables, if they are known where the DAG is defined; None lists those of the
        catalog
    :param select: shell patterns of ``database.table``
    :param exclude: patterns of tables that are left out
    :param steps: the arguments of each step by its name on the command line, in this order
    :param dry_run: whether the steps only plan
    :param pool: Airflow's pool of the steps, whose slots limit the tables at the same time; with
        ``tables`` also a function that names the pool of a table and a connection, such as
        :func:`~paimon_orch.airflow.pools.table_pool`
    :param schedule: the schedule of the DAG
    :param dag_arguments: other arguments of the :class:`~airflow.sdk.DAG`, such as ``default_args``
    """
    if tables is None and callable(pool):
        raise InputError(
            f"{dag_id}: a pool for each table needs the argument tables, because Airflow reads the "
            "pool of a task when it parses the DAG"
        )
    tasks = _Tasks(select, exclude, steps, pool, dry_run=dry_run, paimon_conn_id=paimon_conn_id)
    with DAG(dag_id, schedule=schedule, **_ONE_RUN | dag_arguments) as dag:
        if tables is None:
            group = task_group(group_id="maintain")(tasks.add_listed)
            group.expand(table=task(tasks.find_tables)())
            return dag
        for table in filter(tasks.selects, tables):
            with TaskGroup(_NOT_IN_GROUPS.sub("_", table.replace(".", "__"))):
                tasks.add(table)
    return dag


@dataclass(frozen=True, slots=True)
class _Tasks:
    """The tasks of the tables of a DAG."""

    select: Sequence[str]
    exclude: Sequence[str]
    steps: Mapping[str, Mapping[str, Any]]
    pool: str | Callable[[str, str], str] | None
    dry_run: bool
    paimon_conn_id: str

    def selects(self, table: str) -> bool:
        return _matches(table, self.select) and not _matches(table, self.exclude)

    def find_tables(self) -> list[str]:
        """List the selected tables of the catalog."""
        with raise_airflow_errors():
            found = PaimonHook(self.paimon_conn_id).get_conn().find_tables()
        selected = [table for table in found if self.selects(table)]
        for table in selected:
            if escape_unstorable(table) != table:
                logger.warning("%s is left out: Airflow cannot store its name", table)
        return [table for table in selected if escape_unstorable(table) == table]

    def add_listed(self, table: str) -> None:
        """Add the tasks of a table that a task has listed."""
        self.add(table, map_index_template="{{ task.table }}")

    def add(self, table: str, **arguments: Any) -> None:
        """Add the tasks of a table, one after the other."""
        pool = self.pool
        if callable(pool):
            pool = pool(table, self.paimon_conn_id)
        if pool is not None:
            arguments["pool"] = pool
        operators = [
            PaimonStepOperator(
                task_id=step.replace("-", "_"),
                step=step,
                table=table,
                arguments=each,
                dry_run=self.dry_run,
                paimon_conn_id=self.paimon_conn_id,
                **arguments,
            )
            for step, each in self.steps.items()
        ]
        chain(*operators)


def _matches(table: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(table, pattern) for pattern in patterns)
