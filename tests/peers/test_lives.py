"""Long histories of tables: rows after every step, and further steps of Java."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.golden import GOLDEN, arrow_table, canonical_rows, copy_warehouse
from support.peers.environments import JAVA
from support.peers.limits import LIMITS
from support.peers.peers import PEERS, Peer, PeerError
from support.tables import assert_healthy, deletion_vectors_of, new_table, table_of

from paimon_orch import Catalog
from paimon_orch.format.types.cast_rules import can_cast
from paimon_orch.format.types.data_types import type_from_json
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetOption,
    UpdateComment,
    UpdateType,
)
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
WIDE = [
    name for name in PEERS if (name, "reads", "primary key, 64-bit deletion vectors") not in LIMITS
]


def records(table: Table, **scan: object) -> list[str]:
    rows = table.scan(**scan).to_arrow()  # type: ignore[arg-type]
    names = rows.column_names
    shown = (dict(zip(names, row, strict=True)) for row in canonical_rows(rows))
    return sorted(json.dumps(record, ensure_ascii=False) for record in shown)


def assert_agrees(peer: Peer, table: Table, tag: str | None = None) -> None:
    """Check that a peer reads what we read."""
    warehouse = Path(table.paths.root).parents[1]
    options = {} if tag is None else {"scan__tag_name": tag}
    peer_rows = peer.read(warehouse, table.identifier, **options)
    assert sorted(json.dumps(r, ensure_ascii=False) for r in peer_rows) == records(table, tag=tag)


BOARD = "flight_month STRING, time_hour TIMESTAMP(3), carrier STRING, flight INT, status STRING, dep_delay INT"


def flights(numbers: range, status: str, delay: int | None = None) -> pa.Table:
    return pa.table(
        {
            "flight_month": [f"2013-0{1 + number % 2}" for number in numbers],
            "time_hour": [datetime(2013, 1, 1, number % 24) for number in numbers],
            "carrier": [("UA", "DL", "ÅB")[number % 3] for number in numbers],
            "flight": pa.array(numbers, pa.int32()),
            "status": [status] * len(numbers),
            "dep_delay": pa.array([delay] * len(numbers), pa.int32()),
        }
    )


def board(root: Path, **options: str) -> Table:
    key = ("flight_month", "time_hour", "carrier", "flight")
    return new_table(root, BOARD, key=key, partition_by=["flight_month"], bucket="2", **options)


# Not all peers support 64-bit deletion vectors; the module `limits` lists those that do.
VECTORS = [(peer, bits) for peer in PEERS for bits in (32, 64) if bits == 32 or peer in WIDE]


@pytest.mark.parametrize(("peer", "bits"), VECTORS, indirect=["peer"])
def test_java_and_we_maintain_the_flight_board_through_all_waves(
    tmp_path: Path, peer: Peer, bits: int
) -> None:
    wide = "true" if bits == 64 else "false"
    table = board(tmp_path, deletion_vectors__enabled="true", deletion_vectors__bitmap64=wide)
    table.upsert(flights(range(300), "SCHEDULED"))
    compact(table, EXECUTOR)
    table.upsert(flights(range(200), "DEPARTED", -3))
    compact(table, EXECUTOR)
    assert deletion_vectors_of(table)
    assert_agrees(peer, table)

    table.upsert(flights(range(50, 150), "ARRIVED", 7))
    table.delete(flights(range(280, 300), "SCHEDULED"))
    compact(table, EXECUTOR)
    table.upsert(flights(range(10), "LATE"))  # these rows are on level 0, which batch readers skip
    assert_agrees(peer, table)

    compact(table, EXECUTOR, partitions=["flight_month=2013-01"], strategy="full")
    assert_agrees(peer, table)
    compact(table, EXECUTOR, strategy="full")
    assert not deletion_vectors_of(table)
    assert_agrees(peer, table)
    assert_healthy(table)


@pytest.mark.parametrize("peer", PEERS, indirect=True)
def test_java_and_we_maintain_a_merge_on_read_table(tmp_path: Path, peer: Peer) -> None:
    table = board(tmp_path, num_sorted_run__compaction_trigger="3")
    table.upsert(flights(range(100), "SCHEDULED"))
    table.upsert(flights(range(50), "DEPARTED", 1))
    table.delete(flights(range(90, 100), "SCHEDULED"))
    assert_agrees(peer, table)

    compact(table, EXECUTOR)
    table.upsert(flights(range(20), "ARRIVED", 2))
    assert_agrees(peer, table)

    compact(table, EXECUTOR, strategy="full")
    assert_agrees(peer, table)


@pytest.mark.parametrize("peer", JAVA, indirect=True)
def test_java_reads_and_alters_tables_that_we_altered(tmp_path: Path, peer: Peer) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING, n INT, gone INT, r ROW<x INT, y STRING>")
    columns = "k v n gone r"
    table.upsert(table_of(columns, [(1, "a", 1, 1, {"x": 1, "y": "p"}), (2, "b", None, 2, None)]))
    catalog = Catalog(str(tmp_path))

    catalog.alter_table(
        "db.t",
        [
            AddColumn(column="added", type="DOUBLE", comment="new", after="k"),
            DropColumn("gone"),
            RenameColumn("v", "title"),
            UpdateType("n", "BIGINT"),
            MoveColumn("n", "first"),
            SetOption("snapshot.num-retained.max", "99"),
            UpdateComment("evolved"),
        ],
    )
    table = catalog.table("db.t")
    rows = [(2**40, 2, 0.5, "c", {"x": 3, "y": "q"}), (4, 4, None, "d", None)]
    table.upsert(table_of("n k added title r", rows))

    assert_agrees(peer, table)
    peer.run("alter", tmp_path, changes=[["rename", "title", "name"]])
    assert table.load().schema.names == ["n", "k", "added", "name", "r"]
    assert_agrees(peer, table)


@pytest.mark.parametrize("peer", JAVA, indirect=True)
def test_java_reads_our_tags_and_branches_and_our_rollback(
    tmp_path: Path, peer: Peer, referee: Peer
) -> None:
    table = new_table(tmp_path)
    for text in ("1", "2", "3"):
        table.upsert(table_of("k v", [(1, text), (int(text) + 1, text)]))
    table.tags.create("plain", 1)
    table.tags.create("timed", 2, time_retained=timedelta(days=365.5))
    table.tags.rename("plain", "renamed")

    for tag in ("renamed", "timed"):
        assert_agrees(peer, table, tag=tag)

    table.branches.create("dev", "timed")
    dev = Catalog(str(tmp_path)).table("db.t$branch_dev")
    dev.upsert(table_of("k v", [(9, "dev")]))
    assert_agrees(peer, dev)
    table.branches.fast_forward("dev")
    assert_agrees(peer, table)

    table.rollback(tag="renamed", delete_tags=True)
    assert_agrees(peer, table)
    assert referee.check(tmp_path) == []
    peer.run("write", tmp_path, rows=[{"k": 1, "v": "java"}])
    assert_agrees(peer, table)


DYNAMIC = [
    ("pk_dynamic_bucket", "db.t"),
    ("pk_dynamic_bucket_part", "db.t"),
    ("pk_dynamic_bucket_part", "db.t_dv"),
]


@pytest.mark.parametrize("peer", JAVA, indirect=True)
@pytest.mark.parametrize(("scenario", "name"), DYNAMIC)
def test_java_finds_keys_in_the_buckets_that_we_chose(
    peer: Peer, referee: Peer, scenario: str, name: str, tmp_path: Path
) -> None:
    folder = GOLDEN / "java-0.9" / scenario
    warehouse = copy_warehouse(folder, tmp_path / "w")
    table = Catalog(str(warehouse)).table(name)
    changed = half_under_new_keys(table)

    table.upsert(changed)

    assert referee.check(warehouse, name) == []
    own = [json.loads(text) for text in records(table)][:20]
    peer.run("write", warehouse, name, rows=own)
    peer.run("compact", warehouse, name, full=True)
    table.upsert(changed)
    assert_agrees(peer, table)
    assert referee.check(warehouse, name) == []


def half_under_new_keys(table: Table) -> pa.Table:
    """Return all rows, every second one with a new key."""
    rows = table.scan().to_arrow()
    key = table.load().schema.trimmed_primary_keys[-1]
    position = rows.schema.get_field_index(key)
    fresh = [
        value if n % 2 else (f"{value}-new" if isinstance(value, str) else value + 1_000_000)
        for n, value in enumerate(rows[key].to_pylist())
    ]
    schema = pa.schema([rows.schema.field(position)])
    return rows.set_column(
        position, key, arrow_table([{key: value} for value in fresh], schema)[key]
    )


@pytest.mark.parametrize("peer", PEERS, indirect=True)
def test_a_peer_continues_our_dynamic_buckets(tmp_path: Path, peer: Peer, referee: Peer) -> None:
    table = new_table(tmp_path, bucket="-1", dynamic_bucket__target_row_num="20")
    table.upsert(table_of("k v", [(k, "ours") for k in range(50)]))

    peer.run("write", tmp_path, rows=[{"k": k, "v": "theirs"} for k in range(40, 80)])
    table.upsert(table_of("k v", [(k, "again") for k in range(30, 90)]))

    assert {split.bucket for split in table.files()} == {0, 1, 2, 3, 4}
    assert_agrees(peer, table)
    # Files of pypaimon-rust lack the key columns that the checker requires.
    if peer.name != "pypaimon-rust":
        assert referee.check(tmp_path) == []


TYPES: list[Any] = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"),
    *("DECIMAL(10, 2)", "DECIMAL(4, 1)", "STRING", "VARCHAR(20)", "CHAR(3)", "BYTES", "BINARY(3)"),
    *("DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(9)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    {"type": "ARRAY", "element": "INT"},
    {"type": "MAP", "key": "STRING", "value": "INT"},
]


@pytest.mark.parametrize("old", TYPES, ids=str)
def test_java_reads_columns_after_our_type_changes(java: Peer, tmp_path: Path, old: Any) -> None:
    new_types = [kind for kind in TYPES if isinstance(kind, str) and kind != old]
    fields = [
        {"id": position, "name": f"c{position}", "type": old} for position in range(len(new_types))
    ]
    spec = {"fields": fields, "primary_keys": [], "partition_keys": [], "options": {}}
    java.run("create", tmp_path, spec=spec)
    allowed = set()
    for position, kind in enumerate(new_types):
        with suppress(PeerError):
            java.run("alter", tmp_path, changes=[["type", f"c{position}", kind]])
            allowed.add(kind)
    ours = {kind for kind in new_types if can_cast(type_from_json(old), type_from_json(kind))}
    assert ours == allowed
