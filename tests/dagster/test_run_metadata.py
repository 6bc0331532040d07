from collections.abc import Callable

import dagster as dg

from paimon_orch.dagster.run_metadata import (
    MAX_TABLE_RECORDS,
    PaimonMetadata,
    build_column_schema,
    build_plan_table,
    build_table_state,
)
from paimon_orch.steps.compaction.compact import CompactRequest, plan
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table


def test_metadata_keys_have_a_prefix_and_missing_values_are_omitted() -> None:
    metadata = PaimonMetadata(snapshot_id=3, small_file_ratio=0.50012, deletion_vector_rows=0)

    assert metadata.to_dagster() == {
        "paimon/snapshot_id": "3",
        "paimon/small_file_ratio": 0.5,
        "paimon/deletion_vector_rows": 0,
    }


def test_the_state_of_a_partition_counts_only_its_files(
    orders: Table, upsert: Callable[..., None]
) -> None:
    upsert(orders, "2026-01-01", "2026-01-02")
    upsert(orders, "2026-01-02")
    report = inspect(orders)

    assert build_table_state(report).level0_files == 3
    assert build_table_state(report.select_partition("dt=2026-01-02")).level0_files == 2
    assert build_table_state(report.select_partition("dt=2026-01-09")).files == 0


def test_the_plan_table_has_a_row_for_each_unit(orders: Table, upsert: Callable[..., None]) -> None:
    upsert(orders, "2026-01-01")

    [record] = build_plan_table(plan(orders, CompactRequest()).units, partition=False).records

    assert record.data["partition"] == "dt=2026-01-01"
    assert record.data["files"] == 1
    assert record.data["reason"]


def test_the_plan_table_is_truncated(orders: Table, upsert: Callable[..., None]) -> None:
    upsert(orders, "2026-01-01")
    units = plan(orders, CompactRequest()).units * (MAX_TABLE_RECORDS + 1)

    assert len(build_plan_table(units, partition=True).records) == MAX_TABLE_RECORDS


def test_the_column_schema_has_types_and_keys(orders: Table) -> None:
    schema = build_column_schema(orders.load().schema)

    assert [(c.name, c.type, c.constraints.nullable) for c in schema.columns] == [
        ("dt", "STRING", False),
        ("id", "BIGINT", False),
        ("amount", "INT", True),
    ]
    assert schema.constraints == dg.TableConstraints(
        ["primary key (dt, id)", "partitioned by (dt)"]
    )
