"""A scan as a frame: Spark reads files that need no merge, our tasks read the other files."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from support.golden import golden_tables, table_name
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.spark import read
from paimon_orch.spark.column_types import build_visible_schema, convert_batch
from paimon_orch.spark.frame_reader import separate_native_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SetOption,
    UpdateColumnComment,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from paimon_orch.spark.datasource.batch_read import BatchInputPartition, PaimonReader
    from paimon_orch.table.scan.scan import Scan
    from paimon_orch.table.table import Table

GOLDEN = {item[0]: item[1:] for item in golden_tables()}
KINDS = [
    "java-0.9/append_part_types/db.t",
    "java-0.9/manifest_formats/db.t_orc",
    "java-0.9/pk_dv_part_b4/db.t",
    "java-0.9/pk_first_row/db.t_lookup",
    "java-0.9/schema_evo_append/db.t",
    "pypaimon-2.1/pk_part_b2/db.t",
    "pypaimon-rust-0.4/append/db.p",
]
NATIVE, TASKS = "parquet", "MapInArrow"


def has_rows_of_scan(frame: DataFrame, scan: Scan) -> bool:
    target = build_visible_schema(scan.arrow_schema)
    rows = pa.Table.from_batches((convert_batch(b, target) for b in scan.to_batches()), target)
    return sorted(map(repr, frame.toArrow().to_pylist())) == sorted(map(repr, rows.to_pylist()))


def readers(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the readers in the plan: Spark's, our tasks, or both."""
    frame.explain()
    plan = capsys.readouterr().out
    return {name for name in (NATIVE, TASKS) if name in plan}


def compact_fully(table: Table) -> None:
    compact.compact(table, InProcessExecutor(), strategy="full")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", KINDS)
def test_golden_tables_have_the_rows_of_the_scan(spark: SparkSession, name: str) -> None:
    folder, entry = GOLDEN[name]
    table = Catalog(str(folder / "warehouse")).table(table_name(entry))

    files, _ = separate_native_files(table.scan())

    assert files
    assert has_rows_of_scan(read(spark, table.scan()), table.scan())


def test_types_that_spark_reads_keep_their_values(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values: dict[str, tuple[str, Any]] = {
        "a": ("BOOLEAN", True),
        "b": ("TINYINT", -128),
        "c": ("SMALLINT", -32768),
        "d": ("INT", -(2**31)),
        "e": ("BIGINT", 2**63 - 1),
        "f": ("FLOAT", 1.5),
        "g": ("DOUBLE", -0.0),
        "h": ("DECIMAL(9, 2)", Decimal("-1234567.89")),
        "i": ("DECIMAL(18, 0)", Decimal(10**17)),
        "j": ("DECIMAL(38, 10)", Decimal("-1234567890123456789012345678.0123456789")),
        "k": ("CHAR(3)", "é"),
        "l": ("STRING", "\U0001f600"),
        "m": ("BINARY(3)", b"\x00\xff\x01"),
        "n": ("BYTES", b""),
        "o": ("DATE", date(1, 1, 1)),
        "p": ("TIMESTAMP(0)", datetime(1969, 12, 31, 23, 59, 59)),
        "q": ("TIMESTAMP(3)", datetime(1582, 10, 10, 1, 2, 3, 4000)),
        "r": ("TIMESTAMP(6)", datetime(1, 1, 1, 0, 0, 0, 1)),
        "s": ("TIMESTAMP_LTZ(3)", datetime(9999, 12, 31, 23, tzinfo=UTC)),
        "t": ("TIMESTAMP_LTZ(6)", datetime(1500, 1, 1, tzinfo=UTC)),
    }
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in values.items())
    table = new_table(tmp_path, columns, key=(), bucket="-1")
    schema = table.scan().arrow_schema
    rows: list[dict[str, Any]] = [{n: value for n, (_, value) in values.items()}, {}]
    table.append(pa.Table.from_pylist(rows, schema))

    frame = read(spark, table.scan())

    assert readers(frame, capsys) == {NATIVE}
    assert frame.toArrow().to_pylist() == table.scan().to_arrow().to_pylist()


@pytest.mark.slow
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("upsert"), st.sets(st.integers(0, 12), min_size=1)),
            st.tuples(st.just("delete"), st.sets(st.integers(0, 12), min_size=1)),
            st.tuples(st.just("compact"), st.just(set[int]())),
        ),
        min_size=2,
        max_size=6,
    ),
    st.booleans(),
)
def test_a_frame_has_the_rows_of_the_scan_after_any_history(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, set[int]]],
    vectors: bool,
) -> None:
    table = new_table(
        tmp_path_factory.mktemp("lake"),
        bucket="2",
        deletion_vectors__enabled=str(vectors).lower(),
        write_only="true",
    )
    for number, (step, keys) in enumerate(steps):
        if step == "upsert":
            table.upsert(table_of("k v", [(k, f"{number} {k}") for k in keys]))
        elif step == "delete":
            table.delete(pa.table({"k": sorted(keys)}))
        else:
            compact.compact(table, InProcessExecutor(), strategy="full" if number % 2 else "minor")

    assert has_rows_of_scan(read(spark, table.scan()), table.scan())


def test_files_with_deletion_vectors_overlapping_keys_or_old_columns_are_read_by_tasks(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(tmp_path, bucket="1", deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(k, "a") for k in range(4)]))
    compact_fully(table)
    assert readers(read(spark, table.scan()), capsys) == {NATIVE}

    table.upsert(table_of("k v", [(2, "b")]))
    compact.compact(table, InProcessExecutor())

    frame = read(spark, table.scan())
    assert readers(frame, capsys) == {NATIVE, TASKS}
    assert has_rows_of_scan(frame, table.scan())
    Catalog(str(tmp_path)).alter_table("db.t", [RenameColumn("v", "w")])
    renamed = read(spark, Catalog(str(tmp_path)).table("db.t").scan())
    assert readers(renamed, capsys) == {TASKS}
    assert sorted(tuple(row) for row in renamed.collect()) == rows_of(table)


def test_a_frame_of_plain_files_reads_only_the_columns_that_a_query_needs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING, w STRING", key=(), bucket="-1")
    table.append(table_of("k v w", [(1, "a", "b")]))

    read(spark, table.scan()).filter("k = 1").select("v").explain()

    plan = capsys.readouterr().out
    assert "ReadSchema: struct<k:bigint,v:string>" in plan
    assert "EqualTo(k,1)" in plan


def test_a_partition_filter_selects_files_and_a_row_filter_is_applied_by_tasks(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(tmp_path, "p STRING, k INT", key=(), partition_by=["p"], bucket="-1")
    table.append(table_of("p k", [("x", 1), ("y{1}*?[2]", 2), ("z", 3)]))

    partition = read(spark, table.scan(filter="p = 'x'"))
    odd = read(spark, table.scan(filter="p <> 'x'"))
    rows = read(spark, table.scan(filter="k >= 2"))

    assert readers(partition, capsys) == {NATIVE}
    assert partition.collect() == [("x", 1)]
    assert readers(odd, capsys) == {NATIVE}
    assert sorted(odd.collect()) == [("y{1}*?[2]", 2), ("z", 3)]
    assert readers(rows, capsys) == {TASKS}
    assert sorted(rows.collect()) == [("y{1}*?[2]", 2), ("z", 3)]


@pytest.mark.parametrize(("folder", "prefix"), [("lake", "_hidden-"), ("{l}[a]k?", "data-")])
def test_files_that_spark_would_ignore_or_read_as_a_pattern_are_read_by_tasks(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    folder: str,
    prefix: str,
) -> None:
    table = new_table(tmp_path / folder, key=(), bucket="-1", data_file__prefix=prefix)
    table.append(table_of("k v", [(1, "a")]))

    frame = read(spark, table.scan())

    assert readers(frame, capsys) == {TASKS}
    assert frame.collect() == [(1, "a")]


def test_columns_whose_names_differ_only_in_case_are_read_by_tasks(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, K INT", key=(), bucket="-1")
    table.append(table_of("k K", [(1, 2)]))
    assert separate_native_files(table.scan(["k"]))[0] == []
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [DropColumn("K")])

    # The file still has both columns.
    assert separate_native_files(catalog.table("db.t").scan())[0] == []
    catalog.alter_table(
        "db.t", [AddColumn(column="v", type="INT"), UpdateColumnComment("k", "a number")]
    )
    catalog.table("db.t").append(table_of("k v", [(1, 2)]))
    assert len(separate_native_files(catalog.table("db.t").scan())[0]) == 1


def test_files_are_read_by_spark_after_a_comment_changed(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a")]))
    catalog = Catalog(str(tmp_path))

    catalog.alter_table("db.t", [UpdateColumnComment("k", "a number")])

    assert len(separate_native_files(catalog.table("db.t").scan())[0]) == 1


def test_files_of_a_fallback_branch_are_read_by_tasks(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.branches.create("other")
    catalog = Catalog(str(tmp_path))
    # The schema of the branch's files has an id that the table does not have.
    for value in ("1 mb", "2 mb"):
        catalog.alter_table("db.t$branch_other", [SetOption("target-file-size", value)])
    catalog.table("db.t$branch_other").append(table_of("k v", [(1, "a")]))
    catalog.alter_table("db.t", [SetOption("scan.fallback-branch", "other")])

    files, splits = separate_native_files(catalog.table("db.t").scan())

    assert files == []
    assert [split.is_fallback for split in splits] == [True]


@pytest.mark.parametrize(("engine", "files"), [("partial-update", 0), ("aggregation", 1)])
def test_keys_that_java_did_not_write_to_value_columns_are_read_by_tasks(
    tmp_path: Path, engine: str, files: int
) -> None:
    table = new_table(tmp_path, merge_engine=engine)
    table.upsert(table_of("k v", [(1, "a")]))
    compact_fully(table)

    assert len(separate_native_files(table.scan())[0]) == files


def test_the_caller_can_select_the_reader(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    assert read(spark, table.scan()).collect() == []
    assert read(spark, table.scan()).columns == ["k", "v"]
    table.append(table_of("k v", [(1, "a")]))

    assert readers(read(spark, table.scan(), native=True), capsys) == {NATIVE}
    assert readers(read(spark, table.scan(), native=False), capsys) == {TASKS}


ORDERS = [
    "n desc",
    "n nulls last, id",
    "f desc nulls first, id desc",
    "s, id",
    "d desc, s desc, id",
]


def build_numbers(root: Path, **options: str) -> Table:
    """Return a table with 400 rows in files of all levels, nulls, NaN and zeros of both signs."""
    columns = "id BIGINT, n INT, f DOUBLE, s STRING, d DECIMAL(5, 2), ts TIMESTAMP(9)"
    table = new_table(root, columns, key=("id",), bucket="2", **options)
    floats = [float("nan"), -0.0, 0.0, None, 2.5, float("-inf")]
    for part in range(4):
        ids = [*range(part * 90, part * 90 + 100)]
        rows = {
            "id": ids,
            "n": [None if n % 7 == 0 else n * 37 % 101 for n in ids],
            "f": [floats[n % 6] for n in ids],
            "s": [None if n % 11 == 0 else f"s{n % 13}" for n in ids],
            "d": [Decimal(n % 17) / 4 for n in ids],
            "ts": [None] * len(ids),
        }
        table.upsert(pa.table(rows, table.scan().to_arrow().schema))
        if part == 1:
            compact_fully(table)
    return table


@pytest.mark.sampled
@pytest.mark.parametrize("limit", [None, 0, 7, 1000])
@pytest.mark.parametrize("order", ORDERS)
def test_a_frame_has_the_order_and_the_limit_of_the_scan(
    spark: SparkSession, tmp_path: Path, order: str, limit: int | None
) -> None:
    options = {"file_index__range_bitmap__columns": "n", "deletion_vectors__enabled": "true"}
    table = build_numbers(tmp_path, **options)
    table.compact()
    scan = table.scan(["id", "s"], order_by=order, limit=limit)

    frame = read(spark, scan)

    assert frame.columns == ["id", "s"]
    rows = [tuple(row.values()) for row in scan.to_arrow().to_pylist()]
    if order == "n desc":  # rows with equal values have no order
        keys = {row["id"]: row["n"] for row in table.scan(["id", "n"]).to_arrow().to_pylist()}
        assert [keys[row.id] for row in frame.collect()] == [keys[number] for number, _ in rows]
    else:
        assert [tuple(row) for row in frame.collect()] == rows


def test_a_limit_without_an_order_returns_as_many_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = build_numbers(tmp_path)

    assert read(spark, table.scan(limit=5)).count() == 5
    assert read(spark, table.scan(["s"], "id < 3", limit=5)).count() == 3


def test_tasks_read_only_the_rows_that_may_be_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, key=(), bucket="-1", file_index__range_bitmap__columns="k")
    for part in range(3):
        numbers = [*range(part, 3000, 3)]
        table.append(table_of("k v", [(number, "x") for number in numbers]))
    readers: list[tuple[PaimonReader, list[BatchInputPartition]]] = []

    def note(_: SparkSession, reader: PaimonReader, parts: list[BatchInputPartition]) -> DataFrame:
        readers.append((reader, parts))
        return spark.createDataFrame([], "k BIGINT, v STRING")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paimon_orch.spark.frame_reader._read_in_tasks", note)
        read(spark, table.scan(order_by="k desc", limit=10))

    [(reader, parts)] = readers
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert {*range(2990, 3000)} <= {row["k"] for row in rows}
    assert len(rows) <= 30  # 10 of each file
    assert [row.k for row in read(spark, table.scan(order_by="k desc", limit=10)).collect()] == [
        *range(2999, 2989, -1)
    ]


def test_an_order_that_spark_does_not_have_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = build_numbers(tmp_path)

    with pytest.raises(UnsupportedError, match=r"column 'ts' .* cannot sort by them"):
        read(spark, table.scan(order_by="ts", limit=1))


def test_changes_and_system_tables_are_read_as_frames(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.upsert(table_of("k v", [(1, "b")]))

    changes = read(spark, table.incremental(0, 2)).collect()

    assert sorted(changes) == [("+I", 1, "a"), ("+I", 1, "b")]
    ids = read(spark, table.system("snapshots").scan(["snapshot_id"])).collect()
    assert sorted(ids) == [(1,), (2,)]


def test_local_files_are_read_although_the_default_file_system_is_remote(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(tmp_path / "a #b%20c", key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a")]))
    spark.conf.set("fs.defaultFS", "hdfs://127.0.0.1:9")
    try:
        frame = read(spark, table.scan())
        assert readers(frame, capsys) == {NATIVE}
        assert frame.collect() == [(1, "a")]
    finally:
        spark.conf.unset("fs.defaultFS")


def test_a_missing_file_is_an_error_with_any_session_settings(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a")]))
    frame = read(spark, table.scan())
    (path,) = (name for name in stored_files(table) if name.endswith(".parquet"))
    Path(path).unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises((PySparkException, Py4JJavaError), match="does not exist"):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
