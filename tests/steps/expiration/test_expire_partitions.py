"""Partition expiration (invariant 31)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.damage import edit_files
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import InputError
from paimon_orch.steps.compaction.compact import CompactRequest
from paimon_orch.steps.compaction.compact import plan as compact_plan
from paimon_orch.steps.expiration.expire_partitions import (
    ExpirePartitionsRequest,
    expire_partitions,
    plan,
)
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

NOW = datetime(2026, 3, 10, 12)


def by_day(root: Path, days: Sequence[str | None], **options: str) -> Table:
    table = new_table(
        root, "dt STRING, k INT", key=(), partition_by=("dt",), bucket="-1", **options
    )
    table.append(table_of("dt k", [(day, number) for number, day in enumerate(days)]))
    return table


def names(table: Table, days: float, **arguments: Any) -> list[str]:
    return list(
        plan(
            table,
            ExpirePartitionsRequest(expiration_time=timedelta(days=days), now=NOW, **arguments),
        ).names
    )


def test_partitions_expire_by_the_time_in_their_value(tmp_path: Path) -> None:
    days = ["2026-03-09", "2026-3-8", "2026-03-08 11:59:59", "2026-03-08 12:00:00", "2026-02-30", "x", None, "2026-03-08 11:59:59.5"]  # fmt: skip
    table = by_day(tmp_path, days)

    assert names(table, 2) == ["dt=2026-03-08 11%3A59%3A59", "dt=2026-03-08 11%3A59%3A59.5", "dt=2026-3-8"]  # fmt: skip
    assert names(table, 400) == []
    assert names(table, 2_000_000) == [], "longer ago than there are years"


def test_expired_partitions_are_dropped_and_other_partitions_are_kept(tmp_path: Path) -> None:
    table = by_day(tmp_path, ["2020-01-01", "2020-01-02", "2999-01-01"], partition__expiration_time="7 d")  # fmt: skip
    assert table.stores.snapshots.ids() == [1]

    planned = plan(table, ExpirePartitionsRequest())
    assert table.stores.snapshots.ids() == [1]
    result = expire_partitions(table)

    assert result.to_dict() == planned.to_dict()
    assert result.names == ("dt=2020-01-01", "dt=2020-01-02")
    assert rows_of(table) == [("2999-01-01", 2)]
    assert rows_of(table, snapshot_id=1) == [("2020-01-01", 0), ("2020-01-02", 1), ("2999-01-01", 2)]  # fmt: skip
    assert check(table, deep=True)
    assert not expire_partitions(table)
    assert table.stores.snapshots.ids() == [1, 2]


def test_a_maximum_and_a_batch_size_limit_dropped_partitions(tmp_path: Path) -> None:
    days = [f"2020-01-{day:02d}" for day in range(1, 8)]
    table = by_day(tmp_path, days, partition__expiration_time="1 d", partition__expiration_max_num="5", partition__expiration_batch_size="2")  # fmt: skip

    result = expire_partitions(table)

    assert [len(batch) for batch in result.batches] == [2, 2, 1]
    assert table.stores.snapshots.ids() == [1, 2, 3, 4]
    assert [row[0] for row in rows_of(table)] == days[5:]
    assert expire_partitions(table, max_expires=1).names == ("dt=2020-01-06",)


def test_a_pattern_and_a_formatter_define_the_time(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "y STRING, mo STRING, hour INT, k INT", key=(), bucket="-1",
        partition_by=("y", "mo", "hour"),
    )  # fmt: skip
    table.append(table_of("y mo hour k", [("2026", "0309", 11, 1), ("2026", "0309", 13, 2)]))
    arguments = {"timestamp_pattern": "$y$mo at $hour", "timestamp_formatter": "yyyyMMdd 'at' HH"}

    assert names(table, 1, **arguments) == ["y=2026/mo=0309/hour=11"]
    assert names(table, 1, timestamp_formatter="yyyy-MM-dd") == []


@pytest.mark.parametrize("legacy", ["true", "false"])
def test_dates_are_read_with_legacy_and_new_directory_names(tmp_path: Path, legacy: str) -> None:
    table = new_table(tmp_path, "dt DATE, k INT", key=(), partition_by=("dt",), bucket="-1", partition__legacy_name=legacy)  # fmt: skip
    days = pa.array([date(2026, 3, 1), date(2026, 3, 9)])
    table.append(pa.table({"dt": days, "k": [1, 2]}))

    assert len(names(table, 5)) == 1


def test_partitions_expire_by_their_newest_file(tmp_path: Path) -> None:
    table = by_day(tmp_path, ["a"])
    table.append(table_of("dt k", [("b", 1)]))
    millis = int((NOW - datetime(1970, 1, 1)) / timedelta(milliseconds=1))
    edit_files(table, 1, creation_time=millis - 3 * 24 * 3600 * 1000)
    edit_files(table, 2, creation_time=millis - 1 * 24 * 3600 * 1000)

    assert names(table, 2, strategy="update-time") == ["dt=a"]
    assert names(table, 4, strategy="update-time") == []


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no partition columns"):
        plan(new_table(tmp_path / "a"), ExpirePartitionsRequest())
    table = by_day(tmp_path / "b", ["2020-01-01"])
    with pytest.raises(InputError, match=r"partition\.expiration-time"):
        plan(table, ExpirePartitionsRequest())
    with pytest.raises(InputError, match="QQ is unknown"):
        names(table, 1, timestamp_formatter="yyyy-QQ")
    with pytest.raises(InputError, match="strategy"):
        names(table, 1, strategy="by-mood")


@pytest.mark.parametrize(("size", "limit"), [("1", -1), ("0", None), ("-1", None)])
def test_negative_limits_and_batch_sizes_are_refused(
    tmp_path: Path, size: str, limit: int | None
) -> None:
    table = by_day(tmp_path, ["2020-01-01", "2020-01-02"], partition__expiration_time="1 d", partition__expiration_batch_size=size)  # fmt: skip

    with pytest.raises(InputError, match=r"cannot expire|max_expires is -1; the minimum is 0"):
        expire_partitions(table, max_expires=limit)
    assert table.stores.snapshots.ids() == [1]


def test_a_partition_value_that_does_not_match_the_format_never_expires(tmp_path: Path) -> None:
    table = by_day(tmp_path, ["2026111", "20260101", "202601011"])

    assert names(table, 1, timestamp_formatter="yyyyMMdd") == ["dt=20260101"]


@pytest.mark.parametrize("formatter", ["yyyyMM", "HH", "yyyy"])
def test_a_format_without_a_day_is_refused(tmp_path: Path, formatter: str) -> None:
    with pytest.raises(InputError, match="year, month and day"):
        names(by_day(tmp_path, ["202603"]), 1, timestamp_formatter=formatter)


@pytest.mark.parametrize("key", [(), ("dt", "k")])
@pytest.mark.parametrize(("skips", "strategy"), [("true", "values-time"), ("true", "update-time"), ("false", "values-time")])  # fmt: skip
def test_compaction_skips_expired_partitions_if_the_option_is_set(
    tmp_path: Path, key: tuple[str, ...], skips: str, strategy: str
) -> None:
    options = {
        "compaction__skip_expired_partitions": skips,
        "partition__expiration_time": "7 d",
        "partition__expiration_strategy": strategy,
        "bucket": "1" if key else "-1",
    }
    table = new_table(tmp_path, "dt STRING, k INT", key=key, partition_by=("dt",), **options)
    for _ in range(2):
        table.append(table_of("dt k", [("2020-01-01", 1), ("2999-01-01", 2)]))

    planned = compact_plan(table, CompactRequest(strategy="full"))

    partitions = {unit.partition_text for unit in planned.units}
    expired = set() if (skips, strategy) == ("true", "values-time") else {"dt=2020-01-01"}
    assert partitions == {"dt=2999-01-01"} | expired
