"""The adapter in an environment with Airflow, and without Dagster and Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from support import airflow_dag
from support.airflow_environment import INSIDE, Airflow, read_example
from support.peers.protocol import PeerProcess

from paimon_orch import Catalog
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("airflow"), pytest.mark.timeout(600)]


def test_airflow_lists_the_provider(airflow: Airflow) -> None:
    providers = json.loads(airflow.run("-m", "airflow", "providers", "list", "-o", "json"))
    hooks = json.loads(airflow.run("-m", "airflow", "providers", "hooks", "-o", "json"))

    assert "paimon-orch" in {provider["package_name"] for provider in providers}
    [paimon] = [hook for hook in hooks if hook["connection_type"] == "paimon"]
    assert paimon["class"] == "paimon_orch.airflow.hooks.PaimonHook"


def test_reading_the_provider_imports_no_table_library(airflow: Airflow) -> None:
    code = (
        "import sys; from paimon_orch.airflow.provider import get_provider_info as g; g(); "
        "print({'airflow', 'pyarrow', 'fsspec'} & sys.modules.keys())"
    )

    assert airflow.run("-c", code).strip() == "set()"


def test_inside(airflow: Airflow) -> None:
    airflow.run(
        *("-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(INSIDE)),
        *("--confcutdir", str(INSIDE), "-p", "no:cacheprovider", "--import-mode=importlib"),
        str(INSIDE),
    )


@pytest.fixture
def orders(airflow: Airflow, tmp_path: Path) -> Table:
    """The table of the page about Airflow, with the connection to its catalog."""
    connection = {"conn_type": "paimon", "host": str(tmp_path)}
    airflow.variables["AIRFLOW_CONN_PAIMON_DEFAULT"] = json.dumps(connection)
    return Catalog(str(tmp_path)).create_table(
        "shop.orders",
        "day STRING, id BIGINT",
        primary_key=["day", "id"],
        partition_by=["day"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )


def upsert(table: Table, *days: str) -> None:
    table.upsert(pa.table({"day": list(days), "id": pa.array([1] * len(days), pa.int64())}))


def save_example(airflow: Airflow, text: str) -> Path:
    """Write the example of the page that contains a text into the folder of DAGs."""
    shutil.rmtree(airflow.dags, ignore_errors=True)
    airflow.dags.mkdir(parents=True)
    file = airflow.dags / "example.py"
    file.write_text(read_example(text), encoding="utf-8")
    return file


RunDag = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def dag_process(airflow: Airflow) -> Iterator[PeerProcess]:
    """A process for all DAGs: the first one takes most of its time to load Airflow's API."""
    command = [str(airflow.python), "-P", "-X", "utf8", airflow_dag.__file__]
    with closing(PeerProcess(command, airflow.variables)) as process:
        yield process


@pytest.fixture
def run_dag(airflow: Airflow, dag_process: PeerProcess) -> RunDag:
    """Return a function that runs a DAG of the page, and returns the states of its tasks."""

    def run(file: Path, dag: str = "maintain_orders", state: str = "success") -> dict[str, str]:
        variables = airflow.variables
        ended, printed = dag_process.ask("run", file=str(file), dag=dag, variables=variables)
        assert ended["state"] == state, printed
        return {f"{task}[{index}]": state for task, index, state in ended["tasks"]}

    return run


def test_the_dag_of_the_page_compacts_the_due_partitions(
    airflow: Airflow, orders: Table, run_dag: RunDag
) -> None:
    upsert(orders, "2026-01-01", "2026-01-02")
    file = save_example(airflow, "maintain_orders")

    first = run_dag(file)
    rows = orders.scan().to_arrow().num_rows
    second = run_dag(file)

    assert first == {
        "find_due[-1]": "success",
        "compact[0]": "success",
        "compact[1]": "success",
        "expire_snapshots[-1]": "success",
    }
    assert rows == 2
    assert orders.scan().rows_not_visible == 0
    assert second == {
        "find_due[-1]": "success",
        "compact[-1]": "skipped",
        "expire_snapshots[-1]": "success",
    }


def test_names_of_due_partitions_are_not_rendered_as_templates(
    airflow: Airflow, orders: Table, run_dag: RunDag
) -> None:
    upsert(orders, "{{ 6 * 7 }}", "{% raw %}{# {{", "{", "{{ conn.paimon_default.host }}")

    states = run_dag(save_example(airflow, "maintain_orders"))

    assert set(states.values()) == {"success"}
    assert orders.scan().rows_not_visible == 0


def test_the_dag_of_a_catalog_maintains_the_selected_tables(
    airflow: Airflow, orders: Table, run_dag: RunDag, tmp_path: Path
) -> None:
    catalog = Catalog(str(tmp_path))
    columns = "day STRING, id BIGINT"
    # A commit of this table would be refused, because an external system would not learn of it.
    refused = {"metadata.iceberg.storage": "hive-catalog"}
    damaged = catalog.create_table(
        "shop.damaged", columns, primary_key=["id"], options={"bucket": "1", **refused}
    )
    catalog.alter_table(
        orders.identifier,
        [SetOption("snapshot.num-retained.min", "1"), SetOption("snapshot.num-retained.max", "1")],
    )
    other = catalog.create_table("stage.rows", columns, primary_key=["id"], options={"bucket": "1"})
    for table in (orders, other, damaged.allow(stale_external=True)):
        upsert(table, "2026-01-01")
        upsert(table, "2026-01-01")

    states = run_dag(save_example(airflow, "maintain_shop"), "maintain_shop", "failed")

    assert states == {
        "find_tables[-1]": "success",
        "maintain.compact[0]": "failed",
        "maintain.expire_snapshots[0]": "upstream_failed",
        "maintain.compact[1]": "success",
        "maintain.expire_snapshots[1]": "success",
    }
    assert orders.scan().rows_not_visible == 0
    newest = orders.stores.snapshots.latest_id()
    assert orders.stores.snapshots.ids() == [newest]
    assert other.stores.snapshots.latest_id() == 2


def test_the_example_of_the_hook_runs(airflow: Airflow, orders: Table) -> None:
    upsert(orders, "2026-01-01")

    printed = airflow.run(str(save_example(airflow, "list_tables")))

    assert "['orders'] {'id': 0, 'columns': [{'name': 'day'" in printed


def test_the_dag_of_named_tables_has_a_group_and_a_pool_for_each(
    airflow: Airflow, orders: Table, run_dag: RunDag, tmp_path: Path
) -> None:
    items = Catalog(str(tmp_path)).create_table(
        "shop.items", "day STRING, id BIGINT", primary_key=["id"], options={"bucket": "1"}
    )
    upsert(orders, "2026-01-01")
    upsert(items, "2026-01-01")
    file = save_example(airflow, "hourly")

    pools = json.loads(airflow.run(str(save_pools(airflow))))
    states = run_dag(file, "nightly")

    assert states == {
        "shop__orders.compact[-1]": "success",
        "shop__orders.expire_snapshots[-1]": "success",
        "shop__items.compact[-1]": "success",
        "shop__items.expire_snapshots[-1]": "success",
    }
    assert {name: pool["slots"] for name, pool in pools.items()} == {
        "paimon_default.shop.items": 1,
        "paimon_default.shop.orders": 1,
    }
    assert orders.scan().rows_not_visible == 0


def save_pools(airflow: Airflow) -> Path:
    """Write the script of the page that prints pools, beside the DAG."""
    file = airflow.dags / "pools.py"
    file.write_text(read_example("build_pools"), encoding="utf-8")
    return file


def test_a_pool_for_each_table_needs_the_tables(airflow: Airflow) -> None:
    code = (
        "from paimon_orch.airflow.maintenance_dag import maintenance_dag as m; "
        "from paimon_orch.airflow.pools import table_pool\n"
        "try: m('d', pool=table_pool)\n"
        "except Exception as e: print(type(e).__name__, e)\n"
        "d = m('d', tables=['a.b', 'a.c', 'x.y'], select=['a.*'], exclude=['*.c'], pool='p')\n"
        "print(sorted((t.task_id, t.pool) for t in d.tasks))"
    )

    refused, tasks = airflow.run("-c", code).splitlines()

    assert refused.startswith("InputError d: a pool for each table needs the argument tables")
    assert tasks == "[('a__b.compact', 'p'), ('a__b.expire_snapshots', 'p')]"


def test_the_example_of_the_sensor_runs(airflow: Airflow) -> None:
    airflow.run(str(save_example(airflow, "PaimonPartitionDoneSensor(")))
