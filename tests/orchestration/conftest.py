"""A small partitioned table, without an orchestrator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_orch import Catalog
from paimon_orch.table.table import Table

Upsert = Callable[..., None]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(str(tmp_path / "warehouse"))


@pytest.fixture
def orders(catalog: Catalog) -> Table:
    return catalog.create_table(
        "lake.orders",
        "dt STRING, id BIGINT, amount INT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )


@pytest.fixture
def upsert() -> Upsert:
    """Commits one snapshot with a few rows in each of the given partitions."""

    def commit(table: Table, *days: str) -> None:
        rows = [{"dt": day, "id": n, "amount": 1} for day in days for n in range(3)]
        table.upsert(pa.Table.from_pylist(rows))

    return commit
