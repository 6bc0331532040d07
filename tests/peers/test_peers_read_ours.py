"""What we write, the other implementations read: the same rows after every step of a table's life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden import assert_rows_equal, canonical_rows, rows_of
from peers import peers
from tables import assert_healthy, levels_of, new_table, vectors_of

from paimon_orch.steps.compact import compact
from paimon_orch.steps.executor import InProcessExecutor
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
Dump = Callable[..., list[peers.Record]]
READERS: dict[str, tuple[str, Dump]] = {
    "pypaimon": ("pypaimon", peers.dump_pypaimon),
    "rust": ("pypaimon_rust", peers.dump_rust),
    "java": ("java_oracle", peers.dump_java),
}


@dataclass(frozen=True)
class Peer:
    """One reader; Java also checks the table."""

    name: str
    dump: Dump

    def assert_agrees(self, warehouse: Path, table: Table) -> None:
        rows = table.scan().to_arrow()
        types = [str(kind) for kind in rows.schema.types]
        found = rows_of(self.dump(warehouse, "db.t"), rows.column_names)
        assert_rows_equal(canonical_rows(rows), found, types)
        if self.name == "java":
            assert peers.check_java(warehouse, "db.t", deep=True) == []


@pytest.fixture(params=READERS)
def peer(request: pytest.FixtureRequest) -> Peer:
    fixture, dump = READERS[request.param]
    request.getfixturevalue(fixture)
    return Peer(request.param, dump)


BOARD = """
    flight_month STRING, time_hour TIMESTAMP(3), carrier STRING, flight INT, status STRING, dep_delay INT
"""


def flights(
    numbers: range, status: str, delay: int | None = None, month: str | None = None
) -> pa.Table:
    months = [month or f"2013-0{1 + number % 2}" for number in numbers]
    return pa.table(
        {
            "flight_month": months,
            "time_hour": [datetime(2013, 1, 1, number % 24) for number in numbers],
            "carrier": [("UA", "DL", "ÅB")[number % 3] for number in numbers],
            "flight": pa.array(numbers, pa.int32()),
            "status": [status] * len(numbers),
            "dep_delay": pa.array([delay] * len(numbers), pa.int32()),
        }
    )


def board(root: Path, **options: str) -> Table:
    return new_table(
        root,
        BOARD,
        key=("flight_month", "time_hour", "carrier", "flight"),
        partition_by=["flight_month"],
        bucket="2",
        **options,
    )


@pytest.mark.parametrize("bitmap64", ["false", "true"], ids=["32 bit", "64 bit"])
def test_the_flight_board_through_all_its_waves(tmp_path: Path, peer: Peer, bitmap64: str) -> None:
    if peer.name != "rust" and bitmap64 == "true":
        pytest.skip("Java 0.9 and pypaimon 2.1.0 know no 64-bit vectors")
    table = board(tmp_path, deletion_vectors__enabled="true", deletion_vectors__bitmap64=bitmap64)
    table.upsert(flights(range(300), "SCHEDULED"))
    compact(table, EXECUTOR)
    table.upsert(flights(range(200), "DEPARTED", -3))
    compact(table, EXECUTOR)
    assert vectors_of(table)
    peer.assert_agrees(tmp_path, table)

    table.upsert(flights(range(50, 150), "ARRIVED", 7))
    table.delete(flights(range(280, 300), "SCHEDULED"))
    compact(table, EXECUTOR)
    table.upsert(flights(range(10), "LATE"))  # waits on level 0, where no batch reader looks
    peer.assert_agrees(tmp_path, table)

    compact(table, EXECUTOR, partitions=["flight_month=2013-01"], strategy="full")
    peer.assert_agrees(tmp_path, table)
    compact(table, EXECUTOR, strategy="full")
    assert not vectors_of(table)
    peer.assert_agrees(tmp_path, table)
    assert_healthy(table)


def test_a_table_that_is_merged_on_read(tmp_path: Path, peer: Peer) -> None:
    table = board(tmp_path, num_sorted_run__compaction_trigger="3")
    table.upsert(flights(range(100), "SCHEDULED"))
    table.upsert(flights(range(50), "DEPARTED", 1))
    table.delete(flights(range(90, 100), "SCHEDULED"))
    peer.assert_agrees(tmp_path, table)

    compact(table, EXECUTOR)
    table.upsert(flights(range(20), "ARRIVED", 2))
    peer.assert_agrees(tmp_path, table)

    compact(table, EXECUTOR, strategy="full")
    assert set(levels_of(table)) == {2 + 1}
    peer.assert_agrees(tmp_path, table)


def test_a_partition_is_overwritten(tmp_path: Path, peer: Peer) -> None:
    table = board(tmp_path)
    table.upsert(flights(range(40), "SCHEDULED"))

    table.overwrite(flights(range(5), "REPLACED", month="2013-02"))

    peer.assert_agrees(tmp_path, table)


@pytest.mark.parametrize("bucket", ["-1", "3"])
def test_tables_without_a_key(tmp_path: Path, peer: Peer, bucket: str) -> None:
    options = {"bucket_key": "carrier"} if bucket == "3" else {}
    table = new_table(tmp_path, BOARD, key=(), bucket=bucket, **options)
    table.append(flights(range(60), "SCHEDULED"))
    table.append(flights(range(60), "SCHEDULED"))

    peer.assert_agrees(tmp_path, table)


PARTITIONS: dict[str, tuple[str, list[Any]]] = {
    "INT": ("INT", [1, -7]),
    "BIGINT": ("BIGINT", [2**40, 0]),
    "DATE": ("DATE", [date(2024, 5, 14), date(1969, 12, 31)]),
    "BOOLEAN": ("BOOLEAN", [True, False]),
    "DECIMAL": ("DECIMAL(10, 2)", [Decimal("12.30"), Decimal(-1)]),
    "STRING": ("STRING", ["a b", "a/b", "=%:", "ü", "__x"]),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partition_values_of_several_types(tmp_path: Path, peer: Peer, name: str) -> None:
    kind, values = PARTITIONS[name]
    table = new_table(
        tmp_path, f"p {kind}, k INT, v STRING", key=("p", "k"), partition_by=["p"], bucket="1"
    )
    target = table.scan().arrow_schema
    rows = pa.table(
        {
            "p": pa.array(values * 2, target.field("p").type),
            "k": pa.array([at // len(values) for at in range(2 * len(values))], pa.int32()),
            "v": ["x"] * (2 * len(values)),
        }
    )
    table.upsert(rows)
    table.upsert(rows.slice(0, 1))

    peer.assert_agrees(tmp_path, table)


KEYS = """
    a BIGINT, b STRING, c DATE, d DECIMAL(20, 3), e TIMESTAMP(6), f BOOLEAN, v DOUBLE
"""


def test_keys_of_many_columns_go_to_the_bucket_that_others_look_into(
    tmp_path: Path, peer: Peer
) -> None:
    table = new_table(
        tmp_path,
        KEYS,
        key=("a", "b", "c", "d", "e", "f"),
        bucket="4",
        deletion_vectors__enabled="true",
    )
    rows = pa.table(
        {
            "a": list(range(60)),
            "b": ["" if n % 5 == 0 else "é" * (n % 20) for n in range(60)],
            "c": [date(1960 + n, 1, 1) for n in range(60)],
            "d": pa.array([Decimal(n - 30) for n in range(60)], pa.decimal128(20, 3)),
            "e": [datetime(1960 + n, 1, 1, microsecond=n) for n in range(60)],
            "f": [n % 2 == 0 for n in range(60)],
            "v": [n / 3 for n in range(60)],
        }
    )
    table.upsert(rows)
    compact(table, EXECUTOR)
    table.upsert(rows.slice(10, 20))
    compact(table, EXECUTOR)

    peer.assert_agrees(tmp_path, table)
