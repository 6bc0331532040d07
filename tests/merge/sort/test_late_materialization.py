"""Late materialization returns the same rows, and reads only row groups that contain them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import Row, new_table, rows_of, small_batches, table_of

from paimon_orch import Catalog
from paimon_orch.files.parquet.parquet import ParquetFileReader
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.bucket_readers import primary_key_reader as read
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table

GROUP_ROWS = 4
Read = tuple[str, tuple[int, ...]]
CHANGES = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(["+I", "+U", "-D"]), st.integers(0, 5)),
    min_size=1,
    max_size=25,
    unique_by=lambda change: change[0],
)


@pytest.fixture
def value_reads(monkeypatch: pytest.MonkeyPatch) -> list[Read]:
    """Return the first value of each read of column ``v``, and the row groups that were read."""
    reads: list[Read] = []
    batches = ParquetFileReader.batches

    def record_and_read(
        self: ParquetFileReader,
        columns: Sequence[str],
        batch_rows: int,
        groups: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        read_groups = range(self.num_row_groups) if groups is None else groups
        for batch in batches(self, columns, batch_rows, groups):
            if "v" in columns:
                reads.append((batch.column("v")[0].as_py(), tuple(read_groups)))
            yield batch

    monkeypatch.setattr(ParquetFileReader, "batches", record_and_read)
    return reads


def test_no_values_are_read_from_a_run_that_newer_runs_replace(
    tmp_path: Path, value_reads: list[Read]
) -> None:
    table = new_table(tmp_path, write_only="true")
    for turn in "abc":
        table.upsert(table_of("k v", [(key, turn) for key in range(10)]))

    assert rows_of(table) == [(key, "c") for key in range(10)]
    assert value_reads == [("c", (0,))]


def test_values_are_read_only_from_row_groups_with_a_remaining_row(
    tmp_path: Path, value_reads: list[Read]
) -> None:
    table = small_batches(new_table(tmp_path, write_only="true"), GROUP_ROWS)
    table.upsert(table_of("k v", [(key, "old") for key in range(12)]))
    table.upsert(table_of("k v", [(key, "new") for key in (*range(6), *range(8, 14))]))

    assert [v for _, v in rows_of(table)] == ["new"] * 6 + ["old"] * 2 + ["new"] * 6
    assert sorted(value_reads) == [*(("new", (group,)) for group in range(3)), ("old", (1,))]


def test_values_are_read_with_the_keys_if_no_row_group_can_be_skipped(
    tmp_path: Path, value_reads: list[Read]
) -> None:
    table = new_table(tmp_path, write_only="true")
    table.upsert(table_of("k v", [(key, "old") for key in range(10)]))
    table.upsert(table_of("k v", [(key, "new") for key in range(9)]))

    assert [v for _, v in rows_of(table)] == ["new"] * 9 + ["old"]
    assert len(value_reads) == 2


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_other_formats_are_read_in_one_pass(tmp_path: Path, file_format: str) -> None:
    table = new_table(tmp_path, file__format=file_format)
    for turn in "ab":
        table.upsert(table_of("k v", [(key, turn) for key in range(10)]))

    assert rows_of(table) == [(key, "b") for key in range(10)]


@pytest.mark.parametrize("name", ["_POSITION", "_PLACE"])
def test_a_column_can_have_any_name_that_the_format_allows(tmp_path: Path, name: str) -> None:
    table = new_table(tmp_path, f"k BIGINT, {name} STRING", changelog_producer="lookup")
    for turn in "ab":
        table.upsert(table_of(f"k {name}", [(key, turn) for key in range(3)]))

        assert rows_of(table) == [(key, turn) for key in range(3)]
        compact(table, InProcessExecutor())
        table.upsert(table_of(f"k {name}", [(key, "new") for key in range(3)]))
    assert rows_of(table) == [(key, "new") for key in range(3)]


@pytest.mark.slow
@settings(max_examples=60)
@given(turns=st.lists(CHANGES, min_size=2, max_size=5), data=st.data())
def test_late_materialization_returns_the_rows_of_a_merge_of_all_columns(
    turns: list[list[Row]], data: st.DataObject
) -> None:
    """Random upserts, deletes, compactions, added columns, filters and projections."""
    options = data.draw(st.sampled_from([{}, {"sequence.field": "at"}, {"ignore-delete": "true"}]))
    compacted = data.draw(st.integers(0, len(turns)))
    added = data.draw(st.integers(1, len(turns)))
    with tempfile.TemporaryDirectory() as folder:
        table = new_table(Path(folder), "k BIGINT, at INT, v STRING", write_only="true", **options)
        table = small_batches(table, GROUP_ROWS)
        for turn, changes in enumerate(turns):
            rows = table_of(
                "k kind at v", [(k, kind, time, f"{turn}: {k}") for k, kind, time in changes]
            )
            if "more" in table.load().schema.names:
                rows = rows.append_column("more", rows["v"])
            table.upsert(rows, row_kind="kind")
            if turn == compacted:
                compact(table, InProcessExecutor())
            if turn == added:
                catalog = Catalog(folder)
                catalog.alter_table("db.t", [AddColumn(column="more", type="STRING")])
                table = small_batches(catalog.table("db.t"), GROUP_ROWS)
        columns = data.draw(st.sampled_from([None, ["v"], table.load().schema.names[-1:], ["k"]]))
        where = data.draw(st.sampled_from([None, "k > 10", "v > '1' AND k < 20"]))

        late = _scan(table, columns, where, late=True)

        assert late == _scan(table, columns, where, late=False)


def _scan(table: Table, columns: list[str] | None, where: str | None, *, late: bool) -> list[Row]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "should_materialize_late", lambda _: late)
        return rows_of(table, columns=columns, filter=where)
