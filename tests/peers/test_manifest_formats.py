"""Java and we write manifests of each format in turns, and read and maintain those of the other."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps import (
    check,
    compact,
    compact_manifests,
    expire_snapshots,
    remove_orphan_files,
)
from paimon_orch.table.table import Table

MAGIC = {"avro": b"Obj", "orc": b"ORC", "parquet": b"PAR"}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "buckets": (["p", "k"], {"bucket": "2"}),
    "vectors": (["p", "k"], {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "dynamic buckets": (["p", "k"], {"bucket": "-1"}),
    "append": ([], {"bucket": "-1"}),
}
RELEASES = ("java-0.9", "java-1.4", "java-2.0")
# Each release with each format and each kind, and each format with each kind.
TURNS = [
    (release, [*MAGIC][(first + second) % len(MAGIC)], kind)
    for first, release in enumerate(RELEASES)
    for second, kind in enumerate(KINDS)
]
Row = tuple[str, int, str]


def rows_of(records: list[dict[str, Any]]) -> list[Row]:
    return sorted((record["p"], record["k"], record["s"]) for record in records)


def write(table: Table, rows: list[dict[str, Any]]) -> None:
    data = pa.Table.from_pylist(
        rows, pa.schema([("p", pa.string()), ("k", pa.int32()), ("s", pa.string())])
    )
    _ = table.upsert(data) if table.load().schema.primary_keys else table.append(data)


@pytest.mark.parametrize(("java_name", "manifest_format", "kind"), TURNS)
def test_both_write_in_turns(
    open_peer: Any, tmp_path: Path, java_name: str, manifest_format: str, kind: str
) -> None:
    java: Peer = open_peer(java_name)
    key, options = KINDS[kind]
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        "p STRING, k INT, s STRING",
        primary_key=key,
        partition_by=["p"],
        options={"manifest.format": manifest_format, **options},
    )
    for turn in range(4):
        rows = [{"p": "ab"[n % 2], "k": n + turn, "s": f"s{turn}"} for n in range(5)]
        if turn % 2:
            write(table, rows)
        else:
            java.run("write", tmp_path, rows=[{"_kind": "+I"} | row for row in rows])
        if turn == 1:
            compact(table, strategy="full")
        elif turn == 2:
            java.run("compact", tmp_path, full=True)
    compact(table, strategy="full")
    compact_manifests(table)

    ours = rows_of(table.scan().to_arrow().to_pylist())
    assert rows_of(java.read(tmp_path)) == ours
    assert check(table, deep=True).findings == ()
    expire_snapshots(table, retain_max=1, retain_min=1)
    remove_orphan_files(table, older_than=int(time.time() * 1000))
    assert rows_of(java.read(tmp_path)) == ours
    manifests = Path(table.paths.manifest_dir).iterdir()
    assert {path.read_bytes()[:3] for path in manifests} == {MAGIC[manifest_format]}


@pytest.mark.parametrize("last", ["orc", "avro"])
@pytest.mark.parametrize("java_name", ["java-2.0"])
def test_java_reads_a_table_after_its_manifests_are_unified(
    open_peer: Any, tmp_path: Path, java_name: str, last: str
) -> None:
    java, first = open_peer(java_name), "avro" if last == "orc" else "orc"
    key, options = KINDS["vectors"]
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table(
        "db.t",
        "p STRING, k INT, s STRING",
        primary_key=key,
        partition_by=["p"],
        options={"manifest.format": first, **options},
    )
    for turn in range(2):
        write(table, [{"p": "a", "k": n, "s": f"s{turn}"} for n in range(turn, 5)])
        compact(table, strategy="full" if turn == 0 else "minor")
    schema = Path(table.paths.root) / "schema" / "schema-0"  # we refuse this change
    values = json.loads(schema.read_text()) | {"id": 1}
    values["options"]["manifest.format"] = last
    schema.with_name("schema-1").write_text(json.dumps(values))
    ours = rows_of(table.scan().to_arrow().to_pylist())

    compact_manifests(catalog.table("db.t"))

    assert rows_of(java.read(tmp_path)) == ours
    java.run("write", tmp_path, rows=[{"_kind": "+I", "p": "a", "k": 9, "s": "new"}])
    java.run("compact", tmp_path, full=True)
    assert rows_of(catalog.table("db.t").scan().to_arrow().to_pylist()) == [*ours, ("a", 9, "new")]
    rules = {finding.rule for finding in check(catalog.table("db.t"), deep=True).findings}
    assert "manifest-format" not in rules
