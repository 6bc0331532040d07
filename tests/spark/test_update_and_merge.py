"""UPDATE and MERGE INTO with Spark on every kind of table, also with concurrent commits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from support.merge_conditions import CONDITIONS, SOURCE, create_numbers
from support.tables import Row, assert_healthy, new_table, rows_of, stored_files, table_of

from paimon_orch.errors import InputError, NotFoundError, PaimonError, UnsupportedError
from paimon_orch.spark.frame_reader import read
from paimon_orch.spark.update_and_merge import merge_into, update
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.row_level.merge import merge
from paimon_orch.table.table import Table

VECTORS = {"deletion_vectors__enabled": "true"}
EVOLUTION = {"row_tracking__enabled": "true", "data_evolution__enabled": "true"}
KINDS: dict[str, dict[str, Any]] = {
    "unaware": {"key": (), "bucket": "-1"},
    "unaware, vectors": {"key": (), "bucket": "-1", **VECTORS},
    "data evolution": {"key": (), "bucket": "-1", **VECTORS, **EVOLUTION},
    "bucketed": {"key": (), "bucket": "2", "bucket_key": "k"},
    "bucketed, vectors": {"key": (), "bucket": "2", "bucket_key": "k", **VECTORS},
    "key": {"bucket": "2"},
    "key, vectors": {"bucket": "2", **VECTORS},
    "key, dynamic buckets": {"bucket": "-1"},
}


def kinds(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", [pytest.param(KINDS[name], id=name) for name in names])


every_kind = kinds(*KINDS)


def create_filled_table(root: Path, **kind: Any) -> Table:
    """Keys 0 to 19 in two commits; those below 3 have no value."""
    table = new_table(root, "k BIGINT, v STRING, n INT", **kind)
    for start in (0, 10):
        numbers = range(start, start + 10)
        table.append(table_of("k v n", [(k, "old" if k > 2 else None, k) for k in numbers]))
    return table


def compact_and_read(table: Table) -> list[Row]:
    """Return the visible rows of a table after level 0 is compacted."""
    compact(table, InProcessExecutor())
    assert_healthy(table)
    return rows_of(table)


def first_call(race: Callable[[], object]) -> Callable[[int, int], None]:
    """Return a progress callback that runs an action in its first call."""
    races = [race]

    def progress(done: int, total: int) -> None:
        if races and done == total:
            races.pop()()

    return progress


def source(spark: SparkSession, *rows: tuple[int, str | None]) -> DataFrame:
    return spark.createDataFrame(list(rows), "k long, v string")


@pytest.mark.sampled(1)
@every_kind
def test_an_update_changes_only_the_rows_that_match_the_filter(
    spark: SparkSession, tmp_path: Path, kind: dict[str, Any]
) -> None:
    table = create_filled_table(tmp_path, **kind)

    result = update(
        spark, table, {"v": "concat(v, '-', n)", "n": fn.col("n") + 1}, "v = 'old' and k < 12"
    )

    expected = [(k, f"old-{k}", k + 1) for k in range(3, 12)]
    before = [(k, None, k) for k in range(3)]
    after = [(k, "old", k) for k in range(12, 20)]
    assert (result.updated, result.deleted, result.inserted) == (9, 0, 0)
    assert compact_and_read(table) == [*before, *expected, *after]


@pytest.mark.slow
def test_column_names_can_contain_dots(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, "`k.x` BIGINT, v STRING", key=["k.x"])
    table.upsert(table_of("k.x v", [(1, "a"), (2, "b")]))

    update(spark, table, {"v": "concat(v, `k.x`)"}, "`k.x` = 2")
    merge_into(
        source(spark, (1, "c"), (3, "d")).withColumnRenamed("k", "k.x"),
        table,
        "target.`k.x` = source.`k.x`",
        when_matched_update="*",
        when_not_matched_insert="*",
    )

    assert rows_of(table) == [(1, "c"), (2, "b2"), (3, "d")]


@pytest.mark.sampled(1)
@every_kind
def test_a_merge_updates_deletes_and_inserts_rows(
    spark: SparkSession, tmp_path: Path, kind: dict[str, Any]
) -> None:
    table = create_filled_table(tmp_path, **kind)
    changes = source(spark, (5, "five"), (15, None), (16, "sixteen"), (100, "new"))

    result = merge_into(
        changes,
        table,
        "target.k = source.k",
        when_matched_delete="source.v is null",
        when_matched_update={"v": "source.v", "n": "target.n * 2"},
        when_not_matched_insert={"k": "source.k", "v": "upper(source.v)"},
    )

    model: dict[int, Row] = {k: (k, "old" if k > 2 else None, k) for k in range(20)}
    model |= {5: (5, "five", 10), 16: (16, "sixteen", 32), 100: (100, "NEW", None)}
    del model[15]
    assert (result.updated, result.deleted, result.inserted) == (2, 1, 1)
    assert compact_and_read(table) == [model[k] for k in sorted(model)]


@pytest.mark.sampled(1)
@kinds("unaware, vectors", "bucketed", "key")
def test_a_source_that_matches_a_row_twice_is_refused_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, kind: dict[str, Any]
) -> None:
    table = create_filled_table(tmp_path, **kind)
    before = stored_files(table)
    twice = source(spark, (5, "a"), (6, "b"), (5, "c"))

    with pytest.raises(InputError, match="several rows of the source match the same row"):
        merge_into(twice, table, "target.k = source.k", when_matched_update={"v": "source.v"})

    assert stored_files(table) == before


@pytest.mark.slow
def test_a_second_match_of_an_unchanged_row_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    table = create_filled_table(tmp_path, key=(), bucket="-1")
    twice = source(spark, (5, "delete"), (5, "keep"))

    result = merge_into(
        twice, table, "target.k = source.k", when_matched_delete="source.v = 'delete'"
    )

    assert result.deleted == 1
    assert len(rows_of(table)) == 19


@pytest.mark.slow
def test_rows_with_a_null_in_the_condition_do_not_match(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create_filled_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v n", [(None, "nobody", 0)]))
    nulls = spark.createDataFrame([(None, "x")], "k long, v string")

    result = merge_into(
        nulls,
        table,
        "target.k = source.k",
        when_matched_update={"v": "source.v"},
        when_not_matched_insert={"k": "source.k", "v": "source.v"},
    )

    assert (result.updated, result.inserted) == (0, 1)
    assert rows_of(table)[:2] == [(None, "nobody", 0), (None, "x", None)]


@pytest.mark.slow
def test_a_star_selects_the_columns_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    table = create_filled_table(tmp_path)
    source_rows = spark.createDataFrame(
        [("five", 5, 50), ("new", 100, 0)], "v string, k long, n int"
    )

    merge_into(
        source_rows,
        table,
        fn.expr("target.k = source.k"),
        when_matched_update="*",
        when_not_matched_insert="*",
    )

    assert rows_of(table)[5] == (5, "five", 50)
    assert rows_of(table)[-1] == (100, "new", 0)


@pytest.mark.slow
def test_a_star_that_would_move_a_row_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "k BIGINT, p STRING, n INT", key=(), partition_by=("p",), bucket="-1"
    )
    table.append(table_of("k p n", [(1, "a", 1), (2, None, 2)]))
    same = spark.createDataFrame(
        [(1, "a", 5), (2, None, 6), (9, "z", 0)], "k LONG, p STRING, n INT"
    )
    moved = spark.createDataFrame([(1, "b", 7)], "k LONG, p STRING, n INT")

    merge_into(same, table, "target.k = source.k", when_matched_update="*")
    with pytest.raises(
        InputError, match="the source's column 'p' is b for a row with a, and p can"
    ):
        merge_into(moved, table, "target.k = source.k", when_matched_update="*")

    assert rows_of(table) == [(1, "a", 5), (2, None, 6)]


def test_a_merge_into_an_empty_table_inserts_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")

    merge_into(source(spark, (1, "a")), table, "target.k = source.k", when_not_matched_insert="*")

    assert rows_of(table) == [(1, "a")]


@pytest.mark.slow
def test_a_merge_with_nothing_to_change_commits_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create_filled_table(tmp_path)
    before = stored_files(table)

    result = merge_into(
        source(spark, (100, "x")), table, "target.k = source.k", when_matched_update={"v": "'x'"}
    )

    assert result.snapshot_id is None
    assert stored_files(table) == before


@pytest.mark.slow
def test_an_update_changes_matching_rows_of_every_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(
        tmp_path, "p STRING, k BIGINT, v STRING", key=(), partition_by=["p"], bucket="-1", **VECTORS
    )
    table.append(table_of("p k v", [(p, k, "old") for p in ("a", "b", None) for k in range(3)]))

    update(spark, table, {"v": "coalesce(p, 'none')"}, "k = 1")

    assert [row for row in rows_of(table) if row[1] == 1] == [
        (None, 1, "none"),
        ("a", 1, "a"),
        ("b", 1, "b"),
    ]
    assert_healthy(table)


@pytest.mark.slow
def test_columns_of_types_that_spark_lacks_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "k BIGINT, v STRING, t TIME(3), ns TIMESTAMP(9), ms TIMESTAMP(3), l TIMESTAMP_LTZ(6), "
        "d DECIMAL(38, 18), b BYTES, a ARRAY<ROW<x INT, y STRING>>, m MAP<STRING, INT>, s TINYINT",
        key=(),
        bucket="-1",
    )
    row: dict[str, Any] = {
        "k": 1,
        "v": "old",
        "t": time(1, 2, 3, 4000),
        "ms": datetime(1969, 12, 31, 23, 59, 59, 1000),
        "l": datetime(2026, 1, 1, tzinfo=UTC),
        "d": Decimal("12345678901234567890.123456789012345678"),
        "b": b"\x00\xff",
        "a": [{"x": 1, "y": None}, None],
        "m": [("a", 1), ("b", None)],
        "s": -128,
    }
    rows = pa.Table.from_pylist([row, {"k": 2, "v": "null"}], schema=table.scan().arrow_schema)
    exact = pa.array([1_234_567_890_123_456_789, None]).cast(pa.timestamp("ns"))
    rows = rows.set_column(rows.schema.get_field_index("ns"), "ns", exact)
    table.append(rows)

    update(spark, table, {"v": "'new'"})

    table_rows = table.scan().to_arrow().sort_by("k")
    assert table_rows["v"].to_pylist() == ["new", "new"]
    assert table_rows.drop_columns("v").equals(rows.drop_columns("v"))


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ({}, "k"),
        ({"key": (), "bucket": "-1", "partition_by": ["v"]}, "v"),
        ({"key": (), "bucket": "2", "bucket_key": "n"}, "n"),
    ],
    ids=["primary key", "partition", "bucket key"],
)
def test_key_and_partition_columns_cannot_be_updated(
    spark: SparkSession, tmp_path: Path, kind: dict[str, Any], column: str
) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING, n INT", **kind)

    with pytest.raises(InputError, match=f"{column} cannot be set"):
        update(spark, table, {column: "1"})
    with pytest.raises(InputError, match=f"{column} cannot be set"):
        merge_into(source(spark), table, "true", when_matched_update={column: "1"})


def test_invalid_columns_and_expressions_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = create_filled_table(tmp_path)

    with pytest.raises(NotFoundError, match="nope"):
        update(spark, table, {"nope": "1"})
    with pytest.raises(InputError, match=r"an expression is invalid: .*nope"):
        update(spark, table, {"v": "nope"})
    with pytest.raises(InputError, match="an expression is invalid"):
        update(spark, table, {"v": "1 +"})
    with pytest.raises(InputError, match="at least one column to set"):
        update(spark, table, {})
    with pytest.raises(InputError, match="a merge requires an update, delete or insert clause"):
        merge_into(source(spark), table, "true")


@pytest.mark.slow
def test_values_that_do_not_fit_are_refused_and_change_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING NOT NULL, n INT")
    table.upsert(table_of("k v n", [(1, "a", 1)]))
    before = stored_files(table)

    with pytest.raises(PaimonError, match="column 'n': the value '3000000001'"):
        update(spark, table, {"n": "k + 3000000000"})
    with pytest.raises(InputError, match="column 'v' has 1 null values"):
        update(spark, table, {"v": "null"})

    assert stored_files(table) == before


@pytest.mark.slow
def test_quoted_column_names_are_supported(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, `c d` STRING", key=(), bucket="-1")
    table.append(pa.table({"k": [1, 2], "c d": ["x", "y"]}))
    changes = spark.createDataFrame([(2, "z"), (3, "new")], "k long, `c d` string")

    update(spark, table, {"c d": "concat(`c d`, k)"}, "k = 1")
    on = "target.k = source.k"
    merge_into(changes, table, on, when_matched_update="*", when_not_matched_insert="*")

    assert rows_of(table) == [(1, "x1"), (2, "z"), (3, "new")]


@pytest.mark.slow
def test_the_error_of_a_damaged_file_contains_its_name(spark: SparkSession, tmp_path: Path) -> None:
    table = create_filled_table(tmp_path, key=(), bucket="-1")
    (damaged, _) = sorted(path for path in stored_files(table) if "/data-" in path)
    Path(damaged).write_bytes(b"no Parquet")

    with pytest.raises(PaimonError, match=f"CorruptFileError.*{Path(damaged).name}"):
        update(spark, table, {"v": "'x'"})


@pytest.mark.slow
def test_a_merge_into_a_table_that_ignores_deletes_cannot_delete(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create_filled_table(tmp_path, ignore_delete="true")
    changes, on = source(spark, (5, "five")), "target.k = source.k"

    merge_into(changes, table, on, when_matched_update={"v": "source.v"})

    assert rows_of(table)[5] == (5, "five", 5)
    with pytest.raises(UnsupportedError, match="ignores deletes"):
        merge_into(changes, table, on, when_matched_delete="true")


ENGINES = {
    "sequence": {"sequence__field": "n"},
    "partial-update": {
        "merge_engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "sequence groups": {
        "merge_engine": "partial-update",
        "fields.n.sequence-group": "v",
        "partial-update.remove-record-on-sequence-group": "n",
    },
    "aggregation": {
        "merge_engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", [{}, VECTORS], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_merge_engines_produce_the_requested_rows(
    spark: SparkSession, tmp_path: Path, engine: str, layout: dict[str, str]
) -> None:
    table = create_filled_table(tmp_path, **ENGINES[engine], **layout)
    changes = source(spark, (5, "five"), (15, None), (100, "new"))

    result = update(spark, table, {"n": "n + 100", "v": "concat('v', k)"}, "k between 4 and 6")
    merge_into(
        changes,
        table,
        "target.k = source.k",
        when_matched_delete="source.v is null",
        when_matched_update={"v": "source.v", "n": "target.n + 1"},
        when_not_matched_insert={"k": "source.k", "v": "source.v", "n": "7"},
    )

    model: dict[int, Row] = {k: (k, "old" if k > 2 else None, k) for k in range(20)}
    model |= {4: (4, "v4", 104), 5: (5, "five", 106), 6: (6, "v6", 106), 100: (100, "new", 7)}
    del model[15]
    assert result.updated == 3
    assert compact_and_read(table) == [model[k] for k in sorted(model)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (
            "sequence",
            r"k = 4 .* the old row would win.*'sequence.field' \(n\) of the new row is lower",
        ),
        ("partial-update", "k = 4 .* column 'n' would be 4, not None"),
        ("sequence groups", r"k = 4 .* only with its sequence group \(n\)"),
    ],
)
def test_an_update_that_the_engine_would_ignore_is_refused_and_writes_nothing(
    spark: SparkSession, tmp_path: Path, engine: str, message: str
) -> None:
    table = create_filled_table(tmp_path, **ENGINES[engine])
    before = stored_files(table)

    with pytest.raises(PaimonError, match=message):
        update(spark, table, {"n": "null"}, "k = 4")

    assert stored_files(table) == before


@pytest.mark.slow
def test_a_merge_into_a_first_row_table_only_inserts_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create_filled_table(tmp_path, merge_engine="first-row")
    changes, on = source(spark, (5, "five"), (100, "new")), "target.k = source.k"

    with pytest.raises(UnsupportedError, match="it keeps the first row of a key"):
        update(spark, table, {"v": "'x'"})
    with pytest.raises(UnsupportedError, match="it keeps the first row of a key"):
        merge_into(changes, table, on, when_matched_update={"v": "source.v"})
    inserted = {"k": "source.k", "v": "source.v"}
    merge_into(changes, table, on, when_not_matched_insert=inserted)

    assert [row for row in compact_and_read(table) if row[0] in (5, 100)] == [
        (5, "old", 5),
        (100, "new", None),
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{}, VECTORS], ids=str)
def test_updated_rows_keep_their_ids_and_inserted_rows_get_new_ids(
    spark: SparkSession, tmp_path: Path, options: dict[str, str]
) -> None:
    table = new_table(tmp_path, key=(), bucket="-1", row_tracking__enabled="true", **options)
    for start in (0, 3):
        table.append(table_of("k v", [(k, "old") for k in range(start, start + 3)]))

    update(spark, table, {"v": "'new'"}, "k in (1, 4)")
    changes, on = source(spark, (2, "merged"), (3, None), (9, "added")), "target.k = source.k"
    merge_into(
        changes,
        table,
        on,
        when_matched_delete="source.v is null",
        when_matched_update="*",
        when_not_matched_insert="*",
    )

    assert rows_of(table, columns=["k", "v", "_ROW_ID", "_SEQUENCE_NUMBER"]) == [
        (0, "old", 0, 1),
        (1, "new", 1, 3),
        (2, "merged", 2, 4),
        (4, "new", 4, 3),
        (5, "old", 5, 2),
        (9, "added", 6, 4),
    ]
    assert_healthy(table)


CLAUSES: list[dict[str, Any]] = [
    {"when_matched_update": "*", "when_not_matched_insert": "*"},
    {
        "when_matched_update": {"v": "source.v", "n": "target.n * 2 + source.n"},
        "when_matched_delete": "source.v is null or source.n < target.n",
        "when_not_matched_insert": {"k": "source.k", "v": "'new'"},
    },
    {"when_not_matched_by_source_delete": "target.k < 5"},
    {
        "when_matched_update": {"v": "source.v"},
        "when_not_matched_insert": {"k": "source.k", "n": "source.n"},
        "when_not_matched_by_source_delete": "target.n > 10 and target.v = 'old'",
        "when_not_matched_by_source_update": {"v": "'gone'", "n": "target.n - 1"},
    },
]


@pytest.mark.slow
@kinds("unaware, vectors", "data evolution", "key")
@pytest.mark.parametrize("clauses", CLAUSES, ids=["upsert", "all", "delete", "by source"])
def test_merges_in_the_process_return_the_rows_of_spark(
    spark: SparkSession, tmp_path: Path, kind: dict[str, Any], clauses: dict[str, Any]
) -> None:
    on_spark = create_filled_table(tmp_path / "spark", **kind)
    in_process = create_filled_table(tmp_path / "process", **kind)
    rows: list[tuple[int | None, str | None, int]] = [
        (k, None if k % 3 == 0 else f"v{k}", k if k % 2 else -1) for k in range(7, 25)
    ]
    rows.append((None, "null", 0))
    if kind.get("key") != ():
        rows.pop()
    frame = spark.createDataFrame(rows, "k long, v string, n int")

    expected = merge_into(frame, on_spark, "target.k = source.k", **clauses)
    actual = merge(in_process, table_of("k v n", rows), ["k"], **clauses)

    assert compact_and_read(in_process) == compact_and_read(on_spark)
    counts = [(x.updated, x.deleted, x.inserted) for x in (actual, expected)]
    assert counts[0] == counts[1]
    assert any(counts[0])


@pytest.mark.slow
def test_floating_point_keys_match_as_in_the_process(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(0.0, 1), (float("nan"), 2), (0.1, 3), (0.5, 4), (None, 5)]
    tables = [new_table(tmp_path / x, "k FLOAT, n INT", key=(), bucket="-1") for x in "ab"]
    for table in tables:
        table.append(table_of("k n", rows))
    given = [(-0.0, 10), (float("nan"), 20), (0.1, 30), (0.5, 40), (None, 50)]
    frame = spark.createDataFrame(given, "k double, n int")

    merge_into(frame, tables[0], "target.k = source.k", when_matched_update={"n": "source.n"})
    merge(tables[1], table_of("k n", given), ["k"], when_matched_update={"n": "source.n"})

    on_spark, in_process = (sorted(map(repr, rows_of(table))) for table in tables)
    assert on_spark == in_process


@pytest.mark.slow
def test_conditions_in_the_process_are_true_for_the_rows_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create_numbers(tmp_path)
    source = spark.createDataFrame(
        [tuple(row.values()) for row in SOURCE.to_pylist()], "id long, y double, big long"
    )
    marks = {f"is{i}": fn.expr(condition) for i, condition in enumerate(CONDITIONS)}

    conditions = source.join(read(spark, table.scan()), fn.expr("k = id")).select(
        "k", *(value.alias(name) for name, value in marks.items())
    )
    rows = conditions.collect()

    found = {x: sorted(r["k"] for r in rows if r[f"is{i}"]) for i, x in enumerate(CONDITIONS)}
    assert found == CONDITIONS


# --- races


@pytest.mark.sampled(1)
@kinds("unaware", "unaware, vectors", "bucketed, vectors", "key, dynamic buckets")
def test_a_concurrently_changed_row_is_updated_from_its_new_value(
    spark: SparkSession, tmp_path: Path, kind: dict[str, Any]
) -> None:
    table = create_filled_table(tmp_path, **kind)

    race = first_call(lambda: update(spark, table, {"n": "n + 100"}, "k = 7"))
    result = update(spark, table, {"n": "n * 2"}, "k in (7, 8)", progress=race)

    assert result.attempts == 2
    assert [row[2] for row in compact_and_read(table)][7:9] == [214, 16]


@pytest.mark.sampled(1)
@kinds("unaware", "key")
def test_a_concurrently_inserted_row_is_not_inserted_again(
    spark: SparkSession, tmp_path: Path, kind: dict[str, Any]
) -> None:
    table = create_filled_table(tmp_path, **kind)

    result = merge_into(
        source(spark, (100, "merged")),
        table,
        "target.k = source.k",
        when_matched_update={"v": "concat(target.v, source.v)"},
        when_not_matched_insert={"k": "source.k", "v": "source.v"},
        progress=first_call(lambda: table.append(table_of("k v n", [(100, "raced ", 0)]))),
    )

    assert result.attempts == 2
    assert rows_of(table)[20:] == [(100, "raced merged", 0)]


def test_a_match_that_is_added_to_another_partition_is_updated(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, "k BIGINT, p STRING, n INT", key=("k", "p"), partition_by=("p",))
    table.upsert(table_of("k p n", [(1, "a", 1)]))

    result = merge_into(
        spark.createDataFrame([(9, "b", 90)], "k BIGINT, p STRING, n INT"),
        table,
        "target.k = source.k",
        when_matched_update={"n": "target.n + 1"},
        when_not_matched_insert="*",
        progress=first_call(lambda: table.upsert(table_of("k p n", [(9, "a", 5)]))),
    )

    assert rows_of(table) == [(1, "a", 1), (9, "a", 6)]
    assert (result.updated, result.inserted, result.attempts) == (1, 0, 2)


@pytest.mark.slow
def test_a_concurrent_compaction_loses_no_update(spark: SparkSession, tmp_path: Path) -> None:
    table = create_filled_table(tmp_path, key=(), bucket="-1", **VECTORS)

    def compacted() -> None:
        compact(table, InProcessExecutor(), strategy="full")

    result = update(spark, table, {"v": "'new'"}, "k = 12", progress=first_call(compacted))

    assert result.attempts == 2
    assert rows_of(table)[12] == (12, "new", 12)
    assert len(rows_of(table)) == 20
    assert_healthy(table)
