"""Reads of level 0 with deletion vectors and in first-row tables equal those of Java 2.0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.golden import canonical_rows
from support.peers import ours
from support.peers.kinds import Kind, compact, delete, rows, write
from support.peers.peers import Peer
from support.tables import levels_of

from paimon_orch.table.table import Table

ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {"deletion-vectors.enabled": "true"},
    "64 bit": {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"},
    "partial-update": {
        "deletion-vectors.enabled": "true",
        "merge-engine": "partial-update",
        "ignore-delete": "true",
    },
    "lookup": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
    "snapshot ordering": {
        "deletion-vectors.enabled": "true",
        "sequence.snapshot-ordering": "true",
    },
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
}


def kind_of(options: dict[str, str], *steps: Mapping[str, Any]) -> Kind:
    own = {"bucket": "2", "write-only": "true"} | options
    return Kind(name="level 0", steps=list(steps), primary_key=["k"], options=own)


def by_key(records: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(records, key=lambda row: str(row["k"]))


def read(table: Table, **scan: Any) -> list[dict[str, object]]:
    records = table.scan(**scan).to_arrow()
    names = records.column_names
    return by_key([dict(zip(names, row, strict=True)) for row in canonical_rows(records)])


@pytest.mark.parametrize("engine", list(ENGINES))
def test_level_0_is_skipped_or_merged_as_in_java(java20: Peer, tmp_path: Path, engine: str) -> None:
    steps = [
        write(rows(range(20), "a")),
        compact(),
        write(rows(range(5, 25), "b")),
        delete(rows(range(3), "a")),
        compact(full=False),
        write(rows(range(10, 30), "c")),
        write(rows(range(2), "d")),
        delete(rows(range(20, 22), "c")),
    ]
    kind = kind_of(ENGINES[engine], *steps)
    warehouse = tmp_path / "w"
    table = ours.create(warehouse, kind)
    vectors = table.options.has_deletion_vectors

    for number, step in enumerate(steps):
        if number % 2:
            java20.run(warehouse=warehouse, **step)
        else:
            ours.run_step(warehouse, step)
        assert by_key(java20.read(warehouse)) == read(table)
        merged = by_key(java20.read(warehouse, deletion_vectors__merge_on_read="true"))
        assert merged == read(table, merge_level_0=True if vectors else None)

    assert table.scan().rows_not_visible > 0
    waited = read(table, merge_level_0=True)
    assert waited != read(table)
    java20.run(warehouse=warehouse, **compact(full=False))
    assert by_key(java20.read(warehouse)) == read(table) == waited


@pytest.mark.parametrize("upgrade", ["true", "false"])
@pytest.mark.parametrize("engine", list(ENGINES))
def test_an_overwrite_writes_files_of_the_same_level_as_java_does(
    java20: Peer, tmp_path: Path, engine: str, upgrade: str
) -> None:
    options = ENGINES[engine] | {"overwrite-upgrade": upgrade}
    replaced: dict[str, Any] = {"do": "overwrite", "rows": rows(range(5, 15), "new")}
    tables = {}
    for name in ("ours", "java"):
        tables[name] = ours.create(tmp_path / name, kind_of(options))
        ours.run_step(tmp_path / name, write(rows(range(10), "old")))
    ours.run_step(tmp_path / "ours", replaced)
    java20.run(warehouse=tmp_path / "java", **replaced)

    assert levels_of(tables["ours"]) == levels_of(tables["java"])
    assert levels_of(tables["ours"]) == ([5, 5] if upgrade == "true" else [0, 0])
    expected_rows = replaced["rows"] if upgrade == "true" else []
    for name, table in tables.items():
        assert by_key(java20.read(tmp_path / name)) == read(table) == by_key(expected_rows)
        assert java20.check(tmp_path / name) == []

    later = write(rows(range(12, 20), "later"))
    ours.run_step(tmp_path / "ours", later)
    java20.run(warehouse=tmp_path / "ours", **compact(full=upgrade == "true"))
    java20.run(warehouse=tmp_path / "java", **later)
    ours.run_step(tmp_path / "java", compact(full=upgrade == "true"))
    assert read(tables["ours"]) == read(tables["java"]) == by_key(java20.read(tmp_path / "ours"))
    assert len(read(tables["ours"])) == 15
