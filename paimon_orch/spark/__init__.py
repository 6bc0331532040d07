"""Spark: sessions, reads and writes, row-level changes, and the executor of work units.

This package exports the functions for users; its modules are internal.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from paimon_orch.optional_packages import require_package

if TYPE_CHECKING:
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

require_package("pyspark", __name__, install="paimon-orch[spark]")

# these modules are imported on first use, because they import PySpark, and workers need few of them
_MODULE_BY_NAME = {
    "Java": "session.java_home",
    "SparkExecutor": "execution.spark_executor",
    "active_session": "session.session",
    "find_java": "session.java_home",
    "java_in_use": "session.session",
    "merge_into": "update_and_merge",
    "package_archive": "session.package_archive",
    "preview_merge": "update_and_merge",
    "read": "frame_reader",
    "register": "datasource.register",
    "ship_package": "session.package_archive",
    "sort_table": "sort_compact",
    "spark_session": "session.session",
    "stop_session": "session.session",
    "update": "update_and_merge",
    "write": "frame_writer",
}

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


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)
    globals()[name] = value
    return value
