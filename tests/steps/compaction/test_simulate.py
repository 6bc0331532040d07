"""A simulated compaction: the figures are those of the real one, and the table does not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.memory_s3 import OPTIONS, run_memory_s3
from support.tables import new_table, table_of

from paimon_orch import Catalog, InputError
from paimon_orch.steps import InProcessExecutor, compact
from paimon_orch.steps.compaction.plan import CompactRequest
from paimon_orch.steps.compaction.simulate import simulate
from paimon_orch.table.table import Table

FULL = CompactRequest(strategy="full")
KINDS: dict[str, dict[str, Any]] = {
    "key": {"bucket": "2"},
    "key, vectors": {"bucket": "2", "deletion-vectors.enabled": "true"},
    "key, lookup": {"changelog-producer": "lookup"},
    "append": {"key": (), "bucket": "-1"},
    "buckets": {"key": (), "bucket": "2", "bucket-key": "k"},
    "data evolution": {
        "key": (), "bucket": "-1", "row-tracking.enabled": "true",
        "data-evolution.enabled": "true",
    },
    "Iceberg": {"metadata.iceberg.storage": "table-location"},
}  # fmt: skip


def create_table(root: Path, **options: Any) -> Table:
    key = options.pop("key", ("k",))
    table = new_table(root, key=key, **options)
    for start in range(4):
        table.append(table_of("k v", [(k, f"v{start}") for k in range(start, start + 20)]))
    return table


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulation_has_the_figures_of_the_compaction_and_changes_nothing(
    tmp_path: Path, kind: str
) -> None:
    table = create_table(tmp_path, **KINDS[kind])
    before = contents(tmp_path)

    simulation = simulate(table, FULL)

    assert contents(tmp_path) == before
    assert simulation is not None
    result = compact(table, InProcessExecutor(), strategy="full")
    assert (simulation.sampled_buckets, simulation.sampled_bytes) == (
        simulation.buckets,
        simulation.bytes,
    )
    assert simulation.bytes == result.bytes_read
    assert simulation.written_bytes == pytest.approx(result.bytes_written, rel=0.01)
    rows, files = table.scan().count(), sum(len(split.files) for split in table.files())
    assert (simulation.after.rows, simulation.after.files) == (rows, files)
    assert simulation.after.requests == files  # each file is small
    assert simulation.after.bytes == pytest.approx(result.bytes_written, rel=0.01)
    if kind != "key, vectors":  # level 0 is not read
        assert simulation.before.rows == rows
        assert simulation.before.requests > files


def test_a_sample_is_bounded(tmp_path: Path) -> None:
    table = create_table(tmp_path, bucket="4")
    whole = simulate(table, FULL)
    assert whole is not None

    half = simulate(table, FULL, max_bytes=whole.bytes // 2)

    assert half is not None
    assert (whole.sampled_buckets, half.buckets, half.bytes) == (4, 4, whole.bytes)
    assert 1 <= half.sampled_buckets <= 2
    assert half.sampled_bytes <= whole.bytes // 2
    assert half.before.bytes == half.sampled_bytes
    with pytest.raises(InputError, match="a sample of 10 B is too small"):
        simulate(table, FULL, max_bytes=10)


def test_a_table_in_an_object_store_is_only_read() -> None:
    options: dict[str, Any] = {**OPTIONS}
    with run_memory_s3() as store:
        catalog = Catalog("s3://bucket/lake", **options)
        table = catalog.create_table(
            "db.t", "k BIGINT NOT NULL, v STRING", primary_key=["k"], options={"bucket": "1"}
        )
        for start in range(3):
            table.upsert(table_of("k v", [(start, "a"), (start + 1, "b")]))
        before = dict(store.objects)

        simulation = simulate(table, FULL)

        assert store.objects == before
    assert simulation is not None
    assert (simulation.before.requests, simulation.after.requests) == (3, 1)


def test_nothing_to_compact_is_not_measured(tmp_path: Path) -> None:
    table = create_table(tmp_path)
    compact(table, InProcessExecutor(), strategy="full")

    assert simulate(table, FULL) is None
