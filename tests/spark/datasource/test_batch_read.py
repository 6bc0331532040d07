"""The data source returns the rows of a scan, and supports pushed filters."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import datasource
from pyspark.sql import functions as fn
from pyspark.sql.utils import is_remote
from support.golden import golden_tables, table_name
from support.golden_limits import MERGED_BY_ENGINES, refusal_pattern
from support.spark.second_session import open_second_session
from support.tables import Row, new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.types.predicate import to_arrow_expression
from paimon_orch.spark.column_types import build_visible_schema, convert_batch
from paimon_orch.spark.datasource import batch_read as source
from paimon_orch.spark.datasource.batch_read import BatchInputPartition
from paimon_orch.spark.datasource.datasource_options import DataSourceOptions
from paimon_orch.spark.datasource.filters import to_predicate
from paimon_orch.spark.datasource.option_names import READ_OPTIONS
from paimon_orch.spark.datasource.register import register
from paimon_orch.spark.row_conversion import to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from paimon_orch.table.table import Table

GOLDEN = [
    case
    for case in golden_tables()
    if case[0] not in MERGED_BY_ENGINES and not refusal_pattern(case[0])
]
KINDS = [
    "java-0.9/alltypes_pk/db.t",
    "java-0.9/append_part_types/db.t",
    "java-0.9/branches/db.t$branch_dev",
    "java-0.9/nested_deep/db.t",
    "java-0.9/pk_aggregation/db.t",
    "java-0.9/pk_b1_mor_orc/db.t",
    "java-0.9/pk_dv/db.t",
    "java-0.9/pk_first_row/db.t",
    "java-0.9/pk_partial_update_groups/db.t",
]


@pytest.fixture
def table_with_key(tmp_path: Path) -> Table:
    """Three snapshots: 1 and 2 have overlapping keys, 3 is a delete; tags a (1) and c (3)."""
    table = new_table(tmp_path, bucket="2", write_only="true")
    table.upsert(table_of("k v", [(k, f"a{k}") for k in range(6)]))
    table.tags.create("a")
    table.upsert(table_of("k v", [(4, "b4"), (9, "b9")]))
    table.delete(pa.table({"k": [0]}))
    table.tags.create("c")
    return table


def path_options(table: Table) -> dict[str, str]:
    root = table.paths.root.removesuffix("/db.db/t")
    return {"warehouse": root, "table": "db.t"}


def load(spark: SparkSession, table: Table, /, **options: str) -> DataFrame:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return spark.read.format("paimon").options(**path_options(table) | named).load()


def collect_sorted(frame: DataFrame) -> list[Row]:
    rows: list[Row] = [tuple(row) for row in frame.collect()]
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def have_equal_rows(actual: pa.Table, expected: pa.Table) -> bool:
    """Compare rows in their given order and, because some text is not UTF-8, only then sorted."""
    if actual.combine_chunks().equals(expected.combine_chunks()):
        return True
    return sorted(map(repr, actual.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def read_in_process(options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Read like Spark, without Spark: every task from its pickled reader and partition."""
    reader = cloudpickle.loads(
        cloudpickle.dumps(source.build_reader(options, source.read_source_schema(options)))
    )
    for part in reader.partitions():
        yield from reader.read(cloudpickle.loads(cloudpickle.dumps(part)))


def rows_read(options: dict[str, str]) -> list[Row]:
    columns = pa.Table.from_batches(read_in_process(options)).columns
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


def scan_as_spark(table: Table) -> pa.Table:
    scan = table.scan()
    target = build_visible_schema(scan.arrow_schema)
    return pa.Table.from_batches((convert_batch(b, target) for b in scan.to_batches()), target)


@pytest.mark.sampled(40)
@pytest.mark.parametrize(
    ("folder", "entry"), [item[1:] for item in GOLDEN], ids=[item[0] for item in GOLDEN]
)
def test_read_tasks_return_the_rows_of_the_scan(folder: Path, entry: dict[str, Any]) -> None:
    warehouse, name = str(folder / "warehouse"), table_name(entry)
    rows = scan_as_spark(Catalog(warehouse).table(name))

    read = pa.Table.from_batches(
        read_in_process({"warehouse": warehouse, "table": name}), rows.schema
    )

    assert have_equal_rows(read, rows)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", KINDS)
def test_spark_reads_the_rows_of_the_scan(spark: SparkSession, name: str) -> None:
    golden_tables = {item[0]: item[1:] for item in GOLDEN}
    folder, entry = golden_tables[name]
    warehouse, table = folder / "warehouse", table_name(entry)

    frame = spark.read.format("paimon").options(warehouse=str(warehouse), table=table).load()

    rows = scan_as_spark(Catalog(str(warehouse)).table(table))
    assert have_equal_rows(frame.toArrow(), rows)


@pytest.mark.slow
def test_a_table_is_read_by_path_and_as_a_view(spark: SparkSession, table_with_key: Table) -> None:
    location = path_options(table_with_key)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW source_view USING paimon "
        f"OPTIONS (warehouse '{location['warehouse']}', table 'db.t', columns 'v,k')"
    )

    assert collect_sorted(spark.read.format("paimon").load(table_with_key.paths.root)) == rows_of(
        table_with_key
    )
    assert spark.table("source_view").columns == ["v", "k"]
    assert spark.sql("SELECT v FROM source_view WHERE k = 9").collect() == [("b9",)]
    spark.catalog.dropTempView("source_view")
    with pytest.raises(PySparkException, match="create a temporary view"):
        spark.sql(
            "CREATE TABLE source_table USING paimon "
            f"OPTIONS (warehouse '{location['warehouse']}', table 'db.t')"
        )


def test_a_table_of_spark_without_options_names_what_may_have_created_it() -> None:
    with pytest.raises(InputError, match="saveAsTable, writeTo or CREATE TABLE created this one"):
        list(read_in_process({}))


def test_a_relative_path_is_resolved_from_the_working_directory(
    table_with_key: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path_options(table_with_key)["warehouse"])

    for path in ("db.db/t", "./db.db/t/", table_with_key.paths.root):
        assert pa.Table.from_batches(read_in_process({"path": path})).num_rows == len(
            rows_of(table_with_key)
        )


@pytest.mark.slow
def test_the_format_is_registered_in_a_session_that_looked_up_formats_before(
    spark: SparkSession, table_with_key: Table
) -> None:
    session = open_second_session(spark)

    register(session)

    frame = session.read.format("paimon").options(**path_options(table_with_key)).load()
    assert collect_sorted(frame) == rows_of(table_with_key)


@pytest.mark.slow
def test_columns_are_pruned_by_the_schema(spark: SparkSession, table_with_key: Table) -> None:
    reader = spark.read.format("paimon").options(**path_options(table_with_key))

    frame = reader.schema("v string").load()

    assert frame.columns == ["v"]
    assert collect_sorted(frame) == sorted((v,) for _, v in rows_of(table_with_key))
    with pytest.raises(PySparkException, match="'v' is string in the table, but int in the schema"):
        reader.schema("v int").load().collect()


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"snapshot": "1"}, [(k, f"a{k}") for k in range(6)]),
        ({"tag": "a", "filter": "k >= 4 OR v = 'a0'"}, [(0, "a0"), (4, "a4"), (5, "a5")]),
        ({"incremental-between": "1..2"}, [("+I", 4, "b4"), ("+I", 9, "b9")]),
        (
            {"incremental-between": "a..c", "columns": "k"},
            [("+I", 9), ("+U", 4), ("-D", 0)],
        ),
        (
            {"incremental-between": "1..3", "incremental-mode": "delta", "columns": "rowkind"},
            [("+I",), ("+I",), ("-D",)],
        ),
    ],
)
def test_options_select_a_snapshot_or_a_range(
    table_with_key: Table, options: dict[str, str], rows: list[Row]
) -> None:
    read = pa.Table.from_batches(read_in_process(path_options(table_with_key) | options))
    has_row_kinds = options.get("columns") == "rowkind"
    columns = [read["rowkind"]] if has_row_kinds else read.columns

    assert sorted(zip(*(c.to_pylist() for c in columns), strict=True)) == rows


def test_a_timestamp_selects_a_snapshot_and_is_utc_without_a_time_zone(
    table_with_key: Table,
) -> None:
    snapshot = table_with_key.snapshot(2)
    assert snapshot is not None
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=snapshot.time_millis)

    for text in (moment.isoformat(), f"{moment.isoformat()}+00:00", str(snapshot.time_millis)):
        read = pa.Table.from_batches(
            read_in_process(path_options(table_with_key) | {"timestamp": text})
        )
        expected = table_with_key.scan(timestamp=snapshot.time_millis).to_arrow()
        assert read.sort_by("k").to_pylist() == expected.sort_by("k").to_pylist()


@pytest.mark.slow
def test_branches_and_system_tables_are_read(spark: SparkSession, table_with_key: Table) -> None:
    table_with_key.branches.create("b", "a")
    files = load(spark, table_with_key, table="db.t$files")

    assert collect_sorted(load(spark, table_with_key, branch="b")) == [
        (k, f"a{k}") for k in range(6)
    ]
    assert files.count() == table_with_key.system("files").scan().to_arrow().num_rows > 0
    changes = pa.Table.from_batches(
        read_in_process(path_options(table_with_key) | {"table": "db.t$audit_log"})
    )
    assert sorted(changes["rowkind"].to_pylist()) == ["+I"] * 6 + ["-D"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshto": "1"}, "unknown option snapshto; the options are catalog"),
        ({"table": "db.u"}, "there is no table db.u"),
        ({"columns": "k,w"}, "w"),
        ({"columns": "k,v,k"}, "repeats a column: 'k,v,k'"),
        ({"snapshot": "x"}, "option snapshot must be an integer, not 'x'"),
        ({"timestamp": "noon"}, "ISO 8601 or epoch milliseconds, not 'noon'"),
        ({"snapshot": "1", "tag": "a"}, "cannot be combined"),
        ({"incremental-between": "1"}, "must be a..b"),
        ({"incremental-mode": "diff"}, "requires incremental-between"),
        ({"incremental-between": "1..2", "tag": "a"}, "cannot be combined"),
        ({"path": "/lake/db.db/t"}, "or set a path that ends with /db.db/t"),
        ({"pushdown": "maybe"}, "pushdown must be true or false"),
    ],
)
def test_invalid_options_are_refused(
    table_with_key: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        list(read_in_process(path_options(table_with_key) | options))


def test_spark_reports_our_errors_without_a_traceback(
    spark: SparkSession, table_with_key: Table
) -> None:
    pattern = r"there is no table db\.u .*tables of db: t"
    with pytest.raises(PySparkException, match=pattern) as error:
        load(spark, table_with_key, table="db.u")
    assert "Traceback" not in str(error.value)


def test_secrets_do_not_appear_in_plans_or_representations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_STORAGE_OPTIONS", '{"key": "hush-hush"}')
    location = {"warehouse": "memory://source-secrets", "table": "db.t"}
    Catalog(location["warehouse"]).create_table("db.t", "k BIGINT").append(pa.table({"k": [1]}))

    reader = source.build_reader(location, source.read_source_schema(location))
    with pytest.raises(InputError) as error:
        DataSourceOptions.of({"storage.key": "hush-hush", "tabel": "t"}, READ_OPTIONS)

    assert b"hush-hush" not in cloudpickle.dumps((reader, reader.partitions()))
    options = DataSourceOptions({}, {"key": "hush-hush"}, {"token": "hush-hush"})
    assert "hush-hush" not in f"{error.value}{options}"


@pytest.fixture
def named_table(
    table_with_key: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Return the options of a table in the configured catalog ``prod``."""
    (tmp_path / ".paimon_orch.yaml").write_text(
        f"catalog:\n  prod: {{warehouse: {path_options(table_with_key)['warehouse']}}}\n"
    )
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))
    return {"catalog": "prod", "table": "db.t"}


def test_a_table_of_a_named_catalog_is_read(
    table_with_key: Table, named_table: dict[str, str]
) -> None:
    assert rows_read(named_table) == rows_of(table_with_key)
    with pytest.raises(InputError, match=r"no catalog 'prdo' is configured .*: prod\)"):
        rows_read({**named_table, "catalog": "prdo"})


def test_a_table_of_a_catalog_without_a_name_is_read(table_with_key: Table) -> None:
    warehouse = path_options(table_with_key)["warehouse"]
    location = {"catalog.metastore": "filesystem", "table": "db.t"}
    for name in ("warehouse", "Catalog.Warehouse"):
        assert rows_read({**location, name: warehouse}) == rows_of(table_with_key)


def test_an_identifier_as_path_is_a_table_of_the_default_catalog(
    table_with_key: Table, named_table: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, warehouse = rows_of(table_with_key), path_options(table_with_key)["warehouse"]
    path = {"path": "db.t"}

    assert rows_read({**path, "catalog": named_table["catalog"]}) == rows
    assert rows_read({**path, "warehouse": warehouse}) == rows
    assert rows_read({**path, "session.catalog": "prod"}) == rows
    monkeypatch.setenv("PAIMON_WAREHOUSE", "/elsewhere")
    assert rows_read({**path, "session.warehouse": warehouse}) == rows
    assert rows_read({**path, "warehouse": warehouse}) == rows
    monkeypatch.setenv("PAIMON_WAREHOUSE", warehouse)
    assert rows_read(path) == rows == rows_read({"table": "db.t"})


def test_a_table_of_a_jdbc_catalog_is_read(tmp_path: Path) -> None:
    options = {
        "metastore": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/c.db",
        "warehouse": str(tmp_path),
    }
    uri, warehouse = options["uri"], options["warehouse"]
    catalog = Catalog(uri, metastore="jdbc", warehouse=warehouse)
    catalog.create_table("db.t", "k BIGINT").append(pa.table({"k": [1]}))

    prefixed = {f"catalog.{name}": value for name, value in options.items()}
    assert rows_read({**prefixed, "table": "db.t"}) == [(1,)]


def test_options_of_a_catalog_are_not_in_errors(named_table: dict[str, str]) -> None:
    secret = "hush" * 2  # tracebacks show the lines of this test
    with pytest.raises(InputError, match="has no option 'token'") as error:
        rows_read({**named_table, "catalog.token": secret})
    assert secret not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "db.t"}, "catalog of table 'db.t' is unknown: .* variable PAIMON_WAREHOUSE"),
        ({"path": "db.t"}, "catalog of table 'db.t' is unknown"),
        ({"catalog": "prod"}, "set the options table .* and either catalog"),
        ({"catalog": "prod", "path": "/wh/db.db/t"}, "set the options table .* and either catalog"),
        ({"catalog.uri": "u", "path": "/wh/db.db/t"}, "set the options table"),
        ({"catalog": "prod", "warehouse": "/x", "table": "db.t"}, "remove the location '/x'"),
        (
            {"catalog": "prod", "catalog.metastore": "rest", "table": "db.t"},
            "remove the option 'metastore'",
        ),
    ],
)
def test_a_table_is_located_in_one_way(
    named_table: dict[str, str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        rows_read(options)


def test_a_relative_path_is_a_directory_even_if_a_catalog_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__LAKE__WAREHOUSE", "/elsewhere")
    new_table(tmp_path / "lake").upsert(table_of("k v", [(1, "a")]))

    assert rows_read({"path": "lake/db.db/t"}) == [(1, "a")]


@pytest.mark.slow
def test_options_of_a_catalog_are_not_in_plans(
    spark: SparkSession, table_with_key: Table, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {
        "catalog.metastore": "filesystem",
        "catalog.warehouse": path_options(table_with_key)["warehouse"],
        "catalog.cache.name": "hush-hush",  # an option without effect, which Spark does not redact
        "table": "db.t",
    }
    frame = spark.read.format("paimon").options(**options).load()
    frame.explain("extended")
    frame.explain("formatted")
    assert sorted(map(tuple, frame.collect())) == rows_of(table_with_key)
    frame.write.format("paimon").options(**options).mode("append").save()
    options["catalog.cache.password"] = options.pop("catalog.cache.name")  # Spark redacts this
    pairs = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW hushed USING paimon OPTIONS ({pairs})")
    spark.sql("SELECT k FROM hushed").explain("extended")

    shown = capfd.readouterr().out
    assert "paimon" in shown
    if not is_remote():
        store = spark._jsparkSession.sharedState().statusStore()
        executions = store.executionsList()
        plans = [executions.apply(n) for n in range(executions.size())]
        shown += "".join(f"{plan.physicalPlanDescription()}{plan.details()}" for plan in plans)
        assert "AppendData" in shown
    assert "hush-hush" not in shown


@pytest.mark.parametrize(("cores", "spread"), [(1, [[1, 1, 1]]), (4, [[1], [1], [1]])])
def test_each_section_to_merge_is_one_task_and_other_files_are_separate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, spread: list[list[int]]
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    table = new_table(tmp_path, write_only="true", source__split__open_file_cost="128 mb")
    for rows in ([(1, "a"), (5, "a")], [(3, "b"), (7, "b")], [(20, "c"), (30, "c")]):
        table.upsert(table_of("k v", rows))

    def tasks(table: Table) -> list[list[int]]:
        reader = source.build_reader(
            path_options(table), source.read_source_schema(path_options(table))
        )
        parts = [part for part in reader.partitions() if isinstance(part, BatchInputPartition)]
        return sorted([len(split.files) for split in part.splits] for part in parts)

    assert tasks(table) == [[1], [2]]  # the sections have two files and one file
    unkeyed = new_table(tmp_path / "a", key=(), bucket="-1")
    for _ in range(3):
        unkeyed.append(table_of("k v", [(1, "a")]))
    assert tasks(unkeyed) == spread  # small tables are read in one task unless cores are idle


@pytest.mark.slow
def test_times_and_nanoseconds_are_converted_to_types_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, "t TIME(3), n TIMESTAMP(9)", key=(), bucket="-1")
    before = pa.array([-1], pa.timestamp("ns"))
    table.append(pa.table({"t": pa.array([1234], pa.time32("ms")), "n": before}))

    frame = load(spark, table)

    assert frame.dtypes == [("t", "int"), ("n", "timestamp_ntz")]
    assert collect_sorted(frame) == [(1234, datetime(1969, 12, 31, 23, 59, 59, 999_999))]
    # The filter compares the truncated value, although the stored value differs.
    assert frame.filter("n = timestamp_ntz'1969-12-31 23:59:59.999999'").count() == 1
    nested = new_table(tmp_path / "a", "a ARRAY<TIMESTAMP(9)>", key=(), bucket="-1")
    with pytest.raises(UnsupportedError, match="column 'a' has"):
        source.read_source_schema(path_options(nested))


@pytest.fixture
def session_with_pushdown(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that pushes filters down to Python data sources."""
    if not hasattr(datasource, "EqualTo"):
        pytest.skip("Spark 4.0 hands no filters down")
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    yield spark
    spark.conf.unset(name)


@pytest.mark.slow
def test_each_use_of_a_frame_is_filtered_separately(
    session_with_pushdown: SparkSession, table_with_key: Table
) -> None:
    frame = load(session_with_pushdown, table_with_key)

    assert collect_sorted(frame.where("k = 1").union(frame.where("k = 2"))) == [
        (1, "a1"),
        (2, "a2"),
    ]
    # A filter of one use does not affect other uses.
    assert collect_sorted(frame) == rows_of(table_with_key)


@pytest.mark.slow
def test_the_first_rows_of_an_order_are_read(spark: SparkSession, table_with_key: Table) -> None:
    frame = load(spark, table_with_key, **{"order-by": "k desc", "limit": "3"})

    assert [row.k for row in frame.collect()] == [9, 5, 4]
    for name, value in {"limit": "1", "order-by": "k"}.items():
        changes = {"incremental-between": "1..2", name: value}
        with pytest.raises(PySparkException, match=f"incremental reads and {name} cannot"):
            load(spark, table_with_key, **changes)


def test_a_limit_counts_the_rows_before_a_pushed_filter(
    session_with_pushdown: SparkSession, table_with_key: Table
) -> None:
    options = {"pushdown": "true", "order-by": "k", "limit": "2"}

    frame = load(session_with_pushdown, table_with_key, **options).filter("k > 1")

    assert collect_sorted(frame) == [(2, "a2")]


def test_filters_skip_files(session_with_pushdown: SparkSession, tmp_path: Path) -> None:
    spark = session_with_pushdown
    table = new_table(tmp_path, "p INT, k BIGINT", key=(), partition_by=["p"], bucket="-1")
    table.append(table_of("p k", [(1, 1), (2, 2)]))
    (removed_file,) = (path for path in stored_files(table) if "/p=1/" in path)
    Path(removed_file).unlink()

    assert collect_sorted(load(spark, table, pushdown="true").filter("p = 2")) == [(2, 2)]
    assert collect_sorted(load(spark, table, filter="p = 2")) == [(2, 2)]
    with pytest.raises(PySparkException):
        load(spark, table).filter("p = 2").collect()


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["k", "v"]), min_size=1, unique=True),
    st.sampled_from([None, "k < 4", "v LIKE 'a%'", "k IN (0, 4, 9) AND v <> 'a4'", "NOT v = 'b4'"]),
    st.sampled_from(["", "1", "2", "3"]),
)
def test_columns_filters_and_snapshots_can_be_combined_as_in_a_scan(
    table_with_key: Table, columns: list[str], condition: str | None, snapshot: str
) -> None:
    drawn = {"columns": ",".join(columns), "filter": condition, "snapshot": snapshot}
    options = path_options(table_with_key) | {name: value for name, value in drawn.items() if value}
    number = int(snapshot) if snapshot else None

    target = build_visible_schema(table_with_key.scan(columns).arrow_schema)
    read = pa.Table.from_batches(read_in_process(options), target)

    assert read.column_names == columns
    assert have_equal_rows(
        read, table_with_key.scan(columns, condition, snapshot_id=number).to_arrow()
    )


VALUES = [
    (None, None, None, None),
    (1, "a", float("nan"), datetime(2026, 1, 1)),
    (2, "a%", -0.0, datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    (3, "", 1.5, None),
    (None, "b", float("inf"), datetime(2026, 1, 1, 0, 0, 1)),
]
CONSTANTS: dict[str, dict[str, object]] = {
    "i": {"1": 1, "2": 2, "NULL": None},
    "s": {"'a'": "a", "'a%'": "a%", "''": ""},
    "d": {"double('NaN')": float("nan"), "0.0D": 0.0, "1.5D": 1.5},
    "t": {
        "timestamp_ntz'2026-01-01'": VALUES[1][3],
        "timestamp_ntz'1969-12-31'": datetime(1969, 12, 31),
    },
}
COMPARISONS = {
    "EqualTo": "{} = {}",
    "EqualNullSafe": "{} <=> {}",
    "GreaterThan": "{} > {}",
    "GreaterThanOrEqual": "{} >= {}",
    "LessThan": "{} < {}",
    "LessThanOrEqual": "{} <= {}",
    "StringStartsWith": "startswith({}, {})",
    "StringEndsWith": "endswith({}, {})",
    "StringContains": "contains({}, {})",
}


def filters() -> Iterator[tuple[Any, str]]:
    """Yield filters that Spark can push down, each with the equivalent SQL."""
    for name, values in CONSTANTS.items():
        path = (name,)
        yield datasource.IsNull(path), f"{name} IS NULL"
        yield datasource.IsNotNull(path), f"{name} IS NOT NULL"
        yield datasource.In(path, tuple(values.values())), f"{name} IN ({', '.join(values)})"
        for kind, form in COMPARISONS.items():
            if name == "s" or not kind.startswith("String"):
                for text, value in values.items():
                    yield getattr(datasource, kind)(path, value), form.format(name, text)


@pytest.mark.slow
def test_pushed_filters_keep_all_rows_that_spark_keeps(spark: SparkSession) -> None:
    if not hasattr(datasource, "EqualTo"):
        pytest.skip("Spark 4.0 hands no filters down")
    schema = pa.schema(
        {"i": pa.int32(), "s": pa.string(), "d": pa.float64(), "t": pa.timestamp("us")}
    )
    columns = zip(*VALUES, strict=True)
    rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
    cases = list(filters())
    cases += [(datasource.Not(item), f"NOT ({text})") for item, text in cases]
    frame = spark.createDataFrame(VALUES, to_spark_schema(schema)).coalesce(1)
    in_spark = frame.select(
        [fn.expr(text).alias(str(number)) for number, (_, text) in enumerate(cases)]
    )
    pushed, weaker = 0, []

    for (item, text), column in zip(cases, in_spark.toArrow().columns, strict=True):
        predicate = to_predicate([item], schema)
        if predicate is not None:
            keeps = rows.append_column("row", pa.array(range(len(VALUES))))
            rows_kept = set(keeps.filter(to_arrow_expression(predicate)).column("row").to_pylist())
            rows_expected = {number for number, holds in enumerate(column.to_pylist()) if holds}
            assert rows_expected <= rows_kept, text
            pushed += 1
            weaker += [text] * (rows_expected != rows_kept)
    assert pushed > len(cases) / 2
    assert weaker == ["NOT (i IN (1, 2, NULL))"]


@pytest.mark.slow
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["i", "s", "t"]), st.sampled_from(["=", "<", ">=", "<=>"]), st.data())
def test_pushed_filters_do_not_change_the_result(
    session_with_pushdown: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    comparison: str,
    data: st.DataObject,
) -> None:
    columns = "i INT, s STRING, d DOUBLE, t TIMESTAMP(6)"
    root = tmp_path_factory.mktemp("filters")
    table = new_table(root, columns, key=(), bucket="-1")
    table.append(table_of("i s d t", VALUES))
    schema = to_spark_schema(build_visible_schema(table.scan().arrow_schema))
    constant = data.draw(st.sampled_from(sorted(CONSTANTS[name])))
    condition = f"{name} {comparison} {constant} AND NOT d = 1.5D"

    pushed = load(session_with_pushdown, table, pushdown="true")
    in_spark = session_with_pushdown.createDataFrame(VALUES, schema)

    results = [collect_sorted(frame.filter(condition).drop("d")) for frame in (pushed, in_spark)]
    assert results[0] == results[1]
