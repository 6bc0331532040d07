"""File indexes: written with data files, used by scans, and ignored if they are damaged."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tables import new_table, rows_of, small_batches, table_of

from paimon_orch import Catalog, col
from paimon_orch.errors import CorruptFileError, InputError
from paimon_orch.files.file_index_reader import open_indexes
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.types.predicate import to_arrow_expression
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.schema_change.schema_changes import RenameColumn, SchemaChange, SetOption
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
LOGGER = "paimon_orch.files.file_index_reader"


def orders(numbers: range, status: str | None = None) -> pa.Table:
    names = ("NEW", "PAID", None, "SENT")
    return table_of(
        "k status price", [(n, status or names[n % 4], n / 2 if n % 5 else None) for n in numbers]
    )


def append_table(
    root: Path, columns: str = "k BIGINT, status STRING, price DOUBLE", **options: str
) -> Table:
    return new_table(root, columns, key=(), bucket="-1", **options)


def alter(root: Path, *changes: SchemaChange) -> Table:
    catalog = Catalog(str(root))
    catalog.alter_table("db.t", changes)
    return catalog.table("db.t")


def files_of(table: Table) -> list[DataFileMeta]:
    return [file for split in table.files() for file in split.files]


def path_of(table: Table, name: str) -> Path:
    (path,) = Path(table.paths.root).rglob(name)
    return path


def indexes_of(table: Table, file: DataFileMeta) -> dict[str, list[str]]:
    with open_indexes(table.io, str(path_of(table, file.file_name)), file) as indexes:
        return {} if indexes is None else {name: list(kinds) for name, kinds in indexes.items()}


def test_small_indexes_are_embedded_and_large_ones_are_files(tmp_path: Path) -> None:
    small = append_table(tmp_path / "a", file_index__bitmap__columns="status")
    small.append(orders(range(40)))
    large = append_table(
        tmp_path / "b",
        file_index__bitmap__columns="status",
        file_index__in_manifest_threshold="10 b",
    )
    large.append(orders(range(40)))

    (file,) = files_of(small)
    assert file.embedded_index is not None
    assert file.extra_files == ()
    assert indexes_of(small, file) == {"status": ["bitmap"]}
    (file,) = files_of(large)
    assert file.embedded_index is None
    assert file.extra_files == (f"{file.file_name}.index",)
    assert indexes_of(large, file) == {"status": ["bitmap"]}


def test_a_column_and_a_map_key_can_have_several_indexes(tmp_path: Path) -> None:
    table = append_table(
        tmp_path, "k INT, m MAP<STRING, INT>",
        file_index__bitmap__columns="k, m[a]", file_index__bsi__columns="k",
    )  # fmt: skip
    maps = [[("a", 1)], [], None, [("b", 2), ("a", 7)]]
    table.append(
        pa.table(
            {
                "k": pa.array(range(4), pa.int32()),
                "m": pa.array(maps, pa.map_(pa.string(), pa.int32())),
            }
        )
    )

    (file,) = files_of(table)
    assert indexes_of(table, file) == {"k": ["bitmap", "bsi"], "m[a]": ["bitmap"]}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("file_index__bitmap__columns", "nowhere", "nowhere"),
        ("file_index__bitmap__columns", "k, ,status", "blank"),
        ("file_index__hash__columns", "k", "not a type of file index"),
        ("file_index__bsi__columns", "status", "cannot have a"),
        ("file_index__bitmap__columns", "k[x]", "not a map"),
        ("file_index__bitmap__k__version", "1", "does not list"),
    ],
)
def test_unsupported_indexes_are_refused(
    tmp_path: Path, option: str, value: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        append_table(tmp_path, **{option: value})


def test_a_missing_file_is_not_opened_if_its_embedded_index_excludes_it(tmp_path: Path) -> None:
    table = append_table(tmp_path, file_index__bitmap__columns="k")
    table.append(table_of("k status price", [(1, "a", 1.0), (9, "a", 1.0)]))
    table.append(table_of("k status price", [(2, "b", 1.0), (8, "b", 1.0)]))
    path_of(table, files_of(table)[0].file_name).unlink()

    assert rows_of(table, filter="k = 8") == [(8, "b", 1.0)]


def test_a_data_file_is_not_opened_if_its_index_file_excludes_it(tmp_path: Path) -> None:
    table = append_table(
        tmp_path, file_index__bloom_filter__columns="status", file_index__bloom_filter__status__items="100",
        file_index__in_manifest_threshold="0 b",
    )  # fmt: skip
    table.append(table_of("k status price", [(1, "a", 1.0), (9, "z", 1.0)]))
    path_of(table, files_of(table)[0].file_name).unlink()

    assert rows_of(table, filter="status = 'm'") == []


def test_a_row_selection_keeps_row_positions(tmp_path: Path) -> None:
    table = small_batches(append_table(tmp_path, file_index__range_bitmap__columns="k"), 3)
    table.append(orders(range(50)))

    assert [k for k, *_ in rows_of(table, filter="k in (7, 20, 21, 49)")] == [7, 20, 21, 49]

    report = table.scan(filter="k in (7, 20, 21, 49)").explain()
    assert (report.files, report.rows, report.rows_selected) == (1, 50, 4)
    # The footer and page index are large for 50 rows.
    assert report.bytes_not_read > report.bytes / 6
    assert list(report.indexes) == ["range-bitmap(k)"]


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_deleted_rows_remain_deleted_with_indexes(tmp_path: Path, kind: str) -> None:
    table = new_table(
        tmp_path, "k BIGINT, status STRING, price DOUBLE", deletion_vectors__enabled="true",
        file_index__bitmap__columns="status", file__format=kind,
    )  # fmt: skip
    table.upsert(orders(range(40)))
    compact(table, EXECUTOR)
    table.upsert(orders(range(10), "LATE"))
    compact(table, EXECUTOR)

    assert [k for k, *_ in rows_of(table, filter="status = 'NEW'")] == list(range(12, 40, 4))
    assert [k for k, *_ in rows_of(table, filter="status = 'LATE'")] == list(range(10))
    assert all(file.embedded_index for file in files_of(table))


def test_files_to_merge_are_not_skipped_separately(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "k BIGINT, status STRING, price DOUBLE", file_index__bitmap__columns="k,status"
    )
    table.upsert(orders(range(8), "OLD"))
    table.upsert(orders(range(4, 8), "FRESH"))

    assert [k for k, *_ in rows_of(table, filter="status = 'OLD'")] == [0, 1, 2, 3]
    assert table.scan(filter="status = 'OLD'").explain().indexes == {}
    assert list(table.scan(filter="k = 5").explain().indexes) == ["bitmap(k)"]


def test_indexes_of_key_columns_are_not_used_with_partial_updates(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "k BIGINT, status STRING", bucket="1", merge_engine="partial-update",
        file_index__bitmap__columns="k, status",
    )  # fmt: skip
    table.upsert(pa.table({"k": [1, 3], "status": ["NEW", "PAID"]}))
    compact(table, EXECUTOR, strategy="full")

    assert table.scan(filter="k = 2").explain().indexes == {}
    assert list(table.scan(filter="status = 'OLD'").explain().indexes) == ["bitmap(status)"]


def test_a_file_that_moves_up_keeps_its_index(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "k BIGINT, status STRING, price DOUBLE", file_index__bitmap__columns="status",
        file_index__in_manifest_threshold="0 b", num_sorted_run__compaction_trigger="1",
    )  # fmt: skip
    table.upsert(orders(range(8)))
    (before,) = files_of(table)
    compact(table, EXECUTOR, strategy="full")

    (after,) = files_of(table)
    assert after == replace(before, level=after.level)
    assert after.level > 0
    assert [k for k, *_ in rows_of(table, filter="status = 'PAID'")] == [1, 5]


def test_changelog_files_have_no_index(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "k BIGINT, status STRING, price DOUBLE", file_index__bitmap__columns="status",
        file_index__in_manifest_threshold="0 b", changelog_producer="input",
    )  # fmt: skip
    table.upsert(orders(range(8)))

    names = [path.name for path in Path(table.paths.root).rglob("*.index")]
    assert [name.split("-")[0] for name in names] == ["data"]


def test_a_failed_write_leaves_no_index(tmp_path: Path) -> None:
    table = append_table(
        tmp_path, file_index__bsi__columns="k", file_index__bitmap__columns="status",
        file_index__in_manifest_threshold="0 b", target_file_size="1 kb",
    )  # fmt: skip
    rows = pa.concat_tables(
        [orders(range(5000)), table_of("k status price", [(-(2**63), "x", 1.0)])]
    )

    with pytest.raises(InputError, match="'k' cannot be indexed"):
        table.append(rows)

    remaining = list(Path(table.paths.root).rglob("data-*"))
    assert remaining == []


def test_indexes_are_not_used_if_reading_is_disabled(tmp_path: Path) -> None:
    table = append_table(
        tmp_path, file_index__bitmap__columns="k", file_index__read__enabled="false"
    )
    table.append(orders(range(9)))

    assert table.scan(filter="k = 3").explain().indexes == {}
    assert [k for k, *_ in rows_of(table, filter="k = 3")] == [3]


def create_damaged_table(root: Path, data: bytes | None, **options: str) -> Table:
    table = append_table(
        root,
        file_index__bitmap__columns="status",
        file_index__in_manifest_threshold="0 b",
        **options,
    )
    table.append(orders(range(40)))
    path = path_of(table, f"{files_of(table)[0].file_name}.index")
    content = path.read_bytes()
    path.unlink()
    if data is not None:
        path.write_bytes(data or content[: len(content) * 2 // 3])
    return table


@pytest.mark.parametrize(
    "data", [b"", b"garbage that is long enough for a head", None], ids=["cut", "other", "gone"]
)
def test_a_damaged_index_is_reported_once_and_ignored(
    tmp_path: Path, data: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    table = create_damaged_table(tmp_path, data)

    with caplog.at_level(logging.WARNING, LOGGER):
        for _ in range(2):
            assert len(rows_of(table, filter="status = 'PAID'")) == 10

    (record,) = [record for record in caplog.records if record.name == LOGGER]
    assert f"{files_of(table)[0].file_name}.index" in record.getMessage()


@pytest.mark.parametrize("data", [b"", None], ids=["cut", "gone"])
def test_a_strict_table_refuses_a_damaged_index(tmp_path: Path, data: bytes | None) -> None:
    table = create_damaged_table(tmp_path, data, file_index__strict="true")

    with pytest.raises(CorruptFileError, match=r"\.index"):
        rows_of(table, filter="status = 'PAID'")


def test_an_index_is_used_after_its_column_is_renamed(tmp_path: Path) -> None:
    table = append_table(tmp_path, file_index__bitmap__columns="k,status")
    table.append(orders(range(8)))
    table = alter(
        tmp_path,
        RenameColumn("status", "state"),
        SetOption("file-index.bitmap.columns", "k,state"),
    )

    assert list(table.scan(filter="state = 'PAID'").explain().indexes) == ["bitmap(state)"]
    assert [k for k, *_ in rows_of(table, filter="state = 'PAID'")] == [1, 5]


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(0, 9),
    "status": st.none() | st.sampled_from(["", "a", "b", "é", "日本"]),
    "price": st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
}
FILTERS = [
    "k = 3", "k <> 3", "k in (1, 2, 8)", "not k in (1, 2)", "k between 2 and 5", "not (k between 2 and 5)",
    "status = 'a'", "status <> 'a'", "status is null", "not status is null", "status >= 'b'", "status like 'é'",
    "price = 0.0", "price < 0", "price >= 0", "not price > 1", "price <> 1.5", "price is null or k > 7",
    "(status = 'a' or price = 1.5) and k <> 4", "not (status = 'a' and k = 3)",
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_indexes_do_not_change_the_rows(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kinds = data.draw(
        st.lists(
            st.sampled_from(["bitmap", "range-bitmap", "bloom-filter"]), min_size=1, unique=True
        )
    )
    options = {f"file_index__{kind.replace('-', '_')}__columns": "k,status,price" for kind in kinds}
    options["file_index__in_manifest_threshold"] = data.draw(st.sampled_from(["0 b", "1 mb"]))
    options["file__format"] = data.draw(st.sampled_from(["parquet", "orc", "avro"]))
    if "bloom-filter" in kinds:
        options |= {f"file_index__bloom_filter__{name}__items": "10" for name in VALUES}
    keyed = data.draw(st.booleans())
    if keyed:
        options |= {"deletion_vectors__enabled": data.draw(st.sampled_from(["true", "false"]))}
    rows_per_batch = data.draw(st.sampled_from([2, 100]))
    table = new_table(
        tmp_path_factory.mktemp("t"), "k BIGINT, status STRING, price DOUBLE",
        key=("k",) if keyed else (), bucket="1" if keyed else "-1", **options,
    )  # fmt: skip
    table = small_batches(table, rows_per_batch)
    for rows in data.draw(
        st.lists(
            st.lists(st.tuples(*VALUES.values()), min_size=1, max_size=12),
            min_size=1,
            max_size=3,
        )
    ):
        new = table_of("k status price", rows).cast(table.scan().arrow_schema)
        table.upsert(new) if keyed else table.append(new)
        if keyed:
            compact(table, EXECUTOR)
    for text in FILTERS:
        assert sorted(map(repr, rows_of(table, filter=text))) == plain(table, text), text


def plain(table: Table, text: str) -> list[str]:
    """Return the rows that match the filter, without indexes."""
    predicate = bind_filter(text, table.load().schema)
    assert predicate is not None
    matching = table.scan().to_arrow().filter(to_arrow_expression(predicate))
    rows = zip(*(column.to_pylist() for column in matching.columns), strict=True)
    return sorted(map(repr, rows))


MAPS = st.lists(
    st.none() | st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 3), max_size=3),
    min_size=1, max_size=8,
)  # fmt: skip
KEY_TESTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "m['a'] = 1": lambda m: m.get("a") == 1,
    "m['a'] <> 1": lambda m: m.get("a") not in (None, 1),
    "m['a'] in (0, 2) or m['b'] > 1": lambda m: m.get("a") in (0, 2) or (m.get("b") or 0) > 1,
    "m['a'] is null": lambda m: m.get("a") is None,
    "not m['c'] is null and m['b'] between 1 and 2": lambda m: (
        m.get("c") is not None and m.get("b") in (1, 2)
    ),
}


@pytest.mark.slow
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(files=st.lists(MAPS, min_size=1, max_size=3), threshold=st.sampled_from(["0 b", "10 kb"]))
def test_indexes_do_not_change_filters_on_map_keys(
    files: list[list[dict[str, int | None] | None]], threshold: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        table = append_table(
            Path(root), "k INT, m MAP<STRING, INT>", file_index__bitmap__columns="m[a], m[b]",
            file_index__range_bitmap__columns="m[b]", file_index__in_manifest_threshold=threshold,
        )  # fmt: skip
        rows = list(enumerate(row for part in files for row in part))
        for part in files:
            numbered, rows_left = rows[: len(part)], rows[len(part) :]
            maps = [None if m is None else list(m.items()) for _, m in numbered]
            table.append(
                pa.table({
                    "k": pa.array([k for k, _ in numbered], pa.int32()),
                    "m": pa.array(maps, pa.map_(pa.string(), pa.int32())),
                })
            )  # fmt: skip
            rows = rows_left + numbered
        for text, holds in KEY_TESTS.items():
            keys = table.scan(["k"], filter=text).to_arrow().column("k").to_pylist()
            assert sorted(keys) == [
                k for k, m in sorted(rows, key=lambda row: row[0]) if holds(m or {})
            ]


def test_the_index_of_a_map_key_is_used(tmp_path: Path) -> None:
    table = append_table(
        tmp_path, "k INT, m MAP<STRING, STRING>", file_index__bitmap__columns="m[a]"
    )
    maps = pa.array([[("a", "x")], [("a", "y"), ("b", "x")], []], pa.map_(pa.string(), pa.string()))
    table.append(pa.table({"k": pa.array(range(3), pa.int32()), "m": maps}))

    report = table.scan(filter=col("m")["a"] == "y").explain()

    assert (report.rows_selected, list(report.indexes)) == (1, ["bitmap(m[a])"])
    assert table.scan(filter="m['a'] = 'z'").plan() == []
    option = SetOption("file-index.bitmap.columns", "n[a]")
    renamed = alter(tmp_path, RenameColumn("m", "n"), option)
    assert renamed.scan(filter="n['a'] = 'z'").plan() == []
    with pytest.raises(InputError, match="not a map"):
        table.scan(filter=col("k")["a"] == 1)
