"""Compaction of append tables copies row groups, with the same result as decoding them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.damage import data_files, edit_files
from support.golden import canonical_rows
from support.random_tables import tables
from support.tables import assert_healthy, new_table, rows_of, small_batches, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CorruptFileError
from paimon_orch.files.batch_sizes import BatchSizes
from paimon_orch.files.parquet import row_group_source
from paimon_orch.files.parquet.row_group_source import RowGroupSource
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    SchemaChange,
    SetOption,
    UpdateColumnComment,
)
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
BUCKETED = {"bucket": "1", "bucket_key": "k"}
NEVER_COPY = BatchSizes(min_copied_group_bytes=1 << 60)


def create(root: Path, columns: str = "k BIGINT, v STRING", **options: str) -> Table:
    named = {"bucket": "-1", "compaction__min__file_num": "2"} | options
    return small_batches(new_table(root, columns, key=(), **named), 5)


def append(table: Table, start: int, rows: int = 20) -> None:
    table.append(table_of("k v", [(n, f"v{n % 3}") for n in range(start, start + rows)]))


def files_of(table: Table) -> list[DataFileMeta]:
    return [file for split in table.files() for file in split.files]


@contextmanager
def counted_copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield a list that receives the rows of each file whose row groups can be copied."""
    rows: list[int] = []
    open_source = RowGroupSource.open

    def count(*args: Any, **options: Any) -> RowGroupSource | None:
        source = open_source(*args, **options)
        if source is not None:
            rows.append(source.rows)
        return source

    with monkeypatch.context() as patch:
        patch.setattr(RowGroupSource, "open", count)
        yield rows


@st.composite
def random_files(draw: st.DrawFn) -> tuple[str, list[pa.Table], dict[str, str]]:
    """Columns, the rows of several files, and options that decide the statistics."""
    fields, table = draw(tables("parquet").filter(lambda drawn: drawn[1].num_rows > 0))
    files = []
    for _ in range(draw(st.integers(2, 4))):
        random = np.random.default_rng(draw(st.integers(0, 99)))
        rows = table.take(pa.array(random.integers(0, table.num_rows, draw(st.integers(1, 30)))))
        empty = draw(st.sets(st.sampled_from(table.column_names), max_size=1))
        files.append(
            pa.table(
                [
                    pa.nulls(rows.num_rows, column.type) if name in empty else column
                    for name, column in zip(rows.column_names, rows.columns, strict=True)
                ],
                names=rows.column_names,
            )
        )
    columns = ", ".join(f"{field.name} {type_to_sql(field.type)}" for field in fields)
    modes = st.sampled_from(["none", "counts", "full", "truncate(1)", "truncate(3)"])
    options = {
        "metadata__stats_mode": draw(modes),
        "fields__c0__stats_mode": draw(modes),
        "metadata__stats_dense_store": draw(st.sampled_from(["true", "false"])),
    }
    return columns.replace(" NOT NULL", ""), files, options


@pytest.mark.slow
def test_copied_files_have_the_rows_and_the_metadata_of_encoded_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied_files = decoded_files = 0

    @settings(max_examples=20, deadline=None)
    @given(random_files())
    def check(drawn: tuple[str, list[pa.Table], dict[str, str]]) -> None:
        nonlocal copied_files, decoded_files
        columns, files, options = drawn
        results = []
        with counted_copies(monkeypatch) as copies:
            for sizes in (None, NEVER_COPY):
                with tempfile.TemporaryDirectory() as folder:
                    table = create(Path(folder), columns, **options)
                    for rows in files:
                        table.append(rows)
                    table = table if sizes is None else replace(table, batch_sizes=sizes)
                    compact(table, EXECUTOR, strategy="full")
                    (file,) = files_of(table)
                    assert_healthy(table)
                    results.append((canonical_rows(table.scan().to_arrow()), normalize(file)))
        assert results[0] == results[1]
        copied_files += len(copies)
        decoded_files += len(files) - len(copies)

    check()
    assert copied_files > decoded_files


def normalize(file: DataFileMeta) -> DataFileMeta:
    return replace(file, file_name="", file_size=0, creation_time=None)


def row_groups_of(table: Table) -> list[list[int]]:
    """Return the rows of the row groups of each file."""
    result = []
    for path in data_files(table):
        metadata = pq.read_metadata(path)
        groups = range(metadata.num_row_groups)
        result.append([metadata.row_group(group).num_rows for group in groups])
    return result


@pytest.mark.parametrize("options", [{}, BUCKETED], ids=str)
def test_row_groups_keep_their_order_and_sequence_numbers(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = create(tmp_path, **options)
    for start, rows in ((0, 12), (12, 7), (19, 5)):
        append(table, start, rows)
    before = rows_of(table)

    compact(table, EXECUTOR, strategy="full")

    (file,) = files_of(table)
    assert sorted(row_groups_of(table)[0]) == [2, 2, 5, 5, 5, 5]
    assert (file.row_count, file.file_source) == (24, 1)
    assert file.max_sequence_number - file.min_sequence_number == 23
    assert rows_of(table) == before
    if options:
        assert row_groups_of(table) == [[5, 5, 2, 5, 2, 5]]
        assert table.scan().to_arrow().column("k").to_pylist() == list(range(24))
    for text, start in (("k = 13", 13), ("k > 20 and k < 22", 21), ("v = 'v1' and k < 4", 1)):
        assert rows_of(table, filter=text) == [(start, f"v{start % 3}")]


def test_files_with_deleted_rows_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path, deletion_vectors__enabled="true", **BUCKETED)
    for start in range(0, 120, 20):
        append(table, start)
    delete(table, EXECUTOR, "k = 45")

    with counted_copies(monkeypatch) as copies:
        compact(table, EXECUTOR, strategy="full")

    assert copies == [20] * 5
    assert row_groups_of(table) == [[5] * 8 + [5, 5, 5, 4] + [5] * 12]
    assert table.scan().to_arrow().column("k").to_pylist() == [n for n in range(120) if n != 45]


def test_a_file_is_decoded_after_few_decoded_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alternating small and large files do not become alternating row groups."""
    table = create(tmp_path, **BUCKETED)
    for number in range(6):
        append(table, number * 1_000, 1_000 if number % 2 else 2)
    sizes = [file.file_size for file in files_of(table)]
    limit = max(sizes[0::2]) + 1
    limits = BatchSizes(min_copied_group_bytes=limit, min_copied_chunk_bytes=1)
    one_group = replace(table, batch_sizes=limits)

    compact(one_group, EXECUTOR, strategy="full")

    assert row_groups_of(table) == [[2 + 1_000 + 2 + 1_000 + 2 + 1_000]]


@pytest.mark.slow
def test_copied_files_are_divided_near_the_target_size(tmp_path: Path) -> None:
    target = 40 << 10
    table = create(
        tmp_path, "k BIGINT", target_file_size="40 kb", source__split__open_file_cost="1 b"
    )
    table = replace(table, batch_sizes=replace(table.batch_sizes, row_group_rows=10_000))
    random = np.random.default_rng(0)
    for _ in range(20):
        table.append(pa.table({"k": random.integers(-(2**63), 2**63 - 1, 600)}))
    sizes, before = [file.file_size for file in files_of(table)], rows_of(table)

    compact(table, EXECUTOR, strategy="full")

    new_sizes = sorted(file.file_size for file in files_of(table))
    assert 1 < len(new_sizes) < len(sizes) // 2
    assert new_sizes[-1] < target + max(sizes)
    assert sum(target * 0.9 < size < target * 1.1 for size in new_sizes) >= 2
    assert rows_of(table) == before


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"file_index__bitmap__columns": "k"}, None),
        ({"file__format": "orc"}, None),
        ({"row_tracking__enabled": "true"}, None),
        ({}, SetOption("file.compression", "snappy")),
        ({}, SetOption("file.compression.zstd-level", "9")),
        ({}, SetOption("metadata.stats-mode", "full")),
        ({}, SetOption("fields.v.stats-mode", "none")),
        ({}, SetOption("file.format", "orc")),
        ({}, AddColumn(column="n", type="INT")),
    ],
    ids=str,
)
def test_files_are_decoded_if_a_writer_would_write_others(
    options: dict[str, str],
    change: SchemaChange | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = create(tmp_path, **options)
    append(table, 0)
    append(table, 20)
    if change is not None:
        Catalog(str(tmp_path)).alter_table("db.t", [change])
    table = replace(Catalog(str(tmp_path)).table("db.t"), batch_sizes=table.batch_sizes)
    before = rows_of(table)

    with counted_copies(monkeypatch) as copies:
        compact(table, EXECUTOR, strategy="full")

    assert not copies
    assert len(files_of(table)) == 1
    assert rows_of(table) == before


@pytest.mark.parametrize(
    "change",
    [SetOption("snapshot.num-retained.max", "100"), UpdateColumnComment("v", "a comment")],
    ids=str,
)
def test_other_schema_changes_do_not_prevent_copies(
    change: SchemaChange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    append(table, 0)
    append(table, 20)
    Catalog(str(tmp_path)).alter_table("db.t", [change])

    with counted_copies(monkeypatch) as copies:
        compact(table, EXECUTOR, strategy="full")

    assert copies == [20, 20]
    assert [file.schema_id for file in files_of(table)] == [1]


def test_a_file_that_becomes_shorter_is_reported_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    append(table, 0)
    append(table, 20)
    before, path = stored_files(table), data_files(table)[1]
    open_source = RowGroupSource.open

    def truncate_later(source: Any, *args: Any, **options: Any) -> RowGroupSource | None:
        groups = open_source(source, *args, **options)
        if source.name == str(path):
            os.truncate(path, 100)
        return groups

    monkeypatch.setattr(row_group_source, "_MAX_SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(RowGroupSource, "open", truncate_later)
    with pytest.raises(CorruptFileError, match=f"{path.name}: cannot be copied: the file ends"):
        compact(table, EXECUTOR, strategy="full")
    assert stored_files(table) == before


@pytest.mark.parametrize("damage", ["footer", "length", "size"])
def test_a_damaged_file_is_reported_and_leaves_no_file(tmp_path: Path, damage: str) -> None:
    table = create(tmp_path)
    append(table, 0)
    append(table, 20)
    before, path = stored_files(table), data_files(table)[1]
    data = bytearray(path.read_bytes())
    match damage:
        case "footer":
            data[-200:-100] = bytes(100)
        case "length":
            data[-8:-4] = b"\xff\xff\xff\x7f"
        case "size":
            data += b"x"
    path.write_bytes(data)

    with pytest.raises(CorruptFileError, match=path.name):
        compact(table, EXECUTOR, strategy="full")
    assert stored_files(table) == before


@pytest.mark.parametrize(
    "changes",
    [{"value_stats_cols": ()}, {"value_stats_cols": ("k",)}, {"value_stats_cols": ("k", "x")}],
    ids=str,
)
def test_files_without_the_statistics_of_the_table_are_decoded(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    append(table, 0)
    append(table, 20)
    snapshot = table.snapshot()
    assert snapshot is not None
    edit_files(table, snapshot.id, **changes)

    with counted_copies(monkeypatch) as copies:
        compact(table, EXECUTOR, strategy="full")

    assert copies == [20]
    (file,) = files_of(table)
    assert file.value_stats.null_counts == (0, 0)
    assert rows_of(table, filter="k >= 39") == [(39, "v0")]
