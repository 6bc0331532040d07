"""Paimon's connector for Spark and this library read, change and compact each other's tables.

The connector is downloaded from the Maven repository; without mvn or the connector the tests are
skipped. The variable PAIMON_SPARK_JAR names another jar of the connector.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import assert_rows_equal
from support.peers import ours
from support.peers.column_exchange import assert_peer_reads, assert_peer_writes
from support.peers.columns import COLUMN_LIMITS, COLUMNS, FORMATS
from support.peers.environments import SPARK
from support.peers.kinds import KINDS, Kind, Record, compact
from support.peers.limits import PeerAction
from support.peers.peers import OpenPeer, Peer

# The list has only some kinds, because each command takes about a second.
TRIED = [
    "append",
    "append, fixed buckets",
    "append, ORC files",
    "append, Avro files",
    "append, row tracking",
    "partitioned by STRING",
    "append, schema changed",
    "append, 32-bit deletion vectors",
    "append, 64-bit deletion vectors",
    "append, fixed buckets, 32-bit deletion vectors",
    "primary key, partitioned",
    "primary key, rows deleted",
    "primary key, ORC files",
    "primary key, Avro files",
    "primary key, dynamic buckets",
    "primary key, 32-bit deletion vectors",
    "primary key, 64-bit deletion vectors",
    "primary key, schema changed",
    "partial-update",
    "aggregation",
    "first-row",
    "deduplicate, sequence field",
    "a tag",
    "a branch",
]
FULL = compact()

LACKS = {
    "time": "has no TIME",
    "array_of_times": "has no TIME",
    "multiset": "has no MULTISET",
    "multiset_of_numbers": "has no MULTISET",
    "nanos": "has timestamps of 6 digits at most",
    "recent_nanos": "has timestamps of 6 digits at most",
    "array_of_nanos": "has timestamps of 6 digits at most",
    "row_not_null": "gives out no null row that may hold no nulls",
    "date": "takes the first day of year 1 from Python as one two days earlier",
}


@pytest.fixture
def spark_peer(open_peer: OpenPeer) -> Peer:
    return open_peer(SPARK)


def assert_rows(kind: Kind, records: list[Record]) -> None:
    names = list(kind.expected()[0])
    expected_rows, actual_rows = (
        [[row[name] for name in names] for row in rows] for rows in (kind.expected(), records)
    )
    assert_rows_equal(expected_rows, actual_rows)


def assert_both(kind: Kind, warehouse: Path, peer: Peer) -> None:
    assert_rows(kind, ours.read(warehouse, kind))
    assert_rows(kind, peer.read(warehouse, kind.table, **kind.read))


@pytest.mark.parametrize("name", TRIED)
def test_spark_reads_and_compacts_our_tables(spark_peer: Peer, name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    ours.create_and_run_steps(tmp_path, kind)
    assert_both(kind, tmp_path, spark_peer)
    spark_peer.run(warehouse=tmp_path, **FULL)
    assert_both(kind, tmp_path, spark_peer)


@pytest.mark.parametrize("name", TRIED)
def test_we_read_and_compact_tables_of_spark(spark_peer: Peer, name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    spark_peer.run("create", tmp_path / "t", spec=ours.table_spec(kind))
    for step in kind.steps:
        spark_peer.run(warehouse=tmp_path / "t", **step)
    assert_both(kind, tmp_path / "t", spark_peer)
    ours.run_step(tmp_path / "t", FULL)
    assert_both(kind, tmp_path / "t", spark_peer)


def supported_columns(does: PeerAction, kind: str) -> list[str]:
    lacking = {column for *case, column in COLUMN_LIMITS if case == ["java-1.4", does, kind]}
    return sorted(COLUMNS.keys() - LACKS.keys() - lacking)


@pytest.mark.parametrize("kind", FORMATS)
def test_spark_reads_every_type(spark_peer: Peer, kind: str, tmp_path: Path) -> None:
    refused = {column for who, _, where, column in COLUMN_LIMITS if (who, where) == ("us", kind)}
    assert_peer_reads(
        spark_peer,
        tmp_path,
        kind,
        [c for c in supported_columns("reads", kind) if c not in refused],
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_we_read_every_type_of_spark(spark_peer: Peer, kind: str, tmp_path: Path) -> None:
    assert_peer_writes(spark_peer, tmp_path, kind, supported_columns("writes", kind))
