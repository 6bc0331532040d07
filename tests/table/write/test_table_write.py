"""Writes check all rows first; written rows are read back unchanged."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import (
    assert_healthy,
    levels_of,
    new_table,
    rows_of,
    small_batches,
    stored_files,
    table_of,
)

from paimon_orch.errors import InputError
from paimon_orch.format.bucket.bucket_function import compute_buckets
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table
from paimon_orch.table.write.bucket_routing import split_by_bucket
from paimon_orch.table.write.conform_rows import convert_rows
from paimon_orch.table.write.table_write import TableWriter
from paimon_orch.table.write.write_builder import WriteBuilder
from paimon_orch.table.write.write_plan import WritePlan


def assert_refused(table: Table, rows: pa.Table, message: str, row_kind: str | None = None) -> None:
    before = stored_files(table)
    with pytest.raises(InputError, match=message):
        table.upsert(rows, row_kind=row_kind)
    assert stored_files(table) == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table({"v": ["a"]}), r"missing k \(of the primary key: k\)"),
        (pa.table({"k": [1], "w": ["a"]}), "missing v; unknown w"),
        (pa.table({"k": [1], "v": ["a"], "x": [1]}), "unknown x"),
        (pa.table({"K": [1], "v": ["a"]}), "missing k .*unknown K"),
        (pa.table({"k": [1, None], "v": ["a", "b"]}), "column 'k' has 1 null values"),
        (
            pa.table({"k": ["one"], "v": ["a"]}),
            "column 'k' is string and cannot be stored as BIGINT",
        ),
        (pa.table({"k": [1.5], "v": ["a"]}), "column 'k' is double and cannot be stored"),
        (pa.table({"k": [[1]], "v": ["a"]}), "column 'k' is list.* and cannot be stored"),
        (pa.table({"k": pa.array([2**63], pa.uint64()), "v": ["a"]}), "column 'k' is uint64"),
        (pa.table([[1], ["a"], [2]], names=["k", "v", "k"]), "repeated k"),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused_and_not_written(
    tmp_path: Path, rows: pa.Table, message: str
) -> None:
    assert_refused(new_table(tmp_path), rows, message)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (pa.array(["+I", "+X"]), r"row kind '\+X' must be one of \+I, -U, \+U, -D"),
        (pa.array(["+I", None]), "row kind None must be one of"),
        (pa.array([0, 3]), "the row kind column has type int64; it must be a string"),
    ],
)
def test_invalid_row_kinds_are_refused(tmp_path: Path, kinds: pa.Array, message: str) -> None:
    rows = table_of("k v", [(1, "a"), (2, "b")])
    assert_refused(new_table(tmp_path), rows.append_column("kind", kinds), message, row_kind="kind")


def test_a_missing_row_kind_column_is_refused(tmp_path: Path) -> None:
    assert_refused(new_table(tmp_path), table_of("k v", [(1, "a")]), "missing op", row_kind="op")


def test_writing_no_rows_creates_no_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path)

    assert (
        table.upsert(pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.string())}))
        is None
    )
    assert table.snapshot() is None


def test_the_last_row_of_a_key_wins(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a"), (2, "b"), (1, "c"), (2, None), (1, "d")]))

    assert rows_of(table) == [(1, "d"), (2, None)]
    assert table.snapshot().total_record_count == 2  # type: ignore[union-attr]


def test_row_kinds_insert_update_and_delete(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a"), (2, "b"), (3, "c")]))
    rows = table_of(
        "k v op", [(1, "a", "-U"), (1, "z", "+U"), (2, None, "-D"), (4, "n", "+I"), (9, "x", "-D")]
    )

    table.upsert(rows, row_kind="op")

    assert rows_of(table) == [(1, "z"), (3, "c"), (4, "n")]
    assert_healthy(table)


def test_row_kinds_are_read_from_the_column_of_rowkind_field(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, v STRING, op STRING", rowkind__field="op")

    table.upsert(table_of("k v op", [(1, "a", "+I"), (1, "a", "-D"), (2, "b", "+I")]))

    assert rows_of(table) == [(2, "b", "+I")]


def test_a_delete_requires_only_the_key(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))

    table.delete(table_of("k", [(1,), (7,)]))

    assert rows_of(table) == [(2, "b")]


def test_a_delete_without_the_sequence_field_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path / "order", "k INT, s INT", sequence__field="s")
    table.upsert(table_of("k s", [(1, 5)]))
    with pytest.raises(InputError, match="do not have the columns s"):
        table.delete(table_of("k", [(1,)]))
    table.delete(table_of("k s", [(1, 6)]))
    assert rows_of(table) == []

    table = new_table(tmp_path / "partition", "p INT, k INT", partition_by=["p"])
    with pytest.raises(InputError, match="do not have the columns p"):
        table.delete(table_of("k", [(1,)]))


def test_a_delete_ignores_the_row_kind_column(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, kind STRING", rowkind__field="kind")
    table.upsert(table_of("k kind", [(1, "+I"), (2, "+I"), (3, "+I")]))

    table.delete(table.scan(filter="k = 1").to_arrow())
    table.delete(table_of("k", [(2,)]))

    assert rows_of(table) == [(3, "+I")]


def test_append_tables_keep_every_row_in_order(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a"), (1, "a")]))
    table.append(table_of("k v", [(None, None)]))

    assert table.scan().to_arrow().to_pydict() == {"k": [1, 1, None], "v": ["a", "a", None]}
    assert_healthy(table)
    for refused in (table.upsert, table.delete):
        with pytest.raises(InputError, match="has no primary key"):
            refused(table_of("k v", [(1, "a")]))


def test_sequence_numbers_continue_after_the_last_of_the_bucket(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for _ in range(3):
        table.upsert(table_of("k v", [(1, "a"), (2, "b"), (3, "c")]))

    files = [file for split in table.files() for file in split.files]
    ranges = sorted((file.min_sequence_number, file.max_sequence_number) for file in files)
    assert ranges == [(0, 2), (3, 5), (6, 8)]


@pytest.mark.parametrize(
    ("given_type", "values"),
    [
        (pa.int8(), [1, 2]),
        (pa.string(), ["1", "2"]),
        (pa.large_string(), ["1", "2"]),
        (pa.float64(), [1.0, 2.0]),
        (pa.decimal128(5, 0), [Decimal(1), Decimal(2)]),
        (pa.dictionary(pa.int8(), pa.int64()), [1, 2]),
    ],
    ids=str,
)
def test_values_that_fit_are_converted_to_the_column_type(
    tmp_path: Path, given_type: pa.DataType, values: list[Any]
) -> None:
    table = new_table(tmp_path)
    keys = (
        pa.array(values)
        if isinstance(given_type, pa.DictionaryType)
        else pa.array(values, given_type)
    )
    if isinstance(given_type, pa.DictionaryType):
        keys = keys.dictionary_encode()

    table.upsert(pa.table({"k": keys, "v": ["a", "b"]}))

    assert rows_of(table) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("given_type", [pa.int32(), pa.int64()], ids=str)
def test_integers_are_converted_to_decimals(tmp_path: Path, given_type: pa.DataType) -> None:
    table = new_table(tmp_path, "k BIGINT, price DECIMAL(10, 2)")

    table.upsert(pa.table({"k": [1, 2], "price": pa.array([7, None], given_type)}))

    assert rows_of(table) == [(1, Decimal("7.00")), (2, None)]


NESTED = pa.struct([("y", pa.int64()), ("x", pa.struct([("a", pa.int64())]))])


@pytest.mark.parametrize(
    ("given_type", "value", "message"),
    [
        (NESTED, {"y": 1, "x": {"a": None}}, r"'c' has null at 'element.x.a', which is NOT NULL"),
        (NESTED, {"y": 1, "x": None}, "'c' has null at 'element.x'"),
        (pa.struct([("b", pa.int64())]), {"b": 1}, "cannot be stored .*no field b"),
        (pa.map_(pa.string(), pa.int64()), [("y", 1)], "cannot be stored"),
        (pa.list_(pa.int64()), [1], "cannot be stored"),
    ],
)
def test_nested_values_are_checked_like_columns(
    tmp_path: Path, given_type: pa.DataType, value: object, message: str
) -> None:
    table = new_table(tmp_path, "k BIGINT, c ARRAY<ROW<x ROW<a INT NOT NULL> NOT NULL, y INT>>")

    rows = pa.table({"k": [1], "c": pa.array([[value]], pa.list_(given_type))})

    assert_refused(table, rows, message)


def test_maps_are_not_accepted_for_lists(tmp_path: Path) -> None:
    entries = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))

    assert_refused(
        new_table(tmp_path, "k BIGINT, c ARRAY<INT>"),
        pa.table({"k": [1], "c": entries}),
        "cannot be stored",
    )


@pytest.mark.parametrize("list_type", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 2)])
def test_null_rows_in_lists_may_have_required_fields(
    tmp_path: Path, list_type: Callable[[pa.DataType], pa.DataType]
) -> None:
    table = new_table(tmp_path, "k INT NOT NULL, l ARRAY<ROW<a INT, m MAP<STRING, ROW<b INT>>>>")
    inner = pa.struct([pa.field("b", pa.int64(), nullable=False)])
    row = pa.struct(
        [
            pa.field("a", pa.int64(), nullable=False),
            pa.field("m", pa.map_(pa.string(), inner), nullable=False),
        ]
    )
    values = [{"a": 1, "m": [("x", {"b": 2}), ("y", None)]}, None]
    lists = pa.array([values, None, [None, None]], list_type(row))

    table.append(pa.table({"k": pa.array([1, 2, 3], pa.int32()), "l": lists}))

    assert rows_of(table) == [(1, values), (2, None), (3, [None, None])]


def test_null_rows_can_contain_nulls(tmp_path: Path) -> None:
    """As in Parquet, the fields of a null row are not checked."""
    table = new_table(tmp_path, "k BIGINT, c ARRAY<ROW<x ROW<a INT NOT NULL> NOT NULL, y INT>>")
    lists = [[{"x": {"a": 1}, "y": 2}, None], None, []]
    inside = pa.array([{"y": 2, "x": {"a": 1}}, {"y": None, "x": None}], NESTED)
    masked = pa.StructArray.from_arrays(
        inside.flatten(), fields=list(NESTED), mask=pa.array([False, True])
    )
    list_array = pa.ListArray.from_arrays(pa.array([0, None, 2, 2], pa.int32()), masked)

    table.upsert(pa.table({"k": [1, 2, 3], "c": list_array}))

    assert table.scan().to_arrow()["c"].to_pylist() == lists


def test_text_below_null_rows_is_not_converted(tmp_path: Path) -> None:
    """Arrow stores empty text there, at any depth, which is no number."""
    kind = pa.struct({"x": pa.struct({"y": pa.string(), "l": pa.list_(pa.string())})})
    rows = [{"x": {"y": "1", "l": ["2", None]}}, {"x": None}, None]
    table = new_table(tmp_path, "k BIGINT, c ROW<x ROW<y INT, l ARRAY<INT>>>")

    table.upsert(pa.table({"k": [1, 2, 3], "c": pa.array(rows, kind)}))

    stored = table.scan().to_arrow()["c"].to_pylist()
    assert stored == [{"x": {"y": 1, "l": [2, None]}}, {"x": None}, None]


def test_null_rows_can_have_text_that_must_not_be_null(tmp_path: Path) -> None:
    kind = pa.struct({"x": pa.string(), "n": pa.struct({"y": pa.string(), "z": pa.string()})})
    inner = {"y": "1", "z": "b"}
    rows = [None, {"x": "a", "n": inner}, {"x": "c", "n": inner}, None]
    columns = "x STRING NOT NULL, n ROW<y INT NOT NULL, z STRING NOT NULL> NOT NULL"
    table = new_table(tmp_path, f"k BIGINT, c ROW<{columns}>")

    table.upsert(pa.table({"k": [1, 2, 3, 4], "c": pa.array(rows, kind)}))

    stored = table.scan().to_arrow()["c"].to_pylist()
    assert [row and (row["x"], row["n"]["y"]) for row in stored] == [None, ("a", 1), ("c", 1), None]
    with pytest.raises(InputError, match="NOT NULL"):
        table.upsert(pa.table({"k": [1], "c": pa.array([{"x": None, "n": inner}], kind)}))


ALL_TYPES = """
    k BIGINT, a BOOLEAN, b TINYINT, c SMALLINT, d INT, e FLOAT, f DOUBLE, g DECIMAL(5, 2), h DECIMAL(30, 3),
    i CHAR(3), j STRING, l BYTES, m DATE, n TIME(3), o TIMESTAMP(3), p TIMESTAMP(6),
    q TIMESTAMP(6) WITH LOCAL TIME ZONE, r ARRAY<INT>, s MAP<STRING, BIGINT>, t ROW<x INT, y STRING>
"""
FULL_ROW: tuple[Any, ...] = (
    1, True, -128, 32767, -5, 1.5, float("inf"), Decimal("-9.99"), Decimal("123456789012345678901234567.123"),
    "abc", "ü\U0001f600\0", b"\0\xff", date(1, 1, 1), time(23, 59, 59, 999000), datetime(1969, 12, 31, 23),
    datetime(2026, 1, 1, microsecond=1), datetime(2026, 1, 1), [1, None], [("a", 1), ("b", None)],
    {"x": None, "y": "z"},
)  # fmt: skip


def test_every_type_is_read_back(tmp_path: Path) -> None:
    table = new_table(tmp_path, ALL_TYPES)
    target = table.scan().arrow_schema
    nulls = (2, *(None,) * (len(target) - 1))
    columns = [
        pa.array([full, empty], field.type)
        for field, full, empty in zip(target, FULL_ROW, nulls, strict=True)
    ]
    rows = pa.Table.from_arrays(columns, schema=target)

    table.upsert(rows)
    table.upsert(rows.slice(1))  # these rows are a second run

    assert table.scan().to_arrow().sort_by("k").to_pylist() == rows.to_pylist()
    assert_healthy(table)


@pytest.mark.parametrize("count", [1, 3, 7])
def test_rows_are_written_to_the_bucket_of_the_format(tmp_path: Path, count: int) -> None:
    table = new_table(tmp_path, bucket=str(count))
    rows = convert_rows(table_of("k v", [(k, "x") for k in range(200)]), table.load().schema)

    buckets = {}
    for (_, bucket), group in split_by_bucket(rows, table.load().schema):
        assert bucket not in buckets
        buckets[bucket] = group["k"].to_pylist()

    keys = rows["k"].combine_chunks()
    expected = compute_buckets([keys], [table.load().schema.field("k").type], count)
    assert buckets == {b: [k for k in range(200) if expected[k] == b] for b in np.unique(expected)}


def test_rows_are_written_by_partition_and_bucket(tmp_path: Path) -> None:
    columns = "p INT, q STRING, k BIGINT"
    table = new_table(tmp_path, columns, key=("p", "q", "k"), partition_by=("p", "q"), bucket="3")
    values = [(p, q, k) for p in range(3) for q in "ab" for k in range(20)]
    rows = convert_rows(table_of("p q k", values), table.load().schema)

    parts = list(split_by_bucket(rows, table.load().schema))

    assert len({bucket for bucket, _ in parts}) == len(parts) == 3 * 2 * 3
    for _, group in parts:
        assert group.group_by(["p", "q"]).aggregate([]).num_rows == 1
    columns_of = [group.select(["p", "q", "k"]).to_pydict().values() for _, group in parts]
    assert sorted(row for each in columns_of for row in zip(*each, strict=True)) == values


def test_sequence_numbers_continue_in_a_fixed_bucket(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="1", bucket_key="k")

    for count in (3, 2):
        table.append(table_of("k v", [(k, "a") for k in range(count)]))

    (split,) = table.files()
    numbers = [(file.min_sequence_number, file.max_sequence_number) for file in split.files]
    assert sorted(numbers) == [(0, 2), (3, 4)]


def test_a_full_buffer_is_flushed_to_additional_files(tmp_path: Path) -> None:
    table = new_table(tmp_path, write_buffer_size="1 b")
    writer = TableWriter(WritePlan(factory=table.stores.build_writer_factory()))
    for number in range(3):
        writer.write(
            convert_rows(
                table_of("k v", [(1, f"{number}"), (number + 5, "x")]), table.load().schema
            )
        )
    WriteBuilder(table.load()).commit(writer.close())

    assert levels_of(table) == [0, 0, 0]
    assert rows_of(table) == [(1, "2"), (5, "x"), (6, "x"), (7, "x")]
    assert_healthy(table)


def test_a_writer_deletes_its_files_after_an_error(tmp_path: Path) -> None:
    table = new_table(tmp_path, write_buffer_size="1 b")
    before = stored_files(table)

    def fail_after_a_flush() -> None:
        with TableWriter(WritePlan(factory=table.stores.build_writer_factory())) as writer:
            writer.write(convert_rows(table_of("k v", [(1, "a")]), table.load().schema))
            assert stored_files(table) != before
            raise RuntimeError("after a flush")

    with pytest.raises(RuntimeError, match="after a flush"):
        fail_after_a_flush()

    assert stored_files(table) == before


# --- partitions

NAMES = [
    None, "", " ", "a", "A", "a b", "a/b", "../x", "..", "=", "%", "%41", "a,b", "a=b,c=d", "ü", "\U0001f600", "\n",
    "\x7f", "'\"", "__DEFAULT_PARTITION__", "*?:\\{}[]^#", "null", "x" * 60,
]  # fmt: skip


def test_partition_values_with_special_characters_are_read_back(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p STRING, k INT", key=(), partition_by=["p"], bucket="-1")
    rows = [(name, number) for number, name in enumerate(NAMES)]

    table.append(table_of("p k", rows))

    assert sorted(rows_of(table), key=lambda row: row[1]) == rows
    assert len(table.files()) == len(NAMES)
    inside = [path for path in stored_files(table) if "/bucket-0/" in path]
    assert all(path.startswith(f"{table.paths.root}/p=") for path in inside)
    # The blank values share a directory.
    assert len({Path(path).parent for path in inside}) == len(NAMES) - 4
    assert_healthy(table)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.none() | st.integers(-9, 9), st.none() | st.dates()), max_size=12, unique=True
    )
)
def test_partitions_of_several_columns_are_separate(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[int | None, date | None]]
) -> None:
    table = new_table(
        tmp_path_factory.mktemp("table"),
        "n INT, day DATE, k INT",
        key=(),
        partition_by=["n", "day"],
        bucket="-1",
    )
    table = small_batches(table, 5)
    rows = [(n, day, number) for number, (n, day) in enumerate(values * 2)]
    table.append(
        pa.table(
            {
                "n": pa.array([row[0] for row in rows], pa.int32()),
                "day": pa.array([row[1] for row in rows], pa.date32()),
                "k": pa.array([row[2] for row in rows], pa.int32()),
            }
        )
    )

    assert sorted(rows_of(table), key=lambda row: row[2]) == rows
    assert len(table.files()) == len(values)


def create_partitioned_table(root: Path, **options: str) -> Table:
    table = new_table(
        root, "p STRING, k INT, v STRING", key=("p", "k"), partition_by=["p"], **options
    )
    table.upsert(table_of("p k v", [(p, k, "old") for p in "abc" for k in range(2)]))
    return table


def test_an_overwrite_without_a_spec_replaces_the_partitions_that_receive_rows(
    tmp_path: Path,
) -> None:
    table = create_partitioned_table(tmp_path)

    table.overwrite(table_of("p k v", [("a", 7, "new")]))

    assert [row for row in rows_of(table) if row[0] == "a"] == [("a", 7, "new")]
    assert len(rows_of(table)) == 5
    assert table.overwrite(table_of("p k v", []).cast(table.scan().arrow_schema)) is None


def test_an_overwrite_with_a_spec_replaces_the_matching_partitions(tmp_path: Path) -> None:
    table = create_partitioned_table(tmp_path)

    table.overwrite(table_of("p k v", [("a", 7, "new")]), {"p": "a"})
    table.overwrite(table_of("p k v", []).cast(table.scan().arrow_schema), {"p": "b"})

    assert rows_of(table) == [("a", 7, "new"), ("c", 0, "old"), ("c", 1, "old")]


@pytest.mark.parametrize("function", ["option", "spec"])
def test_an_overwrite_with_an_empty_spec_replaces_the_whole_table(
    tmp_path: Path, function: str
) -> None:
    options = {"dynamic_partition_overwrite": "false"} if function == "option" else {}
    table = create_partitioned_table(tmp_path, **options)

    table.overwrite(table_of("p k v", [("a", 7, "new")]), {} if function == "spec" else None)

    assert rows_of(table) == [("a", 7, "new")]
    assert table.snapshot().total_record_count == 1  # type: ignore[union-attr]
    assert_healthy(table)


def test_an_overwrite_drops_the_deletion_vectors_of_replaced_files(tmp_path: Path) -> None:
    from paimon_orch.steps.common.executor import InProcessExecutor
    from paimon_orch.steps.compaction import compact

    table = create_partitioned_table(tmp_path, deletion_vectors__enabled="true")
    compact.compact(table, InProcessExecutor())
    table.upsert(table_of("p k v", [("a", 0, "newer"), ("b", 0, "newer")]))
    compact.compact(table, InProcessExecutor())

    table.overwrite(table_of("p k v", [("a", 1, "new")]))

    assert_healthy(table)
    compact.compact(table, InProcessExecutor())
    assert [row for row in rows_of(table) if row[0] < "c"] == [
        ("a", 1, "new"),
        ("b", 0, "newer"),
        ("b", 1, "old"),
    ]


def test_rows_are_deleted_by_key_although_other_columns_are_not_nullable(
    tmp_path: Path,
) -> None:
    columns = "k INT, s STRING NOT NULL, b BOOLEAN NOT NULL, t TIMESTAMP(3) NOT NULL, n INT"
    table = new_table(tmp_path, columns)
    rows = pa.table({"k": [1, 2], "s": ["a", "b"], "b": [True, False], "t": [0, 1], "n": [1, 2]})
    table.upsert(rows.set_column(3, "t", rows["t"].cast(pa.timestamp("ms"))))

    table.delete(pa.table({"k": [1]}))

    assert table.scan(["k"]).to_arrow().to_pydict() == {"k": [2]}


@pytest.mark.parametrize(
    ("column_type", "stored", "given"),
    [
        ("TIMESTAMP(3)", pa.array([0, 1], pa.timestamp("ms")), pa.array([1], pa.timestamp("ns"))),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", pa.array([0, 1], pa.timestamp("ms", "UTC")),
         pa.array([1], pa.timestamp("ns", "Asia/Kolkata"))),
        ("TIMESTAMP(3)", pa.array([0, 1], pa.timestamp("ms")),
         pa.array([1], pa.timestamp("ns", "Asia/Kolkata"))),
        ("DECIMAL(5, 1)", pa.array([1, 2]), pa.array([1.04])),
        ("DATE", pa.array([0, 1], pa.date32()), pa.array([3_600_000], pa.timestamp("ms"))),
        ("FLOAT", pa.array([0.5, 1.0]), pa.array([1.000000001])),
    ],
)  # fmt: skip
def test_a_key_that_the_column_would_round_deletes_no_row(
    tmp_path: Path, column_type: str, stored: pa.Array, given: pa.Array
) -> None:
    table = new_table(tmp_path, f"k {column_type}, v INT")
    table.upsert(pa.table({"k": stored, "v": pa.array([1, 2], pa.int32())}))

    message = "cannot hold exactly; nothing was written|would become .*Nothing was written"
    with pytest.raises(InputError, match=message):
        table.delete(pa.table({"k": given}))
    for kind in ("-D", "-U"):
        # the key of the first row is exact
        keys = pa.concat_arrays([stored[:1].cast(given.type), given])
        changes = pa.table({"k": keys, "v": [1, 2], "kind": ["+I", kind]})
        with pytest.raises(InputError, match=message):
            table.upsert(changes, row_kind="kind")
        with pytest.raises(InputError, match=message):
            list(WriteBuilder(table.load()).plan("kind").prepare(changes.to_batches()))

    assert table.scan().count() == 2


@pytest.mark.parametrize(
    ("column_type", "stored", "given"),
    [
        ("DOUBLE", pa.array([math.nan, 0.0]), pa.array([math.nan])),
        ("FLOAT", pa.array([0.1, 2.5]), pa.array([0.1])),
        ("FLOAT", pa.array([0.1, 2.5]), pa.array([0.1], pa.float32()).cast(pa.float64())),
        ("TIMESTAMP(3)", pa.array([1, 2], pa.timestamp("ms")),
         pa.array([1_000_000], pa.timestamp("ns"))),
        ("TIMESTAMP(3)", pa.array([19_800_001, 2], pa.timestamp("ms")),
         pa.array([1], pa.timestamp("ms", "Asia/Kolkata"))),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", pa.array([1, 2], pa.timestamp("ms", "UTC")),
         pa.array([1], pa.timestamp("ms"))),
        ("DECIMAL(5, 1)", pa.array([1, 2]), pa.array([1.0])),
        ("DATE", pa.array([1, 2], pa.date32()), pa.array([86_400_000], pa.timestamp("ms"))),
        ("INT", pa.array([1, 2]), pa.array([1.0])),
        ("STRING", pa.array(["1", "2"]), pa.array([1])),
    ],
)  # fmt: skip
def test_a_key_of_another_type_deletes_its_row(
    tmp_path: Path, column_type: str, stored: pa.Array, given: pa.Array
) -> None:
    table = new_table(tmp_path, f"k {column_type}, v INT")
    table.upsert(pa.table({"k": stored, "v": pa.array([1, 2], pa.int32())}))

    table.delete(pa.table({"k": given}))

    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == [2]


def test_the_input_changelog_producer_writes_rows_unchanged(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, v INT", changelog_producer="input")
    rows = {"k": [1, 1, 2, 2], "v": [10, 11, 20, 20], "kind": ["+I", "+U", "+I", "-D"]}
    snapshot = table.upsert(pa.table(rows), row_kind="kind")

    changes = table.incremental(0, 1, mode="changelog").to_arrow().to_pydict()

    assert changes == {
        "rowkind": ["+I", "+U", "+I", "-D"],
        "k": [1, 1, 2, 2],
        "v": [10, 11, 20, 20],
    }
    assert snapshot is not None
    assert snapshot.changelog_record_count == 4
    assert rows_of(table) == [(1, 11)]


def test_a_file_is_closed_at_the_target_number_of_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path, target_file_row_num="3")
    table.upsert(table_of("k v", [(key, "a") for key in range(8)]))
    counts = sorted(file.row_count for split in table.files() for file in split.files)
    assert counts == [2, 3, 3]

    compact(table, InProcessExecutor(), strategy="full")

    [compacted] = [file for split in table.files() for file in split.files]
    assert compacted.row_count == 8, "compaction does not have this limit"


def test_a_target_row_count_of_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'target-file-row-num' = 0 must be at least 1"):
        new_table(tmp_path, target_file_row_num="0")


@pytest.mark.parametrize(
    ("codec", "suffix"), [("zstd", ".zst.parquet"), ("gzip", ".gz.parquet"), ("none", ".parquet")]
)
def test_file_names_contain_the_codec_if_the_option_is_set(
    tmp_path: Path, codec: str, suffix: str
) -> None:
    table = new_table(tmp_path, file__compression=codec, file__suffix__include__compression="true")
    table.upsert(table_of("k v", [(1, "a")]))
    [name] = [file.file_name for split in table.files() for file in split.files]
    assert name.partition(".")[2] == suffix[1:]


def test_the_next_sequence_number_follows_those_of_all_files_of_a_bucket(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "p STRING, k INT, v STRING", key=("p", "k"), partition_by=["p"], bucket="3"
    )
    for round_number in range(3):
        for partition in ("b", "a")[: 1 + round_number % 2]:
            rows = [(partition, k, "x") for k in range(5 * round_number, 20)]
            table.upsert(table_of("p k v", rows))
    compact(table, InProcessExecutor(), partitions=["p=a"], strategy="full")

    builder = WriteBuilder(table.load())

    expected = {
        split.partition_bucket: 1 + max(file.max_sequence_number for file in split.files)
        for split in table.files()
    }
    assert len(expected) == 6
    assert builder.read_next_sequences() == expected
    assert builder.plan().first_sequence == expected
    overwrite = WriteBuilder(table.load(), is_overwrite=True)
    assert overwrite.read_next_sequences() == overwrite.plan().first_sequence == {}


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_missing_row_may_have_not_null_fields(tmp_path: Path, file_format: str) -> None:
    columns = "k INT, r ROW<x INT NOT NULL, y ARRAY<ROW<z STRING NOT NULL>>>"
    table = new_table(tmp_path, columns, file__format=file_format)
    kind = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.string())])))])
    keys = pa.array([2, 3], pa.int32())
    rows = pa.table({"k": keys, "r": pa.array([{"x": 1, "y": [None, {"z": "a"}]}, None], kind)})

    table.upsert(pa.table({"k": pa.array([1], pa.int32())}))
    table.upsert(rows)
    compact(table, strategy="full")

    stored = table.scan().to_arrow().sort_by("k").to_pylist()
    assert stored == [{"k": 1, "r": None}, *rows.to_pylist()]
