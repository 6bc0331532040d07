"""Row tracking: row ids are assigned once, kept by rewrites and never reused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.damage import edit_files
from support.golden import GOLDEN
from support.tables import new_table, rows_of, small_batches, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, InputError, NotFoundError, UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.files.row_tracking import ROW_ID, ROW_SEQUENCE_NUMBER, row_tracking_fields
from paimon_orch.files.stats.file_stats import FileStats
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    FileSource,
    ManifestEntry,
)
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.row_level.update import update
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.row_id_assignment import check_row_ids
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.table import Table

COLUMNS = ["k", "_ROW_ID", "_SEQUENCE_NUMBER"]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with three rows in two files of two snapshots."""
    created = new_table(tmp_path, key=(), bucket="-1", row_tracking__enabled="true")
    created.append(table_of("k v", [(1, "a"), (2, "b")]))
    created.append(table_of("k v", [(3, "c")]))
    return created


def files_of(table: Table) -> list[DataFileMeta]:
    return [file for split in table.files() for file in split.files]


def rewrite(table: Table, *, changed: bool = False) -> CommitChanges:
    """Rewrite all rows to one file, as a compaction does.

    ``changed`` leaves their sequence numbers unassigned.
    """
    [split] = table.files()
    schema, reader = table.load().schema, table.stores.reader()
    fields = [*schema.fields, *row_tracking_fields(schema)]
    rewriter = table.stores.build_writer_factory().writer(
        split.partition_bucket, source=FileSource.COMPACT
    )
    for file in split.files:
        for batch in reader.read(BucketFile(split.partition, 0, file), fields):
            rows = pa.Table.from_batches([batch])
            if changed:
                nulls = pa.nulls(rows.num_rows, pa.int64())
                rows = rows.set_column(len(fields) - 1, ROW_SEQUENCE_NUMBER.name, nulls)
            rewriter.write(rows)
    removed = [(FileKind.DELETE, file) for file in split.files]
    added = [(FileKind.ADD, file) for file in rewriter.close()]
    entries = (
        ManifestEntry(kind=kind, partition=split.partition, bucket=0, total_buckets=-1, file=file)
        for kind, file in (*removed, *added)
    )
    return CommitChanges(kind=CommitKind.COMPACT, entries=tuple(entries))


def test_a_commit_assigns_row_ids_to_rows_files_and_manifests(table: Table) -> None:
    snapshot = table.snapshot()
    assert snapshot is not None

    assert snapshot.next_row_id == 3
    assert [
        (f.first_row_id, f.min_sequence_number, f.max_sequence_number) for f in files_of(table)
    ] == [
        (0, 1, 1),
        (2, 2, 2),
    ]
    manifests = table.stores.manifests.manifests(snapshot)
    assert [(m.min_row_id, m.max_row_id) for m in manifests] == [(0, 1), (2, 2)]


def test_row_ids_and_sequence_numbers_are_read_if_they_are_selected(table: Table) -> None:
    assert rows_of(table, columns=COLUMNS) == [(1, 0, 1), (2, 1, 1), (3, 2, 2)]
    assert rows_of(table) == [(1, "a"), (2, "b"), (3, "c")]
    assert rows_of(table, columns=["_ROW_ID"], snapshot_id=1) == [(0,), (1,)]
    assert table.system("row_tracking").scan().to_arrow().column_names == [
        "k",
        "v",
        "_ROW_ID",
        "_SEQUENCE_NUMBER",
    ]


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("_ROW_ID = 2", [3]),
        ("_ROW_ID < 2 AND k > 1", [2]),
        ("_ROW_ID = 0 OR k = 3", [1, 3]),
        ("_SEQUENCE_NUMBER IN (2)", [3]),
        ("_ROW_ID IS NULL", []),
        ("NOT _ROW_ID = 1", [1, 3]),
    ],
)
def test_filters_on_row_ids_return_the_rows_of_a_full_scan(
    table: Table, condition: str, keys: list[int]
) -> None:
    assert [row[0] for row in rows_of(table, columns=["k"], filter=condition)] == keys


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_a_rewrite_keeps_ids_and_sequence_numbers(tmp_path: Path, kind: str) -> None:
    table = new_table(
        tmp_path, key=(), bucket="-1", row_tracking__enabled="true", file__format=kind
    )
    table.append(table_of("k v", [(1, "a"), (2, "b")]))
    table.append(table_of("k v", [(3, "c")]))
    before = rows_of(table, columns=COLUMNS)

    snapshot = table.stores.new_commit(StepKind.WRITE_ROWS).commit(rewrite(table))

    [file] = files_of(table)
    assert (file.first_row_id, file.min_sequence_number, file.max_sequence_number) == (None, 1, 2)
    assert rows_of(table, columns=COLUMNS) == before
    assert snapshot.next_row_id == 3
    table.append(table_of("k v", [(4, "d")]))
    assert rows_of(table, columns=COLUMNS) == [*before, (4, 3, 4)]
    assert rows_of(table) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_row_ids_are_correct_although_rows_are_skipped(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        key=(),
        bucket="-1",
        row_tracking__enabled="true",
        deletion_vectors__enabled="true",
    )
    small_batches(table, 10).append(table_of("k v", [(1000 + n, "x") for n in range(100)]))
    [split] = table.files()
    reader, vector = table.stores.reader(), DeletionVector.of([3, 57])
    bucket_file = BucketFile(split.partition, 0, split.files[0])
    predicate = bind_filter("k IN (1056, 1057, 1058)", table.load().schema)
    fields = [*table.load().schema.fields, ROW_ID]

    result = pa.Table.from_batches(reader.read(bucket_file, fields, vector, predicate=predicate))

    assert result.num_rows == 9
    assert all(row["_ROW_ID"] == row["k"] - 1000 for row in result.to_pylist())


def test_compaction_keeps_ids(table: Table) -> None:
    before = rows_of(table, columns=COLUMNS)

    compact.compact(table, InProcessExecutor(), strategy="full")

    [file] = files_of(table)
    assert (file.first_row_id, file.file_source) == (None, FileSource.COMPACT)
    assert rows_of(table, columns=COLUMNS) == before


def test_changed_rows_get_the_sequence_number_of_their_snapshot(table: Table) -> None:
    table.stores.new_commit(StepKind.WRITE_ROWS).commit(rewrite(table, changed=True))

    assert rows_of(table, columns=COLUMNS) == [(1, 0, 3), (2, 1, 3), (3, 2, 3)]


def test_row_ids_are_not_reused_after_an_overwrite(table: Table) -> None:
    table.overwrite(table_of("k v", [(9, "z")]))
    assert rows_of(table, columns=COLUMNS) == [(9, 3, 3)]
    table.truncate()
    snapshot = table.append(table_of("k v", [(1, "a")]))

    assert snapshot is not None
    assert snapshot.next_row_id == 5
    assert rows_of(table, columns=COLUMNS) == [(1, 4, 5)]


def test_row_ids_that_are_used_or_were_never_assigned_are_refused(table: Table) -> None:
    [split] = table.files()
    file = split.files[0]

    def claim(first: int) -> CommitChanges:
        claimed = replace(file, file_name="data-x-0.parquet", first_row_id=first)
        entry = ManifestEntry(
            kind=FileKind.ADD, partition=split.partition, bucket=0, total_buckets=-1, file=claimed
        )
        return CommitChanges(kind=CommitKind.COMPACT, entries=(entry,))

    with pytest.raises(CommitConflictError, match="both have rows with the ids 1 to 1"):
        table.stores.new_commit(StepKind.WRITE_ROWS).commit(claim(1))
    with pytest.raises(CommitConflictError, match="assigned only ids below 3"):
        table.stores.new_commit(StepKind.WRITE_ROWS).commit(claim(3))
    assert table.stores.snapshots.latest_id() == 2


def share_row_ids(root: Path, *, data_evolution: bool) -> Table:
    """Return a table in which another program gave the ids 0 and 1 to rows of two partitions."""
    options = {"row_tracking__enabled": "true", "data_evolution__enabled": str(data_evolution)}
    table = new_table(
        root, "k BIGINT, v STRING", key=(), partition_by=["k"], bucket="-1", **options
    )
    for k, count in ((1, 3), (2, 2)):
        table.append(table_of("k v", [(k, "a")] * count))
    edit_files(table, 2, first_row_id=0)
    return table


@pytest.mark.parametrize("data_evolution", [False, True])
def test_rows_of_two_partitions_with_the_same_ids_are_damage(
    tmp_path: Path, *, data_evolution: bool
) -> None:
    [finding] = check(share_row_ids(tmp_path, data_evolution=data_evolution)).findings

    assert finding.rule == "row-ids"
    assert finding.text.endswith("have the same row ids")


def test_an_update_of_rows_that_share_ids_is_refused_and_not_tried_again(tmp_path: Path) -> None:
    table = share_row_ids(tmp_path, data_evolution=True)
    before = rows_of(table)

    with pytest.raises(UnsupportedError, match="different rows with the same ids"):
        update(table, {"v": "'b'"})

    assert rows_of(table) == before


def test_a_commit_beside_files_that_share_row_ids_is_refused(tmp_path: Path) -> None:
    table = share_row_ids(tmp_path, data_evolution=False)
    state = table.load()
    assert state.snapshot is not None
    live = state.manifests.read_live_entries(state.snapshot)

    with pytest.raises(UnsupportedError, match="different rows with the same ids"):
        check_row_ids(state.schema, live, live, next_row_id=5)


def test_the_golden_table_has_the_row_ids_of_its_writer() -> None:
    warehouse = GOLDEN / "pypaimon-2.1" / "row_tracking" / "warehouse"
    table = Catalog(str(warehouse)).table("db.t_plain")

    rows = table.scan(columns=["_ROW_ID", "_SEQUENCE_NUMBER"]).to_arrow().to_pylist()

    assert [tuple(row.values()) for row in rows] == [(n, 1 + n // 20) for n in range(40)]


def test_tables_without_row_tracking_have_no_row_ids(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    snapshot = table.append(table_of("k v", [(1, "a")]))

    assert snapshot is not None
    assert snapshot.next_row_id == 0
    assert files_of(table)[0].first_row_id is None
    assert row_tracking_fields(table.load().schema) == ()
    with pytest.raises(NotFoundError, match="_ROW_ID"):
        table.scan(columns=["_ROW_ID"])
    with pytest.raises(InputError, match="row-tracking"):
        table.system("row_tracking").scan()


def test_rows_of_files_without_row_ids_have_null_ids(table: Table) -> None:
    [split] = table.files()
    without_ids = BucketFile(split.partition, 0, replace(split.files[0], first_row_id=None))

    [batch] = table.stores.reader().read(without_ids, row_tracking_fields(table.load().schema))

    assert batch.to_pydict() == {"_ROW_ID": [None, None], "_SEQUENCE_NUMBER": [1, 1]}


def test_files_are_skipped_by_the_statistics_of_their_columns(table: Table) -> None:
    """Java's compaction stores the columns of a file, including the row ids.

    The statistics are of these columns.
    """
    [split] = table.files()
    wider = replace(split.files[0], write_cols=("v", "k", "_ROW_ID"), value_stats_cols=("v", "k"))
    part = replace(split.files[0], write_cols=("k", "v"), value_stats_cols=None)
    statistics = FileStats(table.load().schema, table.stores.schemas.get)

    assert statistics.of(split.partition, part)("k").max == 2
    assert statistics.of(split.partition, wider)("v").max is not None


@pytest.mark.parametrize(
    "options", [{"bucket": "2", "bucket-key": "k"}, {"bucket": "-1", "key": "k"}]
)
def test_options_that_row_tracking_excludes_are_refused(
    tmp_path: Path, options: dict[str, str]
) -> None:
    key = [options.pop("key")] if "key" in options else []
    with pytest.raises(InputError, match="needs a table without primary key"):
        Catalog(str(tmp_path)).create_table(
            "db.t", "k BIGINT", primary_key=key, options={**options, "row-tracking.enabled": "true"}
        )
