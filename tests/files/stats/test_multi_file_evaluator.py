"""Statistics of many files judged at once say what those of each file say alone."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.files.stats.evaluator import UNKNOWN_STATS, drop_untrusted_bounds, may_match
from paimon_orch.files.stats.multi_file_evaluator import (
    ColumnBounds,
    encode_null_counts,
    may_match_many,
)
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.row.binary_row_columns import read_field_column
from paimon_orch.format.row.simple_stats import ColumnStats
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
    one = st.sampled_from(values).map(lambda value: scalar(kind, value))
    found: list[st.SearchStrategy[Predicate]] = [
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
            one,
        ),
        st.lists(one, min_size=1, max_size=3).map(
            lambda several: Leaf("c", Operator.IN, tuple(several))
        ),
        st.just(Leaf("c", Operator.IS_NULL)),
    ]
    if kind.name == "VARCHAR":
        patterns = st.sampled_from(["a%", "%", "a", "long%seven", "_"])
        found.append(patterns.map(lambda text: Leaf("c", Operator.LIKE, (pa.scalar(text),))))
    return st.one_of(found)


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


@pytest.mark.parametrize("text", VALUES)
@settings(max_examples=15)
@given(data=st.data())
def test_many_files_are_judged_as_each_of_them_is(text: str, data: st.DataObject) -> None:
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
            serialize_row((7, file[at]), types) if file[3] else serialize_row((), ())
            for file in files
        ]
        for at in (0, 1)
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
    found = may_match_many(predicate, lambda _: bounds, np.full(len(files), 3))

    assert list(found) == [may_match(predicate, lambda _, one=one: one, 3) for one in stats]  # type: ignore[misc]


@pytest.mark.parametrize("cut", [2, 14, 25])
def test_rows_that_are_cut_are_left_to_who_names_them(cut: int) -> None:
    types = [parse_type("STRING")]
    rows = [serialize_row((text,), types) for text in ("a", "longer than seven")]
    kind = types[0]

    assert read_field_column([rows[0], rows[1][:cut]], 0, 1, kind) is None
