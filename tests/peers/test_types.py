"""Columns of every type and file format are exchanged with every peer; exceptions: `columns`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.golden import assert_rows_equal, expected_rows, golden_tables, records_to_rows
from support.peers import ours
from support.peers.column_exchange import assert_peer_reads, assert_peer_writes, table_of_columns
from support.peers.columns import COLUMN_LIMITS, COLUMNS, FORMATS, UNSETTLED
from support.peers.kinds import Kind, Record, write
from support.peers.limits import PeerAction
from support.peers.peers import PEERS, Peer, PeerError

from paimon_orch.errors import PaimonError

# The newest rows of these golden tables are written to tables with and without a primary key.
GOLDEN_ROWS = [
    ("parquet", "java-0.9/alltypes_append/db.t", False),
    ("orc", "java-0.9/alltypes_append_orc/db.t", False),
    ("avro", "java-0.9/alltypes_append_avro/db.t", False),
    ("parquet", "java-0.9/alltypes_pk/db.t", True),
    ("orc", "java-0.9/alltypes_append_orc/db.t", True),
    ("avro", "java-0.9/alltypes_pk_avro/db.t", True),
    ("parquet", "java-0.9/nested_deep/db.t", True),
    ("orc", "java-0.9/nested_deep_orc/db.t", True),
]
# pypaimon-rust reads nested types in Avro files wrongly without an error.
MISREAD = {("pypaimon-rust", "avro")}


def supported_columns(who: str, does: PeerAction, kind: str) -> set[str]:
    limits = COLUMN_LIMITS.keys() | UNSETTLED.keys()
    return {name for name in COLUMNS if (who, does, kind, name) not in limits}


DOES = {"reads": assert_peer_reads, "writes": assert_peer_writes}
BOTH = [pytest.param(peer, kind, id=f"{peer}-{kind}") for peer in PEERS for kind in FORMATS]


@pytest.mark.parametrize(("peer", "kind"), BOTH, indirect=["peer"])
def test_a_peer_reads_every_type(peer: Peer, kind: str, tmp_path: Path) -> None:
    names = supported_columns("us", "writes", kind) & supported_columns(peer.name, "reads", kind)
    assert_peer_reads(peer, tmp_path, kind, sorted(names))


@pytest.mark.parametrize(("peer", "kind"), BOTH, indirect=["peer"])
def test_we_read_every_type(peer: Peer, kind: str, tmp_path: Path) -> None:
    assert_peer_writes(peer, tmp_path, kind, sorted(supported_columns(peer.name, "writes", kind)))


def listed_limits() -> Iterator[Any]:
    for peer, does, kind, column in COLUMN_LIMITS:
        # Peers can only read kinds of tables that we write.
        if peer != "us" and (does == "writes" or column in supported_columns("us", "writes", kind)):
            yield pytest.param(peer, does, kind, column, id=f"{peer} {does} {kind} {column}")


@pytest.mark.parametrize(
    ("peer", "does", "kind", "column"), list(listed_limits()), indirect=["peer"]
)
def test_listed_limits_of_a_peer_still_apply(
    peer: Peer, does: PeerAction, kind: str, column: str, tmp_path: Path
) -> None:
    message = COLUMN_LIMITS[peer.name, does, kind, column].words
    with pytest.raises((PeerError, AssertionError), match=message):
        DOES[does](peer, tmp_path, kind, [column])


@pytest.mark.parametrize(
    ("kind", "column"), [case[2:] for case in COLUMN_LIMITS if case[0] == "us"]
)
def test_our_listed_limits_still_apply(kind: str, column: str, tmp_path: Path) -> None:
    table = table_of_columns(kind, [column])

    def write() -> None:
        ours.create(tmp_path, table)
        ours.run_step(tmp_path, table.steps[0])

    with pytest.raises(PaimonError, match=COLUMN_LIMITS["us", "writes", kind, column].words):
        write()


# --- Rows of golden tables


@dataclass(frozen=True)
class Golden:
    """Return the newest rows of a golden table, and the kind of table to write them to."""

    rows: list[list[Any]]
    columns: dict[str, str]
    table: Kind

    def assert_equal(self, rows: list[Record]) -> None:
        assert_rows_equal(
            self.rows, records_to_rows(rows, list(self.columns)), list(self.columns.values())
        )


def copy_golden_rows(warehouse: Path, kind: str, name: str, *, keyed: bool) -> Golden:
    """Write the newest rows of a golden table."""
    [entry] = [entry for key, _, entry in golden_tables() if key == name]
    columns = {field["name"]: str(field["type"]) for field in entry["fields"]}
    rows = expected_rows(entry["snapshots"][-1])
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    table = Kind(
        name=name,
        steps=(write(records),),
        columns=", ".join(f"{column} {text}" for column, text in columns.items()),
        primary_key=["id"] if keyed else [],
        options={"file.format": kind, "bucket": "2" if keyed else "-1"},
    )
    ours.create_and_run_steps(warehouse, table)
    return Golden(rows, columns, table)


@pytest.mark.parametrize("peer", PEERS, indirect=True)
@pytest.mark.parametrize(("kind", "name", "keyed"), GOLDEN_ROWS)
def test_peers_read_golden_rows_that_we_write(
    peer: Peer, kind: str, name: str, keyed: bool, tmp_path: Path
) -> None:
    golden = copy_golden_rows(tmp_path, kind, name, keyed=keyed)
    golden.assert_equal(ours.read(tmp_path, golden.table))
    peer_rows = peer.read(tmp_path)
    if (peer.name, kind) in MISREAD:
        with pytest.raises(AssertionError, match="missing"):
            golden.assert_equal(peer_rows)
    else:
        golden.assert_equal(peer_rows)


@pytest.mark.parametrize(("kind", "name", "keyed"), GOLDEN_ROWS)
def test_the_java_checker_finds_no_error_after_maintenance(
    referee: Peer, kind: str, name: str, keyed: bool, tmp_path: Path
) -> None:
    copy_golden_rows(tmp_path, kind, name, keyed=keyed)
    assert referee.check(tmp_path) == []
