"""DAGs for the tests with a real scheduler."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from paimon_orch.airflow.maintenance_dag import maintenance_dag
from paimon_orch.airflow.operators import PaimonCompactOperator
from paimon_orch.airflow.pools import table_pool
from paimon_orch.airflow.sensors import PaimonPartitionDoneSensor, PaimonTableHealthSensor

AGAIN = {"retries": 1, "retry_delay": timedelta(seconds=1)}
TABLES = ["shop.first", "shop.second"]

with DAG("damaged", schedule=None, default_args=AGAIN):
    PaimonCompactOperator(task_id="compact", table="shop.damaged", strategy="full")

with DAG("unreachable", schedule=None, default_args=AGAIN):
    PaimonCompactOperator(
        task_id="compact", table="shop.orders", paimon_conn_id="paimon_unreachable"
    )

with DAG("killed", schedule=None, default_args=AGAIN):
    PaimonCompactOperator(task_id="compact", table="shop.large", strategy="full")

# A busy scheduler may take the end of the process that deferred a task for that of the resumed task,
# and mark it as failed.
with DAG("waiting", schedule=None, default_args=AGAIN):
    done = PaimonPartitionDoneSensor(
        task_id="done",
        table="shop.days",
        partition="day=2026-01-09",
        deferrable=True,
        poke_interval=2,
        timeout=600,
    )
    healthy = PaimonTableHealthSensor(
        task_id="healthy",
        table="shop.days",
        limits={"level0_backlog": 3},
        deferrable=True,
        poke_interval=2,
    )
    done >> healthy

hourly = maintenance_dag("hourly", tables=TABLES, pool=table_pool)
nightly = maintenance_dag("nightly", tables=TABLES, pool=table_pool, steps={"compact": {}})
without_pool = maintenance_dag("without_pool", tables=["shop.third"], pool=table_pool)
