"""One table, two engines: Java and we compact it in turn, and make the same changes of the same rows."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from golden import assert_rows_equal, canonical_rows, rows_of
from peers import peers

from paimon_orch import Catalog
from paimon_orch.steps.compact import compact
from paimon_orch.steps.executor import InProcessExecutor

FIELDS = [
    {"name": "k", "type": "INT"},
    {"name": "a", "type": "BIGINT"},
    {"name": "b", "type": "STRING"},
    {"name": "s", "type": "INT"},
]
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "sum",
        "fields.b.aggregate-function": "max",
    },
}


def spec(options: dict[str, str]) -> dict[str, Any]:
    return {
        "fields": FIELDS,
        "partition_keys": [],
        "primary_keys": ["k"],
        "options": {"bucket": "2", "file.format": "parquet", **options},
    }


def batch(seed: int, *, deletes: bool) -> list[dict[str, Any]]:
    chance = random.Random(seed)  # noqa: S311 - data, not a secret
    rows = []
    for key in chance.sample(range(60), 25):
        kind = "-D" if deletes and chance.random() < 0.2 else "+I"
        value = None if chance.random() < 0.2 else chance.randrange(100)
        rows.append(
            {"_kind": kind, "k": key, "a": value, "b": f"b{seed}", "s": chance.randrange(9)}
        )
    return rows


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
def test_compacting_in_turn_keeps_every_row(java_oracle: None, tmp_path: Path, engine: str) -> None:
    options = ENGINES[engine] | {"deletion-vectors.enabled": "true"}
    peers.java_create(tmp_path, "db.t", spec(options))
    table = Catalog(str(tmp_path)).table("db.t")
    for turn in range(4):
        rows = batch(turn, deletes=engine == "deduplicate")
        peers.java_write(tmp_path, "db.t", rows, mode="write-only")
        if turn % 2:
            peers.java_compact(tmp_path, "db.t", full=turn == 3)
        else:
            compact(table, InProcessExecutor())

        ours = table.scan().to_arrow()
        java = rows_of(peers.dump_java(tmp_path, "db.t"), ours.column_names)
        assert_rows_equal(java, canonical_rows(ours), [str(kind) for kind in ours.schema.types])
        assert peers.check_java(tmp_path, "db.t", deep=True) == []


def changes_of(warehouse: Path) -> list[str]:
    """Return the rows of all changelog files as text, in no order."""
    lines = peers.run_java("changelog", warehouse, "db.t").splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return sorted(json.dumps(without_files(row), sort_keys=True) for row in rows)


def without_files(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if "file" not in key and "snapshot" not in key}


LOOKUP = {"changelog-producer": "lookup"}
VECTORS = LOOKUP | {"deletion-vectors.enabled": "true"}
CHANGES = [
    ("deduplicate", LOOKUP | {"changelog-producer.row-deduplicate": "true"}),
    ("deduplicate", {"changelog-producer": "full-compaction"}),
    ("partial-update", VECTORS | {"changelog-producer.row-deduplicate": "true"}),
    ("first-row", LOOKUP),
]


@pytest.mark.parametrize(("engine", "options"), CHANGES)
def test_compaction_writes_the_changes_that_java_writes(
    java_oracle: None, tmp_path: Path, engine: str, options: dict[str, str]
) -> None:
    options = ENGINES.get(engine, {"merge-engine": "first-row"}) | options
    by_java, by_us = tmp_path / "java", tmp_path / "us"
    peers.java_create(by_java, "db.t", spec(options))
    full = options["changelog-producer"] == "full-compaction"
    for turn in range(3):
        rows = batch(turn, deletes=engine == "deduplicate")
        peers.java_write(by_java, "db.t", rows, mode="write-only")
        if turn == 0:  # both go on from here
            peers.java_compact(by_java, "db.t", full=True)
            shutil.copytree(by_java, by_us)
            continue
        peers.java_write(by_us, "db.t", rows, mode="write-only")
        peers.java_compact(by_java, "db.t", full=full)
        table = Catalog(str(by_us)).table("db.t")
        compact(table, InProcessExecutor(), strategy="full" if full else "minor")

    assert changes_of(by_java) == changes_of(by_us)
    assert peers.check_java(by_us, "db.t", deep=True) == []
