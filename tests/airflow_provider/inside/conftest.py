"""A catalog with a table, and a connection to it in an environment variable."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_orch import Catalog
from paimon_orch.table.table import Table

Upsert = Callable[..., None]


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    warehouse = str(tmp_path / "warehouse")
    connection = {"conn_type": "paimon", "host": warehouse}
    monkeypatch.setenv("AIRFLOW_CONN_PAIMON_DEFAULT", json.dumps(connection))
    opened = Catalog(warehouse)
    opened.create_database("lake")
    return opened


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
