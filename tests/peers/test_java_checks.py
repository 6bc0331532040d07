"""The programs that check tables with the classes of Java find damage; other tests rely on them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support.peers.peers import Peer

from paimon_orch import Catalog, Table

OPTIONS = {
    "bucket": "1",
    "bucket-key": "k",
    "file-index.bloom-filter.columns": "v",
    "file.compression": "none",  # so that both files have the same size
}


def make_table(warehouse: Path, *, keyed: bool) -> Table:
    columns, key = "k BIGINT NOT NULL, v STRING", ["k"] if keyed else []
    table = Catalog(str(warehouse)).create_table("db.t", columns, primary_key=key, options=OPTIONS)
    for start in (100, 200):
        values = [f"value {start + n}" for n in range(5)]
        rows = pa.table({"k": range(start, start + 5), "v": values})
        (table.upsert if keyed else table.append)(rows)
    return table


def count_more_rows(root: Path) -> None:
    snapshot = root / "snapshot" / "snapshot-2"
    fields = json.loads(snapshot.read_text())
    fields["totalRecordCount"] += 1
    snapshot.write_text(json.dumps(fields))


def exchange_data_files(root: Path) -> None:
    one, other = root.glob("bucket-0/*.parquet")
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


@pytest.mark.parametrize("peer", ["java-0.9", "java-2.0"], indirect=True)
@pytest.mark.parametrize("keyed", [True, False])
def test_java_finds_damage(peer: Peer, tmp_path: Path, *, keyed: bool) -> None:
    table = make_table(tmp_path, keyed=keyed)
    root = Path(table.paths.root)
    assert peer.check(tmp_path) == []

    exchange_data_files(root)
    problems = "\n".join(peer.check(tmp_path))
    expected = ["min of v", "max of v", "index of v denies the value"]
    for words in [*expected, *["outside minKey"] * keyed]:
        assert words in problems
    exchange_data_files(root)
    count_more_rows(root)
    assert peer.check(tmp_path) == [
        "snapshot 2 totalRecordCount 11, live files hold 10",
        "snapshot 2 totalRecordCount 11 != previous 5 + delta 5",
    ]
