"""A small partitioned table, and resources of runs without Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from support.dagster.spark_resources import InProcessSparkResource

from paimon_orch.dagster import PaimonCatalogResource
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table

Upsert = Callable[..., None]


@pytest.fixture
def paimon(tmp_path: Path) -> PaimonCatalogResource:
    return PaimonCatalogResource(warehouse=str(tmp_path / "warehouse"))


@pytest.fixture
def resources(paimon: PaimonCatalogResource) -> dict[str, object]:
    return {"paimon": paimon, "spark": InProcessSparkResource()}


@pytest.fixture
def create(paimon: PaimonCatalogResource) -> Callable[[], Table]:
    """Creates lake.orders, or another table with the same columns."""

    def create_table(name: str = "lake.orders", partition_by: tuple[str, ...] = ("dt",)) -> Table:
        return paimon.catalog().create_table(
            name,
            "dt STRING, id BIGINT, amount INT",
            primary_key=["dt", "id"] if partition_by else ["id"],
            partition_by=partition_by,
            options={"bucket": "1", "deletion-vectors.enabled": "true"},
        )

    return create_table


@pytest.fixture
def orders(create: Callable[[], Table]) -> Table:
    return create()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def upsert() -> Upsert:
    """Commits one snapshot with a few rows in each of the given partitions."""

    def commit(table: Table, *days: str, amount: int = 1) -> None:
        rows = [{"dt": day, "id": n, "amount": amount} for day in days for n in range(3)]
        table.upsert(pa.Table.from_pylist(rows))

    return commit


@pytest.fixture
def compact_all() -> Callable[[Table], None]:
    def commit(table: Table) -> None:
        assert compact(table, InProcessExecutor()).snapshot_id

    return commit


@pytest.fixture
def roll_back() -> Callable[[Table, int], None]:
    """Deletes all snapshots after the given one."""

    def delete_later_snapshots(table: Table, snapshot_id: int) -> None:
        for later in table.stores.snapshots.ids():
            if later > snapshot_id:
                table.io.delete(table.stores.snapshots.path(later))
        table.stores.snapshots.write_hint("LATEST", snapshot_id)

    return delete_later_snapshots
