"""Record-level expiration: compaction drops rows that are expired at planning time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.golden import GOLDEN, assert_rows_equal, canonical_rows, copy_warehouse, expected_rows
from support.tables import assert_healthy, levels_of, rows_of, small_batches

from paimon_orch import Catalog
from paimon_orch.merge.engine.record_level_expire import RecordLevelExpire
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.table.schema_change.schema_changes import SetOption, UpdateType
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
VECTORS = {"deletion-vectors.enabled": "true"}


def table_of(root: Path, time_type: str = "INT", **options: str) -> Table:
    named = {"bucket": "1", "record-level.expire-time": "1 h", "record-level.time-field": "at"}
    return Catalog(str(root)).create_table(
        "db.t", f"k INT, at {time_type}", primary_key=["k"], options=named | options
    )


def value_of_time(time: datetime, time_type: str) -> Any:
    seconds = int(time.timestamp())
    if time_type == "BIGINT of milliseconds":
        return seconds * 1000
    return time.replace(tzinfo=None) if time_type.startswith("TIMESTAMP") else seconds


def write(table: Table, times: dict[int, Any]) -> None:
    kind = table.scan().arrow_schema.field("at").type
    keys = pa.array(list(times), pa.int32())
    table.upsert(pa.table({"k": keys, "at": pa.array(list(times.values()), kind)}))


def compact(table: Table, now: datetime, strategy: step.CompactionStrategy = "full") -> None:
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
def test_rows_expire_by_time_fields_of_every_allowed_type(tmp_path: Path, time_type: str) -> None:
    table = table_of(tmp_path, time_type.split(maxsplit=1)[0])
    hours = {1: 0.0, 2: -0.5, 3: -1.0, 4: -1.5}
    times = {k: value_of_time(NOON + timedelta(hours=h), time_type) for k, h in hours.items()}
    write(table, times | {5: None})
    assert keys_of(table) == [1, 2, 3, 4, 5], "a read expires no rows"

    compact(table, NOON)

    assert keys_of(table) == [1, 2, 3, 5]
    assert_healthy(table)


def test_a_file_on_the_highest_level_is_rewritten_once_it_has_an_expired_row(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path)
    write(
        table, {1: value_of_time(NOON, "INT"), 2: value_of_time(NOON + timedelta(hours=2), "INT")}
    )
    compact(table, NOON)
    compact(table, NOON + timedelta(minutes=59))
    assert table.stores.snapshots.latest_id() == 2, "no row is expired"

    compact(table, NOON + timedelta(hours=2))

    assert keys_of(table) == [2]
    compact(table, NOON + timedelta(hours=9))
    assert keys_of(table) == []


@pytest.mark.parametrize("options", [{}, VECTORS, {"changelog-producer": "lookup"}])
def test_an_expired_row_does_not_reappear_when_its_key_is_written_again(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = table_of(tmp_path, **options, **{"merge-engine": "partial-update"})
    write(table, {k: value_of_time(NOON, "INT") for k in range(20)})
    compact(table, NOON)
    later = NOON + timedelta(hours=5)
    write(table, {3: value_of_time(later, "INT"), 4: None})

    compact(table, later, "minor")
    compact(table, later)

    assert dict(rows_of(table)) == {3: value_of_time(later, "INT"), 4: None}
    assert_healthy(table)


def test_all_rows_of_a_section_can_expire(tmp_path: Path) -> None:
    table = small_batches(table_of(tmp_path, **VECTORS), 3)
    write(table, {k: value_of_time(NOON, "INT") for k in range(20)})
    write(
        table, {k: value_of_time(NOON + timedelta(hours=3 * (k % 2)), "INT") for k in range(5, 30)}
    )

    compact(table, NOON + timedelta(hours=3))

    assert keys_of(table) == [k for k in range(5, 30) if k % 2]
    assert set(levels_of(table)) == {5}
    assert_healthy(table)


def test_missing_statistics_and_those_of_another_schema_are_not_used(tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"metadata.stats-mode": "none"})
    write(table, {1: 0})
    (split,) = table.files()
    expiry = RecordLevelExpire.of(table.load().schema, now=10**9)

    assert expiry is not None
    assert not expiry.touches(split.files[0], {0: table.load().schema})


@pytest.mark.parametrize(("stored", "day"), [("DATE", 20_000), ("TIME(3)", 0), ("STRING", "5")])
def test_statistics_of_a_type_that_holds_no_time_do_not_expire_a_file(
    tmp_path: Path, stored: str, day: object
) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table(
        "db.t", f"k INT, at {stored}", primary_key=["k"], options={"bucket": "1"}
    )
    write(table, {1: day})
    compact(table, NOON)
    new_type = "INT" if stored == "STRING" else "TIMESTAMP(3)"
    options = {"record-level.time-field": "at", "record-level.expire-time": "1 h"}
    changes = [SetOption(key, value) for key, value in options.items()]
    catalog.alter_table("db.t", [UpdateType("at", new_type), *changes])

    compact(table, NOON)

    assert levels_of(table) == [5]
    assert keys_of(table) == [1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{}, VECTORS, {"changelog-producer": "lookup"}])
def test_a_full_compaction_drops_expired_rows_and_merges_the_others(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Times are not monotonic and deletes have times, so merged rows differ from visible rows."""
    random, named = np.random.default_rng(17), {"write-only": "true", **options}
    table = small_batches(table_of(tmp_path, **named), 3)
    seconds, versions = int(NOON.timestamp()), dict[int, list[tuple[int, str]]]()
    for turn in range(12):
        keys = random.permutation(9)[:5].tolist()
        times = [seconds + int(random.integers(-7200, 7200)) for _ in keys]
        kinds = random.choice(["+I", "+I", "-D"], 5).tolist()
        table.upsert(pa.table({"k": keys, "at": times, "kind": kinds}), row_kind="kind")
        for key, time, kind in zip(keys, times, kinds, strict=True):
            versions.setdefault(key, []).append((time, kind))
        if turn % 3 < 2:
            continue
        now = NOON + timedelta(minutes=10 * turn)

        compact(table, now)

        live_keys = {
            key: [version for version in rows if now.timestamp() <= version[0] + 3600][-1:]
            for key, rows in versions.items()
        }
        versions = {key: rows for key, rows in live_keys.items() if rows and rows[0][1] == "+I"}
        assert dict(rows_of(table)) == {key: rows[0][0] for key, rows in versions.items()}
    assert_healthy(table)


def test_an_older_row_reappears_when_the_row_or_delete_that_replaced_it_expires(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path)
    early, late = value_of_time(NOON, "INT"), value_of_time(NOON + timedelta(hours=9), "INT")
    write(table, {1: late, 2: late, 3: late})
    deleted = pa.table({"k": [2], "at": [early], "kind": ["-D"]})
    table.upsert(deleted, row_kind="kind")
    write(table, {1: early})

    compact(table, NOON + timedelta(hours=2))

    assert dict(rows_of(table)) == {1: late, 2: late, 3: late}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_lookup_ignores_expired_rows_and_readers_see_each_key_once(
    tmp_path: Path, engine: str, vectors: str
) -> None:
    named = {"changelog-producer": "lookup", "deletion-vectors.enabled": vectors}
    table = table_of(tmp_path, **named, **{"merge-engine": engine})
    later = value_of_time(NOON + timedelta(hours=5), "INT")
    base = dict.fromkeys(range(5000), later) | {1: value_of_time(NOON, "INT")}
    write(table, base)
    compact(table, NOON)
    write(table, {1: later, 2: later})

    compact(table, NOON + timedelta(hours=5), "minor")

    assert sorted(levels_of(table)) == [4, 5], "the file of the old rows was not rewritten"
    assert dict(rows_of(table)) == base | {1: later}
    snapshot = table.snapshot()
    assert snapshot is not None
    changes = table.incremental(snapshot.id - 1, snapshot.id, "changelog").to_arrow()
    kinds = list(zip(changes["rowkind"].to_pylist(), changes["k"].to_pylist(), strict=True))
    assert kinds == [("+I", 1), ("-U", 2), ("+U", 2)]
    assert_healthy(table)


def test_a_lookup_continues_on_higher_levels_after_an_expired_row(tmp_path: Path) -> None:
    options = {"changelog-producer": "lookup", "num-sorted-run.compaction-trigger": "9"}
    table = table_of(tmp_path, **options)
    early, later = value_of_time(NOON, "INT"), value_of_time(NOON + timedelta(hours=5), "INT")
    write(table, dict.fromkeys(range(90_000), later))
    compact(table, NOON)
    write(table, dict.fromkeys(range(3000), early))
    compact(table, NOON, "minor")
    write(table, {1: later})

    compact(table, NOON + timedelta(hours=5), "minor")

    assert len(set(levels_of(table))) == 3
    snapshot = table.snapshot()
    assert snapshot is not None
    changes = table.incremental(snapshot.id - 1, snapshot.id, "changelog").to_arrow()
    assert changes.select(["rowkind", "k", "at"]).to_pylist() == [
        {"rowkind": "-U", "k": 1, "at": later},
        {"rowkind": "+U", "k": 1, "at": later},
    ]


def test_a_first_row_is_kept_until_a_compaction_drops_it(tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"merge-engine": "first-row"})
    later = value_of_time(NOON + timedelta(hours=5), "INT")
    base = dict.fromkeys(range(5000), later) | {1: value_of_time(NOON, "INT")}
    write(table, base)
    compact(table, NOON)
    write(table, {1: later, 9999: later})

    compact(table, NOON + timedelta(hours=5), "minor")

    assert dict(rows_of(table)) == base | {9999: later}


def test_java_20_keeps_the_same_rows_after_expiration(tmp_path: Path) -> None:
    folder = GOLDEN / "java-2.0" / "record_expire"
    (entry,) = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["tables"]
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table("db.t")
    newest = expected_rows(entry["snapshots"][-1])
    assert_rows_equal(newest, canonical_rows(table.scan().to_arrow()))

    step.compact(table, EXECUTOR, strategy="full")

    # In Java 2.0, a full compaction drops the row of 2001, and the row of 2033 that it replaced
    # appears again.
    expected = [row for row in newest if row[2] is None or row[2] > 10**9] + [[28, "", 2 * 10**9]]
    assert_rows_equal(expected, canonical_rows(table.scan().to_arrow()))
