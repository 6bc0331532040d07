"""Arguments that are durations or times accept Python values and texts, and refuse the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from support.tables import table_of

from paimon_orch import Catalog, Table
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.steps import (
    CompactionPolicy,
    ExpirePartitionsRequest,
    ExpireSnapshotsRequest,
    MaintenanceBudgets,
    MaintenanceRequest,
    compact,
    expire_changelogs,
    expire_partitions,
    expire_snapshots,
    expire_tags,
    remove_orphan_files,
)
from paimon_orch.steps.cleanup.quarantine import Quarantine

DURATIONS: dict[str, Callable[[Table, object], object]] = {
    "compact": lambda table, value: compact(table, idle_for=value),  # type: ignore[arg-type]
    "expire_partitions": lambda table, value: expire_partitions(
        table,
        expiration_time=value,  # type: ignore[arg-type]
    ),
    "autopilot": lambda _, value: MaintenanceRequest(visible_within=value),  # type: ignore[arg-type]
    "policy": lambda _, value: CompactionPolicy(max_wait=value),  # type: ignore[arg-type]
    "tag": lambda table, value: table.tags.create("new", time_retained=value),  # type: ignore[arg-type]
    "quarantine": lambda table, value: Quarantine.of(table).empty(value),  # type: ignore[arg-type]
}
TIMES: dict[str, Callable[[Table, object], object]] = {
    "expire_snapshots": lambda table, value: expire_snapshots(table, older_than=value),  # type: ignore[arg-type]
    "expire_changelogs": lambda table, value: expire_changelogs(table, older_than=value),  # type: ignore[arg-type]
    "expire_tags": lambda table, value: expire_tags(table, older_than=value),  # type: ignore[arg-type]
    "remove_orphan_files": lambda table, value: remove_orphan_files(table, older_than=value),  # type: ignore[arg-type]
    "scan": lambda table, value: table.scan(timestamp=value).count(),  # type: ignore[arg-type]
    "rollback": lambda table, value: table.rollback(timestamp=value),  # type: ignore[arg-type]
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        "dt STRING, v INT",
        partition_by=["dt"],
        options={"partition.timestamp-formatter": "yyyy-MM-dd"},
    )
    table.append(table_of("dt v", [("2026-01-01", 1)]))
    table.tags.create("old")
    return table


@pytest.mark.parametrize("call", DURATIONS)
def test_durations_are_timedeltas_or_texts(table: Table, call: str) -> None:
    for value in (timedelta(days=9_999), "9999 d"):
        DURATIONS[call](table, value)
        if "new" in table.tags.names():
            table.tags.delete("new")


@pytest.mark.parametrize("call", DURATIONS)
@pytest.mark.parametrize("value", ["soon", "30", 1.5, timedelta(days=-1), np.timedelta64(1, "D")])
def test_what_is_no_duration_is_refused(table: Table, call: str, value: object) -> None:
    with pytest.raises(InputError, match=r"not a duration|is negative"):
        DURATIONS[call](table, value)


@pytest.mark.parametrize("call", TIMES)
@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1),
        "2026-01-01T00:00:00Z",
        1_767_225_600_000,
        np.int64(1_767_225_600_000),
    ],
)
def test_times_are_milliseconds_datetimes_or_texts(table: Table, call: str, value: object) -> None:
    if call in ("scan", "rollback"):
        with pytest.raises(NotFoundError, match=r"no snapshot at or before 202[56]-"):
            TIMES[call](table, value)
    else:
        TIMES[call](table, value)
        assert table.tags.names() == ["old"]


@pytest.mark.parametrize("call", TIMES)
@pytest.mark.parametrize("value", ["soon", 1.5, timedelta(days=1), np.timedelta64(1, "D")])
def test_what_is_no_time_is_refused(table: Table, call: str, value: object) -> None:
    with pytest.raises(InputError, match="point in time"):
        TIMES[call](table, value)


def test_requests_hold_parsed_values() -> None:
    requested = ExpirePartitionsRequest(expiration_time="2 d")  # type: ignore[arg-type]
    assert requested.expiration_time == timedelta(days=2)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    limits = ExpireSnapshotsRequest(older_than=moment)  # type: ignore[arg-type]
    assert limits.older_than == 1_767_225_600_000


def test_sizes_are_bytes_or_texts() -> None:
    assert CompactionPolicy(max_rewrite=10).rewrite_bytes == 10  # type: ignore[arg-type]
    for value in (1.5, timedelta(1), -1):
        with pytest.raises(InputError, match="must be a text such as '128 mb'"):
            MaintenanceBudgets(max_bytes=value)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="hours are 22"):
        MaintenanceBudgets(hours=22)  # type: ignore[arg-type]


def test_a_range_of_changes_has_ids_or_tags(table: Table) -> None:
    with pytest.raises(InputError, match="two snapshot ids or two tags"):
        table.incremental(datetime(2026, 1, 1, tzinfo=UTC), 1)  # type: ignore[arg-type]
