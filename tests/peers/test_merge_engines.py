"""The newest Java and we merge and compact rows of Java to the same rows and changelogs."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.golden import assert_rows_equal, canonical_rows, records_to_rows
from support.peers.peers import Peer, Record

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import CompactionStrategy, compact
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
FIRSTS = "g INT, f INT, fn INT, l STRING, c ARRAY<INT>, cd ARRAY<INT>, m INT, x INT, ln INT, lv INT"
LATE = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "f,fn,l,c,cd,m,x,ln,lv",
    "fields.f.aggregate-function": "first_value",
    "fields.f.ignore-retract": "true",
    "fields.fn.aggregate-function": "first_non_null_value",
    "fields.fn.ignore-retract": "true",
    "fields.l.aggregate-function": "listagg",
    "fields.l.distinct": "true",
    "fields.l.ignore-retract": "true",
    "fields.c.aggregate-function": "collect",
    "fields.c.ignore-retract": "true",
    "fields.cd.aggregate-function": "collect",
    "fields.cd.distinct": "true",
    "fields.m.aggregate-function": "max",
    "fields.m.ignore-retract": "true",
    "fields.x.aggregate-function": "product",
    "fields.x.ignore-retract": "true",
    "fields.ln.aggregate-function": "last_non_null_value",
    "fields.lv.aggregate-function": "last_value",
}
SETS = "i ARRAY<INT>, s ARRAY<STRING>, d ARRAY<DOUBLE>, f ARRAY<FLOAT>, e ARRAY<DATE>, c ARRAY<DECIMAL(30, 2)>, b ARRAY<BOOLEAN>, n ARRAY<BIGINT>, r ARRAY<ROW<x INT, y STRING>>"
DISTINCT = {"merge-engine": "aggregation"}
for _name in "isdfecbnr":
    DISTINCT |= {
        f"fields.{_name}.aggregate-function": "collect",
        f"fields.{_name}.distinct": "true",
    }
NESTED = "a ARRAY<ROW<x INT, y STRING>>, u ARRAY<ROW<x INT, y STRING>>, q ARRAY<ROW<x INT, y INT>>, p ARRAY<ROW<x INT, y STRING>>, t STRING, w INT"
TABLES = {
    "merge-engine": "aggregation",
    "fields.a.aggregate-function": "nested_update",
    "fields.a.count-limit": "4",
    "fields.u.aggregate-function": "nested_update",
    "fields.u.nested-key": "x",
    "fields.u.nested-key-null-strategy": "ignore",
    "fields.u.count-limit": "3",
    "fields.q.aggregate-function": "nested_update",
    "fields.q.nested-key": "x",
    "fields.q.nested-sequence-field": "y",
    "fields.p.aggregate-function": "nested_partial_update",
    "fields.p.nested-key": "x",
    "fields.p.ignore-retract": "true",
    "fields.t.aggregate-function": "listagg",
    "fields.t.list-agg-delimiter": "",
    "fields.t.distinct": "true",
    "fields.t.ignore-retract": "true",
    "fields.w.aggregate-function": "product",
}
MAPS = "g INT, m MAP<INT, INT>, t MAP<INT, ROW<v INT, t STRING>>, u ARRAY<ROW<x INT, y STRING>>, a ARRAY<ROW<x INT, y STRING>>, p ARRAY<ROW<x INT, y STRING>>, s DECIMAL(9, 2), b BOOLEAN, o BOOLEAN, n DATE"
LATE_MAPS = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "m,t,u,a,p,s,b,o,n",
    "fields.m.aggregate-function": "merge_map",
    "fields.t.aggregate-function": "merge_map_with_keytime",
    "fields.u.aggregate-function": "nested_update",
    "fields.u.nested-key": "x",
    "fields.a.aggregate-function": "nested_update",
    "fields.a.count-limit": "5",
    "fields.p.aggregate-function": "nested_partial_update",
    "fields.p.nested-key": "x",
    "fields.s.aggregate-function": "sum",
    "fields.b.aggregate-function": "bool_and",
    "fields.o.aggregate-function": "bool_or",
    "fields.n.aggregate-function": "min",
}
for _name in "tpbon":
    LATE_MAPS[f"fields.{_name}.ignore-retract"] = "true"
FLOATS = "m MAP<DOUBLE, INT>, t MAP<DOUBLE, ROW<v INT, t STRING>>, c ARRAY<DOUBLE>, r ARRAY<ROW<x DOUBLE>>, u ARRAY<ROW<x DOUBLE>>"
BY_VALUE = {
    "merge-engine": "aggregation",
    "fields.m.aggregate-function": "merge_map",
    "fields.t.aggregate-function": "merge_map_with_keytime",
    "fields.t.ignore-retract": "true",
    "fields.c.aggregate-function": "collect",
    "fields.r.aggregate-function": "collect",
    "fields.r.distinct": "true",
    "fields.u.aggregate-function": "nested_update",
}
# Java 2.0 emits an update of an array to itself if an element is null.
COMPARED: dict[str, list[Any]] = {
    "DOUBLE": [None, 0.5, -0.0, 0.0, "NaN"],
    "FLOAT": [None, 0.5, -0.0, 0.0, "NaN"],
    "ROW<x DOUBLE>": [None, {"x": None}, {"x": -0.0}, {"x": 0.0}, {"x": "NaN"}],
    "ARRAY<FLOAT>": [None, [], [-0.0], [0.0], ["NaN"], [0.0, 0.0]],
    "MAP<DOUBLE, INT>": [
        None,
        [],
        [[0.0, 1]],
        [[-0.0, 1]],
        [[0.0, 1], ["NaN", 2]],
        [["NaN", 2], [0.0, 1]],
    ],
    "ROW<a ARRAY<ROW<x FLOAT>>>": [
        {"a": None},
        {"a": [{"x": -0.0}]},
        {"a": [{"x": 0.0}]},
        {"a": [{"x": "NaN"}]},
    ],
}
EXPIRING = {"record-level.expire-time": "1 d", "record-level.time-field": "at"}
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


CASES_OF_2_0: dict[str, tuple[str, Options, tuple[str, ...]]] = {
    "sequence group, late rows": (FIRSTS, LATE, ADDS),
    "sequence group, late rows and retracts": (FIRSTS, LATE, NO_BEFORE),
    "sequence group, late rows, lookup": (FIRSTS, LATE | LOOKUP, NO_BEFORE),
    "sequence group, late maps": (MAPS, LATE_MAPS, NO_BEFORE),
    "sequence group, late maps, vectors and lookup": (MAPS, LATE_MAPS | VECTORS | LOOKUP, EVERY),
    "first-row, lookup": (
        THREE,
        LOOKUP | {"merge-engine": "first-row", "ignore-delete": "true"},
        EVERY,
    ),
    "aggregation that removes, lookup": (
        "t BIGINT, l INT",
        SUMS | LOOKUP | {"aggregation.remove-record-on-delete": "true"},
        EVERY,
    ),
    "ignoring what was before an update": (THREE, LOOKUP | {"ignore-update-before": "true"}, EVERY),
    "two sequence groups, one removes": (
        "g INT, a INT, h INT, b INT, c INT",
        LOOKUP
        | {
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "a",
            "fields.h.sequence-group": "b",
            "fields.b.aggregate-function": "sum",
            "partial-update.remove-record-on-sequence-group": "h",
        },
        EVERY,
    ),
    "distinct values": (SETS, DISTINCT, ADDS),
    "distinct values, lookup": (SETS, DISTINCT | LOOKUP, ADDS),
    "floating-point keys and elements": (FLOATS, BY_VALUE, NO_BEFORE),
    "nested tables": (NESTED, TABLES, NO_BEFORE),
    "nested tables, lookup": (NESTED, TABLES | LOOKUP, NO_BEFORE),
    "expired records": ("at INT, v INT", EXPIRING, NO_BEFORE),
    "expired records, lookup": ("at INT, v INT", EXPIRING | LOOKUP, NO_BEFORE),
    "expired records, full-compaction": ("at INT, v INT", EXPIRING | FULL, NO_BEFORE),
    "expired records, partial-update": (
        "at INT, v INT, w INT",
        EXPIRING | {"merge-engine": "partial-update"},
        ADDS,
    ),
}


def keys_of(kind: pa.DataType) -> Sequence[Any]:
    return NUMBERS if pa.types.is_floating(kind) else range(4)


def value_of(chance: random.Random, kind: pa.DataType) -> Any:
    if chance.random() < 0.25:
        return None
    if isinstance(kind, pa.ListType):
        items = [value_of(chance, kind.value_type) for _ in range(chance.randrange(4))]
        # Java fails on null rows in distinct arrays, and misreads null rows in other arrays.
        is_row = isinstance(kind.value_type, pa.StructType)
        return [item for item in items if item is not None] if is_row else items
    if isinstance(kind, pa.MapType):
        return [
            [key, value_of(chance, kind.item_type)]
            for key in chance.sample(keys_of(kind.key_type), k=chance.randrange(4))
        ]
    if isinstance(kind, pa.StructType):
        return {field.name: value_of(chance, field.type) for field in kind}
    return chance.choice(VALUES.get(str(kind).partition("(")[0], range(-3, 6)))


NUMBERS = (0.5, -0.0, 0.0, "NaN")
VALUES: dict[str, Sequence[Any]] = {
    "decimal128": ("0.07", "-5.00", "12.30", "-0.01"),
    "string": ("a", "b c", "c", " ", "\u00e9"),
    "date32[day]": ("1969-12-30", "2024-02-29", "2033-01-01"),
    "bool": (True, False),
    "float": (*NUMBERS, 3.25, -1e9),
    "double": (*NUMBERS, 3.25, -1e9),
}


def batch(chance: random.Random, table: Table, kinds: tuple[str, ...]) -> list[Record]:
    schema = table.scan().arrow_schema
    types = {field.name: field.type for field in schema if field.name != "k"}
    rows = [
        {"_kind": chance.choice(kinds), "k": chance.randrange(14)}
        | {name: value_of(chance, kind) for name, kind in types.items()}
        for _ in range(16)
    ]
    for row in rows:
        if "at" in row:
            row["at"] = chance.choice([10**9, 2 * 10**9, None])
    return rows


def table_at(root: Path) -> Table:
    return Catalog(str(root)).table("db.t")


def assert_same_rows(java: Peer, by_java: Path, by_us: Path) -> None:
    ours = table_at(by_us).scan().to_arrow()
    java_rows = records_to_rows(java.read(by_java), ours.column_names)
    assert_rows_equal(java_rows, canonical_rows(ours), [str(kind) for kind in ours.schema.types])


def changes_of(root: Path) -> list[str]:
    table, lines = table_at(root), list[str]()
    if table.load().schema.typed_options.changelog_producer == "none":
        return lines
    for number in table.stores.snapshots.ids():
        rows = canonical_rows(table.incremental(number - 1, number, "changelog").to_arrow())
        lines += [json.dumps(row) for row in rows]
    return sorted(lines)


@pytest.mark.parametrize("name", CASES)
def test_java_and_we_merge_the_same_rows_to_the_same_result(
    java: Peer, tmp_path: Path, name: str
) -> None:
    check_merges(java, tmp_path, name, CASES[name])


@pytest.mark.parametrize("name", [*CASES, *CASES_OF_2_0])
def test_java_20_and_we_merge_the_same_rows_to_the_same_result(
    java20: Peer, tmp_path: Path, name: str
) -> None:
    check_merges(java20, tmp_path, name, (CASES | CASES_OF_2_0)[name])


def check_merges(
    java: Peer, tmp_path: Path, name: str, case: tuple[str, Options, tuple[str, ...]]
) -> None:
    """Compare rows and changelogs of Java and us, before and after a compaction of each."""
    columns, options, kinds = case
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
        if turn == 1 and table.load().schema.typed_options.needs_lookup:
            java.run("compact", written, full=False)
    assert_same_rows(java, written, written)

    strategies: tuple[CompactionStrategy, ...] = ("minor", "full")
    for strategy in strategies:
        by_java, by_us = tmp_path / f"java {strategy}", tmp_path / f"us {strategy}"
        for copy in (by_java, by_us):
            shutil.copytree(written, copy)
        java.run("compact", by_java, full=strategy == "full")
        compact(table_at(by_us), InProcessExecutor(), strategy=strategy)
        assert_same_rows(java, by_java, by_us)
        assert changes_of(by_java) == changes_of(by_us)


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
@pytest.mark.parametrize("column", COMPARED)
def test_java_20_and_we_emit_updates_of_the_same_values(
    java20: Peer, tmp_path: Path, column: str, producer: str
) -> None:
    written = tmp_path / "written"
    Catalog(str(written)).create_table(
        "db.t",
        f"k INT, v {column}",
        primary_key=["k"],
        options={"bucket": "1", "write-only": "true", "changelog-producer": producer}
        | {"changelog-producer.row-deduplicate": "true"},
    )
    pairs = enumerate(itertools.product(COMPARED[column], repeat=2))
    before, after = zip(
        *(({"k": k, "v": old}, {"k": k, "v": new}) for k, (old, new) in pairs), strict=True
    )
    java20.run("write", written, rows=[{"_kind": "+I"} | row for row in before])
    java20.run("compact", written, full=True)
    java20.run("write", written, rows=[{"_kind": "+U"} | row for row in after])
    by_java, by_us = tmp_path / "java", tmp_path / "us"
    for copy in (by_java, by_us):
        shutil.copytree(written, copy)

    java20.run("compact", by_java, full=True)
    compact(table_at(by_us), InProcessExecutor(), strategy="full")

    assert changes_of(by_java) == changes_of(by_us)
