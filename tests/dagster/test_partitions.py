import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.dagster import PartitionKeys
from paimon_orch.dagster.partitions import parse_path, render_path
from paimon_orch.errors import InputError, PaimonError
from paimon_orch.format.schema import new_schema
from paimon_orch.format.types import parse_columns

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
def test_a_key_parses_to_the_partition_it_was_rendered_from(spec: dict[str, str]) -> None:
    keys = PartitionKeys(tuple(spec))

    assert spec == keys.parse(keys.render(spec))


@given(SPECS)
def test_a_path_parses_to_the_partition_it_was_rendered_from(spec: dict[str, str]) -> None:
    assert spec == parse_path(render_path(spec))


@given(SPECS)
def test_keys_and_paths_translate_into_each_other(spec: dict[str, str]) -> None:
    keys = PartitionKeys(tuple(spec))
    path = render_path(spec)

    assert path == keys.path_of(keys.key_of(path))


@given(st.text())
def test_any_text_parses_or_is_refused_with_our_error(text: str) -> None:
    for columns in (("dt",), ("dt", "region")):
        try:
            spec = PartitionKeys(columns).parse(text)
        except PaimonError:
            continue
        assert columns == tuple(spec)


def test_the_key_of_one_column_is_the_value_as_stored() -> None:
    keys = PartitionKeys(("flight_month",))

    assert keys.key_of("flight_month=2013-01") == "2013-01"
    assert keys.path_of("2013-01") == "flight_month=2013-01"
    assert keys.key_of("flight_month=2013-01-01 00%3A00") == "2013-01-01 00:00"


def test_the_key_of_several_columns_is_the_directory_path_in_the_tables_order() -> None:
    keys = PartitionKeys(("dt", "region"))

    assert (
        keys.render({"region": "eu/west", "dt": "2026-01-01"}) == "dt=2026-01-01/region=eu%2Fwest"
    )


@pytest.mark.parametrize(
    "key",
    ["", "2026-01-01", "dt=a", "dt=a/region=", "region=a/dt=b", "dt=a/region=b/x=c", "dt=a/dt=b"],
)
def test_a_key_that_does_not_fit_the_table_is_refused(key: str) -> None:
    with pytest.raises(InputError):
        PartitionKeys(("dt", "region")).parse(key)


@pytest.mark.parametrize(
    "spec", [{}, {"dt": "a"}, {"dt": "a", "region": ""}, {"dt": "a", "x": "b"}]
)
def test_an_incomplete_partition_has_no_key(spec: dict[str, str]) -> None:
    with pytest.raises(InputError, match="dt, region"):
        PartitionKeys(("dt", "region")).render(spec)


def test_an_unpartitioned_table_has_no_keys() -> None:
    schema = new_schema(parse_columns("id INT"), primary_key=["id"], options={"bucket": "1"})

    with pytest.raises(InputError, match="leave partitions_def out"):
        PartitionKeys.of(schema)


def test_dagster_takes_the_keys_of_paths() -> None:
    keys = PartitionKeys(("dt", "region"))
    rendered = [
        keys.render({"dt": "2026-01-01", "region": name}) for name in ("eu west", "a|b", "é")
    ]

    assert dg.StaticPartitionsDefinition(rendered).get_partition_keys() == rendered
