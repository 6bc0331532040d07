"""Tables of Java 2.0, one per merge rule: we read the same rows, before and after compaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.golden import (
    GOLDEN,
    assert_rows_equal,
    canonical_rows,
    copy_warehouse,
    expected_rows,
    table_name,
)
from support.golden_bitmaps import order_bitmaps

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import CompactionStrategy, compact
from paimon_orch.table.table import Table

FOLDERS = (
    "agg_bitmaps",
    "agg_nested",
    "agg_nested_orc",
    "agg_sketches",
    "changelog_options",
    "nullability",
    "nullability_orc",
    "partial_update_more",
    "partial_update_more_avro",
    "row_kind_options",
    "sequence_options",
)
STRATEGIES: tuple[CompactionStrategy, ...] = ("minor", "full")


def tables() -> Iterator[Any]:
    for name in FOLDERS:
        folder = GOLDEN / "java-2.0" / name
        for entry in json.loads((folder / "expected.json").read_text(encoding="utf-8"))["tables"]:
            yield pytest.param(folder, entry, id=f"{name}/{table_name(entry)}")


def assert_holds(table: Table, rows: list[list[Any]], snapshot: int | None = None) -> None:
    result = table.scan(snapshot_id=snapshot).to_arrow()
    types = [str(field.type) for field in result.schema]
    expected, actual = (
        order_bitmaps(side, result.column_names) for side in (rows, canonical_rows(result))
    )
    assert_rows_equal(expected, actual, types)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("folder", "entry"), list(tables()))
def test_tables_have_the_rows_that_java_read(
    folder: Path, entry: dict[str, Any], tmp_path: Path
) -> None:
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table(table_name(entry))

    for snapshot in entry["snapshots"]:
        assert_holds(table, expected_rows(snapshot), snapshot["id"])

    for strategy in STRATEGIES:
        compact(table, InProcessExecutor(), strategy=strategy)
        assert_holds(table, expected_rows(entry["snapshots"][-1]))
