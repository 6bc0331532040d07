"""Data evolution: each column is read from its newest file, in batches of any size."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data_evolution import RowChanges, add_columns, evolving_table
from support.tables import rows_of, table_of

from paimon_orch.errors import CorruptFileError, UnsupportedError
from paimon_orch.files.batch_sizes import BatchSizes
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.commit import kind_conflicts
from paimon_orch.table.scan.data_evolution import DataEvolutionReader, group_files_by_rows

NAMES = ("a", "b", "c")

updates = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMES), min_size=1), st.integers(2, 30)), max_size=4
)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    updates=updates, size=st.integers(1, 40), deleted_rows=st.sets(st.integers(0, 39), max_size=5)
)
def test_each_column_is_read_from_its_newest_file(
    updates: list[tuple[set[str], int]], size: int, deleted_rows: set[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = evolving_table(Path(folder))
        add_columns(table, table_of("a b c", [(-1, -1, -1)] * 3))
        model = {name: list(range(size)) for name in NAMES}
        add_columns(table, pa.table(model))
        for number, (names, group) in enumerate(updates, 1):
            sizes = BatchSizes(row_group_rows=group, min_row_group_rows=1)
            for name in names:
                model[name] = [1000 * number + n for n in range(size)]
            add_columns(table, pa.table({name: model[name] for name in names}), 3, sizes)

        result = sorted(table.scan(["c", "a", "b", "_ROW_ID"]).to_arrow().to_pylist(), key=str)
        rows = [
            {name: model[name][n] for name in ("c", "a", "b")} | {"_ROW_ID": n + 3}
            for n in range(size)
        ]
        before = [{"c": -1, "a": -1, "b": -1, "_ROW_ID": n} for n in range(3)]
        assert result == sorted([*rows, *before], key=str)
        assert rows_of(table, columns=["b"], filter="b > 5 AND a >= 0") == sorted(
            (row["b"],) for row in rows if row["b"] > 5
        )
        [split] = table.files()
        [group_of] = [
            group for group in group_files_by_rows(split.files) if group[0].first_row_id == 3
        ]
        assert len(group_of) == 1 + len(updates)
        vector = DeletionVector.of(sorted(n for n in deleted_rows if n < size))
        schemas = table.stores.reader()
        evolved = DataEvolutionReader(schemas, EMPTY_ROW, 0, group_of)
        batches = evolved.batches(table.load().schema.fields, {group_of[-1].file_name: vector})
        remaining = [row for batch in batches for row in batch.column("a").to_pylist()]
        assert remaining == [model["a"][n] for n in range(size) if n not in deleted_rows]


def test_complete_rows_are_appended_and_replaced(tmp_path: Path) -> None:
    table = evolving_table(tmp_path)
    table.append(table_of("a b c", [(1, 2, 3)]))
    add_columns(table, table_of("b", [(9,)]), first_row_id=0)
    table.append(table_of("a b c", [(4, 5, 6)]))
    assert rows_of(table, columns=["a", "b", "c", "_ROW_ID"]) == [(1, 9, 3, 0), (4, 5, 6, 1)]

    table.overwrite(table_of("a b c", [(7, 8, 9)]))
    assert rows_of(table, columns=["a", "_ROW_ID"]) == [(7, 2)]


@pytest.fixture
def no_row_id_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits add files that a reader must refuse."""
    monkeypatch.setattr(kind_conflicts, "check_row_ranges", lambda *_: None)


@pytest.mark.usefixtures("no_row_id_checks")
def test_partially_overlapping_files_are_refused(tmp_path: Path) -> None:
    table = evolving_table(tmp_path)
    add_columns(table, table_of("a b c", [(n, n, n) for n in range(5)]))
    add_columns(table, table_of("a b c", [(n, n, n) for n in range(5)]))
    add_columns(table, table_of("b", [(n,) for n in range(3)]), first_row_id=4)

    with pytest.raises(UnsupportedError, match="only a part of their rows in common"):
        rows_of(table)


@pytest.mark.usefixtures("no_row_id_checks")
def test_files_of_the_same_rows_must_have_equal_row_counts(tmp_path: Path) -> None:
    table = evolving_table(tmp_path)
    add_columns(table, table_of("a b c", [(n, n, n) for n in range(5)]))
    add_columns(table, table_of("b", [(n,) for n in range(5)]), first_row_id=0)
    [split] = table.files()
    [(new, old)] = group_files_by_rows(split.files)
    lying = DataEvolutionReader(table.stores.reader(), EMPTY_ROW, 0, (new, old))

    assert [batch.num_rows for batch in lying.batches(table.load().schema.fields, {})] == [5]
    add_columns(table, table_of("b", [(n,) for n in range(4)]), first_row_id=5)
    short = table.files()[0].files[-1]
    lying = DataEvolutionReader(table.stores.reader(), EMPTY_ROW, 0, (short, old))
    with pytest.raises(CorruptFileError, match="different row counts"):
        list(lying.batches(table.load().schema.fields, {}))


def test_incremental_reads_of_evolved_rows_are_refused(tmp_path: Path) -> None:
    table = evolving_table(tmp_path)
    add_columns(table, table_of("a b c", [(1, 2, 3)]))
    add_columns(table, table_of("b", [(9,)]), first_row_id=0)

    assert table.incremental(0, 1, "delta").to_arrow().num_rows == 1
    with pytest.raises(UnsupportedError, match=r"data-evolution\.enabled"):
        table.incremental(1, 2, "delta").to_arrow()
    with pytest.raises(UnsupportedError, match=r"data-evolution\.enabled"):
        table.incremental(1, 2, "delta", filter="a = 7").to_arrow()


def test_a_diff_has_complete_rows_of_changed_ranges(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, deletion_vectors__enabled="true")
    table.append(table_of("a b c", [(1, 2, 3), (4, 5, 6), (7, 8, 9)]))
    add_columns(table, table_of("b", [(2,), (50,), (8,)]), first_row_id=0)
    RowChanges(deleted=[2]).commit(table)

    def diff(start: int, end: int) -> list[tuple[object, ...]]:
        rows = table.incremental(start, end, "diff").to_arrow()
        return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    assert diff(1, 2) == [("+I", 4, 50, 6), ("-D", 4, 5, 6)]
    assert diff(2, 3) == [("-D", 7, 8, 9)]
    compact(table, InProcessExecutor(), strategy="full")
    assert diff(3, 4) == []
    assert diff(1, 4) == [("+I", 4, 50, 6), ("-D", 4, 5, 6), ("-D", 7, 8, 9)]
