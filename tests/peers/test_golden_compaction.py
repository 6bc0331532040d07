"""Our compaction of golden primary-key tables keeps their rows, for us and every Java."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.golden import (
    assert_rows_equal,
    canonical_rows,
    copy_warehouse,
    golden_tables,
    records_to_rows,
    table_name,
)
from support.peers.environments import JAVA
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import CompactionStrategy, compact
from paimon_orch.table.table import Table

STRATEGIES: tuple[CompactionStrategy, ...] = ("minor", "full")


def cases() -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        # Tables of Java 2.0 have separate tests.
        if entry["primary_keys"] and not name.startswith("java-2.0"):
            yield pytest.param(folder, entry, id=name)


def rows_in(table: Table) -> list[str]:
    return sorted(json.dumps(row) for row in canonical_rows(table.scan().to_arrow()))


def levels_of(table: Table) -> set[int]:
    return {file.level for split in table.files() for file in split.files}


@pytest.mark.parametrize(("folder", "entry"), list(cases()))
def test_a_compaction_of_a_golden_table_keeps_its_rows(
    folder: Path, entry: dict[str, Any], tmp_path: Path
) -> None:
    name = table_name(entry)
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table(name)
    skips = table.load().schema.skips_level_0 and 0 in levels_of(table)
    before = None if skips else rows_in(table)  # the first compaction makes postponed rows visible

    for strategy in STRATEGIES:
        compact(table, InProcessExecutor(), strategy=strategy)
        before = rows_in(table) if before is None else before
        assert rows_in(table) == before

    top = (
        1
        if table.load().schema.typed_options.is_pk_clustering_override
        else table.load().schema.typed_options.num_levels - 1
    )
    assert levels_of(table) <= {top}
    assert not any(file.delete_row_count for split in table.files() for file in split.files)
    assert not [r for split in table.files() for entry in split.vectors for r in entry.ranges or ()]


# The list lacks pk_aggregation_complex because Java misreads null rows in arrays of rows.
PICKED = (
    "pk_b4_mor",
    "pk_dv_multi_files",
    "pk_dv_engines",
    "pk_partial_update_groups",
    "pk_aggregation",
    "pk_first_row",
    "pk_format_per_level",
    "pk_composite_types",
    "changelog_lookup_engines",
    "changelog_full_compaction",
)


@pytest.mark.parametrize("peer", JAVA, indirect=True)
@pytest.mark.parametrize(
    ("folder", "entry"), [case for case in cases() if case.values[0].name in PICKED]
)
def test_java_reads_a_golden_table_that_we_compacted(
    peer: Peer, referee: Peer, folder: Path, entry: dict[str, Any], tmp_path: Path
) -> None:
    warehouse, name = copy_warehouse(folder, tmp_path / "w"), table_name(entry)
    table = Catalog(str(warehouse)).table(name)

    for strategy in STRATEGIES:
        compact(table, InProcessExecutor(), strategy=strategy)
        ours = table.scan().to_arrow()
        java_rows = records_to_rows(peer.read(warehouse, name), ours.column_names)
        assert_rows_equal(java_rows, canonical_rows(ours), [str(f.type) for f in ours.schema])
        assert referee.check(warehouse, name) == []
