"""A deep check compares indexes of columns with the rows that they cover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.damage import edit_index
from support.data_evolution import RowChanges, evolving_table
from support.golden import GOLDEN, copy_warehouse
from support.tables import table_of

from paimon_orch import Catalog
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.create_global_index import create_global_index
from paimon_orch.table.column_index.row_id_groups import get_index_meta
from paimon_orch.table.table import Table


def copy_golden(name: str, root: Path) -> Table:
    folder = GOLDEN / "java-2.0" / name
    return Catalog(str(copy_warehouse(folder, root / "w"))).table("db.t")


def find_problems(table: Table) -> list[str]:
    return [f.text for f in check(table, deep=True).findings if f.rule == "global-index"]


def read_indexes(table: Table) -> list[IndexManifestEntry]:
    entries = table.stores.manifests.read_index_entries(table.snapshot())
    return [entry for entry in entries if entry.global_index is not None]


def get_path(table: Table, entry: IndexManifestEntry) -> Path:
    return Path(table.paths.index_file(table.load().schema, entry))


def damage_checksum(table: Table) -> None:
    path = get_path(table, read_indexes(table)[0])
    data = bytearray(path.read_bytes())
    data[10] ^= 0xFF
    path.write_bytes(data)


def damage_footer(table: Table) -> None:
    path = get_path(table, read_indexes(table)[-1])
    path.write_bytes(path.read_bytes()[:-1] + b"\0")


def name_another_column(table: Table) -> None:
    """Exchange the columns of two indexes."""

    def exchange(entries: list[IndexManifestEntry]) -> list[IndexManifestEntry]:
        indexes = [entry for entry in entries if entry.global_index is not None]
        columns = [replace(get_index_meta(entry), index_meta=None) for entry in indexes]
        return [entry for entry in entries if entry.global_index is None] + [
            replace(entry, global_index=meta)
            for entry, meta in zip(indexes, columns[::-1], strict=True)
        ]

    edit_newest_index(table, exchange)


def change_range(table: Table, *, start: int = 0, end: int = 0) -> None:
    """Let an index cover other rows than it has."""

    def change(entries: list[IndexManifestEntry]) -> list[IndexManifestEntry]:
        meta = get_index_meta(entries[0])
        moved = replace(
            meta,
            row_range_start=meta.row_range_start + start,
            row_range_end=meta.row_range_end + end,
        )
        return [replace(entries[0], global_index=moved), *entries[1:]]

    edit_newest_index(table, change)


def state_other_bounds(table: Table) -> None:
    """Exchange the smallest and greatest keys of two index files."""

    def exchange(entries: list[IndexManifestEntry]) -> list[IndexManifestEntry]:
        metas = [get_index_meta(entry) for entry in entries]
        return [
            replace(entry, global_index=replace(meta, index_meta=other.index_meta))
            for entry, meta, other in zip(entries, metas, metas[::-1], strict=True)
        ]

    edit_newest_index(table, exchange)


def edit_newest_index(
    table: Table, edit: Callable[[list[IndexManifestEntry]], Sequence[IndexManifestEntry]]
) -> None:
    latest = table.stores.snapshots.latest_id()
    assert latest is not None
    edit_index(table, latest, edit)


GOLDEN_TABLES = ["global_index", "pk_indexes"]


@pytest.mark.parametrize("name", GOLDEN_TABLES)
def test_indexes_of_java_agree_with_the_rows(name: str, tmp_path: Path) -> None:
    assert find_problems(copy_golden(name, tmp_path)) == []


@pytest.mark.parametrize("damage", [damage_checksum, damage_footer])
@pytest.mark.parametrize("name", GOLDEN_TABLES)
def test_damaged_index_files_are_found(
    name: str, damage: Callable[[Table], None], tmp_path: Path
) -> None:
    table = copy_golden(name, tmp_path)
    damage(table)

    assert len(find_problems(table)) == 1


DISAGREEMENTS: dict[Callable[[Table], None], str] = {
    name_another_column: "has wrong values of",
    partial(change_range, start=5, end=5): "has wrong values of 15 rows; the first is row 5",
    partial(change_range, end=5): "lacks 5 rows; the first is row 20",
    state_other_bounds: "differs from its manifest entry",
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("damage", DISAGREEMENTS)
def test_indexes_that_disagree_with_the_rows_are_found(
    damage: Callable[[Table], None], tmp_path: Path
) -> None:
    table = evolving_table(tmp_path)
    table.append(table_of("a b c", [(n, n % 7 if n % 3 else None, 0) for n in range(20)]))
    create_global_index(table, "a")
    create_global_index(table, "b")
    table.append(table_of("a b c", [(n, n, 0) for n in range(100, 105)]))
    assert find_problems(table) == []

    damage(table)

    assert any(DISAGREEMENTS[damage] in problem for problem in find_problems(table))


def test_values_that_an_update_left_in_an_index_are_no_damage(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, global_index__column_update_action="IGNORE")
    table.append(table_of("a b c", [(n, n, 0) for n in range(20)]))
    create_global_index(table, "a")
    RowChanges(updated={3: {"a": 1000}}).commit(table)

    assert find_problems(table) == []
