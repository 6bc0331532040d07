"""Java Paimon and we do the same with options that name a renamed, dropped or retyped column."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.peers.peers import Peer, PeerError

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.table.schema_change.schema_changes import DropColumn, RenameColumn, UpdateType

COLUMNS = (
    "k BIGINT NOT NULL, v INT, w INT, g INT, s STRING, t BIGINT, n ARRAY<ROW<a INT, b INT>>, "
    "e VECTOR<FLOAT, 2>"
)
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
LISTAGG = {"merge-engine": "aggregation", "fields.s.aggregate-function": "listagg"}
NESTED = {"merge-engine": "aggregation", "fields.n.aggregate-function": "nested_update"}
GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "v,w"}
GROUPS = {"merge-engine": "partial-update", "fields.g,t.sequence-group": "v,w"}
TRACKED = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
VECTORS = {"deletion-vectors.enabled": "true"}
OF_KEYS: list[tuple[str, dict[str, str]]] = [
    ("t", {"record-level.expire-time": "1 d", "record-level.time-field": "t"}),
    ("v", {"sequence.field": "w,v"}),
    ("s", {"rowkind.field": "s"}),
    ("v", {**VECTORS, "pk-btree.index.columns": "v"}),
    ("v", {**VECTORS, "pk-bitmap.index.columns": "v"}),
    ("s", {**VECTORS, "pk-full-text.index.columns": "s"}),
    ("v", SUM),
    ("v", {"fields.v.ignore-retract": "true"}),
    ("s", {**LISTAGG, "fields.s.distinct": "true", "fields.s.list-agg-delimiter": ";"}),
    ("n", {**NESTED, "fields.n.nested-key": "a"}),
    ("n", {**NESTED, "fields.n.count-limit": "3"}),
    ("n", {**NESTED, "fields.n.nested-key": "a", "fields.n.nested-sequence-field": "b"}),
    ("g", GROUP),
    ("v", GROUP),
    ("g", GROUPS),
    ("g", {**GROUP, "partial-update.remove-record-on-sequence-group": "g"}),
]
OF_APPENDS: list[tuple[str, dict[str, str]]] = [
    ("v", {"file-index.bloom-filter.columns": "v"}),
    ("v", {"file-index.bitmap.columns": "w,v"}),
    ("v", {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.items": "9"}),
    ("v", {"fields.v.stats-mode": "full"}),
    ("v", {"fields.v.default-value": "3"}),
    ("v", {"upsert-key": "v"}),
    ("e", {"vector-field": "e"}),
    ("b", {**TRACKED, "blob-field": "b"}),
    ("b", {**TRACKED, "blob-field": "b", "blob-descriptor-field": "b"}),
    ("b", {**TRACKED, "blob-field": "b", "blob-view-field": "b"}),
]
CASES = [
    *((["k"], column, {"bucket": "1", **options}) for column, options in OF_KEYS),
    *(([], column, {"bucket": "-1", **options}) for column, options in OF_APPENDS),
    ([], "v", {"bucket": "2", "bucket-key": "v"}),
]


@pytest.mark.parametrize(("key", "column", "options"), CASES, ids=str)
def test_java_and_we_change_a_column_that_an_option_names(
    tmp_path: Path, java20: Peer, key: list[str], column: str, options: dict[str, str]
) -> None:
    blob = ", b BLOB" if column == "b" else ""
    changes: list[tuple[list[str], Any]] = [
        (["rename", column, "x"], RenameColumn(column, "x")),
        (["drop", column], DropColumn(column)),
    ]
    if column == "t":
        changes.append((["type", column, "STRING"], UpdateType(column, "STRING")))
    for words, change in changes:
        results = list[tuple[list[str], Mapping[str, str]] | None]()
        for name in ("java", "we"):
            warehouse = tmp_path / f"{words[0]}-{name}"
            catalog = Catalog(str(warehouse))
            catalog.create_table("db.t", COLUMNS + blob, primary_key=key, options=options)
            try:
                if name == "java":
                    java20.run("alter", warehouse, changes=[words])
                else:
                    catalog.alter_table("db.t", [change])
            except (PeerError, InputError):
                results.append(None)
            else:
                schema = Catalog(str(warehouse)).table("db.t").load().schema
                results.append((schema.names, schema.options))
        assert results[0] == results[1], words
