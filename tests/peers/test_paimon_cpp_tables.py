"""Java 2.0 reads its rows of the tables of paimon-cpp after our steps, and finds them sound."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.golden import canonical_rows, copy_warehouse, table_name
from support.paimon_cpp import FINDINGS, Entry, compaction_refusal, cpp_cases
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps.cleanup.remove_orphan_files import RemoveOrphanFilesRequest
from paimon_orch.steps.cleanup.remove_orphan_files import plan as plan_orphans
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

pytestmark = pytest.mark.slow


def java_rows(java20: Peer, warehouse: Path, name: str) -> list[str]:
    rows = map(json.loads, java20._oracle("dump", warehouse, name))
    return sorted(text({k: v for k, v in row.items() if k != "_kind"}) for row in rows)


def our_rows(table: Table) -> list[str]:
    result = table.scan().to_arrow()
    return sorted(
        text(dict(zip(result.column_names, row, strict=True))) for row in canonical_rows(result)
    )


def text(row: dict[str, object]) -> str:
    return json.dumps(row, ensure_ascii=False, sort_keys=True)


def compacted_by_java(java20: Peer, folder: Path, name: str, scratch: Path) -> list[str]:
    warehouse = copy_warehouse(folder, scratch)
    java20._oracle("compact", warehouse, name)
    return java_rows(java20, warehouse, name)


def orphans_of(table: Table) -> set[str]:
    """Return the files, of any age, that an orphan cleanup would remove."""
    root = Path(table.paths.root)
    for path in root.rglob("*"):
        os.utime(path, (1, 1))
    plan = plan_orphans(table, RemoveOrphanFilesRequest())
    return {str(Path(file.path).relative_to(root)) for file in plan.files}


@pytest.mark.parametrize(
    ("name", "folder", "entry"),
    cpp_cases(lambda name, entry: compaction_refusal(name, entry) is None),
)
def test_java_reads_its_rows_after_our_steps(
    java20: Peer, name: str, folder: Path, entry: Entry, tmp_path: Path
) -> None:
    warehouse, table_id = copy_warehouse(folder, tmp_path / "w"), table_name(entry)
    table = Catalog(str(warehouse)).table(table_id)
    before = after = java_rows(java20, warehouse, table_id)
    if table.load().schema.skips_level_0:  # the first compaction makes rows of level 0 visible
        after = compacted_by_java(java20, folder, table_id, tmp_path / "java")
    orphans = orphans_of(table)
    problems = java20.check(warehouse, table_id)

    for strategy in ("minor", "full"):
        compact(table, InProcessExecutor(), strategy=strategy)
        assert java_rows(java20, warehouse, table_id) in (before, after)
    expire_snapshots(table, retain_max=1)

    assert java_rows(java20, warehouse, table_id) == our_rows(table) == after
    assert set(java20.check(warehouse, table_id)) <= set(problems)
    assert {f.rule for f in check(table, deep=True).findings} <= FINDINGS.get(name, set())
    assert orphans_of(table) == set(java20._oracle("orphans", warehouse, table_id)) <= orphans
