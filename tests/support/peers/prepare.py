"""Downloads and compiles what the tests with other implementations require, several at a time.

PYTHONPATH=tests python -m support.peers.prepare

It prints a line for each, with the reason if something is not available, and always succeeds. Tests
build what is missing themselves and wait for what is being built, so they can run at the same time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

from support.airflow_environment import airflow_python
from support.azurite import find_azurite
from support.catalogs import hive_metastore, iceberg_rest_server, rest_server
from support.hdfs import cluster as hdfs_cluster
from support.peers.downloads import PeerUnavailableError, maven_jars
from support.peers.environments import (
    ICEBERG_DUCKDB,
    ICEBERG_SPARK,
    ICEBERG_SPARK_RUNTIME,
    JAVA,
    JDBC_DRIVERS,
    PAIMON_JARS,
    REQUIREMENTS,
    S3_PLUGIN,
    SPARK,
    peer_start,
)
from support.spark.class_archive import make_class_archive

Part = tuple[str, Callable[[], object]]

_WORKERS = 4


def artifacts() -> list[str]:
    """Return the jars of all parts; the connector of Spark is not in all Maven repositories."""
    listed = [*PAIMON_JARS.values(), S3_PLUGIN, ICEBERG_SPARK_RUNTIME, *JDBC_DRIVERS]
    for release in hive_metastore.METASTORES:
        listed += hive_metastore.ARTIFACTS[release]
    for name in rest_server.JAVA_SERVERS:
        listed += rest_server.java_artifacts(name)
    return list(dict.fromkeys([*listed, *iceberg_rest_server.ARTIFACTS, *hdfs_cluster.ARTIFACTS]))


def python_parts() -> Iterator[Part]:
    """Yield what needs few jars or none, the largest first."""
    for name in (ICEBERG_SPARK, SPARK, *REQUIREMENTS, ICEBERG_DUCKDB):
        yield name, partial(peer_start, name)
    yield "classes of Spark", make_class_archive
    yield "Airflow", airflow_python
    yield "Kerberos for Hive", hive_metastore.find_kerberos_packages
    for name in rest_server.PYPAIMON_SERVERS:
        yield f"REST server of {name}", partial(rest_server.rest_server_command, name)


def npm_parts() -> Iterator[Part]:
    """Yield what runs with Node.js."""
    yield "Azurite", find_azurite


def java_parts() -> Iterator[Part]:
    """Yield what is compiled with the jars."""
    for name in JAVA:
        yield name, partial(peer_start, name)
    for name in rest_server.JAVA_SERVERS:
        yield f"REST server of {name}", partial(rest_server.rest_server_command, name)
    for release in hive_metastore.METASTORES:
        prepare = hive_metastore.prepare_hive_metastore
        yield f"Hive metastore {release}", partial(prepare, release)
    yield "HDFS", hdfs_cluster.prepare_hdfs
    yield "REST server of Iceberg", iceberg_rest_server.iceberg_rest_command


def prepare_part(part: Part) -> None:
    """Build one part, and print how long it took or why it is not available."""
    name, build = part
    start = time.monotonic()
    try:
        build()
    except (PeerUnavailableError, OSError, subprocess.SubprocessError) as error:
        outcome = f"not available: {error}"
    else:
        outcome = f"ready after {time.monotonic() - start:.1f} seconds"
    # One call, because threads print.
    sys.stdout.write(f"{name}: {outcome}\n")
    sys.stdout.flush()


def main() -> None:
    """Build all parts."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        jars = pool.submit(prepare_part, ("jars", lambda: maven_jars(artifacts())))
        pending = [pool.submit(prepare_part, part) for part in (*python_parts(), *npm_parts())]
        jars.result()
        pending += [pool.submit(prepare_part, part) for part in java_parts()]
        for future in as_completed(pending):
            future.result()


if __name__ == "__main__":
    main()
