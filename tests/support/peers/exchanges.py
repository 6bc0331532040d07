"""What the tests with other implementations hold: a feature and a direction for each of them.

docs/trust.md is generated from these tables and from the collected tests. The first row of a file
whose pattern matches the name of a test function holds; every test file of tests/peers has a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from support.catalogs.hive_metastore import METASTORES
from support.catalogs.iceberg_rest_server import ICEBERG_VERSION
from support.catalogs.rest_server import TITLES as REST_TITLES
from support.iceberg_readers import DUCKDB, PYICEBERG, PYICEBERG_CATALOG
from support.iceberg_readers import SPARK as ICEBERG_READER_SPARK
from support.peers.environments import ICEBERG_DUCKDB, ICEBERG_SPARK, SPARK, TITLES

JAVA_0_9, JAVA_1_4, JAVA_2_0 = "java-0.9", "java-1.4", "java-2.0"
PYPAIMON, RUST = "pypaimon", "pypaimon-rust"
PAIMON_ENGINES = (JAVA_0_9, JAVA_1_4, JAVA_2_0, PYPAIMON, RUST, SPARK)
ICEBERG_ENGINES = (PYICEBERG, ICEBERG_DUCKDB, ICEBERG_SPARK, JAVA_2_0)


class Direction(StrEnum):
    """Who uses whose files."""

    WE_READ = "we read theirs"
    THEY_READ = "they read ours"
    TURNS = "both write in turns"
    SAME = "same result"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Tests of one file that hold a feature in one direction."""

    file: str
    """Below tests/."""
    feature: str
    direction: Direction | None
    """None for tests of this library or of a peer by itself, which are not counted."""
    pattern: str = "*"
    """Of the names of test functions."""
    engines: tuple[str, ...] = ()
    """Engines that the tests name in their bodies, not in parameters or fixtures."""


_WE, _THEY, _TURNS, _SAME = Direction
_KINDS = "Kinds of tables, merge engines, bucket modes"
_TYPES = "Columns of all types in Parquet, ORC and Avro"
_GOLDEN = "Golden tables: all snapshots, tags, branches"
_HDFS, _S3 = "Tables in HDFS", "Tables on S3"
_COMPACT = "Compaction of primary-key tables"
_APPEND = "Append tables: deletes, compaction, sorting"
_INDEX = "File indexes"
_GLOBAL = "Indexes of columns"
_REPAIR = "Repairs of damaged tables"
_EXPIRE = "Expiration, orphans, tags, branches, rollback"
_SCHEMA = "Schema changes"
_DYNAMIC = "Dynamic buckets"
_POSTPONE = "Postpone buckets"
_TRACKING = "Row tracking and data evolution"
_TYPES_2_0 = "VARIANT, VECTOR and BLOB"
_SYSTEM = "System tables, statistics, unknown fields"
_LEVEL_0 = "Chain tables, level 0, snapshot ordering"
_REST, _HIVE, _JDBC = "REST catalogs", "Hive metastores", "SQL catalogs"
_ICEBERG = "Iceberg metadata"
_ICEBERG_HIVE = "Iceberg tables in a Hive metastore"
_ICEBERG_REST = f"Iceberg tables in the REST server of Iceberg {ICEBERG_VERSION}"

EXCHANGES = (
    Exchange("table/scan/test_golden_read.py", _GOLDEN, _WE),
    Exchange("peers/test_golden.py", _GOLDEN, None),
    Exchange("peers/test_java_checks.py", _GOLDEN, None),
    Exchange("peers/test_paimon_cpp_tables.py", _GOLDEN, None),
    Exchange("peers/test_golden_compaction.py", _GOLDEN, _THEY, "test_java_reads*"),
    Exchange("peers/test_golden_compaction.py", _GOLDEN, _WE),
    Exchange("peers/test_golden_java20.py", _GOLDEN, _TURNS, "test_java_reads*"),
    Exchange("peers/test_golden_java20.py", _GOLDEN, _THEY, "test_an_expiration*"),
    Exchange("peers/test_golden_java20.py", _GOLDEN, _WE, engines=(JAVA_2_0,)),
    Exchange("peers/test_matrix.py", _KINDS, _WE, "test_we_read_tables_of_a_peer"),
    Exchange("peers/test_matrix.py", _KINDS, None, "test_we_read_our_own_tables"),
    Exchange("peers/test_matrix.py", _KINDS, None, "test_the_compatibility_page*"),
    Exchange("peers/test_matrix.py", _KINDS, _THEY),
    Exchange("peers/test_spark.py", _KINDS, _THEY, "test_spark_reads_and_compacts*"),
    Exchange("peers/test_spark.py", _KINDS, _WE, "test_we_read_and_compact*"),
    Exchange("peers/test_spark.py", _TYPES, _THEY, "test_spark_reads*"),
    Exchange("peers/test_spark.py", _TYPES, _WE),
    Exchange("peers/test_merge_engines.py", _KINDS, _SAME),
    Exchange("peers/test_nullable_keys.py", _KINDS, _TURNS),
    Exchange("peers/test_partition_directories.py", _TYPES, _SAME),
    Exchange("peers/test_manifest_formats.py", _KINDS, _TURNS),
    Exchange("peers/test_orc_times.py", _TYPES, _WE, engines=(JAVA_2_0,)),
    Exchange("peers/test_turns.py", _KINDS, _TURNS),
    Exchange("peers/test_alter.py", _SCHEMA, _SAME),
    Exchange("peers/test_lives.py", _SCHEMA, _THEY, "test_java_reads*type_changes"),
    Exchange("peers/test_lives.py", _SCHEMA, _TURNS, "test_java_reads_and_alters*"),
    Exchange("peers/test_lives.py", _EXPIRE, _THEY, "test_java_reads_our_tags*"),
    Exchange("peers/test_lives.py", _DYNAMIC, _TURNS, "*bucket*"),
    Exchange("peers/test_lives.py", _KINDS, _TURNS),
    Exchange("peers/test_types.py", _TYPES, _WE, "test_we_read_every_type"),
    Exchange("peers/test_types.py", _TYPES, None, "test_*listed_limits*"),
    Exchange("peers/test_types.py", _TYPES, _THEY),
    Exchange("peers/test_compaction.py", _COMPACT, _THEY, "test_java_compacts_our_tables"),
    Exchange("peers/test_compaction.py", _COMPACT, _WE, "test_we_compact_tables*"),
    Exchange("peers/test_compaction.py", _COMPACT, _TURNS, "test_alternate*"),
    Exchange("peers/test_compaction.py", _COMPACT, _SAME),
    Exchange("peers/test_clustered.py", _COMPACT, _TURNS),
    Exchange("peers/test_external_paths.py", _COMPACT, _TURNS),
    Exchange("peers/test_append_tables.py", _APPEND, _TURNS, "*alternately"),
    Exchange("peers/test_append_tables.py", _APPEND, _WE, "test_a_compaction_of*"),
    Exchange("peers/test_append_tables.py", _APPEND, _THEY),
    Exchange("peers/test_file_index_peers.py", _INDEX, _WE, "test_filters_with*"),
    Exchange("peers/test_file_index_peers.py", _INDEX, _SAME, "test_our_file_indexes_equal*"),
    Exchange("peers/test_file_index_peers.py", _INDEX, _THEY),
    Exchange("peers/test_bitmap_versions.py", _INDEX, _THEY),
    Exchange("peers/test_global_index.py", _GLOBAL, _THEY),
    Exchange("peers/test_primary_key_indexes.py", _GLOBAL, _TURNS, "*in_turn"),
    Exchange("peers/test_primary_key_indexes.py", _GLOBAL, _THEY),
    Exchange("peers/test_repairs.py", _REPAIR, _TURNS, "*duplicate_keys*"),
    Exchange("peers/test_repairs.py", _GLOBAL, _THEY),
    Exchange("peers/test_late_creation.py", _REPAIR, _TURNS),
    Exchange("peers/test_maintenance_peers.py", _EXPIRE, _TURNS, "*alternately"),
    Exchange("peers/test_maintenance_peers.py", _EXPIRE, _SAME, "test_java_and_we*"),
    Exchange("peers/test_maintenance_peers.py", _EXPIRE, _THEY),
    Exchange("peers/test_procedures.py", _EXPIRE, _TURNS),
    Exchange("peers/test_postpone_merge_on_read.py", _POSTPONE, _SAME),
    Exchange("peers/test_table_layer.py", _POSTPONE, _WE, "test_postponed_rows_of_java*"),
    Exchange("peers/test_table_layer.py", _POSTPONE, _THEY, "*postpone*", engines=(PYPAIMON,)),
    Exchange("peers/test_table_layer.py", _SYSTEM, _THEY, "*statistics"),
    Exchange("peers/test_table_layer.py", _TRACKING, _TURNS, "test_pypaimon*", engines=(PYPAIMON,)),
    Exchange("peers/test_table_layer.py", _TRACKING, _WE, "test_columns*", engines=(PYPAIMON,)),
    Exchange("peers/test_table_layer.py", _TRACKING, _THEY),
    Exchange("peers/test_data_evolution_turns.py", _TRACKING, _TURNS),
    Exchange("peers/test_variant_vector.py", _TYPES_2_0, _WE, "test_we_read*"),
    Exchange("peers/test_variant_vector.py", _TYPES_2_0, _TURNS, "test_vectors*"),
    Exchange("peers/test_variant_vector.py", _TYPES_2_0, _THEY),
    Exchange("peers/test_blob.py", _TYPES_2_0, _THEY),
    Exchange("peers/test_system_tables.py", _SYSTEM, _SAME),
    Exchange("peers/test_additional_fields.py", _SYSTEM, _TURNS),
    Exchange("peers/test_chain_tables.py", _LEVEL_0, _SAME),
    Exchange("peers/test_fallback_branch.py", _KINDS, _SAME),
    Exchange("peers/test_level_0.py", _LEVEL_0, _SAME),
    Exchange("peers/test_snapshot_ordering.py", _LEVEL_0, _TURNS),
    Exchange("peers/test_rest_turns.py", _REST, _TURNS),
    Exchange("peers/test_rest_servers.py", _REST, None),
    Exchange("peers/test_rest_client_servers.py", _REST, None),
    Exchange("peers/test_catalog_commands.py", _REST, None),
    Exchange("catalog/test_hive_catalog.py", _HIVE, _SAME, "test_java_stores*", (JAVA_2_0,)),
    Exchange("catalog/test_hive_catalog.py", _HIVE, _TURNS, "*in_turns", (JAVA_2_0,)),
    Exchange("catalog/test_hive_catalog.py", _HIVE, _TURNS, "test_each_*", (JAVA_2_0,)),
    Exchange("catalog/test_hive_catalog.py", _HIVE, None),
    Exchange("catalog/test_hive_locks.py", _HIVE, _TURNS, "*_java*", (JAVA_2_0,)),
    Exchange("catalog/test_hive_locks.py", _HIVE, None),
    Exchange("peers/test_hive_catalog.py", _HIVE, None),
    Exchange("peers/test_hive_partitions.py", _HIVE, _SAME),
    Exchange("storage/test_hdfs_turns.py", _HDFS, _TURNS, engines=(JAVA_2_0,)),
    Exchange("storage/test_s3_turns.py", _S3, _TURNS, engines=(JAVA_2_0,)),
    Exchange("peers/test_jdbc_turns.py", _JDBC, _WE, "test_we_read_and_change*"),
    Exchange("peers/test_jdbc_turns.py", _JDBC, _THEY, "test_java_reads_and_changes*"),
    Exchange("peers/test_jdbc_turns.py", _JDBC, _SAME, "test_our_rows_equal*"),
    Exchange("peers/test_jdbc_turns.py", _JDBC, _TURNS),
    Exchange("peers/test_jdbc_catalog.py", _JDBC, None),
    Exchange("peers/test_iceberg_readers.py", _ICEBERG, _THEY, "test_spark*", (ICEBERG_SPARK,)),
    Exchange("peers/test_iceberg_readers.py", _ICEBERG, _THEY, "test_rows_keep*", (ICEBERG_SPARK,)),
    Exchange("peers/test_iceberg_readers.py", _ICEBERG, _THEY, "test_duckdb*", (ICEBERG_DUCKDB,)),
    Exchange("peers/test_iceberg_readers.py", _ICEBERG, _THEY),
    Exchange("peers/test_iceberg_java.py", _ICEBERG, _TURNS, "*alternately"),
    Exchange("peers/test_iceberg_java.py", _ICEBERG, _TURNS, "test_[0-9]*"),
    Exchange("peers/test_iceberg_java.py", _ICEBERG, _SAME, "test_a_rebuild*", (JAVA_2_0,)),
    Exchange("peers/test_iceberg_java.py", _ICEBERG, _SAME, "test_each*", (JAVA_2_0,)),
    Exchange("peers/test_iceberg_java.py", _ICEBERG, _TURNS),
    Exchange("peers/test_iceberg_hive.py", _ICEBERG_HIVE, _SAME, "*of_java", (JAVA_2_0,)),
    Exchange("peers/test_iceberg_hive.py", _ICEBERG_HIVE, _TURNS, "*in_turns", (JAVA_2_0,)),
    Exchange("peers/test_iceberg_hive.py", _ICEBERG_HIVE, _THEY, "test_pyiceberg*", (PYICEBERG,)),
    Exchange("peers/test_iceberg_hive.py", _ICEBERG_HIVE, _THEY, "test_a_paimon_table*"),
    Exchange("peers/test_iceberg_hive.py", _ICEBERG_HIVE, _THEY, "test_a_rollback*"),
    Exchange("peers/test_iceberg_hive.py", _ICEBERG_HIVE, None),
    Exchange("peers/test_iceberg_rest.py", _ICEBERG_REST, _SAME, "*java*", (JAVA_2_0,)),
    Exchange("peers/test_iceberg_rest.py", _ICEBERG_REST, None, "*token*"),
    Exchange("peers/test_iceberg_rest.py", _ICEBERG_REST, _THEY, "test_deletion_vectors*"),
    Exchange("peers/test_iceberg_rest.py", _ICEBERG_REST, _THEY, engines=(PYICEBERG,)),
)

FIXTURES = {
    "java": JAVA_1_4,
    "java20": JAVA_2_0,
    "hive_java": JAVA_2_0,
    "referee": JAVA_0_9,
    "spark_peer": SPARK,
    "spark_reader": ICEBERG_SPARK,
}
"""Fixtures that are always the same engine."""

PARAMETERS = {
    **{name: name for name in TITLES},
    PYICEBERG: PYICEBERG,
    PYICEBERG_CATALOG: PYICEBERG,
    DUCKDB: ICEBERG_DUCKDB,
    ICEBERG_READER_SPARK: ICEBERG_SPARK,
}
"""Parameters that name an engine."""

GOLDEN_WRITERS = {
    "java-0.9": JAVA_0_9,
    "java-2.0": JAVA_2_0,
    "pypaimon-2.1": PYPAIMON,
    "pypaimon-rust-0.4": RUST,
}
"""Folders of tests/data/golden."""

SERVICES = {
    **{release: f"Hive metastore {release}" for release in METASTORES},
    **{name: f"REST server of {title}" for name, title in REST_TITLES.items()},
    "sqlite": "SQLite",
    "postgresql": "PostgreSQL",
}
"""Catalog services, by the values of the parameters that name them."""

SERVICE_PARAMETERS = (
    "catalog_under_test",
    "hive_metastore",
    "jdbc_database",
    "release",
    "served",
    "server",
)
"""Parameters that name a service; in tests of REST servers, `name` does too."""
