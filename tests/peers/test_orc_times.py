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
from paimon_orch.steps import check

EPOCH = dt.datetime(1970, 1, 1)
HOUR = 3600 * 10**6
ZONES = [
    "Asia/Shanghai",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Monrovia",
    "Europe/Amsterdam",
    "EST",
    "GMT+05:30",
    "PST",
]
COLUMNS = "k INT, t TIMESTAMP(6), i TIMESTAMP(6) WITH LOCAL TIME ZONE, r ROW<t TIMESTAMP(3)>, a ARRAY<TIMESTAMP(6) WITH LOCAL TIME ZONE>"


@pytest.fixture(params=["UTC", *ZONES])
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
