"""Uncompacted rows in batch reads, streams and writes of Spark's data source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from support.tables import Row, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.spark.datasource import batch_read as source
from paimon_orch.spark.datasource.batch_read import PaimonReader
from paimon_orch.spark.datasource.stream_read import build_stream_reader
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACTED = [(1, "a"), (2, "b"), (3, "c")]
NEWEST = [(1, "a"), (2, "new"), (4, "d")]


def uncompacted_table(root: Path, **options: str) -> Table:
    """Return a table with deletion vectors and an uncompacted update, delete and insert."""
    table = new_table(root, deletion_vectors__enabled="true", **options)
    table.upsert(table_of("k v", COMPACTED))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(2, "new"), (4, "d")]))
    table.delete(table_of("k", [(3,)]))
    return table


def path_options(table: Table, options: dict[str, str]) -> dict[str, str]:
    return {"path": table.paths.root} | options


def batch_rows(table: Table, **options: str) -> list[Row]:
    """Read in this process like Spark."""
    all_options = path_options(
        table, {name.replace("__", ".").replace("_", "-"): v for name, v in options.items()}
    )
    reader = source.build_reader(all_options, source.read_source_schema(all_options))
    assert isinstance(reader, PaimonReader)
    return sorted(_rows(reader, reader.partitions()))


def stream_rows(table: Table, **options: str) -> list[Row]:
    """Return the first rows of a stream with the mode latest-full."""
    all_options = path_options(table, options)
    reader = build_stream_reader(all_options, source.read_source_schema(all_options))
    start = reader.initialOffset()
    return sorted(_rows(reader, reader.partitions(start, reader.latestOffset(start, None))))


def _rows(reader: Any, parts: list[Any]) -> list[Row]:
    copies = cloudpickle.loads(cloudpickle.dumps((reader, parts)))
    batches = [batch for part in copies[1] for batch in copies[0].read(part)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("producer", ["none", "input"])
def test_a_stream_starts_with_level_0_merged_if_later_snapshots_do_not_contain_it(
    tmp_path: Path, producer: str
) -> None:
    table = uncompacted_table(tmp_path, changelog_producer=producer)

    assert stream_rows(table) == NEWEST
    assert batch_rows(table) == COMPACTED
    assert batch_rows(table, merge_level_0="true") == NEWEST
    compact(table, InProcessExecutor())
    assert batch_rows(table) == stream_rows(table) == NEWEST


def test_a_stream_skips_level_0_if_compaction_writes_its_changelog(tmp_path: Path) -> None:
    table = uncompacted_table(tmp_path, changelog_producer="lookup")

    assert stream_rows(table) == batch_rows(table) == COMPACTED
    assert batch_rows(table, merge_level_0="true") == NEWEST


def test_the_java_option_merges_level_0_of_tables_with_deletion_vectors(tmp_path: Path) -> None:
    table = uncompacted_table(tmp_path)
    first = new_table(tmp_path / "first", merge_engine="first-row")
    first.upsert(table_of("k v", [(1, "a")]))

    assert batch_rows(table, deletion_vectors__merge_on_read="true") == NEWEST
    assert batch_rows(first, deletion_vectors__merge_on_read="true") == []
    assert batch_rows(first, merge_level_0="true") == stream_rows(first) == [(1, "a")]


def test_an_option_of_a_read_overrides_the_table_option(tmp_path: Path) -> None:
    table = uncompacted_table(tmp_path, deletion_vectors__merge_on_read="true")

    assert batch_rows(table) == NEWEST
    assert batch_rows(table, deletion_vectors__merge_on_read="false") == COMPACTED
    assert batch_rows(table, merge_level_0="false") == COMPACTED


def test_conflicting_options_and_invalid_values_are_refused(tmp_path: Path) -> None:
    table = uncompacted_table(tmp_path)

    with pytest.raises(InputError, match="cannot be combined"):
        batch_rows(table, merge_level_0="true", deletion_vectors__merge_on_read="true")
    with pytest.raises(InputError, match="merge-level-0 must be true or false"):
        batch_rows(table, merge_level_0="yes")


def test_a_read_logs_the_number_of_records_it_skips(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = uncompacted_table(tmp_path)
    caplog.clear()

    batch_rows(table)

    (message,) = caplog.messages
    assert message.startswith("3 records of db.t are not compacted yet and are left out; run ")
    assert message.endswith("or read them with the option merge-level-0")
    caplog.clear()
    batch_rows(table, merge_level_0="true")
    assert caplog.messages == []


@pytest.mark.slow
def test_batches_and_streams_of_one_snapshot_have_equal_rows_on_request(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = uncompacted_table(tmp_path)
    options = path_options(table, {})
    stream = spark.readStream.format("paimon").options(**options).load()
    query = (
        stream.writeStream.format("memory")
        .queryName("level_0")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.awaitTermination()

    followed = spark.table("level_0")
    batch = spark.read.format("paimon").options(**options, **{"merge-level-0": "true"}).load()

    assert sorted(map(tuple, followed.collect())) == sorted(map(tuple, batch.collect())) == NEWEST
    assert batch.count() == 3
    assert spark.read.format("paimon").options(**options).load().count() == len(COMPACTED)


def test_an_overwrite_from_a_merged_read_keeps_all_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = uncompacted_table(tmp_path)
    options = path_options(table, {})
    read = spark.read.format("paimon").options(**options, **{"merge-level-0": "true"}).load()

    read.coalesce(1).write.format("paimon").mode("overwrite").options(**options).save()

    assert rows_of(table) == NEWEST
    assert Catalog(str(tmp_path)).table("db.t").scan().rows_not_visible == 0
