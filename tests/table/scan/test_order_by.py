"""Scans with an order or a limit return the same rows with indexes and statistics."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tables import new_table, small_batches, table_of

from paimon_orch.errors import InputError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
COLUMNS = "p STRING, k BIGINT, f DOUBLE, s STRING"
INDEXED = {"file_index__range_bitmap__columns": "k,f,s"}
KINDS: dict[str, dict[str, Any]] = {
    "append": {"bucket": "-1", "partition_by": ("p",)},
    "vectors": {"bucket": "-1", "deletion_vectors__enabled": "true"},
    "keyed": {"key": ("k",), "bucket": "1", "partition_by": ()},
    "keyed-vectors": {"key": ("k",), "bucket": "1", "deletion_vectors__enabled": "true"},
}
numbers = st.sampled_from([None, -0.0, 0.0, 1.5, -3.0, math.nan, math.inf])
rows_to_write = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.integers(0, 9),
        numbers,
        st.sampled_from([None, "", "a", "ab", "z"]),
    ),
    min_size=1,
    max_size=12,
)
orders = st.lists(
    st.tuples(
        st.sampled_from("pkfs"), st.sampled_from(["", " asc", " desc"]),
        st.sampled_from(["", " nulls first", " nulls last"]),
    ),
    min_size=1, max_size=2, unique_by=lambda key: key[0],
)  # fmt: skip


def read_rows(table: Table, **scan: Any) -> list[tuple[Any, ...]]:
    rows = table.scan(**scan).to_arrow()
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def place(row: Sequence[Any], order: Sequence[tuple[str, str, str]]) -> list[Any]:
    """Return the sort key of a row in plain Python; NaN is the largest number."""
    ranks: list[Any] = []
    for name, direction, nulls in order:
        value, descending = row["pkfs".index(name)], "desc" in direction
        first = "first" in nulls if nulls else not descending
        if value is None:
            ranks += [(0 if first else 2, 0)]
        elif isinstance(value, str):
            codes = [-ord(c) for c in value] + [1] if descending else [ord(c) for c in value]
            ranks += [(1, codes)]
        else:
            number = math.inf if math.isnan(value) else value
            rank = (math.isnan(value), number)
            ranks += [(1, (-rank[0], -rank[1]) if descending else rank)]
    return ranks


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    writes=st.lists(rows_to_write, min_size=1, max_size=4),
    orders=st.lists(st.tuples(orders, st.integers(0, 8), st.booleans()), min_size=3, max_size=5),
)
def test_the_first_rows_are_those_of_a_sorted_scan(
    kind: str, writes: list[list[Any]], orders: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        table = new_table(Path(root), COLUMNS, **({"key": ()} | KINDS[kind] | INDEXED))
        table = small_batches(table, 3)
        for batch in writes:
            table.append(table_of("p k f s", batch))
        if kind == "vectors":
            delete(table, EXECUTOR, "k = 3")
        if table.load().schema.primary_keys:
            compact(table, EXECUTOR, strategy="full")
            table.append(table_of("p k f s", writes[0]))
        everything = read_rows(table)
        for order, limit, filtered in orders:
            condition, text = ("p = 'a'" if filtered else None), ", ".join(map("".join, order))
            expected = [row for row in everything if not filtered or row[0] == "a"]
            rows = read_rows(table, filter=condition, order_by=text, limit=limit)
            places = [place(row, order) for row in rows]
            assert places == sorted(place(row, order) for row in expected)[:limit], text
            assert not Counter(map(repr, rows)) - Counter(map(repr, expected))
            any_rows = read_rows(table, filter=condition, limit=limit)
            assert len(any_rows) == min(limit, len(expected))
            assert not Counter(map(repr, any_rows)) - Counter(map(repr, expected))


def test_an_order_works_without_a_limit_and_on_columns_that_are_not_selected(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, COLUMNS, key=(), bucket="-1")
    table.append(
        table_of("p k f s", [("a", 2, None, "x"), ("a", 1, 1.0, "y"), ("a", 3, 0.5, None)])
    )

    rows = table.scan(["s"], order_by=["k desc"]).to_arrow()

    assert rows.to_pydict() == {"s": [None, "x", "y"]}


@pytest.mark.parametrize("order", ["", "nowhere", "k + 1", "k limit 3", "m"])
def test_an_invalid_order_is_refused(tmp_path: Path, order: str) -> None:
    table = new_table(tmp_path, "k BIGINT, m MAP<STRING, INT>", key=(), bucket="-1")

    with pytest.raises((InputError, LookupError), match=r"order|nowhere"):
        table.scan(order_by=order)


def ten_files(root: Path, **options: str) -> Table:
    table = new_table(root, "k BIGINT, v INT", key=(), bucket="-1", **options)
    for number in range(10):
        keys = range(100 * number, 100 * number + 100)
        table.append(pa.table({"k": keys, "v": pa.array([k % 7 for k in keys], pa.int32())}))
    return table


def test_a_limit_plans_only_the_files_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, opened = ten_files(tmp_path), list[str]()
    read = FileReader.read

    def counted(self: FileReader, bucket_file: Any, *args: Any, **kwargs: Any) -> Any:
        opened.append(bucket_file.file.file_name)
        return read(self, bucket_file, *args, **kwargs)

    monkeypatch.setattr(FileReader, "read", counted)
    assert len(read_rows(table, limit=150)) == 150

    assert len(opened) == 2
    report = table.scan(limit=150).explain()
    assert (report.files, report.files_skipped_by_limit, report.rows_selected) == (10, 8, 200)
    assert len(read_rows(table, limit=150, filter="v >= 0")) == 150  # a filter may drop any row


def test_an_index_selects_the_first_rows_of_every_file(tmp_path: Path) -> None:
    table = ten_files(tmp_path, file_index__range_bitmap__columns="k,v")

    scan = table.scan(order_by="k desc", limit=3)
    report = scan.explain()

    assert scan.to_arrow().column("k").to_pylist() == [999, 998, 997]
    assert (report.files, report.files_skipped_by_limit) == (10, 9)  # statistics exclude nine files
    assert (report.rows, report.rows_selected) == (1_000, 3)
    assert report.indexes["range-bitmap(k)"].files_asked == 1
    assert table.scan(order_by="v", limit=3).explain().rows_selected == 30
    filtered = table.scan(order_by="k desc", limit=3, filter="k >= 0").explain()
    assert (filtered.files_skipped_by_limit, filtered.rows_selected) == (0, 1_000)


def test_system_tables_are_sorted(tmp_path: Path) -> None:
    table = ten_files(tmp_path)

    rows = (
        table.system("files").scan(["file_path", "level"], order_by="file_path", limit=4).to_arrow()
    )

    paths = rows.column("file_path").to_pylist()
    assert len(paths) == 4
    assert paths == sorted(paths)
