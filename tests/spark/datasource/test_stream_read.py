"""A stream reads every row once, also after restarts, compactions, expirations and rollbacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition
from support.tables import Row, new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, PaimonError
from paimon_orch.spark.datasource import batch_read as source
from paimon_orch.spark.datasource.stream_read import PaimonStreamReader, build_stream_reader
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.table.metadata.consumers import ConsumerStore
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption, UpdateType

if TYPE_CHECKING:
    from paimon_orch.table.table import Table


def path_options(table: Table, /, **options: str) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return {"warehouse": table.paths.root.removesuffix("/db.db/t"), "table": "db.t"} | named


class Query:
    """A query that runs in this process as in Spark: with JSON offsets and pickled tasks."""

    def __init__(
        self, table: Table, start: dict[str, Any] | None = None, /, **options: str
    ) -> None:
        self._options = path_options(table, **options)
        self._schema = source.read_source_schema(self._options)
        # One reader plans and the other one runs tasks; both are created at the start.
        self._reader, self._tasks = self._new_reader(), self._new_reader()
        self.at: dict[str, Any] = self._reader.initialOffset() if start is None else start

    def _new_reader(self) -> PaimonStreamReader:
        reader = build_stream_reader(self._options, self._schema)
        copy: PaimonStreamReader = cloudpickle.loads(cloudpickle.dumps(reader))
        return copy

    def rows(self) -> list[Row]:
        """Run one batch."""
        end = self._reader.latestOffset(self.at, None)
        parts = [] if end == self.at else self._reader.partitions(self.at, end)
        result = [row for part in parts for row in self._read(part)]
        self._reader.commit(end)
        self.at = end
        return result

    def _read(self, part: InputPartition) -> Iterator[Row]:
        for batch in self._tasks.read(cloudpickle.loads(cloudpickle.dumps(part))):
            yield from (tuple(row.values()) for row in batch.to_pylist())


def expire(table: Table, keep: int = 1) -> None:
    expire_snapshots(table, retain_max=keep, retain_min=1)


@pytest.fixture
def log(tmp_path: Path) -> Table:
    """An append table of two snapshots with one row each."""
    table = new_table(tmp_path, "k BIGINT", key=(), bucket="-1")
    for k in (1, 2):
        table.append(pa.table({"k": [k]}))
    return table


def append(table: Table, *keys: int) -> None:
    table.append(pa.table({"k": pa.array(keys, pa.int64())}))


def test_a_stream_reads_all_rows_and_then_appended_rows(log: Table) -> None:
    query = Query(log)

    assert sorted(query.rows()) == [(1,), (2,)]
    assert query.rows() == []
    append(log, 3)
    append(log, 4)
    assert query.rows() == [(3,), (4,)]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"scan_mode": "latest"}, []),
        ({"scan_mode": "latest-full"}, [(1,), (2,)]),
        ({"from_snapshot": "2"}, [(2,)]),
        ({"from_snapshot": "3"}, []),
        ({"scan_mode": "from-snapshot-full", "from_snapshot": "1"}, [(1,), (2,)]),
        ({"from_timestamp": "1970-01-01"}, [(1,), (2,)]),
        ({"from_timestamp": "4102444800000"}, []),
        ({"filter": "k >= 2"}, [(2,)]),
    ],
)
def test_options_set_where_a_stream_starts(
    log: Table, options: dict[str, str], first: list[Row]
) -> None:
    query = Query(log, **options)

    assert sorted(query.rows()) == first
    append(log, 9)
    assert query.rows() == [(9,)]


def test_a_timestamp_starts_with_the_snapshot_of_that_time(log: Table) -> None:
    second = log.snapshot(2)
    assert second is not None

    rows = Query(log, from_timestamp=str(second.time_millis)).rows()

    first = log.snapshot(1)
    assert first is not None
    assert (2,) in rows
    assert ((1,) in rows) == (first.time_millis == second.time_millis)


def test_a_stream_waits_for_the_first_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT", key=(), bucket="-1")
    query = Query(table)

    assert query.rows() == []
    append(table, 1)
    append(table, 2)
    assert sorted(query.rows()) == [(1,), (2,)]


def test_a_batch_reads_a_limited_number_of_snapshots(log: Table) -> None:
    append(log, 3)

    query = Query(log, from_snapshot="1", max_snapshots_per_trigger="2")

    assert [query.rows() for _ in range(3)] == [[(1,), (2,)], [(3,)], []]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot": "1"}, "unknown option snapshot; the options are catalog"),
        ({"scan_mode": "newest"}, "scan-mode of a stream must be one of latest-full"),
        ({"scan_mode": "latest", "from_snapshot": "1"}, "does not match"),
        (
            {"scan_mode": "from-timestamp"},
            "scan-mode from-timestamp does not match .*: neither of them is set",
        ),
        ({"from_snapshot": "4"}, r"from 1 to 3 \(the next snapshot\), not 4"),
        ({"max_snapshots_per_trigger": "0"}, "must be at least 1"),
        ({"table": "db.t$files"}, r"db.t\$files cannot be read as a stream"),
        ({"consumer_id": "a/b"}, "must not contain a slash"),
    ],
)
def test_invalid_options_are_refused(log: Table, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Query(log, **options)


def create_table_with_key(root: Path, producer: str) -> Table:
    table = new_table(root, bucket="2", changelog_producer=producer)
    table.upsert(table_of("k v", [(1, "a"), (2, "a")]))
    return table


def change(table: Table) -> None:
    table.upsert(table_of("k v", [(1, "b"), (3, "b")]))
    table.delete(pa.table({"k": [2]}))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("producer", "kinds"),
    [
        ("none", [("+I", 1, "b"), ("+I", 3, "b"), ("-D", 2, None)]),
        ("input", [("+I", 1, "b"), ("+I", 3, "b"), ("-D", 2, None)]),
        ("lookup", [("+I", 3, "b"), ("+U", 1, "b"), ("-D", 2, "a"), ("-U", 1, "a")]),
        ("full-compaction", [("+I", 3, "b"), ("+U", 1, "b"), ("-D", 2, "a"), ("-U", 1, "a")]),
    ],
)
def test_changes_have_the_row_kinds_of_the_changelog_producer(
    tmp_path: Path, producer: str, kinds: list[Row]
) -> None:
    table = create_table_with_key(tmp_path, producer)
    audit, plain = Query(table, table="db.t$audit_log"), Query(table)

    first = [*audit.rows()]
    compact(table, InProcessExecutor(), strategy="full")
    first += audit.rows()
    plain.rows()
    change(table)
    compact(table, InProcessExecutor(), strategy="full")

    # With a changelog producer, rows are read once, after their compaction.
    assert sorted(first) == [("+I", 1, "a"), ("+I", 2, "a")]
    assert sorted(audit.rows(), key=str) == sorted(kinds, key=str)
    assert sorted(plain.rows()) == [(1, "b"), (3, "b")]


def test_deleted_and_uncompacted_rows_are_read_once(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(1, "a"), (2, "a")]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(2, "b")]))

    query = Query(table)

    assert sorted(query.rows()) == [(1, "a"), (2, "b")]
    compact(table, InProcessExecutor())
    assert query.rows() == []


def test_an_overwrite_is_not_streamed(log: Table) -> None:
    query = Query(log, scan_mode="latest")
    log.overwrite(pa.table({"k": [7]}))
    append(log, 8)

    assert query.rows() == [(8,)]


def test_overwrites_of_append_tables_are_streamed_if_the_option_is_set(tmp_path: Path) -> None:
    option = {"streaming-read-append-overwrite": "true"}
    table = new_table(tmp_path, "k BIGINT", key=(), bucket="-1", **option)
    append(table, 1)
    query, audit = Query(table, scan_mode="latest"), Query(table, table="db.t$audit_log")
    append(table, 2)
    table.overwrite(pa.table({"k": [7]}))
    append(table, 8)

    assert query.rows() == [(2,), (7,), (8,)]
    assert audit.rows() == [("+I", k) for k in (1, 2, 7, 8)]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_streamed_overwrite_deletes_and_inserts_rows(tmp_path: Path, vectors: str) -> None:
    options = {"streaming-read-overwrite": "true", "deletion-vectors.enabled": vectors}
    table = new_table(
        tmp_path,
        "p STRING, k INT, v STRING",
        key=("p", "k"),
        partition_by=["p"],
        bucket="1",
        **options,
    )
    for v in "ab":
        table.upsert(table_of("p k v", [("x", 1, v), ("x", 2 if v == "a" else 3, v), ("y", 1, v)]))
        compact(table, InProcessExecutor())
    query, audit = (
        Query(table, table=f"db.t{name}", scan_mode="latest") for name in ("", "$audit_log")
    )
    table.overwrite(table_of("p k v", [("x", 1, "c"), ("x", 4, "c")]), {"p": "x"})
    table.delete(table_of("p k", [("x", 4)]))

    assert sorted(query.rows()) == [("x", 1, "c"), ("x", 4, "c")]
    audit_rows = audit.rows()
    assert sorted(audit_rows[:3]) == [("-D", "x", 1, "b"), ("-D", "x", 2, "a"), ("-D", "x", 3, "b")]
    assert audit_rows[3:] == [
        ("+I", "x", 1, "c"),
        ("+I", "x", 4, "c"),
        ("-D", "x", 4, None),
    ]


def test_columns_added_later_do_not_change_a_stream(log: Table, tmp_path: Path) -> None:
    query = Query(log, scan_mode="latest")
    Catalog(str(tmp_path)).alter_table("db.t", [AddColumn(column="w", type="INT")])
    log.append(pa.table({"k": [3], "w": [3]}))

    assert query.rows() == [(3,)]


@pytest.mark.parametrize("options", [{}, {"columns": "k", "filter": "v > 0"}])
def test_a_type_change_ends_the_query_and_a_restart_continues(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = new_table(tmp_path, "k INT, v INT", key=(), bucket="-1")
    table.append(table_of("k v", [(1, 1)]))
    query = Query(table, **options)
    query.rows()
    Catalog(str(tmp_path)).alter_table(
        "db.t", [UpdateType("v", "BIGINT"), AddColumn(column="w", type="INT")]
    )
    table.append(table_of("k v w", [(2, 2**33 + 5, 2), (3, -(2**33) + 5, 3)]))

    with pytest.raises(
        PaimonError, match=r"'v' was changed to BIGINT .* reads it as INT. Start the que"
    ):
        query.rows()
    again = Query(table, query.at, **options).rows()
    assert again == ([(2,)] if options else [(2, 2**33 + 5, 2), (3, -(2**33) + 5, 3)])


def test_expired_snapshots_are_an_error_unless_data_loss_is_allowed(
    log: Table, caplog: pytest.LogCaptureFixture
) -> None:
    query, other = (Query(log, scan_mode="latest") for _ in range(2))
    for k in (3, 4, 5):
        append(log, k)
    expire(log)

    with pytest.raises(PaimonError, match=r"snapshots 3 to 4 next, but 2 of them are expired"):
        query.rows()
    assert Query(log, other.at, fail_on_data_loss="false").rows() == [(5,)]
    assert "continues without them" in caplog.text


def test_an_expiration_before_the_first_read_of_a_query_loses_no_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT", key=(), bucket="-1")
    query = Query(table)
    named = Query(table, scan_mode="from-snapshot-full", from_snapshot="1")
    for k in (1, 2, 3):
        append(table, k)
    expire(table)

    assert sorted(query.rows()) == [(1,), (2,), (3,)]
    with pytest.raises(PaimonError, match="snapshots 1 to 2 next, but 2 of them are expired"):
        named.rows()


def test_a_consumer_keeps_unread_snapshots_and_continues_at_its_position(log: Table) -> None:
    query = Query(log, consumer_id="app")
    query.rows()
    for k in (3, 4, 5):
        append(log, k)
    expire(log)

    assert Query(log, consumer_id="app").rows() == [(3,), (4,), (5,)]
    assert (
        ConsumerStore(log.io, log.paths, log.load().schema.typed_options).read_next_snapshot("app")
        == 6
    )


def test_a_recreated_table_is_refused(log: Table, tmp_path: Path) -> None:
    query = Query(log)
    query.rows()
    Catalog(str(tmp_path)).drop_table("db.t")
    again = new_table(tmp_path, "k BIGINT", key=(), bucket="-1")
    for k in (1, 2, 3):
        append(again, k)

    with pytest.raises(PaimonError, match="was dropped and created again"):
        query.rows()


@pytest.mark.parametrize("again", [0, 1, 2])
def test_rolled_back_snapshots_are_refused(log: Table, again: int) -> None:
    query = Query(log)
    query.rows()
    log.rollback(1)
    for k in range(again):
        append(log, k)

    with pytest.raises(PaimonError, match="was rolled back to before snapshot 2"):
        query.rows()
    with pytest.raises(InputError, match="not a position in a Paimon table"):
        Query(log, {"offset": 1}).rows()


def test_a_stream_from_a_snapshot_merges_it_by_the_options_of_that_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v BIGINT, s BIGINT", sequence__field="s", bucket="1")
    table.upsert(table_of("k v s", [(1, 1, 9), (2, 1, 9)]))
    table.upsert(table_of("k v s", [(1, 2, 1), (2, 2, 10)]))
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("sequence.field", "v")])
    table.upsert(table_of("k v s", [(3, 3, 1)]))

    query = Query(table, scan_mode="from-snapshot-full", from_snapshot="2")

    assert sorted(query.rows()) == [(1, 1, 9), (2, 2, 10), (3, 3, 1)]
    assert sorted(Query(table).rows()) == [(1, 2, 1), (2, 2, 10), (3, 3, 1)]


def test_a_stream_from_the_newest_snapshot_merges_it_by_the_options_of_that_snapshot(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, "k BIGINT, v BIGINT, s BIGINT", sequence__field="s", bucket="1")
    table.upsert(table_of("k v s", [(1, 1, 9)]))
    table.upsert(table_of("k v s", [(1, 2, 1)]))
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("sequence.field", "v")])

    query = Query(table, scan_mode="from-snapshot-full", from_snapshot="2")

    assert query.rows() == [(1, 1, 9)]
    assert Query(table).rows() == [(1, 2, 1)]


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_changes_before_the_changelog_producer_are_refused(tmp_path: Path, producer: str) -> None:
    table = create_table_with_key(tmp_path, "none")
    change(table)
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("changelog-producer", producer)])

    query = Query(table, scan_mode="from-snapshot-full", from_snapshot="1")

    with pytest.raises((InputError, PaimonError), match="changelog-producer"):
        query.rows()
    with pytest.raises(InputError, match="before option 'changelog-producer' became"):
        table.incremental(1, 2).to_arrow()
