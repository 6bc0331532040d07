"""Groups of partition keys are exactly what Dagster reads from their first and last key."""

from itertools import pairwise, product

import dagster as dg
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.dagster.partition_groups import group_partition_keys

VALUES = [f"v{number}" for number in range(7)]


def keys_in_range(definition: dg.PartitionsDefinition[str], group: tuple[str, ...]) -> list[str]:
    """What a run of this range processes, according to Dagster."""
    return [*definition.get_partition_keys_in_range(dg.PartitionKeyRange(group[0], group[-1]))]


@given(st.sets(st.sampled_from([*VALUES, "unknown"])), st.integers(1, 8))
def test_groups_of_one_dimension_are_the_longest_ranges_of_the_definition(
    keys: set[str], limit: int
) -> None:
    definition = dg.StaticPartitionsDefinition(VALUES)

    groups = group_partition_keys(keys, [VALUES], limit)

    assert [key for group in groups for key in group] == [v for v in VALUES if v in keys]
    for group in groups:
        assert keys_in_range(definition, group) == [*group]
        assert len(group) <= limit
    for group, following in pairwise(groups):
        is_neighbor = VALUES.index(following[0]) == VALUES.index(group[-1]) + 1
        assert len(group) == limit or not is_neighbor


@given(
    st.sets(st.tuples(st.sampled_from(VALUES[:4]), st.sampled_from(VALUES[:3]))),
    st.integers(1, 12),
)
def test_groups_of_two_dimensions_are_ranges_of_the_definition(
    cells: set[tuple[str, str]], limit: int
) -> None:
    definition = dg.MultiPartitionsDefinition(
        {
            "a": dg.StaticPartitionsDefinition(VALUES[:4]),
            "b": dg.StaticPartitionsDefinition(VALUES[:3]),
        }
    )
    keys = {"|".join(cell) for cell in cells}

    groups = group_partition_keys(keys, [VALUES[:4], VALUES[:3]], limit)

    grouped = [key for group in groups for key in group]
    assert {*grouped} == keys
    assert len(grouped) == len(keys)
    for group in groups:
        assert keys_in_range(definition, group) == [*group]
        assert len(group) <= limit


def test_all_values_of_two_dimensions_are_one_group() -> None:
    keys = ["|".join(pair) for pair in product(VALUES[:4], VALUES[:3])]

    assert group_partition_keys(keys, [VALUES[:4], VALUES[:3]], 12) == [tuple(keys)]
    rows = [VALUES[:3], VALUES[1:4]]
    assert group_partition_keys(keys, rows, 3) == [
        tuple(f"{row}|{column}" for column in VALUES[1:3]) for row in VALUES[:3]
    ]


def test_a_value_that_is_empty_or_unknown_is_omitted() -> None:
    assert group_partition_keys([], [VALUES], 8) == []
    assert group_partition_keys(["other", "v1|v2"], [VALUES], 8) == []
    assert group_partition_keys(["v1", "v1|other"], [VALUES, VALUES], 8) == []
