"""Reads of level 0 with deletion vectors and in first-row tables equal those of Java 2.0."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.golden import canonical_rows
from support.peers import ours
from support.peers.kinds import Kind, compact, delete, rows, write
from support.peers.peers import Peer
from support.tables import levels_of

from paimon_orch import Catalog
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
    vectors = table.load().schema.typed_options.has_deletion_vectors

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


# Java also returns rows of level 0 that first-row drops.
@pytest.mark.parametrize("options", [{"deletion-vectors.enabled": "true"}, {}], ids=str)
def test_a_diff_of_two_tags_has_the_changed_rows_of_java(
    java20: Peer, tmp_path: Path, options: dict[str, str]
) -> None:
    """Java also returns some rows that were written again without a change."""
    chance = random.Random(3)  # noqa: S311 - data, not a secret
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        "k INT, v INT",
        primary_key=["k"],
        options={"bucket": "1", "write-only": "true"} | options,
    )
    for turn in range(6):
        rows = [{"k": chance.randrange(8), "v": chance.randrange(3)} for _ in range(4)]
        java20.run("write", tmp_path, rows=[{"_kind": "+I"} | row for row in rows])
        if turn in (1, 4):
            java20.run("compact", tmp_path, full=turn == 4)
    states = {}
    for number in table.stores.snapshots.ids():
        table.tags.create(f"t{number}", number)
        state = table.scan(tag=f"t{number}", merge_level_0=True).to_arrow().to_pylist()
        states[number] = {row["k"]: row["v"] for row in state}

    for start, end in itertools.combinations(states, 2):
        between = {"incremental_between": f"t{start},t{end}"}
        of_java = java20.read(tmp_path, **between)
        changed = {row["k"]: row["v"] for row in of_java if states[start].get(row["k"]) != row["v"]}
        ours = table.incremental(f"t{start}", f"t{end}").to_arrow().to_pylist()
        assert {row["k"]: row["v"] for row in ours if row["rowkind"] != "-D"} == changed
        assert changed.items() <= states[end].items()
