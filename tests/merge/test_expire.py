"""Record-level expiry: rows leave by compaction, by the clock of whoever plans it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tables import assert_healthy, levels_of, rows_of, small_batches

from paimon_orch import Catalog
from paimon_orch.merge.expire import RecordExpiry
from paimon_orch.steps import compact as step
from paimon_orch.steps.executor import InProcessExecutor
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
VECTORS = {"deletion-vectors.enabled": "true"}


def table_of(root: Path, time_type: str = "INT", **options: str) -> Table:
    named = {"bucket": "1", "record-level.expire-time": "1 h", "record-level.time-field": "at"}
    return Catalog(str(root)).create_table(
        "db.t", f"k INT, at {time_type}", primary_key=["k"], options=named | options
    )


def at(time: datetime, time_type: str) -> Any:
    seconds = int(time.timestamp())
    if time_type == "BIGINT of milliseconds":
        return seconds * 1000
    return time.replace(tzinfo=None) if time_type.startswith("TIMESTAMP") else seconds


def write(table: Table, times: dict[int, Any]) -> None:
    kind = table.scan().arrow_schema.field("at").type
    keys = pa.array(list(times), pa.int32())
    table.upsert(pa.table({"k": keys, "at": pa.array(list(times.values()), kind)}))


def compact(table: Table, now: datetime, strategy: step.Strategy = "full") -> None:
    step.compact(table, EXECUTOR, strategy=strategy, now=now)


def keys_of(table: Table) -> list[int]:
    return [row[0] for row in rows_of(table)]


@pytest.mark.parametrize(
    "time_type",
    [
        "INT",
        "BIGINT",
        "BIGINT of milliseconds",
        "TIMESTAMP(0)",
        "TIMESTAMP(3)",
        "TIMESTAMP(6)",
        "TIMESTAMP_LTZ(6)",
    ],
)
def test_rows_leave_when_their_time_is_over_in_every_type_that_tells_it(
    tmp_path: Path, time_type: str
) -> None:
    table = table_of(tmp_path, time_type.split(maxsplit=1)[0])
    hours = {1: 0.0, 2: -0.5, 3: -1.0, 4: -1.5}
    times = {k: at(NOON + timedelta(hours=h), time_type) for k, h in hours.items()}
    write(table, times | {5: None})
    assert keys_of(table) == [1, 2, 3, 4, 5], "reading expires nothing"

    compact(table, NOON)

    assert keys_of(table) == [1, 2, 3, 5]
    assert_healthy(table)


def test_a_file_of_the_highest_level_is_rewritten_once_a_row_of_it_is_too_old(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path)
    write(table, {1: at(NOON, "INT"), 2: at(NOON + timedelta(hours=2), "INT")})
    compact(table, NOON)
    compact(table, NOON + timedelta(minutes=59))
    assert table.snapshots.latest_id() == 2, "nothing is too old yet"

    compact(table, NOON + timedelta(hours=2))

    assert keys_of(table) == [2]
    compact(table, NOON + timedelta(hours=9))
    assert keys_of(table) == []


@pytest.mark.parametrize("options", [{}, VECTORS, {"changelog-producer": "lookup"}])
def test_an_expired_row_does_not_come_back_when_its_key_does(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = table_of(tmp_path, **options, **{"merge-engine": "partial-update"})
    write(table, {k: at(NOON, "INT") for k in range(20)})
    compact(table, NOON)
    later = NOON + timedelta(hours=5)
    write(table, {3: at(later, "INT"), 4: None})

    compact(table, later, "minor")
    compact(table, later)

    assert dict(rows_of(table)) == {3: at(later, "INT"), 4: None}
    assert_healthy(table)


def test_a_whole_section_may_expire(tmp_path: Path) -> None:
    with small_batches(3):
        table = table_of(tmp_path, **VECTORS)
        write(table, {k: at(NOON, "INT") for k in range(20)})
        write(table, {k: at(NOON + timedelta(hours=3 * (k % 2)), "INT") for k in range(5, 30)})

        compact(table, NOON + timedelta(hours=3))

    assert keys_of(table) == [k for k in range(5, 30) if k % 2]
    assert set(levels_of(table)) == {5}
    assert_healthy(table)


def test_statistics_of_another_schema_or_none_tell_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"metadata.stats-mode": "none"})
    write(table, {1: 0})
    (split,) = table.files()
    expiry = RecordExpiry.of(table.schema, now=10**9)

    assert expiry is not None
    assert not expiry.touches(split.files[0], {0: table.schema})


@pytest.mark.parametrize("options", [{}, VECTORS, {"changelog-producer": "lookup"}])
def test_a_compaction_takes_expired_rows_away_and_changes_nothing_else(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Times go back and forth, so that the newest row of a key is older than the one it replaced."""
    random, named = np.random.default_rng(17), {"num-sorted-run.compaction-trigger": "2", **options}
    table = table_of(tmp_path, **named)
    seconds, latest = int(NOON.timestamp()), dict[int, Any]()
    with small_batches(3):
        for turn in range(8):
            written, deleted = (random.permutation(9)[:count].tolist() for count in (3, 2))
            times = {k: seconds + int(random.integers(-7200, 7200)) for k in written}
            latest |= times
            going = {k: latest.pop(k, 0) for k in deleted}
            kinds = ["+I"] * len(times) + ["-D"] * len(going)
            values = [*times.values(), *going.values()]
            rows = pa.table({"k": [*times, *going], "at": values, "kind": kinds})
            table.upsert(rows, row_kind="kind")
            now = NOON + timedelta(minutes=10 * turn)
            is_full = turn % 4 == 3
            compact(table, now, "full" if is_full else "minor")

            found: dict[int, Any] = dict(rows_of(table))
            expired = now.timestamp() - 3600
            gone = {k: time for k, time in latest.items() if k not in found}
            assert found.items() <= latest.items()
            assert all(time < expired for time in gone.values())
            assert not is_full or min(found.values(), default=expired) >= expired
            latest = found
    assert_healthy(table)
