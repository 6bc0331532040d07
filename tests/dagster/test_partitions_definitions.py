"""Keys of Dagster's partitions definitions name the partitions of a table."""

from __future__ import annotations

import dagster as dg
import pytest

from paimon_orch.dagster import PartitionKeys
from paimon_orch.dagster.partitions_definitions import build_partition_keys
from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import parse_columns


def table_schema(columns: str, *keys: str) -> TableSchema:
    fields = parse_columns(f"{columns}, id BIGINT")
    return build_table_schema(fields, partition_by=keys, options={"bucket": "-1"})


MULTI = dg.MultiPartitionsDefinition(
    {
        "region": dg.StaticPartitionsDefinition(["eu", "a/b", "50%", "é", "__DEFAULT_PARTITION__"]),
        "dt": dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04"),
    }
)


@pytest.mark.parametrize("columns", [("dt", "region"), ("region", "dt")])
def test_a_key_of_two_dimensions_is_unchanged_by_a_conversion_to_a_path_and_back(
    columns: tuple[str, ...],
) -> None:
    keys = build_partition_keys(table_schema("dt DATE, region STRING", *columns), MULTI)
    dagster_keys = MULTI.get_partition_keys()

    assert len(dagster_keys) == 15
    assert [keys.key_of(keys.path_of(key)) for key in dagster_keys] == dagster_keys
    assert keys.path_of("2024-01-02|a/b") in ("dt=19724/region=a%2Fb", "region=a%2Fb/dt=19724")


def test_dimensions_that_are_not_the_partition_columns_are_refused() -> None:
    with pytest.raises(InputError, match="dimensions dt, region must be the partition columns day"):
        build_partition_keys(table_schema("day STRING", "day"), MULTI)


TIMES = [
    (dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-02-00:00"), 24),
    (
        dg.HourlyPartitionsDefinition(
            "2024-01-01T00:00", end_date="2024-01-01T05:00", fmt="%Y-%m-%dT%H:%M"
        ),
        5,
    ),
    (dg.DailyPartitionsDefinition("20240101", end_date="20240201", fmt="%Y%m%d"), 31),
    (dg.MonthlyPartitionsDefinition("2024-01", end_date="2025-01", fmt="%Y-%m"), 12),
]


@pytest.mark.parametrize(("definition", "count"), TIMES)
def test_time_keys_are_unchanged_by_a_conversion_to_a_path_and_back(
    definition: dg.PartitionsDefinition[str], count: int
) -> None:
    keys = build_partition_keys(table_schema("dt STRING", "dt"), definition)
    dagster_keys = list(definition.get_partition_keys())

    assert len(dagster_keys) == count
    assert [keys.key_of(keys.path_of(key)) for key in dagster_keys] == dagster_keys


def test_hours_can_be_stored_in_two_columns() -> None:
    keys = build_partition_keys(table_schema("dt STRING, hh STRING", "dt", "hh"), None)
    definition = dg.HourlyPartitionsDefinition(
        "dt=2024-01-01/hh=00", end_date="dt=2024-01-02/hh=00", fmt="dt=%Y-%m-%d/hh=%H"
    )

    dagster_keys = list(definition.get_partition_keys())

    assert dagster_keys[5] == "dt=2024-01-01/hh=05"
    assert [keys.key_of(keys.path_of(key)) for key in dagster_keys] == dagster_keys
    assert keys.parse(dagster_keys[5]) == {"dt": "2024-01-01", "hh": "05"}


def test_an_unpartitioned_table_is_refused() -> None:
    schema = build_table_schema(
        parse_columns("id INT"), primary_key=["id"], options={"bucket": "1"}
    )

    with pytest.raises(InputError, match="remove partitions_def"):
        build_partition_keys(schema, MULTI)


def test_dagster_accepts_keys_of_several_columns() -> None:
    keys = PartitionKeys(columns=("dt", "region"))
    rendered = [
        keys.render({"dt": "2026-01-01", "region": name}) for name in ("eu west", "a|b", "é")
    ]

    assert dg.StaticPartitionsDefinition(rendered).get_partition_keys() == rendered
