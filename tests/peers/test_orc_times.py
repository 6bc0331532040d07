"""Timestamps of ORC files that Java wrote in any time zone are read as Java reads them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.steps import check, compact
from paimon_orch.table.schema_change.schema_changes import SetOption

EPOCH = dt.datetime(1970, 1, 1)
HOUR = 3600 * 10**6
ZONES = [
    "Asia/Shanghai",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Monrovia",
    "Africa/Casablanca",
    "Africa/Windhoek",
    "Asia/Gaza",
    "Europe/Amsterdam",
    "EST",
    "GMT+05:30",
    "PST",
    "CST6CDT",
    "WET",
]
COLUMNS = "k INT, t TIMESTAMP(6), i TIMESTAMP(6) WITH LOCAL TIME ZONE, r ROW<t TIMESTAMP(3)>, a ARRAY<TIMESTAMP(6) WITH LOCAL TIME ZONE>"


@pytest.fixture(scope="module", params=["UTC", *ZONES])
def java_in_zone(request: pytest.FixtureRequest) -> Iterator[Peer]:
    peer = Peer("java-2.0", request.param)
    yield peer
    peer.close()


def random_times(seed: str) -> list[int]:
    """Return microseconds since 1970, many of them near it, others from 1680 to 2260."""
    chance = random.Random(seed)  # noqa: S311 - data, not a secret
    ranges = [
        (-30 * HOUR, 30 * HOUR),
        (-60 * 10**6, 60 * 10**6),
        (-2 * 10**15, 3 * 10**15),
        (-9 * 10**15, -2 * 10**15),
        (2 * 10**15, 9 * 10**15),
    ]
    times = [chance.randrange(*ranges[n % 5]) for n in range(600)]
    return [time - time % 10**6 if n % 4 == 0 else time for n, time in enumerate(times)]


def text_of(micros: int) -> str:
    return (EPOCH + dt.timedelta(microseconds=micros)).isoformat()


def micros_of(text: str) -> int:
    return (dt.datetime.fromisoformat(text.removesuffix("Z")) - EPOCH) // dt.timedelta(
        microseconds=1
    )


@pytest.mark.parametrize("legacy", ["true", "false"])
def test_times_of_java_in_a_zone_are_those_that_java_reads(
    java_in_zone: Peer, tmp_path: Path, legacy: str
) -> None:
    options = {"bucket": "-1", "file.format": "orc", "orc.timestamp-ltz.legacy.type": legacy}
    table = Catalog(str(tmp_path)).create_table("db.t", COLUMNS, options=options)
    times = [text_of(time) for time in random_times(legacy)]
    rows = [
        {"_kind": "+I", "k": k, "t": time, "i": time, "r": {"t": time[:23]}, "a": [time]}
        for k, time in enumerate(times)
    ]
    java_in_zone.run("write", tmp_path, rows=rows)
    expected = {row["k"]: row for row in java_in_zone.read(tmp_path)}

    stored = table.scan().to_arrow().sort_by("k")
    columns = {
        "t": stored["t"],
        "i": stored["i"],
        "r": stored["r"].combine_chunks().field("t").cast(pa.timestamp("us")),
        "a": stored["a"].combine_chunks().flatten(),
    }
    found = {name: column.cast(pa.int64()).to_pylist() for name, column in columns.items()}
    for k, row in expected.items():
        assert found["t"][k] == micros_of(row["t"])
        assert found["i"][k] == micros_of(row["i"])
        assert found["r"][k] == micros_of(row["r"]["t"])
        assert found["a"][k] == micros_of(row["a"][0])
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize("java_in_zone", ["Asia/Shanghai"], indirect=True)
@pytest.mark.parametrize("key", [[], ["k"]], ids=["append", "primary key"])
def test_a_rewrite_as_parquet_keeps_the_instants_that_java_in_a_zone_reads(
    java_in_zone: Peer, tmp_path: Path, key: list[str]
) -> None:
    catalog = Catalog(str(tmp_path))
    options = {"bucket": "1" if key else "-1", "file.format": "orc", "write-only": "true"}
    options["compaction.min.file-num"] = "2"
    table = catalog.create_table("db.t", COLUMNS, primary_key=key, options=options)
    times = [text_of(time - time % 1000) for time in random_times("rewrite")]
    rows = [
        {"_kind": "+I", "k": k, "t": time, "i": time, "r": {"t": time[:23]}, "a": [time]}
        for k, time in enumerate(times)
    ]
    for part in (rows[:400], rows[400:]):
        java_in_zone.run("write", tmp_path, rows=part)
    expected = sorted(java_in_zone.read(tmp_path), key=lambda row: row["k"])

    with pytest.raises(UnsupportedError, match="time zone Asia/Shanghai"):
        compact(table, strategy="full")
    assert sorted(java_in_zone.read(tmp_path), key=lambda row: row["k"]) == expected

    catalog.alter_table("db.t", [SetOption("file.format", "parquet")])
    compact(catalog.table("db.t"), strategy="full")
    assert not [
        file for split in table.stores.files() for file in split.files if "orc" in file.file_name
    ]
    assert sorted(java_in_zone.read(tmp_path), key=lambda row: row["k"]) == expected


def test_instants_of_a_zone_that_the_file_does_not_name_are_refused(
    java_in_zone: Peer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = {"bucket": "-1", "file.format": "orc"}
    columns = "k INT, i TIMESTAMP(6) WITH LOCAL TIME ZONE"
    table = Catalog(str(tmp_path)).create_table("db.t", columns, options=options)
    rows = [{"_kind": "+I", "k": n, "i": f"2024-0{n}-01T12:00:00.000123"} for n in range(1, 7)]
    java_in_zone.run("write", tmp_path, rows=[*rows, {"_kind": "+I", "k": 0, "i": None}])

    assert table.scan(["k"]).to_arrow().num_rows == 7
    zone = request.node.callspec.params["java_in_zone"]
    if zone in ("UTC", "Africa/Monrovia"):  # Monrovia has the time of UTC since 1972
        found = table.scan(["i"]).to_arrow()["i"].cast(pa.int64()).to_pylist()
        assert sorted(filter(None, found)) == [micros_of(str(row["i"])) for row in rows]
        return
    with pytest.raises(UnsupportedError, match=r"column 'i' in a time zone [+-]\d+ minutes from"):
        table.scan().to_arrow()
