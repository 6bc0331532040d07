"""Pools of Airflow with one slot, so that the tasks of all DAGs write a table one after the other.

>>> json.dumps(build_pools(["shop.orders"]))  # the content of a file for: airflow pools import
"""

from collections.abc import Iterable
from typing import Any

from paimon_orch.airflow.hooks import DEFAULT_CONNECTION


def table_pool(table: str, paimon_conn_id: str = DEFAULT_CONNECTION) -> str:
    """Return the name of the pool of a table: ``connection.database.table``.

    Tables of two catalogs may have the same names, so use one connection for each catalog.
    """
    return f"{paimon_conn_id}.{table}"


def build_pools(
    tables: Iterable[str], paimon_conn_id: str = DEFAULT_CONNECTION
) -> dict[str, dict[str, Any]]:
    """Return the pools of tables, as ``airflow pools import`` reads them.

    Airflow does not create pools. A task whose pool does not exist waits until it does.
    """
    return {
        table_pool(table, paimon_conn_id): {
            "slots": 1,
            "description": f"Tasks that write {table}",
            "include_deferred": False,
        }
        for table in tables
    }
