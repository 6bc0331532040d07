"""VARIANT and VECTOR columns in Spark: read, written and changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, FloatType, VariantType, VariantVal
from support.golden import GOLDEN, copy_warehouse

from paimon_orch import Catalog
from paimon_orch.files.variant_text import format_variants
from paimon_orch.spark.sort_compact import sort_table
from paimon_orch.spark.update_and_merge import merge_into, update
from paimon_orch.steps.compaction.sort_compact import SortOrder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from paimon_orch.table.table import Table


ROWS = pa.table(
    {
        "k": [1, 2, 3],
        "v": ['{"a":1}', None, "[2]"],
        "e": [[1.0, 2.0], [3.0, 4.0], None],
        "n": [1, 2, 3],
    }
)


def load(spark: SparkSession, root: Path, name: str = "db.t") -> DataFrame:
    return spark.read.format("paimon").options(warehouse=str(root), table=name).load()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["db.t_append", "db.t_pk", "db.t_shredded"])
def test_spark_reads_variants_of_java(spark: SparkSession, tmp_path: Path, name: str) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "variant", tmp_path / "w")
    frame = load(spark, warehouse, name)
    assert frame.schema["va"].dataType == VariantType()

    rows = frame.select(frame.columns[0], fn.to_json("va")).collect()

    table = Catalog(str(warehouse)).table(name).scan().to_arrow().combine_chunks()
    [keys, variants] = table.columns[0].chunk(0), table.column("va").chunk(0)
    texts = format_variants(variants, variants.type).to_pylist()
    expected = [None if text is None else json.loads(text) for text in texts]
    actual = {row[0]: None if row[1] is None else json.loads(row[1]) for row in rows}
    assert actual == dict(zip(keys.to_pylist(), expected, strict=True))


@pytest.mark.slow
def test_spark_writes_and_filters_variants(spark: SparkSession, tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "k BIGINT, v VARIANT", options={"bucket": "-1"}
    )
    frame = spark.range(5).select(
        fn.col("id").alias("k"),
        fn.expr("if(id = 3, null, parse_json(concat('{\"a\":', id, '}')))").alias("v"),
    )
    options = {"warehouse": str(tmp_path), "table": "db.t"}
    frame.write.format("paimon").options(**options).mode("append").save()

    result = load(spark, tmp_path)
    found = result.where("variant_get(v, '$.a', 'int') > 2").collect()
    assert [(row.k, row.v.toJson()) for row in found] == [(4, '{"a":4}')]
    assert isinstance(found[0].v, VariantVal)
    assert result.where("v is null").count() == 1
    rows = table.scan().to_arrow()
    texts = format_variants(rows.column("v").combine_chunks(), rows.schema.field("v").type)
    assert sorted(texts.drop_null().to_pylist()) == [f'{{"a":{n}}}' for n in (0, 1, 2, 4)]


def test_spark_reads_and_writes_vectors(spark: SparkSession, tmp_path: Path) -> None:
    columns = "k BIGINT, v VECTOR<FLOAT, 2>"
    Catalog(str(tmp_path)).create_table("db.t", columns, options={"bucket": "-1"})
    frame = spark.sql("SELECT 1L AS k, array(1.5f, 2.5f) AS v UNION ALL SELECT 2L, null")
    options = {"warehouse": str(tmp_path), "table": "db.t"}
    frame.write.format("paimon").options(**options).mode("append").save()

    result = load(spark, tmp_path)
    assert result.schema["v"].dataType == ArrayType(FloatType())
    assert sorted(tuple(row) for row in result.collect()) == [(1, [1.5, 2.5]), (2, None)]


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    rows = table.scan().to_arrow().sort_by("k").combine_chunks()
    texts = format_variants(rows.column("v").chunk(0), rows.schema.field("v").type)
    columns = [rows["k"], texts, rows["e"], rows["n"]]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("keys", [{}, {"primary_key": ["k"]}], ids=["append", "keyed"])
def test_updates_and_merges_keep_and_set_the_new_types(
    spark: SparkSession, tmp_path: Path, keys: dict[str, Any]
) -> None:
    columns = "k BIGINT NOT NULL, v VARIANT, e VECTOR<FLOAT, 2>, n BIGINT"
    options = {"bucket": "1" if keys else "-1"}
    table = Catalog(str(tmp_path)).create_table("db.t", columns, options=options, **keys)
    (table.upsert if keys else table.append)(ROWS)

    update(spark, table, {"n": "n + 10"}, "k < 3")
    update(spark, table, {"v": "parse_json('7')", "e": "array(5.5f, 6f)"}, "k = 3")
    source = spark.sql(
        "SELECT 1L AS k, parse_json('true') AS v, array(0f, 0f) AS e, 0L AS n"
        " UNION ALL SELECT 4L, null, null, 0L"
    )
    merge_into(
        source,
        table,
        "target.k = source.k",
        when_matched_update={"v": "source.v"},
        when_not_matched_insert="*",
    )

    assert rows_of(table) == [
        (1, "true", [1.0, 2.0], 11),
        (2, None, [3.0, 4.0], 12),
        (3, "7", [5.5, 6.0], 3),
        (4, None, None, 0),
    ]


def test_a_sort_compaction_keeps_the_new_types(spark: SparkSession, tmp_path: Path) -> None:
    columns = "k BIGINT, v VARIANT, e VECTOR<FLOAT, 2>, n BIGINT"
    table = Catalog(str(tmp_path)).create_table("db.t", columns, options={"bucket": "-1"})
    table.append(ROWS)
    before = rows_of(table)

    sort_table(spark, table, SortOrder(("n", "k"), "zorder"))

    assert rows_of(table) == before
