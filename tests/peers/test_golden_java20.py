"""Maintenance of golden tables of Java 2.0: rows are unchanged, and Java continues to write.

Refused tables are listed with the option that the error names; they must not change at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.golden import canonical_rows, copy_warehouse, golden_tables, table_name
from support.golden_bitmaps import order_bitmap
from support.golden_limits import MERGED_BY_ENGINES, refusal_pattern
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

SIDECAR = "data-evolution.row-sidecar.enabled"

COMPACTION_REFUSED = {
    "blob/db.t_pk": "BLOB",
    "data_evolution_sidecar": SIDECAR,
    "map_shared_shredding": "fields.m.map.storage-layout",
    "text_formats/db.t_csv": "csv",
    "text_formats/db.t_json": "json",
    "vector/db.t_store": "vector.file.format",
}
"""Tables or folders whose compaction is refused, and the option that the error names."""

EXPIRATION_REFUSED = {
    name: option_name
    for name, option_name in COMPACTION_REFUSED.items()
    if option_name not in (SIDECAR, "changelog-file.format", "csv", "json")
    and name not in ("vector/db.t_store", "blob/db.t_pk")
}
"""The tables above for which the expiration of snapshots is refused, too."""

Step = Callable[[Table], object]
EXECUTOR = InProcessExecutor()


def find_refusal(name: str, table: dict[str, str]) -> str | None:
    """Return the entry of a table, or of its folder, in a list of refusals."""
    folder = name.partition("/")[0]
    return table.get(name) or table.get(folder)


def rows_for(java20: Peer, warehouse: Path, name: str) -> list[str]:
    """Return the rows of Java 2.0 without row kinds, which postpone buckets store."""
    lines = java20._oracle("dump", warehouse, name)
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return sorted(text({k: v for k, v in record.items() if k != "_kind"}) for record in records)


def text(record: dict[str, Any]) -> str:
    return json.dumps(order_bitmap(record), ensure_ascii=False, sort_keys=True)


def our_rows(table: Table) -> list[str]:
    result = table.scan().to_arrow()
    names = result.column_names
    return sorted(text(dict(zip(names, row, strict=True))) for row in canonical_rows(result))


def digest(warehouse: Path) -> str:
    """Return a hash of the names and bytes of all files."""
    files = sorted(path for path in warehouse.rglob("*") if path.is_file())
    content = ((path.relative_to(warehouse), path.read_bytes()) for path in files)
    return hashlib.sha256(repr(list(content)).encode()).hexdigest()


def cases() -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        if name.startswith("java-2.0"):
            yield pytest.param(name.partition("/")[2], folder, entry, id=name)


CASES = list(cases())


@pytest.mark.parametrize(
    ("name", "folder", "entry"), [c for c in CASES if find_refusal(c.values[0], COMPACTION_REFUSED)]
)
def test_a_compaction_is_refused_with_the_option_in_the_error_and_changes_nothing(
    name: str, folder: Path, entry: dict[str, Any], tmp_path: Path
) -> None:
    warehouse = copy_warehouse(folder, tmp_path / "w")
    table = Catalog(str(warehouse)).table(table_name(entry))
    before = digest(warehouse)
    steps: dict[str, tuple[Step, dict[str, str]]] = {
        "minor": (lambda t: compact(t, EXECUTOR, strategy="minor"), COMPACTION_REFUSED),
        "full": (lambda t: compact(t, EXECUTOR, strategy="full"), COMPACTION_REFUSED),
        "expire": (lambda t: expire_snapshots(t, retain_max=1), EXPIRATION_REFUSED),
    }
    for step, refused in steps.values():
        option = find_refusal(name, refused)
        if option is not None:
            with pytest.raises(UnsupportedError, match=option.replace(".", r"\.")):
                step(table)
            assert digest(warehouse) == before


@pytest.mark.parametrize(
    ("name", "folder", "entry"),
    [c for c in CASES if find_refusal(c.values[0], COMPACTION_REFUSED) == SIDECAR],
)
def test_an_expiration_of_snapshots_keeps_the_rows_of_tables_with_row_sidecars(
    java20: Peer, name: str, folder: Path, entry: dict[str, Any], tmp_path: Path
) -> None:
    warehouse, table_id = copy_warehouse(folder, tmp_path / "w"), table_name(entry)
    before = rows_for(java20, warehouse, table_id)

    expire_snapshots(Catalog(str(warehouse)).table(table_id), retain_max=1)

    assert rows_for(java20, warehouse, table_id) == before
    assert java20.check(warehouse, table_id) == []


def hides_rows(entry: dict[str, Any]) -> bool:
    """Return whether a compaction may change the rows of a batch read."""
    options = entry["options"]
    hiding = ("deletion-vectors.enabled", "record-level.expire-time")
    waiting = options.get("bucket") == "-2" or options.get("merge-engine") == "first-row"
    return waiting or any(key in options for key in hiding)


def compacted_by_java(java20: Peer, folder: Path, name: str, scratch: Path) -> list[str]:
    warehouse = copy_warehouse(folder, scratch)
    # Java fails if Iceberg metadata names files of the place that a table was copied from.
    Catalog(str(warehouse)).table(name).stores.publish_iceberg_metadata()
    for _ in range(2):  # the first compaction moves postponed rows to level 0
        java20._oracle("compact", warehouse, name)
    return rows_for(java20, warehouse, name)


COMPACTED = [c for c in CASES if not find_refusal(c.values[0], COMPACTION_REFUSED)]


@pytest.mark.parametrize(("name", "folder", "entry"), COMPACTED)
def test_java_reads_its_rows_after_our_steps_and_continues_to_write(
    java20: Peer, java: Peer, name: str, folder: Path, entry: dict[str, Any], tmp_path: Path
) -> None:
    warehouse, table_id = copy_warehouse(folder, tmp_path / "w"), table_name(entry)
    table = Catalog(str(warehouse)).table(table_id)
    before = after = rows_for(java20, warehouse, table_id)
    if hides_rows(entry):
        after = compacted_by_java(java20, folder, table_id, tmp_path / "java")

    compact(table, EXECUTOR, strategy="minor")
    assert rows_for(java20, warehouse, table_id) in (before, after)
    compact(table, EXECUTOR, strategy="full")
    assert rows_for(java20, warehouse, table_id) == after
    expire_snapshots(table, retain_max=1)
    assert rows_for(java20, warehouse, table_id) == after
    assert_sound(java20, warehouse, table)
    assert java20._oracle("orphans", warehouse, table_id) == []

    writes_again(
        java20, java, warehouse=warehouse, entry=entry, file=tmp_path / "rows.jsonl", rows=after[:5]
    )
    assert_sound(java20, warehouse, table)
    full_name = f"java-2.0/{name}"
    if refusal_pattern(full_name) is None and full_name not in MERGED_BY_ENGINES:
        assert our_rows(table) == rows_for(java20, warehouse, table_id)


def assert_sound(java20: Peer, warehouse: Path, table: Table) -> None:
    assert java20.check(warehouse, table.identifier) == []
    assert check(table, deep=True).findings == ()


def writes_again(
    java20: Peer, java: Peer, warehouse: Path, entry: dict[str, Any], file: Path, rows: list[str]
) -> None:
    """Write rows and compact with both releases."""
    name = table_name(entry)
    file.write_text("\n".join(rows), encoding="utf-8")
    java20._oracle("write", warehouse, name, str(file))
    java20._oracle("compact", warehouse, name, "--minor")
    options = entry["options"]
    # Java 1.4 supports clustered files only with deletion vectors, data evolution only without.
    vectors = "deletion-vectors.enabled" in options
    evolves = "data-evolution.enabled" in options
    newer = vectors if evolves else "pk-clustering-override" in options and not vectors
    engines_only = entry["bucket_mode"] in ("KEY_DYNAMIC", "POSTPONE_MODE")
    has_newer_type = any(
        field["type"].startswith(("VARIANT", "VECTOR", "BLOB")) for field in entry["fields"]
    )
    has_newer_index = "pk-btree.index.columns" in options
    if not newer and not has_newer_type and not has_newer_index and not engines_only:
        java.run("write", warehouse, name, rows=[json.loads(row) for row in rows])
        if not evolves:  # the test program does not compact these tables with Java 1.4
            java.run("compact", warehouse, name, full=True)
