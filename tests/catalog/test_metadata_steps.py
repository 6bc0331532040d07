"""Tags, branches, rollbacks, dropped partitions and other steps without executors, in each catalog.

What a server cannot do fails by name, and the table is unchanged.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from support.catalogs.kinds import ROOT, CatalogUnderTest
from support.catalogs.rest_server import PYPAIMON_1_4
from support.histories import branch_of, read_versions, select_retained
from support.spark.step_cases import KEYS, primary_key_table, rows_for, rows_in, source_options
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import UnsupportedError
from paimon_orch.spark.datasource import batch_read as source
from paimon_orch.spark.datasource.stream_read import build_stream_reader
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_partitions import expire_partitions
from paimon_orch.steps.expiration.expire_tags import expire_tags
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.steps.maintenance.trigger_tag_automatic_creation import create_tags
from paimon_orch.steps.publication.sync_iceberg import sync_iceberg
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption
from paimon_orch.table.table import Table


@pytest.fixture
def table(catalog_under_test: CatalogUnderTest) -> Table:
    """Return a table with four snapshots, opened by the name of the catalog."""
    primary_key_table(ROOT)
    return catalog_under_test.open().table("db.t")


def assert_sound(table: Table) -> None:
    assert check(table, deep=True).findings == ()


def test_partitions_are_expired_dropped_and_truncated(catalog_under_test: CatalogUnderTest) -> None:
    table = new_table(ROOT, "dt STRING, k INT", key=("dt", "k"), partition_by=("dt",))
    today = datetime.now()
    days = [str((today - timedelta(days=age)).date()) for age in (0, 1, 2, 9)]
    table.upsert(table_of("dt k", [(day, 1) for day in days]))

    assert expire_partitions(table, expiration_time=timedelta(days=7)).names == (f"dt={days[3]}",)
    table.drop_partitions([{"dt": days[2]}])
    assert rows_of(catalog_under_test.open().table("db.t")) == [(days[1], 1), (days[0], 1)]
    table.truncate()

    assert rows_of(catalog_under_test.open().table("db.t")) == []
    assert_sound(table)


def test_tags_are_created_renamed_expired_and_deleted(table: Table) -> None:
    rows = rows_of(table)
    table.tags.create("a")
    table.tags.create("b", 1, time_retained=timedelta(milliseconds=1))
    table.tags.rename("a", "c")
    table.upsert(rows_for(range(3), "later"))
    assert table.tags.names() == ["b", "c"]
    assert rows_of(table, tag="c") == rows
    assert expire_tags(table) == ["b"]
    table.tags.delete("c")
    assert table.tags.names() == []
    assert_sound(table)


def test_automatic_tags_are_created(catalog_under_test: CatalogUnderTest, table: Table) -> None:
    options = {"tag.automatic-creation": "process-time", "tag.creation-period": "daily"}
    changes = [SetOption(*option) for option in options.items()]
    catalog_under_test.open().alter_table("db.t", changes)
    rows = rows_of(table, snapshot_id=1)
    [tag] = create_tags(table)
    assert table.tags.names() == [tag]
    assert rows_of(table, tag=tag) == rows


@pytest.mark.slow
def test_branches_are_created_written_merged_and_deleted(
    catalog_under_test: CatalogUnderTest, table: Table
) -> None:
    table.tags.create("start")
    before = read_versions(table)
    if catalog_under_test.kind == PYPAIMON_1_4:
        with pytest.raises(UnsupportedError, match="the server does not serve branches"):
            table.branches.create("dev", "start")
        assert read_versions(table) == before
        assert table.branches.names() == []
        return
    table.branches.create("dev", "start")
    branch = branch_of(table, "dev")
    branch.upsert(rows_for(range(2), "b"))
    compact(branch, InProcessExecutor(), strategy="full")
    assert read_versions(table) == before
    assert_sound(table)  # the Java server writes the hint of the branch for main
    expected = rows_of(branch)

    table.branches.fast_forward("dev")

    assert rows_of(table) == rows_of(branch_of(table, "dev")) == expected
    assert_sound(table)
    table.branches.delete("dev")
    assert table.branches.names() == []


def test_a_rollback_restores_its_target(catalog_under_test: CatalogUnderTest, table: Table) -> None:
    table.tags.create("late")
    before = read_versions(table)

    table.rollback(2, delete_tags=True)

    after = read_versions(table)
    assert after == select_retained(before, after)
    assert list(after) == ["1", "2"]
    snapshot = table.upsert(rows_for(range(1), "next"))
    assert snapshot is not None
    assert snapshot.id == 3
    assert_sound(catalog_under_test.open().table("db.t"))


def test_manifests_are_compacted(table: Table) -> None:
    rows, manifests, latest = rows_of(table), table.stores.manifests, table.snapshot()
    assert latest is not None
    assert len(manifests.manifests(latest)) > 1
    compacted = compact_manifests(table)
    assert compacted is not None
    assert len(manifests.manifests(compacted)) == 1
    assert rows_of(table) == rows
    assert_sound(table)


def test_columns_are_added_and_tables_renamed(
    catalog_under_test: CatalogUnderTest, table: Table
) -> None:
    catalog, rows = catalog_under_test.open(), rows_of(table)
    catalog.alter_table("db.t", [AddColumn(column="w", type="INT")])
    catalog.rename_table("db.t", "db.u")
    assert catalog.tables("db") == ["u"]
    renamed = catalog.table("db.u")
    assert rows_of(renamed) == [(*row, None) for row in rows]
    compact(renamed, InProcessExecutor(), strategy="full")
    assert_sound(renamed)


def test_iceberg_metadata_is_published(catalog_under_test: CatalogUnderTest) -> None:
    new_table(ROOT, metadata__iceberg__storage="table-location").upsert(
        table_of("k v", [(1, "a"), (2, "b")])
    )
    table = catalog_under_test.open().table("db.t")
    compact(table, InProcessExecutor(), strategy="full")
    assert (Path(table.paths.root) / "metadata" / "v2.metadata.json").exists()
    sync_iceberg(table)
    assert_sound(table)


def test_a_stream_reads_each_row_once(table: Table) -> None:
    options = source_options(table)
    reader = build_stream_reader(options, source.read_source_schema(options))
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    first = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in first) == KEYS
    rows = rows_for(range(60, 64), "s")
    table.upsert(rows)
    later = reader.latestOffset(end, None)
    batches = [batch for part in reader.partitions(end, later) for batch in reader.read(part)]
    assert rows_in(pa.Table.from_batches(batches)) == rows_in(rows)
