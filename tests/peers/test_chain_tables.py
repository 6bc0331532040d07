"""Reads of chain tables equal those of Java 2.0."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from support.peers.peers import Peer
from support.tables import new_table

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption
from paimon_orch.table.table import Table

DAILY = {"partition.timestamp-pattern": "$dt", "partition.timestamp-formatter": "yyyyMMdd"}
HOURLY = {
    "partition.timestamp-pattern": "$dt $hr:00:00",
    "partition.timestamp-formatter": "yyyyMMdd HH:mm:ss",
}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "days": (["dt"], DAILY),
    "groups": (["g", "dt"], DAILY | {"chain-table.chain-partition-keys": "dt"}),
    "hours": (["dt", "hr"], HOURLY),
    "groups of hours": (["g", "dt", "hr"], HOURLY | {"chain-table.chain-partition-keys": "dt,hr"}),
    "partial-update": (["dt"], DAILY | {"merge-engine": "partial-update"}),
    "deletion vectors": (["dt"], DAILY | {"deletion-vectors.enabled": "true"}),
}


def random_rows(
    table: Table, random: Random, keys: list[str], sequences: range, *, partial: bool
) -> pa.Table:
    """Return rows of one partition."""
    moment = datetime(2025, 1, 30) + timedelta(hours=random.randrange(96))
    values = {"g": random.choice("xy"), "dt": f"{moment:%Y%m%d}", "hr": f"{moment:%H}"}
    numbers = random.sample(range(20), random.randint(1, 8))
    columns: dict[str, Any] = {key: [values[key]] * len(numbers) for key in keys}
    nothing = 0.3 if partial else 0.0
    columns |= {
        "k": pa.array(numbers, pa.int32()),
        "seq": pa.array([random.choice(sequences) for _ in numbers], pa.int32()),
        "v": [None if random.random() < nothing else f"{random.random():.6f}" for _ in numbers],
    }
    if "late" in table.load().schema.names:
        columns["late"] = pa.array(numbers, pa.int32())
    return pa.table(columns)


def fill(table: Table, random: Random, keys: list[str], *, partial: bool, first: int = 0) -> None:
    has_vectors = table.load().schema.typed_options.has_deletion_vectors
    first += random.randrange(10**6)
    for number in range(random.randint(2, 6)):
        # If a compaction with deletion vectors rewrites an old row that wins by its sequence field,
        # the row and its deleted copy have the same numbers, and Java may return neither.
        sequences = range(10**6)
        if has_vectors:
            sequences = range(first + number * 10**5, first + (number + 1) * 10**5)
        rows = random_rows(table, random, keys, sequences, partial=partial)
        if not partial and random.random() < 0.2:
            table.delete(rows)
        else:
            table.upsert(rows)
        if random.random() < 0.3:
            compact(table, InProcessExecutor(), strategy=random.choice(["minor", "full"]))
    if has_vectors:  # rows on level 0 are not visible
        compact(table, InProcessExecutor(), strategy="minor")


def overwrite(table: Table, random: Random, keys: list[str], *, partial: bool) -> None:
    sequences = range(2 * 10**6, 3 * 10**6)
    with suppress(InputError):  # a delta partition needs the partition of the snapshot branch
        table.overwrite(random_rows(table, random, keys, sequences, partial=partial))


def sorted_records(records: list[dict[str, Any]]) -> list[str]:
    return sorted(str({name: record[name] for name in sorted(record)}) for record in records)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("seed", range(1))
def test_a_read_equals_that_of_java(java20: Peer, tmp_path: Path, kind: str, seed: int) -> None:
    random = Random(f"{kind} {seed}")  # noqa: S311
    keys, options = KINDS[kind]
    types = ", ".join([*(f"{key} STRING" for key in keys), "k INT, seq INT, v STRING"])
    first = {name: text for name, text in options.items() if name.startswith(("merge", "deletion"))}
    table = new_table(
        tmp_path,
        types,
        key=[*keys, "k"],
        partition_by=keys,
        sequence__field="seq",
        bucket="2",
        **first,
    )
    catalog = Catalog(str(tmp_path))
    names = ["db.t", "db.t$branch_full", "db.t$branch_delta"]
    for name in names[1:]:
        table.branches.create(name.rpartition("_")[2])
    partial = kind == "partial-update"
    for name in names[random.random() < 0.7 :]:
        fill(catalog.table(name), random, keys, partial=partial)
        if seed % 3 == 0 and name != "db.t":
            catalog.alter_table(name, [SetOption("target-file-size", "1 mb")])
    branches = {"scan.fallback-snapshot-branch": "full", "scan.fallback-delta-branch": "delta"}
    for name in names:
        changes = options | branches | {"chain-table.enabled": "true"}
        catalog.alter_table(
            name, [SetOption(key, value) for key, value in changes.items() if key not in first]
        )
        catalog.alter_table(name, [AddColumn(column="late", type="INT")])

    for name in names[1:]:
        fill(catalog.table(name), random, keys, partial=partial, first=10**6)
        overwrite(catalog.table(name), random, keys, partial=partial)

    expected = [{k: v for k, v in r.items() if k != "_kind"} for r in java20.read(tmp_path)]
    actual = catalog.table("db.t").scan().to_arrow().to_pylist()
    assert sorted_records(actual) == sorted_records(expected)
    for name in names[1:]:
        assert java20.check(tmp_path, name) == []
    assert len(expected) > 0
