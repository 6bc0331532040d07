"""Filters return the rows of a full scan filtered in Python, and skip files."""

from __future__ import annotations

import math
import operator
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tables import Row, new_table, small_batches, table_of

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.files.parquet.parquet import ParquetFileReader
from paimon_orch.format.types.data_types import TypeRoot, parse_type
from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Or, Predicate
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
COLUMNS = "p STRING, k BIGINT, i INT, f DOUBLE, s STRING, d DATE"
SCHEMA = pa.schema(
    [
        ("p", pa.string()),
        ("k", pa.int64()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
    ]
)
LONG = "prefix of more than sixteen letters "

VALUES: dict[str, list[Any]] = {
    "p": ["a", "b", "c"],
    "k": list(range(-3, 12)),
    "i": [None, -7, 0, 3, 1000],
    "f": [None, -0.0, 0.0, 1.5, math.nan, -math.inf],
    "s": [None, "", "a", "ab", "b%", "?", LONG + "a", LONG + "b", "\ud7ff" * 20, "\U0010ffff" * 20],
    "d": [None, date(1969, 12, 31), date(2026, 1, 1), date(2026, 1, 2)],
}
TABLES: dict[str, Callable[[Path], Table]] = {
    "append": partial(
        new_table, columns=COLUMNS, key=(), partition_by=("p",), bucket="-1", target_file_size="1 b"
    ),
    "append-buckets": partial(new_table, columns=COLUMNS, key=(), bucket="3", bucket_key="k"),
    "merge-on-read": partial(
        new_table, columns=COLUMNS, key=("p", "k"), partition_by=("p",), bucket="2"
    ),
    "deletion-vectors": partial(
        new_table, columns=COLUMNS, key=("p", "k"), deletion_vectors__enabled="true"
    ),
    "partial-update": partial(
        new_table, columns=COLUMNS, key=("p", "k"), merge_engine="partial-update", bucket="2"
    ),
    "first-row": partial(new_table, columns=COLUMNS, key=("p", "k"), merge_engine="first-row"),
    "aggregation": partial(
        new_table,
        columns=COLUMNS,
        key=("p", "k"),
        merge_engine="aggregation",
        fields__i__aggregate_function="sum",
        fields__s__aggregate_function="max",
    ),
}

rows = st.tuples(*(st.sampled_from(VALUES[name]) for name in SCHEMA.names))
Strategy = Literal["minor", "full"]
strategies: list[Strategy | None] = [None, None, "minor", "full"]
writes = st.lists(
    st.tuples(st.lists(rows, min_size=1, max_size=12), st.sampled_from(strategies)),
    min_size=1,
    max_size=4,
)


def _leaf(name: str, op: Operator, values: list[Any]) -> Leaf:
    kind = SCHEMA.field(name).type
    return Leaf(name, op, tuple(pa.scalar(value, kind) for value in values))


def _known(name: str) -> st.SearchStrategy[Any]:
    values = [value for value in VALUES[name] if value is not None]
    return st.sampled_from([v for v in values if not isinstance(v, float) or not math.isnan(v)])


def _leaves(name: str) -> st.SearchStrategy[Predicate]:
    leaves = [
        st.builds(
            lambda op, v: _leaf(name, op, [v]),
            st.sampled_from(
                [
                    Operator.EQUAL,
                    Operator.NOT_EQUAL,
                    Operator.LESS,
                    Operator.LESS_OR_EQUAL,
                    Operator.GREATER,
                    Operator.GREATER_OR_EQUAL,
                ]
            ),
            _known(name),
        ),
        st.builds(
            lambda v: _leaf(name, Operator.IN, v), st.lists(_known(name), min_size=1, max_size=4)
        ),
        st.just(Leaf(name, Operator.IS_NULL)),
    ]
    if name == "f":
        leaves.append(st.just(Leaf(name, Operator.IS_NAN)))
    if name in ("p", "s"):
        patterns = ["a%", "%", "a", "_b", "b\\%", LONG + "%", "?%", "%b"]
        leaves.append(
            st.builds(lambda v: _leaf(name, Operator.LIKE, [v]), st.sampled_from(patterns))
        )
    return st.one_of(leaves)


predicates: st.SearchStrategy[Predicate] = st.recursive(
    st.one_of([_leaves(name) for name in SCHEMA.names]),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda parts: And(tuple(parts)), st.lists(inner, min_size=2, max_size=3)),
        st.builds(lambda parts: Or(tuple(parts)), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=5,
)


def _holds(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """Evaluate a condition with the three-valued logic of SQL, in plain Python."""
    match predicate:
        case Not(child=child):
            result = _holds(child, row)
            return None if result is None else not result
        case And(children=children):
            all_found = [_holds(child, row) for child in children]
            return False if False in all_found else None if None in all_found else True
        case Or(children=children):
            any_found = [_holds(child, row) for child in children]
            return True if True in any_found else None if None in any_found else False
    assert isinstance(predicate, Leaf)
    value, constants = row[predicate.column], [item.as_py() for item in predicate.values]
    if predicate.op == Operator.IS_NULL:
        return value is None
    if value is None:
        return None
    other = constants[0] if constants else None
    tests: dict[Operator, Callable[[Any, Any], Any]] = {
        Operator.IS_NAN: lambda value, _: math.isnan(value),
        Operator.IN: lambda value, _: value in constants,
        Operator.LIKE: _like,
        Operator.EQUAL: operator.eq,
        Operator.NOT_EQUAL: operator.ne,
        Operator.LESS: operator.lt,
        Operator.LESS_OR_EQUAL: operator.le,
        Operator.GREATER: operator.gt,
        Operator.GREATER_OR_EQUAL: operator.ge,
    }
    return bool(tests[predicate.op](value, other))


def _like(value: str, pattern: str) -> bool:
    if not pattern:
        return not value
    if pattern[0] == "%":
        return any(_like(value[start:], pattern[1:]) for start in range(len(value) + 1))
    escaped = pattern[0] == "\\"
    first = pattern[1] if escaped else pattern[0]
    matches = bool(value) and (value[0] == first or (first == "_" and not escaped))
    return matches and _like(value[1:], pattern[1 + escaped :])


def _text(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(writes=writes, predicates=st.lists(predicates, min_size=8, max_size=16))
def test_a_filter_returns_the_rows_of_a_filtered_full_scan(
    kind: str, writes: list[tuple[list[Row], Strategy | None]], predicates: list[Predicate]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        table = small_batches(TABLES[kind](Path(root)), 3)
        for batch, strategy in writes:
            table.append(table_of(" ".join(SCHEMA.names), batch).cast(SCHEMA))
            if strategy and table.load().schema.primary_keys:
                step.compact(table, EXECUTOR, strategy=strategy)
        everything = table.scan().to_arrow().to_pylist()
        for predicate in predicates:
            expected = sorted(repr(row) for row in everything if _holds(predicate, row))
            assert _text(table.scan(filter=predicate).to_arrow()) == expected, predicate


# --- skipped files


@contextmanager
def _count_opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count the data files and manifests that are opened."""
    counts = {"files": 0, "manifests": 0}
    read, read_bytes = FileReader._read_physical_rows, LocalFileIO.read_bytes

    def counted_read(self: FileReader, *args: Any, **kwargs: Any) -> Any:
        counts["files"] += 1
        return read(self, *args, **kwargs)

    def counted_bytes(self: LocalFileIO, path: str) -> bytes:
        name = path.rsplit("/", 1)[-1]
        counts["manifests"] += name.startswith("manifest-") and "list" not in name
        return read_bytes(self, path)

    clear_metadata_cache()
    with monkeypatch.context() as patch:
        patch.setattr(FileReader, "_read_physical_rows", counted_read)
        patch.setattr(LocalFileIO, "read_bytes", counted_bytes)
        yield counts


def _files_opened(table: Table, condition: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Return the number of rows and of opened data files."""
    with _count_opened(monkeypatch) as counts:
        rows = table.scan(filter=condition).to_arrow().num_rows
    return rows, counts["files"]


def _ten_files(root: Path, **options: Any) -> Table:
    """Return a table with ten files of ten numbers: 0-9, 10-19, ...

    in ``k`` and as text in ``s``.
    """
    table = new_table(root, "k BIGINT, n BIGINT, f DOUBLE, s STRING", **options)
    for start in range(0, 100, 10):
        rows = [(n, n, float(n), f"{n:03}") for n in range(start, start + 10)]
        table.append(table_of("k n f s", rows))
    return table


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("condition", "rows", "files"),
    [
        ("n = 42", 1, 1),
        ("n in (1, 42, 99)", 3, 3),
        ("n >= 85", 15, 2),
        ("n between 38 and 41", 4, 2),
        ("n < 10 or n > 95", 14, 2),
        ("not (n < 90)", 10, 1),
        ("not (n < 10 or n >= 20)", 10, 1),
        ("n is null", 0, 0),
        ("n is not null and n > 1000", 0, 0),
        ("f = 42.0", 1, 1),
        ("not (f < 90)", 10, 10),  # the bounds exclude NaN, which is not < 90
        ("s like '04%'", 10, 1),
        ("s like '%42'", 1, 10),
        ("s not like '0%'", 0, 0),
        ("s > '095'", 4, 1),
        ("n = 5 and s = '095'", 0, 0),
    ],
)
def test_files_of_append_tables_are_skipped_by_their_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, rows: int, files: int
) -> None:
    table = _ten_files(tmp_path, key=(), bucket="-1")
    assert _files_opened(table, condition, monkeypatch) == (rows, files)


_TYPES: dict[str, list[Any]] = {
    "BOOLEAN": [False] * 5 + [True] * 5,
    "SMALLINT": list(range(10)),
    "DECIMAL(6, 2)": [Decimal(n) / 4 for n in range(10)],
    "DECIMAL(30, 2)": [Decimal(n) / 4 for n in range(10)],
    "DOUBLE": [n / 2 for n in range(10)],
    "STRING": [f"é{n}" for n in range(10)],
    "DATE": [date(2026, 1, 1 + n) for n in range(10)],
    "TIME(3)": [time(n, 30) for n in range(10)],
    "TIMESTAMP(3)": [datetime(2026, 1, 1, n) for n in range(10)],
    "TIMESTAMP(6)": [datetime(2026, 1, 1, n, 0, 0, 1) for n in range(10)],
    "TIMESTAMP_LTZ(6)": [datetime(2026, 1, 1, n, tzinfo=UTC) for n in range(10)],
}


@pytest.mark.parametrize("kind", _TYPES)
def test_row_groups_are_skipped_by_their_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    values = _TYPES[kind]
    table = small_batches(new_table(tmp_path, f"k INT, v {kind}", key=(), bucket="-1"), 2)
    schema = table.scan().arrow_schema
    table.append(pa.table({"k": range(10), "v": values}).cast(schema))
    groups: list[int] = []
    batches = ParquetFileReader.batches

    def counted(self: Any, columns: Any, size: int, selection: Any = None) -> Any:
        groups.extend(range(self.num_row_groups) if selection is None else selection)
        return batches(self, columns, size, selection)

    monkeypatch.setattr(ParquetFileReader, "batches", counted)
    last = Leaf("v", Operator.EQUAL, (pa.scalar(values[-1], schema.field("v").type),))
    keys = table.scan(["k"], last).to_arrow().column("k").to_pylist()
    assert keys == [k for k in range(10) if values[k] == values[-1]]
    assert groups == ([2, 3, 4] if kind == "BOOLEAN" else [4])


def test_deleted_rows_remain_deleted_after_skipped_row_groups(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v BIGINT", deletion_vectors__enabled="true")
    table = small_batches(table, 2)
    table.upsert(table_of("k v", [(k, k) for k in range(20)]))
    step.compact(table, EXECUTOR, strategy="full")
    table.delete(table_of("k", [(13,), (15,)]))
    step.compact(table, EXECUTOR, strategy="minor")
    keys = table.scan(["k"], "v > 11").to_arrow().column("k").to_pylist()
    assert sorted(keys) == [12, 14, 16, 17, 18, 19]


def test_files_to_merge_are_skipped_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _ten_files(tmp_path)
    table.upsert(table_of("k n f s", [(42, -1, 0.0, "new")]))
    assert _files_opened(table, "k = 42", monkeypatch) == (1, 2)
    assert _files_opened(table, "k = 142", monkeypatch) == (0, 0)


def test_files_with_overlapping_keys_are_skipped_by_value_only_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _ten_files(tmp_path)
    table.upsert(table_of("k n f s", [(42, -1, 0.0, "new")]))
    # The statistics of one file match, but files with overlapping keys are evaluated together.
    assert _files_opened(table, "n = 42", monkeypatch) == (
        0,
        2,
    )
    assert _files_opened(table, "n = 52", monkeypatch) == (1, 1)  # no other file has keys 50 to 59


def test_engines_that_combine_rows_do_not_skip_overlapping_files_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, "k BIGINT, n BIGINT, s STRING", merge_engine="partial-update")
    table.upsert(table_of("k n s", [(1, 5, None)]))
    table.upsert(table_of("k n s", [(1, None, "x")]))
    assert _files_opened(table, "n = 5 and s = 'x'", monkeypatch) == (1, 2)
    assert _files_opened(table, "n = 6", monkeypatch) == (0, 2)


def test_equality_of_the_bucket_key_opens_one_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, bucket="16")
    table.upsert(table_of("k v", [(k, "x") for k in range(1000)]))
    assert len(table.files()) == 16
    assert len(table.scan(filter="k = 500").plan()) == 1
    assert len(table.scan(filter="k in (1, 500)").plan()) <= 2
    assert len(table.scan(filter="k = 500 and v = 'x' or k = 1").plan()) <= 2
    assert len(table.scan(filter="k > 500 and k < 502").plan()) == 16
    assert _files_opened(table, "k = 500", monkeypatch) == (1, 1)


@pytest.mark.slow
def test_the_bucket_is_hashed_by_the_bucket_count_of_the_file(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "p STRING, k BIGINT", key=("p", "k"), partition_by=("p",), bucket="4"
    )
    table.upsert(table_of("p k", [("old", k) for k in range(50)]))
    _set_option(table, "bucket", "7")
    table.overwrite(table_of("p k", [("new", k) for k in range(50)]), {"p": "new"})
    for k in range(50):
        rows = table.scan(filter=f"k = {k}").to_arrow().to_pylist()
        assert sorted(row["p"] for row in rows) == ["new", "old"]
        assert len(table.scan(filter=f"k = {k}").plan()) == 2


def test_rows_are_found_after_the_bucket_key_changed_its_type(
    tmp_path: Path,
) -> None:
    """Other engines allow a new type of a bucket key; compactions mix both in one file."""
    table = new_table(tmp_path, "k INT", key=(), bucket="4", bucket_key="k")
    for _ in range(3):
        table.append(table_of("k", [(k,) for k in range(-9, 9)]))
    schema = table.load().schema
    field = replace(schema.fields[0], type=parse_type("BIGINT"))
    assert table.stores.schemas.create(replace(schema, id=1, fields=(field,)))
    table.append(table_of("k", [(k,) for k in range(-9, 9)]))

    step.compact(table, EXECUTOR, strategy="full")

    assert {file.schema_id for split in table.files() for file in split.files} == {1}
    for k in range(-9, 9):
        assert table.scan(filter=f"k = {k}").to_arrow().num_rows == 4


def _set_option(table: Table, key: str, value: str) -> None:
    schema = table.load().schema
    options = {**schema.options, key: value}
    assert table.stores.schemas.create(replace(schema, id=schema.id + 1, options=options))


def test_manifests_of_other_partitions_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, "p STRING, k BIGINT", key=("p", "k"), partition_by=("p",))
    for p in ("a", "b", "c", "d"):
        table.upsert(table_of("p k", [(p, 1)]))
    with _count_opened(monkeypatch) as counts:
        assert table.scan(filter="p in ('b', 'c')").to_arrow().num_rows == 2
    assert counts == {"files": 2, "manifests": 2}
    with _count_opened(monkeypatch) as counts:
        assert table.scan(filter="p is null").to_arrow().num_rows == 0
    assert counts == {"files": 0, "manifests": 0}


def test_deleted_rows_remain_deleted_if_their_manifest_is_skipped(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p STRING, k BIGINT", key=("p", "k"), partition_by=("p",))
    table.upsert(table_of("p k", [("a", 1), ("b", 1)]))
    table.overwrite(table_of("p k", [("a", 2)]), {"p": "a"})
    assert table.scan(filter="p = 'a'").to_arrow().to_pylist() == [{"p": "a", "k": 2}]
    assert table.scan(filter="p = 'b'").to_arrow().to_pylist() == [{"p": "b", "k": 1}]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["none", "counts", "truncate(2)", "full"])
def test_the_rows_are_the_same_with_every_statistics_mode(tmp_path: Path, mode: str) -> None:
    table = _ten_files(tmp_path, key=(), bucket="-1", metadata__stats_mode=mode)
    assert table.scan(filter="n = 42").to_arrow().num_rows == 1
    assert table.scan(filter="s >= '04' and s < '05'").to_arrow().num_rows == 10
    assert table.scan(filter="n is null").to_arrow().num_rows == 0


@pytest.mark.parametrize("kind", ["bloom-filter", "bitmap", "range-bitmap"])
@pytest.mark.parametrize("bits", [0x7FF8000000000001, -0x8000000000000])
def test_nans_of_all_bits_are_found_by_indexes(tmp_path: Path, kind: str, bits: int) -> None:
    nan = pa.array([bits, 0], pa.int64()).view(pa.float64())
    options = {f"file-index.{kind}.columns": "f", "file-index.in-manifest-threshold": "1 mb"}
    table = new_table(tmp_path, "k BIGINT, f DOUBLE", key=(), bucket="-1", **options)
    table.append(pa.table({"k": [1, 2], "f": nan}))

    assert table.scan(["k"], "isnan(f)").to_arrow().to_pylist() == [{"k": 1}]
    assert table.scan(["k"], "not (f <= 0)").to_arrow().to_pylist() == [{"k": 1}]


def test_files_with_a_dropped_column_of_the_same_name_are_not_skipped(tmp_path: Path) -> None:
    from dataclasses import replace

    from paimon_orch.format.types.data_types import AtomicType

    table = new_table(tmp_path, "k BIGINT, n INT", key=(), bucket="-1")
    table.append(table_of("k n", [(1, 10), (2, 9)]))
    schema = table.load().schema
    k, n = schema.fields
    text = replace(n, type=AtomicType(True, TypeRoot.VARCHAR, (2**31 - 1,)))
    table.stores.schemas.create(replace(schema, id=1, fields=(k, text)))
    assert table.scan(filter="n = '9'").to_arrow().to_pylist() == [{"k": 2, "n": "9"}]
    assert table.scan(filter="n < '2'").to_arrow().to_pylist() == [{"k": 1, "n": "10"}]
    wide = replace(n, type=AtomicType(True, TypeRoot.BIGINT), name="m")
    added = replace(n, id=2, name="n")
    table.stores.schemas.create(replace(schema, id=2, fields=(k, wide, added), highest_field_id=2))
    assert table.scan(["k"], "m > 9").to_arrow().to_pylist() == [{"k": 1}]
    assert table.scan(filter="m > 10").plan() == []
    assert table.scan(filter="n = 9").plan() == []  # this n is a new column
    assert table.scan(["k"], "n is null").to_arrow().num_rows == 2
