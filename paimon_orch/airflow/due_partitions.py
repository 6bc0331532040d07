"""Arguments of mapped compactions: the partitions that are due, one task for each.

>>> @task
... def due() -> list[dict[str, Any]]:
...     return due_partitions("lake.orders")
>>> PaimonCompactOperator.partial(task_id="compact", table="lake.orders").expand_kwargs(due())
"""

from collections.abc import Mapping
from typing import Any

from paimon_orch.airflow.hooks import DEFAULT_CONNECTION, PaimonHook
from paimon_orch.airflow.task_errors import raise_airflow_errors
from paimon_orch.orchestration.table_watch import MAX_PARTITIONS, find_due_partitions
from paimon_orch.safe_text import escape_unstorable
from paimon_orch.steps.compaction.policy import CompactionPolicy


def due_partitions(
    table: str,
    *,
    paimon_conn_id: str = DEFAULT_CONNECTION,
    policy: Mapping[str, Any] | None = None,
    max_partitions: int = MAX_PARTITIONS,
) -> list[dict[str, Any]]:
    """Return the arguments of a compaction of each partition that is due now.

    Reads no data files. Call it in a task, not where the DAG is defined.

    :param policy: fields of :class:`~paimon_orch.steps.CompactionPolicy` that differ from its
        defaults; use that of the trigger
    :param max_partitions: the number of partitions, which should not exceed Airflow's option
        ``max_map_length``; the others are due the next time
    """
    with raise_airflow_errors():
        opened = PaimonHook(paimon_conn_id).load_table(table)
        due = find_due_partitions(opened, CompactionPolicy(**(policy or {})))
    arguments: list[dict[str, Any]] = escape_unstorable(
        [
            {"partitions": [each.partition] if each.partition else None, "strategy": each.strategy}
            for each in due[:max_partitions]
        ]
    )
    return arguments
