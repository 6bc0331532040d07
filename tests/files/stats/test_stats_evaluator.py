"""The evaluator of statistics agrees with a simple evaluator for every file of a batch."""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.files.stats.column_bounds import ColumnBounds, encode_null_counts
from paimon_orch.files.stats.stats_evaluator import may_contain, may_match
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.row.binary_row_columns import read_field_column
from paimon_orch.format.row.simple_stats import UNKNOWN_STATS, ColumnStats
from paimon_orch.format.row.trusted_bounds import drop_untrusted_bounds
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, parse_type
from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Or, Predicate

VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [False, True],
    "TINYINT": [-128, -1, 0, 1, 127],
    "INT": [-(2**31), 0, 5, 2**31 - 1],
    "BIGINT": [-(2**63), -1, 0, 2**63 - 1],
    "FLOAT": [-1.5, -0.0, 0.0, 2.5, float("nan"), float("inf")],
    "DOUBLE": [-1.5, -0.0, 0.0, 0.1, float("nan"), float("-inf")],
    "DATE": [date(1969, 12, 31), date(2026, 1, 1)],
    "TIMESTAMP(3)": [datetime(1969, 12, 31), datetime(2026, 1, 1)],
    "TIMESTAMP(6)": [datetime(1969, 12, 31, 1, 1, 1, 7), datetime(2026, 1, 1, 0, 0, 0, 1)],
    "DECIMAL(10, 2)": [Decimal("-1.25"), Decimal(0), Decimal("9.5")],
    "STRING": [
        "",
        "a",
        "a\0",
        "ab",
        "a?",
        "longer than seven",
        "longer than eight",
        "日本語のテキスト",
    ],
}


def scalar(kind: AtomicType, value: Any) -> pa.Scalar[pa.DataType]:
    return pa.scalar(value, to_arrow_type(kind))


def leaves(kind: AtomicType, values: list[Any]) -> st.SearchStrategy[Predicate]:
    literal = st.sampled_from(values).map(lambda value: scalar(kind, value))
    strategies: list[st.SearchStrategy[Predicate]] = [
        st.builds(
            lambda op, v: Leaf("c", op, (v,)),
            st.sampled_from(
                [
                    Operator.EQUAL,
                    Operator.NOT_EQUAL,
                    Operator.LESS,
                    Operator.LESS_OR_EQUAL,
                    Operator.GREATER,
                    Operator.GREATER_OR_EQUAL,
                ]
            ),
            literal,
        ),
        st.lists(literal, min_size=1, max_size=3).map(
            lambda several: Leaf("c", Operator.IN, tuple(several))
        ),
        st.just(Leaf("c", Operator.IS_NULL)),
    ]
    if kind.name == "VARCHAR":
        patterns = st.sampled_from(["a%", "%", "a", "long%seven", "_"])
        strategies.append(patterns.map(lambda text: Leaf("c", Operator.LIKE, (pa.scalar(text),))))
    return st.one_of(strategies)


def predicates(kind: AtomicType, values: list[Any]) -> st.SearchStrategy[Predicate]:
    return st.recursive(
        leaves(kind, values),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: Or(tuple(parts))),
        ),
        max_leaves=4,
    )


def outcomes(predicate: Predicate, stats: ColumnStats, rows: int) -> tuple[bool, bool]:
    """Return whether a predicate can be true, and whether it can be false, for a row of a file."""
    if isinstance(predicate, Leaf):
        return leaf_outcomes(predicate, stats, rows)
    if isinstance(predicate, Not):
        true, false = outcomes(predicate.child, stats, rows)
        return false, true
    trues, falses = zip(*(outcomes(c, stats, rows) for c in predicate.children), strict=True)
    return (all(trues), any(falses)) if isinstance(predicate, And) else (any(trues), all(falses))


def leaf_outcomes(leaf: Leaf, stats: ColumnStats, rows: int) -> tuple[bool, bool]:
    low, high, nulls = stats.min, stats.max, stats.null_count
    if leaf.op == Operator.IS_NULL:
        return nulls is None or nulls > 0, nulls is None or nulls < rows
    if nulls is not None and nulls >= rows:
        return False, False
    values = [to_internal_value(value) for value in leaf.values]
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        return True, True
    if leaf.op == Operator.LIKE:
        return like_outcomes(values[0], low, high)
    true, false = comparison_outcomes(leaf.op, values, low, high)
    return (
        (true or leaf.op == Operator.NOT_EQUAL, True)
        if isinstance(values[0], float)
        else (true, false)
    )


def comparison_outcomes(op: Operator, values: list[Any], low: Any, high: Any) -> tuple[bool, bool]:
    value = values[0]
    below, at_most = low is None or low < value, low is None or low <= value
    above, at_least = high is None or high > value, high is None or high >= value
    constant = low is not None and high is not None and low == value == high
    if op == Operator.IN:
        each = [comparison_outcomes(Operator.EQUAL, [item], low, high) for item in values]
        return any(true for true, _ in each), all(false for _, false in each)
    return {
        Operator.EQUAL: (at_most and at_least, not constant),
        Operator.NOT_EQUAL: (not constant, at_most and at_least),
        Operator.LESS: (below, at_least),
        Operator.LESS_OR_EQUAL: (at_most, above),
        Operator.GREATER: (above, at_most),
        Operator.GREATER_OR_EQUAL: (at_least, below),
    }[op]


def like_outcomes(pattern: str, low: Any, high: Any) -> tuple[bool, bool]:
    prefix = re.split(r"[%_\\]", pattern, maxsplit=1)[0]
    if prefix == pattern:
        return comparison_outcomes(Operator.EQUAL, [pattern], low, high)
    size = len(prefix)
    may_start = (low is None or low[:size] <= prefix) and (high is None or high >= prefix)
    all_start = all(bound is not None and bound[:size] == prefix for bound in (low, high))
    return may_start, not (all_start and pattern[size:] == "%")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", VALUES)
@settings(max_examples=15)
@given(data=st.data())
def test_the_evaluation_of_a_batch_agrees_with_the_statistics_of_each_file(
    text: str, data: st.DataObject
) -> None:
    kind = parse_type(text)
    assert isinstance(kind, AtomicType)
    bound = st.none() | st.sampled_from(VALUES[text]).map(
        lambda value: to_internal_value(scalar(kind, value))
    )
    files = data.draw(
        st.lists(
            st.tuples(bound, bound, st.none() | st.integers(0, 3), st.booleans()),
            min_size=1, max_size=6,
        )
    )  # fmt: skip
    predicate = data.draw(predicates(kind, VALUES[text]))
    types = [parse_type("INT"), kind]
    lows, highs = (
        [
            serialize_row((7, file[index]), types) if file[3] else serialize_row((), ())
            for file in files
        ]
        for index in (0, 1)
    )

    low, high = read_field_column(lows, 1, 2, kind), read_field_column(highs, 1, 2, kind)
    stats = [
        drop_untrusted_bounds(ColumnStats(*file[:3]), is_orc=False, data_type=kind)
        if file[3]
        else UNKNOWN_STATS
        for file in files
    ]
    if low is None or high is None:
        assert kind.name == "DECIMAL"
        bounds = ColumnBounds.of(stats)
    else:
        bounds = ColumnBounds.from_fields(
            low, high, encode_null_counts([file[2] for file in files]), kind
        )
    batch = may_match(predicate, lambda _: bounds, np.full(len(files), 3))
    from_stats = may_match(predicate, lambda _: ColumnBounds.of(stats), np.full(len(files), 3))
    expected = [outcomes(predicate, file, 3)[0] for file in stats]

    assert list(batch) == list(from_stats) == expected
    for file, may in zip(stats, expected, strict=True):
        single = ColumnBounds.of([file])
        assert list(may_match(predicate, lambda _, b=single: b, np.full(1, 3))) == [may]  # type: ignore[misc]


@given(
    lows=st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=5),
    rows=st.lists(
        st.tuples(st.none() | st.integers(0, 5), st.none() | st.sampled_from("ab")),
        min_size=1,
        max_size=4,
    ),
)
def test_membership_checks_agree_with_equality_predicates(
    lows: list[int | None], rows: list[tuple[int | None, str | None]]
) -> None:
    stats = {
        "n": [ColumnStats(low, None if low is None else low + 1, low) for low in lows],
        "s": [ColumnStats("a", "a" if low else "b", 0) for low in lows],
    }
    counts = np.full(len(lows), 3)
    tests = [
        [
            Leaf(name, Operator.EQUAL, (pa.scalar(v),))
            for name, v in zip("ns", row, strict=True)
            if v is not None
        ]
        for row in rows
    ]
    bounds = {name: ColumnBounds.of(columns) for name, columns in stats.items()}
    contained = may_contain(
        {"n": [number for number, _ in rows], "s": [text for _, text in rows]},
        bounds.__getitem__,
        counts,
    )

    matches = np.zeros(len(lows), bool)
    for leaves_of_row in tests:
        if not leaves_of_row:
            matches[:] = True
        else:
            matches |= may_match(And(tuple(leaves_of_row)), bounds.__getitem__, counts)
    assert list(contained) == list(matches)


@pytest.mark.parametrize("cut", [2, 14, 25])
def test_truncated_rows_are_not_decoded_as_a_column(cut: int) -> None:
    types = [parse_type("STRING")]
    rows = [serialize_row((text,), types) for text in ("a", "longer than seven")]
    kind = types[0]

    assert read_field_column([rows[0], rows[1][:cut]], 0, 1, kind) is None
