"""Filters of any depth and length end with rows or with an own error, in a short time."""

from __future__ import annotations

from collections.abc import Callable
from operator import and_, or_

import pytest
from support.limited_process import refuse, run_limited
from support.tables import new_table, table_of

from paimon_orch import col
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.table.filter.long_lists import extract_long_lists
from paimon_orch.table.table import Table

VALUES = 200_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    table = new_table(tmp_path_factory.mktemp("filters"), "k BIGINT, v STRING, d DOUBLE")
    table.upsert(table_of("k v d", [(n, str(n), n / 2) for n in range(100)]))
    return table


DEEP = {
    "parentheses": "(" * 2_000 + "k = 1" + ")" * 2_000,
    "many parentheses": "(" * 100_000 + "k = 1" + ")" * 100_000,
    "not": "not " * 5_000 + "k = 1",
    "sums": "+".join(["k"] * 200_000) + " = 1",
    "and": " and ".join(["k = 1"] * 50_000),
    "casts": "k" + "::int" * 50_000,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", DEEP)
def test_a_deep_or_long_filter_is_refused(table: Table, name: str) -> None:
    message = refuse(lambda: table.scan(filter=DEEP[name]).count(), seconds=60)
    assert message.startswith("filter ")
    assert len(message) < 1_500


def test_a_deep_expression_is_refused(table: Table) -> None:
    deep: Predicate = col("k") == 0
    for number in range(5_000):
        deep = ~(deep | (col("k") == number))
    assert "inside of each other" in refuse(lambda: table.scan(filter=deep).count())


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("join", "expected"), [(and_, 1), (or_, 100)])
def test_a_long_chain_of_tests_is_not_deep(
    table: Table, join: Callable[[Predicate, Predicate], Predicate], expected: int
) -> None:
    chain: Predicate = col("k") != 1
    for number in range(2, 1_000):
        chain = join(chain, col("k") != number)
    assert run_limited(lambda: table.scan(filter=chain).count(), seconds=60) == expected


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "text",
    [
        "k in ({})",
        "k NOT  In ( {} )",
        "k in ({}) and d >= 0",
        "d in ({}) or k < 0",
        "v = 'in (1, 2)' or k in ({})",
    ],
)
def test_a_long_list_selects_the_rows_of_its_values(table: Table, text: str) -> None:
    long = ", ".join(str(n) for n in [3, 7, -1, *range(1_000, 1_000 + VALUES)])
    short = "3, 7, -1, 1000"
    found = table.scan(filter=text.format(long)).to_arrow().column("k").to_pylist()
    assert found == table.scan(filter=text.format(short)).to_arrow().column("k").to_pylist()


@pytest.mark.slow
def test_a_long_list_of_text_selects_the_rows_of_its_values(table: Table) -> None:
    values = ", ".join(f"'{n}'" for n in [5, *range(1_000, 1_000 + VALUES)])
    assert table.scan(filter=f"v in ({values})").to_arrow().column("v").to_pylist() == ["5"]


def test_a_wrong_value_of_a_long_list_is_named(table: Table) -> None:
    values = ", ".join(f"'{n}'" for n in [*range(1_000), "wrong"])
    assert "'wrong' is not a value of column 'k'" in refuse(
        lambda: table.scan(filter=f"k in ({values})").count()
    )


@pytest.mark.parametrize(
    "text",
    [
        "v = '{} in (1, 2)'",
        'v = "k in ({})"',
        "k = 1 -- k in ({})",
        "v in ('a\\'b', {})",
        "v in ('a''b', {})",
        "k in (select 1, {})",
        "k in (1 + 1, {})",
    ],
)
def test_lists_in_text_and_comments_and_of_other_values_are_left_to_the_parser(text: str) -> None:
    condition = text.format(", ".join(map(str, range(1_000))))
    assert extract_long_lists(condition) == (condition, {})
