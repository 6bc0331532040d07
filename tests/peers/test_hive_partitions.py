"""We report the partitions and tags to a Hive metastore that Java reports for the same changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from support.catalogs.hive_metastore import HiveMetastore
from support.peers.peers import Peer

from paimon_orch import Catalog, Table
from paimon_orch.steps import mark_done, sync_partitions
from paimon_orch.steps.expiration.delete_tag import delete_tag

LISTED = {"metastore.partitioned-table": "true"}
IGNORED = {"createTime", "lastAccessTime", "transient_lastDdlTime", "lastUpdateTime", "tableName"}


def spec(partition_keys: list[str], **options: str) -> dict[str, Any]:
    fields = ["day DATE NOT NULL", "hour INT", "k INT NOT NULL"]
    named = [field.split(" ", 1) for field in fields]
    return {
        "fields": [{"id": i, "name": n, "type": t} for i, (n, t) in enumerate(named)],
        "partition_keys": partition_keys,
        "primary_keys": [],
        "options": {**options, "bucket": "-1"},
    }


def rows(*items: tuple[int, int | None]) -> pa.Table:
    days, hours = zip(*items, strict=True)
    return pa.table(
        {
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "hour": pa.array(hours, pa.int32()),
            "k": pa.array([1] * len(items), pa.int32()),
        }
    )


def stored(metastore: HiveMetastore, table: str) -> list[dict[str, Any]]:
    """Return what is stored about the partitions of a table, without times and its name."""
    return sorted(
        (
            _without_times(each, table)
            for each in metastore.stored()["partitions"]
            if each["tableName"] == table
        ),
        key=lambda each: each["values"],
    )


def _without_times(value: Any, table: str) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_times(item, table) for key, item in value.items() if key not in IGNORED
        }
    if isinstance(value, list):
        return [_without_times(item, table) for item in value]
    return value.replace(f"/{table}/", "/T/") if isinstance(value, str) else value


def values(metastore: HiveMetastore, table: str) -> list[list[str]]:
    return [each["values"] for each in stored(metastore, table)]


def open_tables(
    metastore: HiveMetastore, java: Peer, keys: list[str], **options: str
) -> tuple[dict[str, str], Table]:
    """Return the options of the catalog and our table ``db.ours``; Java's is ``db.java``."""
    catalog = metastore.options()
    java.ask("create_database", catalog, database="db", options={})
    for name in ("ours", "java"):
        java.run("create", catalog, f"db.{name}", spec=spec(keys, **options))
    options_of_ours: dict[str, Any] = {**catalog}
    return catalog, Catalog(**options_of_ours).table("db.ours")


def test_commits_and_drops_store_what_java_stores(
    hive_metastore: HiveMetastore, java: Peer
) -> None:
    catalog, table = open_tables(hive_metastore, java, ["day", "hour"], **LISTED)
    table.append(rows((20000, 1), (20000, None)))
    java.run(
        "write",
        catalog,
        "db.java",
        rows=[
            {"day": "2024-10-04", "hour": 1, "k": 1},
            {"day": "2024-10-04", "hour": None, "k": 1},
        ],
    )
    ours = stored(hive_metastore, "ours")
    assert [each["values"] for each in ours] == [["20000", "1"], ["20000", "__DEFAULT_PARTITION__"]]
    theirs = stored(hive_metastore, "java")
    for each in (*ours, *theirs):  # the metastore adds up the files, which differ in size
        assert int(each["parameters"].pop("totalSize")) > 0
    assert ours == theirs
    listed = java.ask("list_partitions", catalog, table="db.ours")
    assert len(listed) == 2

    table.drop_partitions(["day=20000/hour=1"])
    assert values(hive_metastore, "ours") == [["20000", "__DEFAULT_PARTITION__"]]


def test_partitions_that_the_metastore_lost_are_added_again(
    hive_metastore: HiveMetastore, java: Peer
) -> None:
    _, table = open_tables(hive_metastore, java, ["day", "hour"], **LISTED)
    table.append(rows((1, 1), (2, 2)))
    partitions = table.environment.partitions
    assert partitions is not None
    before = stored(hive_metastore, "ours")
    partitions.drop([{"day": "1", "hour": "1"}])
    partitions.add([{"day": "9", "hour": "9"}])
    result = sync_partitions(table, drop=True)
    assert result.to_dict() == {"added": ["day=1/hour=1"], "dropped": ["day=9/hour=9"]}
    assert stored(hive_metastore, "ours") == before


def test_statistics_are_stored(hive_metastore: HiveMetastore, java: Peer) -> None:
    options = {**LISTED, "partition.idle-time-to-report-statistic": "1 s"}
    _, table = open_tables(hive_metastore, java, ["day", "hour"], **options)
    table.append(rows((1, 1)))
    table.append(rows((1, 1), (1, 1)))
    [partition] = stored(hive_metastore, "ours")
    size = sum(file.file_size for split in table.files() for file in split.files)
    found = {key: partition["parameters"][key] for key in ("numFiles", "totalSize", "numRows")}
    assert found == {"numFiles": "2", "totalSize": str(size), "numRows": "3"}


def test_done_partitions_are_marked(hive_metastore: HiveMetastore, java: Peer) -> None:
    actions = "success-file,done-partition,mark-event"
    options = {**LISTED, "partition.mark-done-action": actions}
    _, table = open_tables(hive_metastore, java, ["day", "hour"], **options)
    table.append(rows((1, 1)))
    mark_done(table, ["day=1/hour=1"])
    assert values(hive_metastore, "ours") == [["1", "1"], ["1", "1.done"]]
    assert Path(table.paths.root.removeprefix("file:"), "day=1", "hour=1", "_SUCCESS").exists()


def test_tags_are_stored_as_partitions(hive_metastore: HiveMetastore, java: Peer) -> None:
    options = {"metastore.tag-to-partition": "tag"}
    catalog, table = open_tables(hive_metastore, java, [], **options)
    table.append(rows((1, 1)))
    java.run("write", catalog, "db.java", rows=[{"day": "1970-01-02", "hour": 1, "k": 1}])
    table.tags.create("a b")
    java.run("tag", catalog, "db.java", name="a b")
    assert values(hive_metastore, "ours") == [["a b"]]
    assert stored(hive_metastore, "ours") == stored(hive_metastore, "java")
    delete_tag(table, "a b")
    assert values(hive_metastore, "ours") == []
