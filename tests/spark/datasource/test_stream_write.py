"""Structured Streaming reads and writes each row of a table exactly once, also after failures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import datasource
from support.tables import Row, assert_healthy, new_table, rows_of, stored_files, table_of

from paimon_orch.errors import InputError
from paimon_orch.spark import write
from paimon_orch.spark.datasource.stream_write import PaimonStreamWriter, build_stream_writer
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HAS_BATCHES = hasattr(datasource, "DataSourceStreamArrowWriter")
needs_batches = pytest.mark.skipif(
    not HAS_BATCHES, reason="Spark 4.0 hands rows to the writers of streams, not batches"
)


def path_options(table: Table, /, **options: str) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return {"warehouse": table.paths.root.removesuffix("/db.db/t"), "table": "db.t"} | named


def stream_table(spark: SparkSession, table: Table, /, **options: str) -> DataFrame:
    return spark.readStream.format("paimon").options(**path_options(table, **options)).load()


def append(table: Table, *keys: int) -> None:
    table.append(pa.table({"k": pa.array(keys, pa.int64())}))


def stream_each_snapshot(spark: SparkSession, table: Table, /, **options: str) -> DataFrame:
    """Stream a table from its first snapshot, one snapshot per batch."""
    return stream_table(spark, table, from_snapshot="1", max_snapshots_per_trigger="1", **options)


def write_stream(
    target: Table,
    frame: DataFrame,
    checkpoint: Path,
    *,
    output_mode: str = "append",
    **options: str,
) -> None:
    """Write the available data, and stop."""
    writer = frame.writeStream.format("paimon").outputMode(output_mode)
    writer = writer.options(**path_options(target, **options), checkpointLocation=str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def log(tmp_path: Path) -> Table:
    table = new_table(tmp_path / "from", "k BIGINT", key=(), bucket="-1")
    append(table, 1)
    return table


@pytest.mark.slow
def test_rows_are_written_once_across_restarts(
    spark: SparkSession, log: Table, tmp_path: Path
) -> None:
    batches: list[tuple[int, list[Row]]] = []

    def collect(batch: DataFrame, number: int) -> None:
        batches.append((number, sorted(tuple(row) for row in batch.collect())))

    def start() -> Any:
        stream = stream_table(spark, log, max_snapshots_per_trigger="2").writeStream
        return stream.option("checkpointLocation", str(tmp_path / "at")).foreachBatch(collect)

    query = start().start()
    query.processAllAvailable()
    append(log, 2)
    query.processAllAvailable()
    query.stop()
    for k in (3, 4, 5):
        append(log, k)
    start().trigger(availableNow=True).start().awaitTermination()

    assert [rows for _, rows in batches[:2]] == [[(1,)], [(2,)]]
    assert [row for _, rows in batches[2:] for row in rows] == [(3,), (4,), (5,)]
    assert [number for number, _ in batches] == list(range(len(batches)))


@pytest.mark.slow
def test_expired_snapshots_end_the_query_with_advice(
    spark: SparkSession, log: Table, tmp_path: Path
) -> None:
    stream = stream_table(spark, log, from_snapshot="1").writeStream.format("noop")
    append(log, 2)
    (Path(log.paths.root) / "snapshot/snapshot-1").unlink()
    (Path(log.paths.root) / "snapshot/EARLIEST").write_text("2")

    query = stream.option("checkpointLocation", str(tmp_path / "at")).start()

    with pytest.raises(PySparkException, match="set fail-on-data-loss = false"):
        query.awaitTermination()


@pytest.mark.slow
@needs_batches
def test_a_table_is_replicated_with_deletes_and_a_repeated_batch_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = new_table(tmp_path / "from", bucket="2", write_only="true")
    target = new_table(tmp_path / "to", bucket="2", write_only="true")
    source.upsert(table_of("k v", [(k, "a") for k in range(20)]))
    source.upsert(table_of("k v", [(1, "b"), (30, "b")]))
    source.delete(pa.table({"k": [2]}))
    changes = stream_each_snapshot(spark, source, table="db.t$audit_log")

    write_stream(target, changes, tmp_path / "at", row_kind="rowkind")
    assert rows_of(target) == rows_of(source)
    newest = target.snapshot()
    assert newest is not None
    before = [path for path in stored_files(target) if "/data-" in path]
    number = newest.commit_identifier
    # These files are missing if the driver is killed after its commit.
    for name in (f"{number}", f".{number}.crc"):
        (tmp_path / "at/commits" / name).unlink()
    write_stream(target, changes, tmp_path / "at", row_kind="rowkind")

    assert target.snapshot() == newest
    assert sorted(path for path in stored_files(target) if "/data-" in path) == sorted(before)
    assert rows_of(target) == rows_of(source)
    assert_healthy(target)


@pytest.mark.slow
@needs_batches
def test_complete_results_replace_the_table(
    spark: SparkSession, log: Table, tmp_path: Path
) -> None:
    append(log, 2)
    target = new_table(tmp_path / "to", "even BOOLEAN, n BIGINT", key=(), bucket="-1")
    target.append(pa.table({"even": [None], "n": [9]}))
    rows = stream_each_snapshot(spark, log)
    counts = rows.groupBy("k").count().selectExpr("k % 2 = 0 AS even", "count AS n")

    write_stream(target, counts, tmp_path / "at", output_mode="complete")

    assert rows_of(target) == [(False, 1), (True, 1)]


@pytest.mark.skipif(HAS_BATCHES, reason="only Spark 4.0 hands rows to the writers of streams")
def test_an_unsupported_stream_write_is_refused_with_an_alternative(
    spark: SparkSession, log: Table, tmp_path: Path
) -> None:
    target = new_table(tmp_path / "to", "k BIGINT", key=(), bucket="-1")
    alternative = (
        r"write its batches with foreachBatch and paimon_orch\.spark\.write\(batch, table, "
    )

    with pytest.raises(PySparkException, match=alternative):
        write_stream(target, stream_each_snapshot(spark, log), tmp_path / "at")

    assert rows_of(target) == []


@needs_batches
def test_the_commit_user_of_a_stream_cannot_be_set(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT", key=(), bucket="-1")
    options = {"path": table.paths.root, "commit-user": "etl"}

    with pytest.raises(InputError, match="unknown option commit-user;"):
        build_stream_writer(options, ["k"], overwrite=False)


@pytest.mark.slow
def test_batches_of_any_stream_are_clustered_and_committed_once(
    spark: SparkSession, log: Table, tmp_path: Path
) -> None:
    target = new_table(tmp_path / "to", "k BIGINT, n INT", bucket="2")
    numbers: list[int] = []

    def upsert(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("k % 3 AS k", "k AS n")
        numbers.append(number)
        for _ in range(2):
            write(rows, target, commit_id=CommitId("replica", number))

    append(log, 2, 3)
    append(log, 4)
    stream = stream_each_snapshot(spark, log).writeStream.foreachBatch(upsert)
    checkpoint = str(tmp_path / "at")
    stream.option("checkpointLocation", checkpoint).trigger(
        availableNow=True
    ).start().awaitTermination()

    newest = target.snapshot()
    assert newest is not None
    assert (newest.id, newest.commit_identifier) == (len(numbers), numbers[-1])
    assert rows_of(target) == [(0, 3), (1, 4), (2, 2)]


def run_as_task(monkeypatch: pytest.MonkeyPatch, number: int, query: str = "q") -> None:
    """Run the body as a task of a query."""

    class Context:
        partitionId = staticmethod(lambda: number)  # noqa: N815 - Spark's name
        getLocalProperty = staticmethod(lambda _: query)  # noqa: N815

    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context)


@needs_batches
def test_a_batch_deletes_the_files_of_unused_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)

    def task(number: int, value: str) -> Any:
        run_as_task(monkeypatch, number)
        writer = new_writer()
        assert isinstance(writer, PaimonStreamWriter)
        return writer.write(iter(table_of("k v", [(1, value)]).to_batches()))

    new_writer: Callable[[], Any] = lambda: build_stream_writer(  # noqa: E731
        path_options(table), ["k", "v"], overwrite=False
    )
    new_writer().abort([task(0, "a"), None], 0)
    assert [path for path in stored_files(table) if "/data-" in path] == []
    assert table.snapshot() is None

    new_writer().commit([task(1, "last"), task(0, "first")], 0)
    messages = [task(0, "again")]
    new_writer().commit(messages, 0)
    new_writer().abort(messages, 0)  # Spark does this if the response to a commit is lost
    assert rows_of(table) == [(1, "last")]
    new_writer().commit([task(0, "next")], 1)
    new_writer().commit([], 2)
    assert rows_of(table) == [(1, "next")]
    newest = table.snapshot()
    assert newest is not None
    assert (newest.id, newest.commit_user, newest.commit_identifier) == (2, "q", 1)
