"""Frames of Polars with Categorical and Enum columns, also nested and in several chunks."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from paimon_orch import Catalog


@pytest.mark.parametrize("kind", [pl.Categorical(), pl.Enum(["x", "y"])], ids=str)
def test_categories_are_stored_as_text(tmp_path: Path, kind: pl.DataType) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "s STRING, l ARRAY<STRING>, r ROW<a STRING>"
    )
    frame = pl.DataFrame(
        {"s": ["x", None], "l": [["y", None], None], "r": [{"a": "y"}, {"a": None}]},
        schema={"s": kind, "l": pl.List(kind), "r": pl.Struct({"a": kind})},
    )
    table.append(pl.concat([frame, frame], rechunk=False))
    assert table.scan().to_arrow().to_pylist() == [*frame.to_dicts()] * 2
