"""Tables of paimon-cpp, and what is known not to work with them. The tests verify the limits.

The tables are test data of paimon-cpp and its forks. They are not part of the repository: tests
read them from `../shared/golden/paimon-cpp`, and are skipped without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.golden import golden_tables, table_name

from paimon_orch.errors import PaimonError, UnsupportedError

Entry = dict[str, Any]

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "golden" / "paimon-cpp"
_MISSING = "the tables of paimon-cpp are missing: no ../shared/golden/paimon-cpp"

WITH_NULL_KEY = "cpp__orc__nullable_map_key"
"""pyarrow cannot read a null key of a map in an ORC file, so this table is refused."""

FINDINGS = {
    # Their bitmap indexes have the format of a release before 2.0, which is not decoded.
    "cpp__orc__append_with_global_index": {"global-index"},
    "cpp__parquet__append_with_global_index": {"global-index"},
    # In addition, rows of two partitions have the same ids.
    "cpp__orc__append_with_global_index_with_partition": {"global-index", "row-ids"},
    "cpp__parquet__append_with_global_index_with_partition": {"global-index", "row-ids"},
    # In addition to their indexes, nextRowId is 0 in their snapshots.
    "alih1__orc__append_with_global_index": {"global-index", "index", "row-ids"},
    "alih1__orc__append_with_global_index_with_partition": {"global-index", "index", "row-ids"},
    "alih1__parquet__append_with_global_index": {"global-index", "index", "row-ids"},
    "alih1__parquet__append_with_global_index_with_partition": {"global-index", "index", "row-ids"},
    # nextRowId is 0 in their snapshots.
    "ali__orc__blob_append_table_alter_table_with_cast_with_data_evolution": {"row-ids"},
    "ali__parquet__blob_append_table_alter_table_with_cast_with_data_evolution": {"row-ids"},
    "cpp__orc__blob_append_table_alter_table_with_cast_with_data_evolution": {"row-ids"},
    "cpp__parquet__blob_append_table_alter_table_with_cast_with_data_evolution": {"row-ids"},
    # The table has a tag, but not its data files.
    "cpp__orc__append_table_with_tag": {"missing-file"},
    # Made by commits that no writer makes; a README in the tables describes them.
    "cpp__orc__pk_btree_e2e": {"compaction"},
    "cpp__orc__pk_btree_partitioned_e2e": {"compaction"},
    "cpp__orc__pk_btree_partitioned_e2e$branch_fallback": {"compaction"},
    "cpp__parquet__pk_btree_e2e": {"compaction"},
    "cpp__parquet__pk_btree_partitioned_e2e": {"compaction"},
    "cpp__parquet__pk_btree_partitioned_e2e$branch_fallback": {"compaction"},
}
"""The rules of the findings of deep checks; other tables have none."""

UNASSIGNED = "has assigned only ids below 0"  # nextRowId is 0, although files have row ids
_REFUSED: dict[str, tuple[type[PaimonError], str]] = {
    "ali__orc__blob_append_table_alter_table_with_cast_with_data_evolution": (
        UnsupportedError,
        UNASSIGNED,
    ),
    "ali__parquet__blob_append_table_alter_table_with_cast_with_data_evolution": (
        UnsupportedError,
        UNASSIGNED,
    ),
    "cpp__orc__blob_append_table_alter_table_with_cast_with_data_evolution": (
        UnsupportedError,
        UNASSIGNED,
    ),
    "cpp__parquet__blob_append_table_alter_table_with_cast_with_data_evolution": (
        UnsupportedError,
        UNASSIGNED,
    ),
    "ap__root__pk_global_index_golden/test_pk_full_text_golden": (
        UnsupportedError,
        "pk-full-text.index.columns",
    ),
    "ap__root__pk_global_index_golden/test_pk_vector_golden": (
        UnsupportedError,
        "pk-vector.index.columns",
    ),
}


def compaction_refusal(name: str, entry: Entry) -> tuple[type[PaimonError], str] | None:
    """Return the error of a compaction and words of it, or None if it must succeed."""
    return _REFUSED.get(name)


def cpp_cases(selects: Callable[[str, Entry], bool] = lambda *_: True) -> list[Any]:
    """Return (name, folder, entry) of tables as parameters, or one that is skipped."""
    if not FOLDER.is_dir():
        return [pytest.param("", Path(), {}, marks=pytest.mark.skip(reason=_MISSING), id="missing")]
    return [
        pytest.param(name, folder, entry, id=name)
        for name, folder, entry in _tables()
        if name != WITH_NULL_KEY and selects(name, entry)
    ]


def _tables() -> Iterator[tuple[str, Path, Entry]]:
    for _, folder, entry in golden_tables(FOLDER.parent, FOLDER.name):
        table, _, branch = table_name(entry).partition(".")[2].partition("$")
        name = folder.name if folder.name.endswith(f"__{table}") else f"{folder.name}/{table}"
        yield f"{name}${branch}" if branch else name, folder, entry
