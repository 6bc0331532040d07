"""Versions and changes are selected by the names of Java Paimon and Spark too."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pendulum
import pytest
from support.tables import new_table, table_of

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.spark.datasource.datasource_options import DataSourceOptions
from paimon_orch.spark.datasource.option_names import (
    READ_OPTIONS,
    STREAM_READ_OPTIONS,
    WRITE_OPTIONS,
)
from paimon_orch.spark.datasource.version_options import build_rows, check_scan_mode

if TYPE_CHECKING:
    from paimon_orch.table.table import Table


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Four snapshots, each with one more row; tags: a (1) and c (3)."""
    table = new_table(tmp_path_factory.mktemp("history"), key=(), bucket="-1")
    for k in range(1, 5):
        table.append(table_of("k v", [(k, "x")]))
    table.tags.create("a", 1)
    table.tags.create("c", 3)
    return table


def keys_of(table: Table, options: dict[str, str]) -> list[int]:
    location = {"path": table.paths.root}
    parsed = DataSourceOptions.of(location | options, READ_OPTIONS)
    check_scan_mode(parsed)
    return sorted(build_rows(parsed, None).to_arrow()["k"].to_pylist())


def millis_of(table: Table, snapshot_id: int) -> int:
    snapshot = table.snapshot(snapshot_id)
    assert snapshot is not None
    return snapshot.time_millis


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"scan.snapshot-id": "2"}, [1, 2]),
        ({"SCAN.Tag-Name": "c"}, [1, 2, 3]),
        ({"versionAsOf": "3"}, [1, 2, 3]),
        ({"versionAsOf": "a"}, [1]),
        ({"scan.version": "c", "scan.mode": "from-snapshot"}, [1, 2, 3]),
        ({"scan.mode": "latest-full"}, [1, 2, 3, 4]),
        ({"scan.mode": "full"}, [1, 2, 3, 4]),
        ({"scan.mode": "default", "snapshot": "1"}, [1]),
        ({"incremental-between": "1,3"}, [2, 3]),
        ({"incremental-between": "a,c", "scan.mode": "incremental"}, [2, 3]),
        ({"incremental-between": "1,3", "incremental-between-scan-mode": "diff"}, [2, 3]),
    ],
)
def test_versions_have_the_names_of_paimon_and_spark(
    history: Table, options: dict[str, str], keys: list[int]
) -> None:
    assert keys_of(history, options) == keys


def test_a_version_is_a_tag_before_it_is_a_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    for k in (1, 2):
        table.append(table_of("k v", [(k, "x")]))
    table.tags.create("v2", 1)
    tags = Path(table.paths.root) / "tag"
    (tags / "tag-2").write_bytes((tags / "tag-v2").read_bytes())  # older versions allow this name

    assert keys_of(table, {"versionAsOf": "2"}) == [1]
    assert keys_of(table, {"snapshot": "2"}) == [1, 2]


@pytest.fixture
def in_tokyo() -> Iterator[None]:
    with pendulum.test_local_timezone(pendulum.timezone("Asia/Tokyo")):
        yield


@pytest.mark.usefixtures("in_tokyo")
def test_times_have_the_zone_that_their_name_implies(history: Table) -> None:
    second = datetime(2026, 1, 31, 12)
    options = {
        name: DataSourceOptions.of({name: second.isoformat(" ")}, READ_OPTIONS)
        for name in ("timestamp", "scan.timestamp", "timestampAsOf")
    }
    utc = pendulum.instance(second, "UTC").int_timestamp * 1000

    millis = {name: each.epoch_millis("timestamp") for name, each in options.items()}

    assert millis == {
        "timestamp": utc,
        "scan.timestamp": utc - 9 * 3_600_000,
        "timestampAsOf": utc - 9 * 3_600_000,
    }
    assert [each.session_local_time is None for each in options.values()] == [True, True, False]
    exact = DataSourceOptions.of({"timestampAsOf": "2026-01-31T12:00:00Z"}, READ_OPTIONS)
    assert exact.session_local_time is None
    assert keys_of(history, {"scan.timestamp-millis": str(millis_of(history, 4))})[-1] == 4


def test_changes_between_times_follow_the_commit_times(history: Table) -> None:
    first, last = millis_of(history, 1), millis_of(history, 4)

    def between(start: int, end: int, **options: str) -> list[int]:
        return keys_of(history, {"incremental-between-timestamp": f"{start},{end}", **options})

    assert between(first - 1, last) == [1, 2, 3, 4]
    assert between(last, last + 1000) == []
    assert between(first - 2, first - 1) == []
    # before the first snapshot, the table is empty
    assert 1 in between(first - 1, last, **{"incremental-mode": "diff"})
    with pytest.raises(InputError, match=r"the first time, .* is after the last"):
        between(last, first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"scan.snapshot-id": "1", "snapshot": "1"},
            "scan.snapshot-id and snapshot are names of the same option",
        ),
        (
            {"scan.timestamp": "2026-01-01", "timestampAsOf": "2026-01-01"},
            "scan.timestamp and timestampAsOf are names of the same option",
        ),
        ({"versionAsOf": "1", "scan.tag-name": "a"}, "scan.tag-name and versionAsOf cannot be"),
        ({"versionAsOf": "1", "incremental-between": "1,2"}, "versionAsOf and incremental-between"),
        ({"scan.snapshot-id": "x"}, "option scan.snapshot-id must be an integer, not 'x'"),
        ({"scan.timestamp-millis": "2026-01-01"}, "scan.timestamp-millis must be an integer"),
        ({"scan.timestamp": "1767225600000"}, "scan.timestamp must be ISO 8601, not"),
        ({"timestampAsOf": "12:00"}, "timestampAsOf must be ISO 8601, not '12:00'"),
        ({"versionAsOf": "b"}, "versionAsOf = 'b' is neither a tag of .*, nor the id"),
        ({"scan.mode": "compacted-full"}, "scan.mode of a batch read must be one of default, "),
        ({"scan.mode": "latest", "tag": "a"}, "scan.mode = latest requires no version, but tag"),
        (
            {"scan.mode": "from-timestamp", "versionAsOf": "1"},
            "from-timestamp requires one of the options timestamp, but versionAsOf is set",
        ),
        ({"scan.mode": "incremental"}, "requires one of the options incremental-between, .* none"),
        ({"incremental-between": "1,2,3"}, "must be a..b or a,b"),
        ({"incremental-between": "a,x"}, "there is no tag x|tag .*'?x'?"),
        ({"incremental-between-timestamp": "1"}, "must be two times, ISO 8601 or epoch"),
        ({"incremental-between-timestamp": "noon,1"}, "must be two times"),
    ],
)
def test_conflicts_and_invalid_values_are_refused_by_the_name_that_is_set(
    history: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises((InputError, NotFoundError), match=message):
        keys_of(history, options)


def test_streams_have_the_names_of_paimon_and_writes_have_no_version() -> None:
    stream = DataSourceOptions.of(
        {"scan.mode": "from-snapshot", "scan.snapshot-id": "4"}, STREAM_READ_OPTIONS
    )

    assert stream.values == {"scan-mode": "from-snapshot", "from-snapshot": "4"}
    with pytest.raises(
        InputError, match=r"unknown option scan\.tag-name; .* as in Paimon and Spark"
    ):
        DataSourceOptions.of({"scan.tag-name": "a"}, STREAM_READ_OPTIONS)
    with pytest.raises(InputError, match="unknown option versionasof"):
        DataSourceOptions.of({"versionAsOf": "1"}, WRITE_OPTIONS)
