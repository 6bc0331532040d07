from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import new_table

from paimon_orch.errors import InputError, PaimonError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.orchestration.partition_keys import (
    PartitionKeys,
    format_partition_path,
    parse_partition_path,
)
from paimon_orch.steps.compaction.decide import decide

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
VALUES = TEXT | st.sampled_from(
    [
        "__DEFAULT_PARTITION__",
        "a/b",
        "a=b",
        "50%",
        "%2F",
        "a b",
        "é",
        "2026-01-01 00:00:00",
        "a,b",
        "..",
    ]
)
SPECS = st.dictionaries(TEXT, VALUES, min_size=1, max_size=3)


@given(SPECS)
def test_a_rendered_key_is_parsed_to_the_same_partition(spec: dict[str, str]) -> None:
    keys = PartitionKeys(columns=tuple(spec))

    assert spec == keys.parse(keys.render(spec))


@given(SPECS)
def test_a_formatted_path_is_parsed_to_the_same_partition(spec: dict[str, str]) -> None:
    assert spec == parse_partition_path(format_partition_path(spec))


@given(SPECS)
def test_the_key_of_a_path_is_converted_back_to_the_path(spec: dict[str, str]) -> None:
    keys = PartitionKeys(columns=tuple(spec))
    path = format_partition_path(spec)

    assert path == keys.path_of(keys.key_of(path))


@given(st.text())
def test_every_text_is_parsed_or_refused_with_a_paimon_error(text: str) -> None:
    for columns in (("dt",), ("dt", "region")):
        try:
            spec = PartitionKeys(columns=columns).parse(text)
        except PaimonError:
            continue
        assert columns == tuple(spec)


def test_the_key_of_a_partition_with_one_column_is_its_value() -> None:
    keys = PartitionKeys(columns=("flight_month",))

    assert keys.key_of("flight_month=2013-01") == "2013-01"
    assert keys.path_of("2013-01") == "flight_month=2013-01"
    assert keys.key_of("flight_month=2013-01-01 00%3A00") == "2013-01-01 00:00"


def test_the_key_of_several_columns_is_the_path_in_the_order_of_the_table() -> None:
    keys = PartitionKeys(columns=("dt", "region"))

    assert (
        keys.render({"region": "eu/west", "dt": "2026-01-01"}) == "dt=2026-01-01/region=eu%2Fwest"
    )


@pytest.mark.parametrize(
    "key",
    ["", "2026-01-01", "dt=a", "dt=a/region=", "region=a/dt=b", "dt=a/region=b/x=c", "dt=a/dt=b"],
)
def test_a_key_that_does_not_match_the_columns_is_refused(key: str) -> None:
    with pytest.raises(InputError):
        PartitionKeys(columns=("dt", "region")).parse(key)


@pytest.mark.parametrize(
    "spec", [{}, {"dt": "a"}, {"dt": "a", "region": ""}, {"dt": "a", "x": "b"}]
)
def test_an_incomplete_partition_is_refused(spec: dict[str, str]) -> None:
    with pytest.raises(InputError, match="dt, region"):
        PartitionKeys(columns=("dt", "region")).render(spec)


def test_dimensions_that_are_not_the_partition_columns_are_refused() -> None:
    with pytest.raises(InputError, match="dimensions dt, region must be the partition columns day"):
        PartitionKeys.of(table_schema("day STRING", "day"), ["dt", "region"])


def test_a_table_without_partition_columns_has_no_partition_keys() -> None:
    with pytest.raises(InputError, match="no partition columns"):
        PartitionKeys.of(table_schema("day STRING"))


DATES = ["19723", "-1", "0", "2932896", "__DEFAULT_PARTITION__"]


def table_schema(columns: str, *keys: str, **options: str) -> TableSchema:
    fields = parse_columns(f"{columns}, id BIGINT")
    named = {name.replace("_", "-").replace("--", "."): text for name, text in options.items()}
    return build_table_schema(fields, partition_by=keys, options={"bucket": "-1"} | named)


def test_day_numbers_in_directories_become_dates_in_keys() -> None:
    keys = PartitionKeys.of(table_schema("dt DATE, region STRING", "dt", "region"))

    assert keys.key_of("dt=19723/region=eu") == "dt=2024-01-01/region=eu"
    assert keys.path_of("dt=2024-01-01/region=eu") == "dt=19723/region=eu"
    assert keys.path_of("dt=19723/region=eu") == "dt=19723/region=eu"
    assert keys.key_of("dt=__DEFAULT_PARTITION__/region=a") == "dt=__DEFAULT_PARTITION__/region=a"


@given(st.integers(-800_000, 2_932_896).map(str) | st.sampled_from(DATES))
def test_a_day_number_is_unchanged_by_a_conversion_to_a_key_and_back(text: str) -> None:
    keys = PartitionKeys.of(table_schema("dt DATE", "dt"))

    assert keys.parse(keys.render({"dt": text})) == {"dt": text}


def test_dates_in_directories_remain_dates_in_keys() -> None:
    schema = table_schema("dt DATE", "dt", partition__legacy_name="false")

    assert PartitionKeys.of(schema).key_of("dt=2024-01-01") == "2024-01-01"
    assert PartitionKeys.of(schema).path_of("2024-01-01") == "dt=2024-01-01"


@given(VALUES, VALUES)
def test_any_two_values_have_a_two_dimensional_key_or_are_refused(first: str, second: str) -> None:
    keys = PartitionKeys(columns=("a", "b"), dimensions=("b", "a"))
    try:
        key = keys.render({"a": first, "b": second})
    except InputError:
        assert set(first + second) & set("|[],")
    else:
        assert keys.parse(key) == {"a": first, "b": second}


@pytest.mark.parametrize("key", ["", "a", "a|", "|", "a|b|c"])
def test_a_key_with_another_number_of_dimensions_is_refused(key: str) -> None:
    with pytest.raises(InputError, match="does not match"):
        PartitionKeys(columns=("a", "b"), dimensions=("a", "b")).parse(key)


@pytest.mark.parametrize(
    ("kind", "key", "directory"),
    [
        ("INT", "05", "5"),
        ("BOOLEAN", "TRUE", "true"),
        ("TIMESTAMP(3)", "2024-01-01 05:00:00", "2024-01-01T05:00"),
        ("STRING", "05", "05"),
        ("STRING", " ", " "),
        ("INT", "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"),
    ],
)
def test_a_value_in_another_notation_is_converted_to_the_directory_name(
    kind: str, key: str, directory: str
) -> None:
    assert PartitionKeys.of(table_schema(f"p {kind}", "p")).parse(key) == {"p": directory}


def test_a_key_that_is_not_a_value_of_its_column_is_refused() -> None:
    """With Dagster's default format of hours, loads would be empty without an error."""
    keys = PartitionKeys.of(table_schema("p TIMESTAMP(3)", "p"))

    with pytest.raises(
        InputError, match=r"'2026-01-01-05:00' is not a value of .* 'p', .* TIMESTAMP"
    ):
        keys.parse("2026-01-01-05:00")


STORED = [
    ("STRING", ["a", "a/b=c", "50%", " é ", None]),
    ("INT", [0, -7, None]),
    ("DATE", [date(2024, 1, 1), date(1969, 12, 31), None]),
    ("TIMESTAMP(3)", [datetime(2024, 1, 1, 5), datetime(2024, 1, 1, 5, 0, 1), None]),
    ("BOOLEAN", [True, False]),
    ("DECIMAL(5, 2)", [Decimal("1.50"), None]),
]


@pytest.mark.parametrize("legacy", ["true", "false"])
@pytest.mark.parametrize(("kind", "values"), STORED)
def test_the_key_of_an_existing_partition_selects_its_files(
    tmp_path: Path, kind: str, values: list[object], legacy: str
) -> None:
    """The partition filter of a compaction selects the files of each partition of a table."""
    table = new_table(
        tmp_path,
        f"p {kind}, k BIGINT",
        key=(),
        partition_by=["p"],
        partition__legacy_name=legacy,
        bucket="-1",
    )
    field = to_arrow_type(table.load().schema.fields[0].type)
    table.append(pa.table({"p": pa.array(values, field), "k": range(len(values))}))
    keys = PartitionKeys.of(table.load().schema)
    paths = [decision.partition for decision in decide(table)]

    assert len(paths) == len(values)
    for path in paths:
        key = keys.key_of(path)
        assert keys.path_of(key) == path
        [decision] = decide(table, partitions=[keys.parse(key)])
        assert decision.partition == path
