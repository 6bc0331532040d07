"""Manifests in another format than the table's option are reported, and written again."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_orch import Catalog
from paimon_orch.steps import check, compact, compact_manifests
from paimon_orch.table.table import Table

MAGIC = {"avro": b"Obj", "orc": b"ORC", "parquet": b"PAR"}


def create_mixed_table(tmp_path: Path, first: str, last: str) -> Table:
    """Create a table with deletion vectors whose option was changed after two commits."""
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table(
        "db.t",
        "k INT, v STRING",
        primary_key=["k"],
        options={"bucket": "1", "deletion-vectors.enabled": "true", "manifest.format": first},
    )
    for value in ("a", "b"):
        table.upsert(pa.table({"k": pa.array(range(9), pa.int32()), "v": [value] * 9}))
        compact(table, strategy="full" if value == "a" else "minor")
    # no step of this library changes the option of a table with snapshots, but Java does
    schema = Path(table.paths.root) / "schema" / "schema-0"
    values = json.loads(schema.read_text()) | {"id": 1}
    values["options"]["manifest.format"] = last
    schema.with_name("schema-1").write_text(json.dumps(values))
    return catalog.table("db.t")


def formats_of(table: Table) -> set[bytes]:
    """Return the first bytes of the manifests that the newest snapshot needs."""
    snapshot = table.stores.snapshots.latest()
    assert snapshot is not None
    names = [meta.file_name for meta in table.stores.manifests.manifests(snapshot)]
    names += [snapshot.base_manifest_list, snapshot.delta_manifest_list]
    names += filter(None, [snapshot.index_manifest])
    folder = Path(table.paths.manifest_dir)
    return {(folder / name).read_bytes()[:3] for name in names}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", MAGIC)
@pytest.mark.parametrize("last", MAGIC)
def test_manifests_of_another_format_are_reported_and_unified(
    tmp_path: Path, first: str, last: str
) -> None:
    table = create_mixed_table(tmp_path, first, last)
    rows = table.scan().to_arrow().to_pylist()
    table.upsert(pa.table({"k": pa.array([0], pa.int32()), "v": ["c"]}))
    rules = [] if first == last else ["manifest-format"]
    assert [finding.rule for finding in check(table, deep=True).findings] == rules

    assert compact_manifests(table) is not None

    assert formats_of(table) == {MAGIC[last]}
    assert check(table, deep=True).findings == ()
    compact(table, strategy="full")
    assert len(table.scan().to_arrow()) == len(rows)


def test_a_single_manifest_of_another_format_is_written_again(tmp_path: Path) -> None:
    table = create_mixed_table(tmp_path, "avro", "orc")
    assert compact_manifests(table) is not None
    assert formats_of(table) == {b"ORC"}
    assert compact_manifests(table) is None
