"""Lazy frames of Polars from tables and locations."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.tables import new_table, table_of

from paimon_orch import InputError, scan_paimon


def test_a_table_or_its_location_is_a_lazy_frame(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))

    for given in (table, table.paths.root, f"{tmp_path}/db.db/t/"):
        frame = scan_paimon(given)
        assert isinstance(frame, pl.LazyFrame)
        assert frame.filter(pl.col("k") > 1).select("v").collect().rows() == [("b",)]


def test_the_arguments_are_those_of_a_scan(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.upsert(table_of("k v", [(1, "b")]))

    frame = scan_paimon(table, columns=["v"], snapshot_id=1)

    assert frame.collect().rows() == [("a",)]


@pytest.mark.parametrize("location", ["orders", "/lake/orders", "shop.orders", "", 5, None])
def test_another_location_is_refused(location: Any) -> None:
    with pytest.raises(InputError, match="or the location of its directory, such as '/lake/shop"):
        scan_paimon(location)
