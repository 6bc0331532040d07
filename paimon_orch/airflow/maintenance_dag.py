"""A DAG that maintains the tables of a catalog.

>>> dag = maintenance_dag("maintain_shop", select=["shop.*"], schedule="@daily")
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from airflow.sdk import DAG, chain, task, task_group

from paimon_orch.airflow.hooks import DEFAULT_CONNECTION, PaimonHook
from paimon_orch.airflow.operators import PaimonStepOperator
from paimon_orch.airflow.task_errors import raise_airflow_errors

DEFAULT_STEPS: Mapping[str, Mapping[str, Any]] = {"compact": {}, "expire-snapshots": {}}
"""Steps that a table needs regularly, as its options configure them."""


def maintenance_dag(  # noqa: PLR0913 - all but the id are keywords
    dag_id: str,
    *,
    select: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    steps: Mapping[str, Mapping[str, Any]] = DEFAULT_STEPS,
    dry_run: bool = False,
    paimon_conn_id: str = DEFAULT_CONNECTION,
    pool: str | None = None,
    schedule: Any = None,
    **dag_arguments: Any,
) -> DAG:
    """Return a DAG that runs steps on each table of a catalog, several tables at the same time.

    The first task lists the tables, so parsing the DAG reads nothing, and new tables need no
    deployment. Each table is an instance of a mapped task group, with one task per step, one after
    the other: a step that fails ends the work on its table only. The DAG has one run at a time, so
    it never runs two steps of one table at the same time.

    :param select: shell patterns of ``database.table``
    :param exclude: patterns of tables that are left out
    :param steps: the arguments of each step by its name on the command line, in this order
    :param dry_run: whether the steps only plan
    :param pool: Airflow's pool of the steps, whose slots limit the tables at the same time
    :param schedule: the schedule of the DAG
    :param dag_arguments: other arguments of the :class:`~airflow.sdk.DAG`, such as ``default_args``
    """
    placed = {} if pool is None else {"pool": pool}
    once = {"catchup": False, "max_active_runs": 1}
    with DAG(dag_id, schedule=schedule, **once | dag_arguments) as dag:

        def find_tables() -> list[str]:
            with raise_airflow_errors():
                tables = PaimonHook(paimon_conn_id).get_conn().find_tables()
            return [
                each for each in tables if _matches(each, select) and not _matches(each, exclude)
            ]

        def maintain(table: str) -> None:
            operators = [
                PaimonStepOperator(
                    task_id=step.replace("-", "_"),
                    step=step,
                    table=table,
                    arguments=arguments,
                    dry_run=dry_run,
                    paimon_conn_id=paimon_conn_id,
                    map_index_template="{{ task.table }}",
                    **placed,
                )
                for step, arguments in steps.items()
            ]
            chain(*operators)

        task_group(maintain).expand(table=task(find_tables)())
    return dag


def _matches(table: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(table, pattern) for pattern in patterns)
