"""The newest Java writes rows of every kind; it and we merge, compact and tell the same."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from golden import assert_rows_equal, canonical_rows, rows_of
from peers.peers import Peer, Record

from paimon_orch import Catalog
from paimon_orch.steps.compact import Strategy, compact
from paimon_orch.steps.executor import InProcessExecutor
from paimon_orch.table.table import Table

Options = dict[str, str]
EVERY = ("+I", "+I", "+U", "-U", "-D")
NO_BEFORE = ("+I", "+I", "+U", "-D")
ADDS = ("+I", "+U")
THREE = "s INT, u INT, v INT"
GROUPED = "g INT, h INT, a INT, n BIGINT, b INT"
AGGREGATED = "t BIGINT, p INT, d DECIMAL(9, 2), m INT, l INT, ln INT, f INT, c ARRAY<INT>"
GROUP = {
    "merge-engine": "partial-update",
    "fields.g,h.sequence-group": "a,n",
    "fields.n.aggregate-function": "sum",
}
SUMS = {
    "merge-engine": "aggregation",
    "fields.t.aggregate-function": "sum",
    "fields.l.aggregate-function": "last_value",
}
FUNCTIONS = SUMS | {
    "fields.p.aggregate-function": "product",
    "fields.p.ignore-retract": "true",
    "fields.d.aggregate-function": "sum",
    "fields.m.aggregate-function": "max",
    "fields.m.ignore-retract": "true",
    "fields.f.aggregate-function": "first_value",
    "fields.f.ignore-retract": "true",
    "fields.c.aggregate-function": "collect",
}
VECTORS = {"deletion-vectors.enabled": "true"}
LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction"}
DIFFERENCES = {
    "changelog-producer.row-deduplicate": "true",
    "changelog-producer.row-deduplicate-ignore-fields": "u",
}
CASES: dict[str, tuple[str, Options, tuple[str, ...]]] = {
    "deduplicate, lookup of differences": (THREE, LOOKUP | DIFFERENCES, EVERY),
    "deduplicate, vectors and lookup": (THREE, LOOKUP | VECTORS, NO_BEFORE),
    "deduplicate, full-compaction": (THREE, FULL | DIFFERENCES, NO_BEFORE),
    "deduplicate, ignoring deletes": (THREE, {"deduplicate.ignore-delete": "true"}, EVERY),
    "two sequence fields": (THREE, LOOKUP | {"sequence.field": "s,u"}, NO_BEFORE),
    "descending sequence, vectors": (
        THREE,
        VECTORS | {"sequence.field": "s", "sequence.field.sort-order": "descending"},
        NO_BEFORE,
    ),
    "sequence group": (GROUPED, GROUP, EVERY),
    "sequence group, vectors": (GROUPED, GROUP | VECTORS, EVERY),
    "sequence group, lookup": (GROUPED, GROUP | LOOKUP, EVERY),
    "sequence group, full-compaction": (GROUPED, GROUP | FULL, EVERY),
    "sequence group that removes": (
        "g INT, a INT, b INT",
        {
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "a",
            "partial-update.remove-record-on-sequence-group": "g",
        },
        NO_BEFORE,
    ),
    "partial-update that removes": (
        THREE,
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        NO_BEFORE,
    ),
    "aggregation": (AGGREGATED, FUNCTIONS, EVERY),
    "aggregation, full-compaction": (AGGREGATED, FUNCTIONS | FULL, EVERY),
    "aggregation, vectors: lone retracts become inserts": (
        "t BIGINT, l INT",
        SUMS | VECTORS,
        EVERY,
    ),
    "aggregation, lookup: lone retracts become inserts": ("t BIGINT, l INT", SUMS | LOOKUP, EVERY),
}


def value_of(chance: random.Random, kind: str) -> Any:
    if chance.random() < 0.25:
        return None
    if kind.startswith("decimal"):
        return f"{chance.randrange(-500, 500) / 100:.2f}"
    if kind.startswith("list"):
        return [chance.randrange(3) for _ in range(chance.randrange(3))]
    return chance.randrange(-3, 6)


def batch(chance: random.Random, table: Table, kinds: tuple[str, ...]) -> list[Record]:
    schema = table.scan().arrow_schema
    types = {field.name: str(field.type) for field in schema if field.name != "k"}
    return [
        {"_kind": chance.choice(kinds), "k": chance.randrange(14)}
        | {name: value_of(chance, kind) for name, kind in types.items()}
        for _ in range(16)
    ]


def table_at(root: Path) -> Table:
    return Catalog(str(root)).table("db.t")


def assert_same_rows(java: Peer, by_java: Path, by_us: Path) -> None:
    ours = table_at(by_us).scan().to_arrow()
    theirs = rows_of(java.read(by_java), ours.column_names)
    assert_rows_equal(theirs, canonical_rows(ours), [str(kind) for kind in ours.schema.types])


def changes_of(root: Path) -> list[str]:
    table, found = table_at(root), list[str]()
    if table.options.changelog_producer == "none":
        return found
    for number in table.snapshots.ids():
        rows = table.incremental(number - 1, number, "changelog").to_arrow().to_pylist()
        found += [json.dumps(row, sort_keys=True, default=str) for row in rows]
    return sorted(found)


@pytest.mark.parametrize("name", CASES)
def test_java_and_we_make_the_same_of_the_same_rows(java: Peer, tmp_path: Path, name: str) -> None:
    columns, options, kinds = CASES[name]
    written = tmp_path / "written"
    table = Catalog(str(written)).create_table(
        "db.t",
        f"k INT, {columns}",
        primary_key=["k"],
        options={"bucket": "1", "write-only": "true"} | options,
    )
    chance = random.Random(name)  # noqa: S311 - data, not a secret
    for turn in range(3):
        java.run("write", written, rows=batch(chance, table, kinds))
        if turn == 1 and table.options.need_lookup:
            java.run("compact", written, full=False)
    assert_same_rows(java, written, written)

    strategies: tuple[Strategy, ...] = ("minor", "full")
    for strategy in strategies:
        by_java, by_us = tmp_path / f"java {strategy}", tmp_path / f"us {strategy}"
        for copy in (by_java, by_us):
            shutil.copytree(written, copy)
        java.run("compact", by_java, full=strategy == "full")
        compact(table_at(by_us), InProcessExecutor(), strategy=strategy)
        assert_same_rows(java, by_java, by_us)
        assert changes_of(by_java) == changes_of(by_us)
