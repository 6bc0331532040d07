"""Tables of paimon-cpp are read and checked, and steps that cannot change them say why."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.golden import (
    assert_rows_equal,
    canonical_rows,
    copy_warehouse,
    expected_rows,
    table_name,
)
from support.paimon_cpp import (
    FINDINGS,
    FOLDER,
    UNASSIGNED,
    WITH_NULL_KEY,
    Entry,
    compaction_refusal,
    cpp_cases,
)

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.types.data_types import MapType
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import CompactionStrategy, compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

pytestmark = pytest.mark.slow

STRATEGIES: tuple[CompactionStrategy, ...] = ("minor", "full")


def versions(table: Table, entry: Entry) -> Iterator[tuple[Any, Entry]]:
    """Yield scans, and the rows and columns that Java read."""
    for snapshot in entry["snapshots"]:
        # Java fails on some snapshots before the newest schema.
        if "read_error" not in snapshot:
            rows = snapshot.get("rows", snapshot.get("rows_of_older_types"))
            yield table.scan(snapshot_id=snapshot["id"]), {**snapshot, "rows": rows}
    for tag in entry["tag_rows"]:
        yield table.scan(tag=tag["key"]), tag
    if "combined_rows" in entry:
        yield (
            table.scan(),
            {"columns": entry["combined_columns"], "rows": entry["combined_rows"]},
        )
    if "row_tracking" in entry:
        columns = [*table.load().schema.names, "_ROW_ID", "_SEQUENCE_NUMBER"]
        yield table.scan(columns), {"columns": columns, "rows": entry["row_tracking"]}


def digest(warehouse: Path) -> str:
    files = sorted(path for path in warehouse.rglob("*") if path.is_file())
    return hashlib.sha256(repr([(f, f.read_bytes()) for f in files]).encode()).hexdigest()


@pytest.mark.parametrize(("name", "folder", "entry"), cpp_cases())
def test_all_versions_have_the_rows_that_java_read(
    name: str, folder: Path, entry: Entry, tmp_path: Path
) -> None:
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table(table_name(entry))

    for scan, expected in versions(table, entry):
        result = scan.to_arrow()
        assert result.column_names == expected["columns"], name
        types = [str(field.type) for field in result.schema]
        assert_rows_equal(expected_rows(expected), canonical_rows(result), types)


@pytest.mark.parametrize(("name", "folder", "entry"), cpp_cases())
def test_a_deep_check_has_only_the_listed_findings(
    name: str, folder: Path, entry: Entry, tmp_path: Path
) -> None:
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table(table_name(entry))

    findings = check(table, deep=True).findings

    assert {finding.rule for finding in findings} == FINDINGS.get(name, set())


@pytest.mark.parametrize(
    ("name", "folder", "entry"),
    cpp_cases(lambda name, entry: compaction_refusal(name, entry) is not None),
)
def test_a_compaction_is_refused_as_listed_and_changes_nothing(
    name: str, folder: Path, entry: Entry, tmp_path: Path
) -> None:
    warehouse = copy_warehouse(folder, tmp_path / "w")
    table, before = Catalog(str(warehouse)).table(table_name(entry)), digest(warehouse)
    refusal = compaction_refusal(name, entry)
    assert refusal is not None
    error, words = refusal

    for strategy in ("full",) if words == UNASSIGNED else STRATEGIES:  # others find nothing to do
        with pytest.raises(error, match=words):
            compact(table, InProcessExecutor(), strategy=strategy)

    assert digest(warehouse) == before


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no ../shared/golden/paimon-cpp")
def test_a_null_key_of_a_map_in_an_orc_file_is_refused(tmp_path: Path) -> None:
    table = WITH_NULL_KEY.rpartition("__")[2]
    warehouse = copy_warehouse(FOLDER / WITH_NULL_KEY, tmp_path / "w")
    opened = Catalog(str(warehouse)).table(f"{table}.{table}")

    with pytest.raises(UnsupportedError, match="a map in this ORC file has a null key"):
        opened.scan().to_arrow()
    [key] = [field.name for field in opened.load().schema.fields if isinstance(field.type, MapType)]
    others = [name for name in opened.load().schema.names if name != key]
    assert opened.scan(columns=others).to_arrow().num_rows > 0
