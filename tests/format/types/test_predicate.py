"""Predicates: binding to column types, and evaluation with three-valued logic."""

from __future__ import annotations

import math
from typing import Any, cast

import pyarrow as pa
import pytest

from paimon_orch.errors import InputError
from paimon_orch.format.types.predicate import (
    And,
    Leaf,
    Not,
    Operator,
    Or,
    bind_predicate,
    to_arrow_expression,
)

SCHEMA = pa.schema([("i", pa.int32()), ("s", pa.string()), ("f", pa.float64())])


def _type_of(leaf: Leaf) -> pa.DataType:
    return SCHEMA.field(leaf.column).type


def _leaf(name: str, op: Operator, *values: Any) -> Leaf:
    return Leaf(name, op, tuple(pa.scalar(value) for value in values))


def test_values_are_converted_to_the_types_of_their_columns() -> None:
    bound = bind_predicate(
        Or((_leaf("i", Operator.IN, 1, 2), Not(_leaf("i", Operator.EQUAL, 3)))), _type_of
    )
    assert bound == Or(
        (
            Leaf("i", Operator.IN, (pa.scalar(1, pa.int32()), pa.scalar(2, pa.int32()))),
            Not(Leaf("i", Operator.EQUAL, (pa.scalar(3, pa.int32()),))),
        )
    )


@pytest.mark.parametrize(
    "leaf",
    [
        _leaf("i", cast("Operator", "=="), 1),
        _leaf("i", Operator.NOT_IN, 1),
        _leaf("i", Operator.LIKE, 2**40),
        _leaf("i", Operator.EQUAL, "one"),
        _leaf("i", Operator.EQUAL, None),
        _leaf("i", Operator.IN),
        _leaf("i", Operator.LESS, 1, 2),
        _leaf("i", Operator.IS_NULL, 1),
        _leaf("i", Operator.LIKE, "1%"),
    ],
    ids=str,
)
def test_predicates_that_do_not_fit_the_column_are_refused(leaf: Leaf) -> None:
    with pytest.raises(InputError):
        bind_predicate(And((leaf, leaf)), _type_of)


@pytest.mark.parametrize("op", [Operator.EQUAL, Operator.IN])
def test_positive_and_negative_zero_are_equal(op: Operator) -> None:
    rows = pa.table({"f": [0.0, -0.0, math.nan, None]})
    assert rows.filter(to_arrow_expression(_leaf("f", op, -0.0))).num_rows == 2
    assert rows.filter(to_arrow_expression(Not(_leaf("f", op, 0.0)))).num_rows == 1


@pytest.mark.parametrize("op", [Operator.EQUAL, Operator.NOT_EQUAL, Operator.LESS, Operator.IN])
def test_a_comparison_with_nan_is_refused_and_names_the_test_of_nan(op: Operator) -> None:
    with pytest.raises(InputError, match=r"test column 'f' with isnan\(f\), or col\('f'\).is_nan"):
        bind_predicate(_leaf("f", op, math.nan), _type_of)


def test_isnan_selects_nan_and_its_negation_the_other_numbers() -> None:
    rows = pa.table({"f": [0.0, math.nan, None]})
    test = bind_predicate(Leaf("f", Operator.IS_NAN), _type_of)
    assert rows.filter(to_arrow_expression(test))["f"].to_pylist() == pytest.approx(
        [math.nan], nan_ok=True
    )
    assert rows.filter(to_arrow_expression(Not(test)))["f"].to_pylist() == [0.0]
    with pytest.raises(InputError, match="isnan needs a FLOAT or DOUBLE column; 'i' is int32"):
        bind_predicate(Leaf("i", Operator.IS_NAN), _type_of)
