"""Spark: the session, and the executor that runs work units on it."""

from paimon_orch.spark.datasource.batch_read import register
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.spark.reader import read
from paimon_orch.spark.session.java_home import Java, find_java
from paimon_orch.spark.session.package_archive import package_archive, ship_package
from paimon_orch.spark.session.session import (
    active_session,
    java_in_use,
    spark_session,
    stop_session,
)
from paimon_orch.spark.writer import write

__all__ = [
    "Java",
    "SparkExecutor",
    "active_session",
    "find_java",
    "java_in_use",
    "package_archive",
    "read",
    "register",
    "ship_package",
    "spark_session",
    "stop_session",
    "write",
]
