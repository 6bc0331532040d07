"""A DAG that maintains the tables of a catalog.

>>> dag = maintenance_dag("maintain_shop", select=["shop.*"], schedule="@daily")
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from airflow.sdk import DAG, TaskGroup, chain, task, task_group

from paimon_orch.airflow.hooks import DEFAULT_CONNECTION, PaimonHook
from paimon_orch.airflow.operators import PaimonStepOperator
from paimon_orch.airflow.task_errors import raise_airflow_errors
from paimon_orch.errors import InputError

_NOT_IN_GROUPS = re.compile(r"[^\w-]")
"""Characters that Airflow does not allow in the id of a task group."""

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
    pool: str | Callable[[str], str] | None = None,
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
        ``tables`` also a function that names the pool of a table, such as
        :func:`~paimon_orch.airflow.pools.table_pool`
    :param schedule: the schedule of the DAG
    :param dag_arguments: other arguments of the :class:`~airflow.sdk.DAG`, such as ``default_args``
    """
    if tables is None and callable(pool):
        raise InputError(
            f"{dag_id}: a pool for each table needs the argument tables, because Airflow reads the "
            "pool of a task when it parses the DAG"
        )

    def is_selected(table: str) -> bool:
        return _matches(table, select) and not _matches(table, exclude)

    def maintain(table: str, **arguments: Any) -> None:
        operators = [
            PaimonStepOperator(
                task_id=step.replace("-", "_"),
                step=step,
                table=table,
                arguments=each,
                dry_run=dry_run,
                paimon_conn_id=paimon_conn_id,
                **arguments,
            )
            for step, each in steps.items()
        ]
        chain(*operators)

    def find_tables() -> list[str]:
        with raise_airflow_errors():
            found = PaimonHook(paimon_conn_id).get_conn().find_tables()
        return [table for table in found if is_selected(table)]

    def maintain_listed(table: str) -> None:
        shared = {} if pool is None else {"pool": pool}
        maintain(table, map_index_template="{{ task.table }}", **shared)

    once = {"catchup": False, "max_active_runs": 1}
    with DAG(dag_id, schedule=schedule, **once | dag_arguments) as dag:
        if tables is None:
            group = task_group(group_id="maintain")(maintain_listed)
            group.expand(table=task(find_tables)())
            return dag
        for table in filter(is_selected, tables):
            placed = pool(table) if callable(pool) else pool
            with TaskGroup(_NOT_IN_GROUPS.sub("_", table.replace(".", "__"))):
                maintain(table, **({} if placed is None else {"pool": placed}))
    return dag


def _matches(table: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(table, pattern) for pattern in patterns)
