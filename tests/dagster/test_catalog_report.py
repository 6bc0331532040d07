"""Runs report how many partitions the catalog of a table lacks."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg
import pytest
from support.recorded_partitions import RecordedPartitions, through_catalog

from paimon_orch.dagster import PaimonCatalogResource
from paimon_orch.dagster.external_reports import report_missing_partitions
from paimon_orch.errors import StorageError
from paimon_orch.table.table import Table

Upsert = Callable[..., None]


@pytest.fixture
def listed(paimon: PaimonCatalogResource) -> tuple[Table, RecordedPartitions]:
    table = paimon.catalog().create_table(
        "lake.orders",
        "dt STRING, id BIGINT, amount INT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1", "metastore.partitioned-table": "true"},
    )
    catalog = RecordedPartitions()
    return through_catalog(table, catalog), catalog


def test_missing_partitions_are_counted(
    listed: tuple[Table, RecordedPartitions],
    upsert: Upsert,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, catalog = listed
    context = dg.build_op_context()
    upsert(table, "2026-01-01", "2026-01-02")
    assert report_missing_partitions(context, table.stores) == {"paimon/missing_partitions": 0}
    catalog.specs.pop()
    assert report_missing_partitions(context, table.stores) == {"paimon/missing_partitions": 1}
    assert "lake.orders: its catalog lacks 1 partitions; run sync_partitions" in _log(capsys)


def test_a_catalog_that_does_not_answer_does_not_fail_the_run(
    listed: tuple[Table, RecordedPartitions],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, catalog = listed

    def fail() -> None:
        raise StorageError("the metastore is down")

    monkeypatch.setattr(catalog, "list", fail)
    assert report_missing_partitions(dg.build_op_context(), table.stores) == {}
    assert "cannot list its partitions: the metastore is down" in _log(capsys)


def test_tables_without_partitions_in_a_catalog_report_nothing(
    orders: Table, upsert: Upsert
) -> None:
    upsert(orders, "2026-01-01")
    context = dg.build_op_context()
    assert report_missing_partitions(context, orders.stores) == {}
    assert (
        report_missing_partitions(context, through_catalog(orders, RecordedPartitions()).stores)
        == {}
    )


def _log(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return captured.out + captured.err
