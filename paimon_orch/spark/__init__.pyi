from paimon_orch.spark.datasource.register import register
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.spark.frame_reader import read
from paimon_orch.spark.frame_writer import write
from paimon_orch.spark.session.java_home import Java, find_java
from paimon_orch.spark.session.package_archive import package_archive, ship_package
from paimon_orch.spark.session.session import (
    active_session,
    java_in_use,
    spark_session,
    stop_session,
)
from paimon_orch.spark.sort_compact import sort_table
from paimon_orch.spark.update_and_merge import merge_into, preview_merge, update

__all__ = [
    "Java",
    "SparkExecutor",
    "active_session",
    "find_java",
    "java_in_use",
    "merge_into",
    "package_archive",
    "preview_merge",
    "read",
    "register",
    "ship_package",
    "sort_table",
    "spark_session",
    "stop_session",
    "update",
    "write",
]
