"""Time travel by snapshot id, tag, time or watermark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.table.metadata.time_travel import NO_WATERMARK, find_at_time
from paimon_orch.table.table import Table

WATERMARKS = [None, 100, None, 200, NO_WATERMARK, 300]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table: snapshot ``n`` has rows 1 to ``n``, time ``1000 * n`` and a watermark."""
    table = new_table(tmp_path, "k BIGINT")
    for number, watermark in enumerate(WATERMARKS, start=1):
        table.upsert(table_of("k", [(number,)]))
        snapshot = table.stores.snapshots.get(number)
        changed = replace(snapshot, watermark=watermark, time_millis=1000 * number)
        table.io.write(table.stores.snapshots.path(number), changed.to_json())
    table.io.create(f"{table.paths.tag_dir}/tag-two", table.stores.snapshots.get(2).to_json())
    return table


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ({}, 6),
        ({"snapshot_id": 3}, 3),
        ({"tag": "two"}, 2),
        ({"timestamp": 4000}, 4),
        ({"timestamp": 4999}, 4),
        ({"timestamp": 10**12}, 6),
        ({"watermark": NO_WATERMARK + 1}, 2),
        ({"watermark": 100}, 2),
        ({"watermark": 101}, 4),
        ({"watermark": 200}, 4),
        ({"watermark": 201}, 6),
        ({"watermark": 300}, 6),
    ],
)
def test_a_scan_reads_the_selected_snapshot(
    table: Table, moment: dict[str, Any], number: int
) -> None:
    assert rows_of(table, **moment) == [(k,) for k in range(1, number + 1)]


@pytest.mark.parametrize(
    "moment",
    [
        {"snapshot_id": 7},
        {"snapshot_id": 0},
        {"tag": "three"},
        {"timestamp": 0},
        {"watermark": 301},
    ],
)
def test_a_selector_without_a_snapshot_is_an_error(table: Table, moment: dict[str, Any]) -> None:
    with pytest.raises(NotFoundError):
        table.scan(**moment)


def test_two_selectors_cannot_be_combined(table: Table) -> None:
    with pytest.raises(InputError, match="tag and watermark cannot be combined"):
        table.scan(tag="two", watermark=5)


def test_a_timestamp_selects_the_newest_snapshot_up_to_that_time(table: Table) -> None:
    snapshots, times = table.stores.snapshots, (1000, 1999, 2000, 3000, 9999)
    assert [find_at_time(snapshots, time).id for time in times] == [1, 1, 2, 3, 6]
    message = (
        "no snapshot at or before 1970-01-01 00:00:00.999 UTC; "
        "the oldest, 1, is of 1970-01-01 00:00:01.000 UTC"
    )
    with pytest.raises(NotFoundError, match=message):
        find_at_time(snapshots, 999)
    with pytest.raises(NotFoundError, match=f"no snapshot at or before {-(2**62)} ms;"):
        find_at_time(snapshots, -(2**62))
