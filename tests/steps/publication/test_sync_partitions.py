"""The step adds what reports could not, and drops partitions without rows only on request."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.recorded_partitions import RecordedPartitions, through_catalog

from paimon_orch import Catalog, Table
from paimon_orch.errors import InputError
from paimon_orch.steps import sync_partitions
from paimon_orch.steps.publication.sync_partitions import SyncPartitionsRequest, commit, plan

LISTED = {"metastore.partitioned-table": "true"}


@pytest.fixture
def catalog() -> RecordedPartitions:
    return RecordedPartitions()


@pytest.fixture
def table(tmp_path: Path, catalog: RecordedPartitions) -> Table:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "P STRING, v INT", partition_by=["P"], options=LISTED
    )
    return through_catalog(table, catalog)


def append(table: Table, *partitions: str) -> None:
    values = pa.array([1] * len(partitions), pa.int32())
    table.append(pa.table({"P": pa.array(partitions, pa.string()), "v": values}))


def test_partitions_that_a_failed_report_left_out_are_added(
    table: Table, catalog: RecordedPartitions
) -> None:
    catalog.failure = "down"
    append(table, "a", "b")
    catalog.failure = None
    result = sync_partitions(table)
    assert catalog.values() == [("a",), ("b",)]
    assert result.to_dict() == {"added": ["P=a", "P=b"], "dropped": []}
    assert not plan(table, SyncPartitionsRequest())


def test_columns_that_the_metastore_made_lower_case_are_the_same(
    table: Table, catalog: RecordedPartitions
) -> None:
    append(table, "a")
    catalog.specs = [{"p": "a"}]
    assert not plan(table, SyncPartitionsRequest(drop=True))


def test_partitions_without_rows_are_dropped_on_request(
    tmp_path: Path, table: Table, catalog: RecordedPartitions
) -> None:
    append(table, "a", "b")
    table.tags.create("base")
    table.branches.create("dev", tag="base")
    table.drop_partitions(["P=b"])
    catalog.add([{"P": name} for name in ("b", "b.done", "a.done", "gone", "gone.done")])
    planned = plan(table, SyncPartitionsRequest())
    assert not planned
    assert planned.to_dict() == {"missing": [], "surplus": ["P=gone", "P=gone.done"]}
    assert commit(table, planned).dropped == ()
    assert sync_partitions(table).dropped == ()
    result = sync_partitions(table, drop=True)
    assert result.to_dict() == {"added": [], "dropped": ["P=gone", "P=gone.done"]}
    assert catalog.values() == [("a",), ("a.done",), ("b",), ("b.done",)]


def test_a_partition_that_gets_rows_after_the_plan_is_not_dropped(
    table: Table, catalog: RecordedPartitions
) -> None:
    catalog.add([{"P": "a"}])
    planned = plan(table, SyncPartitionsRequest(drop=True))
    assert planned.to_dict() == {"missing": [], "surplus": ["P=a"]}
    append(table, "a")
    assert commit(table, planned).dropped == ()
    assert catalog.values() == [("a",)]


def test_a_partition_that_gets_rows_while_it_is_dropped_is_added_again(
    table: Table, catalog: RecordedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.add([{"P": "a"}])
    planned = plan(table, SyncPartitionsRequest(drop=True))
    drop = catalog.drop

    def drop_after_append(specs: object) -> None:
        append(table, "a")
        drop(specs)  # type: ignore[arg-type]

    monkeypatch.setattr(catalog, "drop", drop_after_append)
    commit(table, planned)
    assert catalog.values() == [("a",)]


def test_tags_are_synced_and_the_preview_is_kept(
    tmp_path: Path, catalog: RecordedPartitions
) -> None:
    options = {
        "metastore.tag-to-partition": "tag",
        "metastore.tag-to-partition.preview": "process-time",
    }
    plain = Catalog(str(tmp_path)).create_table("db.u", "v INT", options=options)
    table = through_catalog(plain, catalog)
    table.append(pa.table({"v": pa.array([1], pa.int32())}))
    [preview] = catalog.values()
    table.tags.create("a")
    catalog.specs = [{"tag": "old"}, {"tag": preview[0]}]
    result = sync_partitions(table, drop=True)
    assert result.to_dict() == {"added": ["tag=a"], "dropped": ["tag=old"]}
    assert catalog.specs == [{"tag": preview[0]}, {"tag": "a"}]


def test_a_table_without_partitions_in_a_catalog_is_refused(
    tmp_path: Path, catalog: RecordedPartitions
) -> None:
    table = Catalog(str(tmp_path)).create_table("db.v", "p INT, v INT", partition_by=["p"])
    with pytest.raises(InputError, match="not opened through a catalog that lists partitions"):
        sync_partitions(table)
    with pytest.raises(InputError, match=r"set 'metastore\.partitioned-table'"):
        sync_partitions(through_catalog(table, catalog))
