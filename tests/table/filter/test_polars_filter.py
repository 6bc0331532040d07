"""Filters of Polars that have a predicate of ours are pushed down, whatever stands beside them."""

import polars as pl

from paimon_orch.table.filter.polars_filter import translate_conjuncts

KNOWN = [pl.col("a") > 1, pl.col("b") == "x"]
UNKNOWN = pl.col("a").cast(pl.Float64).sqrt() > 1.5


def test_a_conjunct_without_a_predicate_does_not_hide_those_after_it() -> None:
    expected = [str(each) for known in KNOWN for each in translate_conjuncts(known)]
    assert len(expected) == 2

    for expression in (
        UNKNOWN & KNOWN[0] & KNOWN[1],
        KNOWN[0] & UNKNOWN & KNOWN[1],
        KNOWN[0] & (KNOWN[1] & UNKNOWN),
    ):
        assert [str(each) for each in translate_conjuncts(expression)] == expected
    assert translate_conjuncts(UNKNOWN) == []
