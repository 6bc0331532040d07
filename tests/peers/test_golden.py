"""Each peer returns the rows of the golden tables; tables that it cannot read are listed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.golden import (
    assert_rows_equal,
    copy_warehouse,
    expected_rows,
    golden_tables,
    records_to_rows,
    table_name,
)
from support.peers.peers import Peer, PeerError

READS = {
    "pypaimon": [
        "pypaimon-2.1/alltypes/db.pk",
        "pypaimon-2.1/row_tracking/db.t",
        "pypaimon-2.1/tags_branches/db.t$branch_dev",
        "pypaimon-rust-0.4/pk_b4/db.t",
    ],
    "pypaimon-rust": [
        "java-0.9/alltypes_append/db.t",
        "java-0.9/branches/db.t$branch_dev",
        "java-0.9/pk_dv/db.t",
        "pypaimon-2.1/pk_dynamic/db.t",
    ],
    "java-0.9": [
        "java-0.9/alltypes_pk/db.t",
        "java-0.9/branches/db.t$branch_dev",
        "java-0.9/pk_dv/db.t",
        "pypaimon-2.1/pk_b4/db.t",
    ],
    "java-1.4": [
        "java-0.9/alltypes_pk/db.t",
        "java-0.9/branches/db.t$branch_dev",
        "java-0.9/manifest_formats/db.t_orc",
        "pypaimon-2.1/alltypes/db.pk",
        "pypaimon-rust-0.4/pk_b4/db.t",
    ],
}

# The errors of the peers match these patterns.
REFUSES = {
    "pypaimon": {
        # pypaimon requires a manifest field of Java 1.0, so it refuses all tables of Java 0.9.
        "java-0.9/append_simple/db.t": "_VALUE_STATS_COLS",
        "java-0.9/pk_dv/db.t": "_VALUE_STATS_COLS",
    },
    "pypaimon-rust": {
        "java-0.9/alltypes_append_avro/db.t": "non-nullable but contains null",
        "java-0.9/alltypes_pk_avro/db.t": "non-nullable but contains null",
        "java-0.9/manifest_formats/db.t_orc": "invalid magic bytes",
        "java-0.9/manifest_formats/db.t_parquet": "invalid magic bytes",
        "java-0.9/pk_aggregation_complex/db.t": "non UTF-8 data",
        "java-0.9/pk_b1_mor_avro/db.t": "non-nullable but contains null",
        "java-0.9/pk_format_per_level/db.t": "non-nullable but contains null",
    },
    "java-0.9": {
        # Java 0.9 cannot read dictionary pages of FIXED_LEN_BYTE_ARRAY decimals.
        "pypaimon-2.1/alltypes/db.pk": "PlainBinaryDictionary",
        # Files of primary-key tables of pypaimon-rust have no key columns, which Java 0.9 requires.
        "pypaimon-rust-0.4/pk_b4/db.t": "_KEY_k",
    },
    "java-1.4": {
        # Java 1.4 refuses data evolution with deletion vectors, and pypaimon allows it.
        "pypaimon-2.1/row_tracking/db.t": "Data evolution config must disabled",
    },
}

# A peer reads these tables wrongly without an error.
MISREADS = {
    "pypaimon-rust": {
        "java-0.9/alltypes_append_orc/db.t": "CHAR columns keep the padding of ORC",
        "java-0.9/append_simple_avro/db.t": "every value of a Java Avro file is null",
        "java-0.9/schema_evo_casts/db.t": "timestamps cast to text, and text cut to a shorter VARCHAR",
    },
}


def _cases(table: Mapping[str, Iterable[str]]) -> list[Any]:
    return [pytest.param(peer, name, id=f"{peer}-{name}") for peer in table for name in table[peer]]


@pytest.fixture
def golden(name: str, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Return a copy of the warehouse with the golden table, and the entry of the table."""
    [(folder, entry)] = [(folder, entry) for key, folder, entry in golden_tables() if key == name]
    return copy_warehouse(folder, tmp_path / "warehouse"), entry


def _compare(peer: Peer, warehouse: Path, entry: dict[str, Any]) -> None:
    snapshot = entry["snapshots"][-1]
    types = {field["name"]: str(field["type"]) for field in entry["fields"]}
    columns = snapshot["columns"]
    rows = records_to_rows(peer.read(warehouse, table_name(entry)), columns)
    assert_rows_equal(expected_rows(snapshot), rows, [types[column] for column in columns])


@pytest.mark.parametrize(("peer", "name"), _cases(READS), indirect=["peer"])
def test_a_peer_reads_the_golden_table(peer: Peer, golden: tuple[Path, dict[str, Any]]) -> None:
    _compare(peer, *golden)


@pytest.mark.parametrize(("peer", "name"), _cases(REFUSES), indirect=["peer"])
def test_a_peer_refuses_the_golden_table(
    peer: Peer, golden: tuple[Path, dict[str, Any]], name: str
) -> None:
    warehouse, entry = golden
    with pytest.raises(PeerError, match=REFUSES[peer.name][name]):
        peer.read(warehouse, table_name(entry))


@pytest.mark.parametrize(("peer", "name"), _cases(MISREADS), indirect=["peer"])
def test_a_peer_misreads_the_golden_table(peer: Peer, golden: tuple[Path, dict[str, Any]]) -> None:
    with pytest.raises(AssertionError, match="missing"):
        _compare(peer, *golden)
