"""Partitions, start and retention of a table, as the YAML of its component says them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_orch import Catalog
from paimon_orch.dagster import PaimonTableComponent
from paimon_orch.dagster.components.table_reading import (
    read_partition_attributes,
    read_retention_attributes,
)
from paimon_orch.dagster.partitions_definitions import build_partition_keys
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

NOW = datetime(2026, 3, 15, 12, tzinfo=UTC)


def create(root: Path, columns: str, rows: Sequence[tuple[Any, ...]], **options: str) -> Table:
    """Create a table that is partitioned by all columns except the last one."""
    names = [column.split()[0] for column in columns.split(", ")]
    table = Catalog(str(root)).create_table(
        "lake.t", f"{columns}, n INT", partition_by=names, options=options
    )
    types = [to_arrow_type(field.type) for field in table.load().schema.fields[:-1]]
    data = {
        name: pa.array([row[index] for row in rows], types[index])
        for index, name in enumerate(names)
    }
    if rows:
        table.append(pa.table({**data, "n": pa.array([1] * len(rows), pa.int32())}))
    return table


DAY, HOUR, MONTH = {"start": "2026-01-02"}, {"every": "hour"}, {"every": "month"}
DYNAMIC = {"dynamic": True}
CASES: list[Any] = [
    pytest.param(
        "dt DATE", [(date(2026, 3, 1),), (date(2026, 1, 2),), (None,)], DAY, id="dates and null"
    ),
    pytest.param(
        "dt DATE",
        [(date(2026, 3, 1),), (date(2026, 1, 1),)],
        {"start": "2026-01-01", **MONTH},
        id="first days of months",
    ),
    pytest.param("dt STRING", [("2026-01-02",), ("2026-02-05",)], DAY, id="text of days"),
    pytest.param(
        "dt INT",
        [(20260305,), (20260102,)],
        {"start": "20260102", "format": "%Y%m%d"},
        id="numbers",
    ),
    pytest.param(
        "m STRING",
        [("2026-02",), ("2025-12",)],
        {"start": "2025-12", **MONTH, "format": "%Y-%m"},
        id="text of months",
    ),
    pytest.param(
        "ts TIMESTAMP(0)",
        [(datetime(2026, 1, 2, 5),)],
        {"start": "2026-01-02T05:00", **HOUR, "format": "%Y-%m-%dT%H:%M"},
        id="times of hours",
    ),
    pytest.param(
        "dt STRING, hh INT",
        [("2026-01-02", 5), ("2026-01-02", 11)],
        {"start": "dt=2026-01-02/hh=05", **HOUR, "format": "dt=%Y-%m-%d/hh=%H"},
        id="a day and an hour",
    ),
    pytest.param(
        "region STRING, dt DATE",
        [("eu", date(2026, 1, 2))],
        {"columns": {"region": DYNAMIC, "dt": DAY}},
        id="a value and a day",
    ),
    pytest.param("region STRING", [("eu",), ("us",)], DYNAMIC, id="values"),
    pytest.param("a STRING, b INT", [("eu", 1)], DYNAMIC, id="two values"),
    pytest.param(
        "a STRING, dt DATE", [("a|b", date(2026, 1, 2))], DYNAMIC, id="a character of keys"
    ),
    pytest.param(
        "a STRING, b STRING, dt DATE", [("a", "b", date(2026, 1, 2))], DYNAMIC, id="three columns"
    ),
    pytest.param("dt DATE", [(date(2026, 1, 2),), (date(2030, 1, 1),)], DYNAMIC, id="the future"),
    pytest.param("dt DATE", [], DYNAMIC, id="no rows"),
]


@pytest.mark.parametrize(("columns", "rows", "expected"), CASES)
def test_the_partitions_are_those_of_the_table(
    tmp_path: Path, columns: str, rows: list[tuple[Any, ...]], expected: dict[str, Any]
) -> None:
    table = create(tmp_path, columns, rows)

    attributes = read_partition_attributes(table.load(), NOW)

    assert attributes == expected
    component = PaimonTableComponent.from_attributes_dict(
        attributes={"table": "lake.t", "partitions": attributes}
    )
    definition = component.partitions_def("lake.t")
    assert definition is not None
    if "dynamic" not in str(attributes):
        schema = table.load().schema
        keys = build_partition_keys(schema, definition)
        covered = {keys.path_of(key) for key in definition.get_partition_keys(current_time=NOW)}
        null = schema.typed_options.default_partition_name
        assert {path for path in inspect(table).partitions if null not in path} <= covered


def test_a_table_without_partition_columns_has_no_partitions(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("lake.t", "n INT")

    assert read_partition_attributes(table.load()) is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"snapshot_expiration": {"retain_for": "24 h"}}),
        (
            {
                "snapshot.time-retained": "90 min",
                "snapshot.num-retained.min": "5",
                "snapshot.num-retained.max": "50",
                "partition.expiration-time": "168 h",
            },
            {
                "snapshot_expiration": {"retain_for": "90 min", "retain_min": 5, "retain_max": 50},
                "partition_expiration": {"expiration_time": "7 d"},
            },
        ),
    ],
    ids=["no options", "options"],
)
def test_the_retention_is_that_of_the_options(
    tmp_path: Path, options: dict[str, str], expected: dict[str, Any]
) -> None:
    table = create(tmp_path, "dt STRING", [], **options)

    attributes = read_retention_attributes(table.load().schema)

    assert attributes == expected
    PaimonTableComponent.from_attributes_dict(attributes={"table": "lake.t", **attributes})
