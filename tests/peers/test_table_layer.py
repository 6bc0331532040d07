"""Statistics, row ids and postpone buckets are shared with other implementations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.peers.peers import OpenPeer, Peer, Record
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.manifest.manifest_entry import FileKind, FileSource, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import move_postponed as postpone
from paimon_orch.steps.maintenance.analyze import analyze
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table

TRACKED = ["id", "_ROW_ID", "_SEQUENCE_NUMBER"]


def spec(columns: dict[str, str], key: list[str], **options: str) -> dict[str, Any]:
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    fields = [
        {"id": position, "name": name, "type": kind}
        for position, (name, kind) in enumerate(columns.items())
    ]
    return {"fields": fields, "partition_keys": [], "primary_keys": key, "options": named}


def values_of(records: list[Record]) -> list[tuple[Any, ...]]:
    return sorted(tuple(record.values()) for record in records)


def test_java_reads_our_statistics(tmp_path: Path, java: Peer, referee: Peer) -> None:
    table = new_table(tmp_path, "k INT, s STRING, d DECIMAL(10, 2), f DOUBLE, b BOOLEAN")
    table.upsert(table_of("k s d f b", [(n, f"text {n}", n, n / 2, n > 2) for n in range(5)]))

    analyze(table, InProcessExecutor(), columns=None)

    # Java reads the statistics file, whose bounds have the types of the columns.
    assert referee.check(tmp_path) == []
    [java_statistics] = java.read(tmp_path, "db.t$statistics")
    [ours] = table.system("statistics").scan().to_arrow().to_pylist()
    figures = [json.loads(record.pop("colstat")) for record in (java_statistics, ours)]
    assert java_statistics == ours
    assert figures[0] == figures[1]
    assert len(java.read(tmp_path)) == 5
    java.run("write", tmp_path, rows=[{"k": 9}])
    last = table.snapshot()
    assert last is not None
    assert last.statistics is not None, "Java's next commit keeps them"


def tracked_table(root: Path) -> Table:
    table = new_table(root, "id INT", key=(), bucket="-1", row_tracking__enabled="true")
    table.append(table_of("id", [(1,), (2,)]))
    table.append(table_of("id", [(3,)]))
    return table


def rewrite(table: Table) -> None:
    """Rewrite all rows into one file."""
    [split] = table.files()
    reader, fields = (
        table.stores.reader(),
        [*table.load().schema.fields, *row_tracking_fields(table.load().schema)],
    )
    writer = table.stores.build_writer_factory().writer(
        split.partition_bucket, source=FileSource.COMPACT
    )
    for file in split.files:
        batches = reader.read(BucketFile(split.partition, 0, file), fields)
        writer.write(pa.Table.from_batches(batches))
    removed = [(FileKind.DELETE, file) for file in split.files]
    entries = tuple(
        ManifestEntry(kind=kind, partition=split.partition, bucket=0, total_buckets=-1, file=file)
        for kind, file in [*removed, *((FileKind.ADD, file) for file in writer.close())]
    )
    table.stores.new_commit(StepKind.WRITE_ROWS).commit(
        CommitChanges(kind=CommitKind.COMPACT, entries=entries)
    )


def test_java_reads_and_keeps_our_row_ids(tmp_path: Path, java: Peer) -> None:
    table = tracked_table(tmp_path)
    assert values_of(java.read(tmp_path, "db.t$row_tracking")) == [(1, 0, 1), (2, 1, 1), (3, 2, 2)]

    rewrite(table)
    assert values_of(java.read(tmp_path, "db.t$row_tracking")) == [(1, 0, 1), (2, 1, 1), (3, 2, 2)]

    for number in range(4, 9):
        java.run("write", tmp_path, rows=[{"id": number}])
    before = rows_of(table, columns=TRACKED)
    assert before[3:] == [(number, number - 1, number) for number in range(4, 9)]
    java.run("compact", tmp_path, full=True)
    assert len(table.files()[0].files) == 1
    assert rows_of(table, columns=TRACKED) == before
    assert rows_of(table, filter="id = 5 OR _ROW_ID = 0") == [(1,), (5,)]


def test_pypaimon_and_we_assign_row_ids_alternately(tmp_path: Path, open_peer: OpenPeer) -> None:
    peer, table = open_peer("pypaimon"), tracked_table(tmp_path)
    peer.run("write", tmp_path, rows=[{"id": 4}, {"id": 5}])
    table.append(table_of("id", [(6,)]))

    assert rows_of(table, columns=TRACKED)[2:] == [(3, 2, 2), (4, 3, 3), (5, 4, 3), (6, 5, 4)]
    rewrite(table)
    assert values_of(peer.read(tmp_path)) == [(number,) for number in range(1, 7)]


def test_java_0_9_reads_tables_with_row_ids(tmp_path: Path, referee: Peer) -> None:
    table = tracked_table(tmp_path)
    rewrite(table)

    assert values_of(referee.read(tmp_path)) == [(1,), (2,), (3,)]
    assert referee.check(tmp_path) == []


PAIRS = {"k": "INT NOT NULL", "v": "STRING"}


def waiting(options: dict[str, str]) -> dict[str, Any]:
    return spec(PAIRS, ["k"], bucket="-2", **options)


def test_postponed_rows_of_java_are_moved_to_buckets(tmp_path: Path, java: Peer) -> None:
    java.run("create", tmp_path, spec=waiting({"postpone__batch_write_fixed_bucket": "false"}))
    rows = [{"k": 3, "v": "a"}, {"k": 1, "v": "b"}, {"k": 3, "v": "c"}]
    java.run("write", tmp_path, rows=rows)
    java.run("write", tmp_path, rows=[{"k": 1, "v": "d"}])
    table = Catalog(str(tmp_path)).table("db.t")
    table.upsert(table_of("k v", [(4, "ours"), (3, "e")]))
    assert java.read(tmp_path) == []

    postpone.move_postponed(table, InProcessExecutor())

    assert rows_of(table) == [(1, "d"), (3, "e"), (4, "ours")]
    assert values_of(java.read(tmp_path)) == [(1, "d"), (3, "e"), (4, "ours")]
    java.run("compact", tmp_path, full=True, options={"bucket": "1"})
    assert rows_of(table) == [(1, "d"), (3, "e"), (4, "ours")]


@pytest.mark.parametrize("fixed", ["true", "false"])
def test_pypaimon_reads_our_tables_with_postpone_buckets(
    tmp_path: Path, open_peer: OpenPeer, fixed: str
) -> None:
    peer = open_peer("pypaimon")
    table = new_table(
        tmp_path,
        "k INT, v STRING",
        bucket="-2",
        postpone__batch_write_fixed_bucket=fixed,
        postpone__default_bucket_num="3",
    )
    table.upsert(table_of("k v", [(k, "ours") for k in range(20)]))
    peer.run("write", tmp_path, rows=[{"k": k, "v": "theirs"} for k in range(15, 30)])
    visible_rows = [(k, "ours") for k in range(20)] if fixed == "true" else []
    assert values_of(peer.read(tmp_path)) == visible_rows, "rows of its batch writes are postponed"
    postpone.move_postponed(table, InProcessExecutor())

    expected = [(k, "ours" if k < 15 else "theirs") for k in range(30)]
    assert {split.total_buckets for split in table.files()} == {3}
    assert rows_of(table) == expected
    assert values_of(peer.read(tmp_path)) == expected


@pytest.mark.parametrize("deletes", [True, False], ids=["deletes", "updates"])
def test_columns_updated_by_pypaimon_are_read_from_their_own_files(
    tmp_path: Path, open_peer: OpenPeer, java: Peer, deletes: bool
) -> None:
    peer = open_peer("pypaimon")
    deleted = [[5, 61], [6]] if deletes else [[], []]
    options = {"row_tracking__enabled": "true", "data_evolution__enabled": "true"}
    columns = {"id": "INT", "v": "STRING", "n": "BIGINT"}
    table_spec = spec(
        columns, [], bucket="-1", deletion_vectors__enabled=str(deletes).lower(), **options
    )
    peer.run("create", tmp_path, spec=table_spec)
    peer.run("write", tmp_path, rows=[{"id": n, "v": f"v{n}", "n": n} for n in range(50)])
    table = Catalog(str(tmp_path)).table("db.t")
    table.append(table_of("id v n", [(n, f"v{n}", n) for n in range(50, 100)]))
    changed = [{"_ROW_ID": n, "n": -n} for n in (3, 7, 60)]
    peer.run("update", tmp_path, rows=changed, gone=deleted[0])
    again = [{"_ROW_ID": n, "v": "new", "n": 0} for n in (7, 8)]
    peer.run("update", tmp_path, rows=again, gone=deleted[1])
    assert any(file.write_cols for split in table.files() for file in split.files)

    expected = {n: (n, f"v{n}", n) for n in range(100)}
    expected |= {n: (n, f"v{n}", -n) for n in (3, 60)} | {n: (n, "new", 0) for n in (7, 8)}
    rows_left = [expected[n] for n in range(100) if n not in {*deleted[0], *deleted[1]}]
    assert values_of(peer.read(tmp_path)) == rows_left
    assert rows_of(table) == rows_left
    assert rows_of(table, filter="n <= 0 AND _ROW_ID > 3") == [
        (7, "new", 0),
        (8, "new", 0),
        (60, "v60", -60),
    ]
    assert [row[0] for row in rows_of(table, columns=["_ROW_ID"])] == [row[0] for row in rows_left]
    assert rows_of(table, columns=["n"], filter="v = 'new'") == [(0,), (0,)]
    if not deletes:  # Java 1.4 refuses data evolution with deletion vectors
        assert values_of(java.read(tmp_path)) == rows_left
    statistics = analyze(table, InProcessExecutor()).statistics
    assert statistics is not None
    assert statistics.row_count == len(rows_left)
