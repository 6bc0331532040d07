"""A lake in HDFS: the commands, a Hive metastore, a Dagster run, and steps in tasks of Spark."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pytest
from support.catalogs.hive_metastore import HiveMetastore
from support.commands import run_command
from support.dagster.spark_resources import InProcessSparkResource, UnavailableSparkResource
from support.hdfs.cluster import NAME_SERVICE, HdfsCluster
from support.peers.fixtures import open_shared_peer
from support.tables import rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.catalog.named_catalogs import HOME_VARIABLE
from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonWarehouseComponent,
    build_compaction_asset,
)
from paimon_orch.errors import InputError
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.storage import resolve_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYED: dict[str, Any] = {"primary_key": ["k"], "options": {"bucket": "1"}}


@pytest.fixture
def root(hdfs_cluster: HdfsCluster) -> str:
    """Return a new directory."""
    return f"{hdfs_cluster.uri}/tests/{uuid4()}"


def test_a_table_is_created_loaded_maintained_and_dropped(
    root: str, spark: SparkSession, tmp_path: Path
) -> None:
    def run(command: str, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(
            run_command(command, root, "db.t", *arguments, "--json")
        )
        return document

    columns = ["--columns", "k BIGINT, v STRING", "--primary-key", "k"]
    run_command("create", root, "db.t", *columns, "--option", "bucket=1")
    assert run_command("tables", root) == "db.t"
    for number, text in enumerate("abc"):
        source = tmp_path / f"{number}.csv"
        source.write_text(f"k,v\n0,{text}\n{number},{text}\n")
        assert run("ingest", "--from", str(source))["snapshot_id"] == number + 1
    table = Catalog(root).table("db.t")
    rows = [(0, "c"), (1, "b"), (2, "c")]
    assert rows_of(table) == rows

    assert run("compact", "--strategy", "full")["snapshot_id"] == 4
    expired = run("expire-snapshots", "--retain-max", "1", "--retain-min", "1", "--yes")
    assert expired["snapshots"] == 3
    table.io.write(f"{table.paths.root}/bucket-0/data-stray-0.parquet", b"stray")
    assert remove_orphan_files(table, older_than=int(time.time() * 1000) + 1).files == 1
    assert run("remove-orphan-files")["files"] == 0

    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()
    run_command("drop", root, "db.t", "--yes")
    assert run_command("tables", root) == "none"
    assert not table.io.exists(table.paths.root)


def test_databases_and_tables_are_directories(root: str) -> None:
    catalog = Catalog(root)
    catalog.create_database("empty")
    catalog.create_table("db.t", "k BIGINT", **KEYED).upsert(table_of("k", [(1,)]))

    renamed = catalog.rename_table("db.t", "empty.u")

    assert catalog.databases() == ["db", "empty"]
    assert renamed.paths.root == f"{root}/empty.db/u"
    assert rows_of(renamed) == [(1,)]


def test_an_hdfs_that_is_a_catalog_has_the_settings_of_its_options(
    hdfs_cluster: HdfsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_dir = hdfs_cluster.write_configuration(tmp_path / "hadoop")
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    root = f"hdfs://{NAME_SERVICE}/tests/{uuid4()}"
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__LAKE__WAREHOUSE", root)
    monkeypatch.setenv("PAIMON_STORAGE_OPTIONS", json.dumps({"config_dir": str(config_dir)}))

    assert Catalog("lake").create_table("db.t", "k INT").paths.root == f"{root}/db.db/t"

    monkeypatch.setenv("PAIMON_STORAGE_OPTIONS", json.dumps({"key": "of another store"}))
    with pytest.raises(InputError, match="HDFS has no storage option key"):
        Catalog("lake").tables("db")


def test_a_lake_with_a_hive_metastore(hive_metastore: HiveMetastore, root: str) -> None:
    options: dict[str, Any] = {**hive_metastore.options(), "warehouse": root}
    catalog = Catalog(**options)
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t",
        "day STRING, k BIGINT, v STRING",
        primary_key=["day", "k"],
        partition_by=["day"],
        options={"bucket": "1", "metastore.partitioned-table": "true"},
    )
    for value in "abc":
        table.upsert(table_of("day k v", [("x", 1, value), ("y", 2, value)]))
    assert table.paths.root == f"{root}/db.db/t"
    assert hive_metastore.table("t")["sd"]["location"] == table.paths.root
    compact(table, strategy="full")

    renamed = catalog.rename_table("db.t", "db.u")

    assert renamed.paths.root == f"{root}/db.db/u"
    assert hive_metastore.table("u")["sd"]["location"] == renamed.paths.root
    assert rows_of(renamed) == [("x", 1, "c"), ("y", 2, "c")]
    io = resolve_warehouse(root)[0]
    assert not io.exists(table.paths.root)
    renamed.upsert(table_of("day k v", [("x", 1, "d")]))
    assert check(renamed, deep=True).findings == ()
    catalog.drop_table("db.u")
    assert not io.exists(renamed.paths.root)
    catalog.drop_database("db")
    assert not io.exists(f"{root}/db.db")


def test_a_run_of_dagster_compacts_a_table(root: str) -> None:
    table = Catalog(root).create_table("lake.orders", "k BIGINT, v STRING", **KEYED)
    for value in "abcde":
        table.upsert(table_of("k v", [(1, value)]))
    asset = build_compaction_asset("lake.orders")

    resources = {"paimon": PaimonCatalogResource(warehouse=root), "spark": InProcessSparkResource()}
    result = dg.materialize([asset], resources=resources)

    assert result.success
    assert {file.level for bucket in inspect(table).buckets for file in bucket.files} == {5}
    assert rows_of(table) == [(1, "e")]


def test_tasks_of_spark_have_the_settings_of_the_driver(
    spark: SparkSession, hdfs_cluster: HdfsCluster, tmp_path: Path
) -> None:
    """The session was started without HADOOP_CONF_DIR."""
    options: dict[str, Any] = {"config_dir": str(hdfs_cluster.write_configuration(tmp_path))}
    table = Catalog(f"hdfs:///tests/{uuid4()}", **options).create_table(
        "db.t",
        "day STRING, k BIGINT",
        primary_key=["day", "k"],
        partition_by=["day"],
        options={"bucket": "2"},
    )
    for number in range(2):
        rows = [(day, key + number) for day in "xy" for key in range(10)]
        table.upsert(pa.table({"day": [r[0] for r in rows], "k": [r[1] for r in rows]}))

    result = compact(table, SparkExecutor(spark), strategy="full")

    assert result.snapshot_id == 3
    assert rows_of(table) == [(day, key) for day in "xy" for key in range(11)]
    assert check(table, deep=True).findings == ()


@pytest.mark.timeout(400)
def test_a_hive_lake_that_java_wrote_is_maintained_by_the_warehouse_component(
    hive_metastore: HiveMetastore, root: str
) -> None:
    options: dict[str, Any] = {**hive_metastore.options(), "warehouse": root}
    java = open_shared_peer("java-2.0")
    java.ask("create_database", options, database="db", options={})
    spec = {
        "fields": [
            {"id": 0, "name": "day", "type": "STRING NOT NULL"},
            {"id": 1, "name": "k", "type": "INT NOT NULL"},
            {"id": 2, "name": "v", "type": "STRING"},
        ],
        "partition_keys": ["day"],
        "primary_keys": ["day", "k"],
        "options": {
            "bucket": "1",
            "metastore.partitioned-table": "true",
            "source.split.open-file-cost": "32 mb",
            "write-only": "true",
        },
    }
    java.run("create", options, spec=spec)
    for number in range(9):
        java.run("write", options, rows=[{"day": day, "k": 1, "v": str(number)} for day in "xy"])
    expected = [("x", 1, "8"), ("y", 1, "8")]
    partitions = hive_metastore.stored()["partitions"]
    table = Catalog(**options).table("db.t")
    assert table.paths.root == f"{root}/db.db/t"
    assert rows_of(table) == expected

    resources = {
        "paimon": PaimonCatalogResource(metastore="hive", uri=hive_metastore.uri, warehouse=root),
        "spark": UnavailableSparkResource(),
    }
    component = PaimonWarehouseComponent.from_attributes_dict(attributes={})
    defs = dg.Definitions.merge(component.definitions(), dg.Definitions(resources=resources))
    result = defs.resolve_job_def("paimon_maintenance").execute_in_process(
        run_config={"ops": {"maintain": {"config": {"dry_run": False}}}}
    )

    assert result.success
    levels = {file.level for bucket in inspect(table).buckets for file in bucket.files}
    assert levels == {5}
    assert rows_of(table) == expected
    assert sorted(tuple(row.values()) for row in java.read(options)) == expected
    assert java.ask("oracle", options, table="db.t", command="check", words=[]) == []
    stored = hive_metastore.stored()["partitions"]
    assert [each["values"] for each in stored] == [each["values"] for each in partitions]
    assert check(table, deep=True).findings == ()
    java.run("write", options, rows=[{"day": "x", "k": 2, "v": "after"}])
    assert rows_of(table) == [("x", 1, "8"), ("x", 2, "after"), ("y", 1, "8")]
    catalog = Catalog(**options)
    for database in catalog.databases():
        for name in catalog.tables(database):
            catalog.drop_table(f"{database}.{name}")
