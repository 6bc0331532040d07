"""Spark servers from the PySpark distribution: a standalone cluster and a Spark Connect server.

The workers' Python is a separate environment with the packages that this package requires and
datasketches. It has neither PySpark, which Spark sends, nor this package, which has to be sent.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from support.light_environment import link_packages, read_requirements
from support.peers.protocol import PeerProcess

from paimon_orch.spark import find_java

HERE = Path(__file__).parent
SPARK_HOME = Path(pyspark.__file__).parent
_SECONDS = 120


def free_port() -> int:
    """Return a free port of the loopback address."""
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        return int(connection.getsockname()[1])


def make_environment(root: Path, *more: str) -> Path:
    """Create a Python environment for workers with blockable tasks; return its interpreter.

    ``more`` are requirements of a driver.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(root)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = root / "lib" / version / "site-packages"
    (packages / "hold.py").write_text((HERE / "hold.py").read_text())
    (packages / "control").mkdir()
    (packages / "workers.pth").write_text("import hold; hold.install()\n")
    link_packages(packages, [*read_requirements(), "datasketches", *more])
    return root / "bin" / "python"


def pack_environment(python: Path, archive: Path) -> Path:
    """Pack an environment with the package; the interpreter is a link, as with ``venv-pack``."""
    packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(python.parents[1], ".")
        for name in ("paimon_orch", "pyspark_paimon"):
            packed.add(HERE.parents[2] / name, f"{packages}/{name}")
    return archive


def unpack_environment(archive: Path, folder: Path) -> None:
    """Unpack an environment with its links to files outside."""
    with tarfile.open(archive) as packed:
        # Python 3.11.3 and older have no filters.
        packed.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        packed.extractall(folder)  # noqa: S202 - packed by pack_environment


def clean_environment(**more: str) -> dict[str, str]:
    """Return environment variables for a Spark process, without paths of this checkout."""
    dropped = ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_REMOTE")
    variables = {name: value for name, value in os.environ.items() if name not in dropped}
    return variables | {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(find_java().home)} | more


@contextmanager
def run_server(
    command: Sequence[str], until: str, log: Path, environment: Mapping[str, str]
) -> Iterator[re.Match[str]]:
    """Run a server; wait for the line that says that it is ready, and stop it at the end."""
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / command[0]), *command[1:]],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,
        )
    try:
        yield _wait_until_ready(process, until, log)
    finally:
        process.terminate()
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], until: str, log: Path) -> re.Match[str]:
    for _ in range(_SECONDS * 10):
        if match := re.search(until, log.read_text(errors="replace")):
            return match
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    pytest.fail(f"{log.name} did not start: {log.read_text(errors='replace')[-2000:]}")


@contextmanager
def run_standalone_cluster(folder: Path, hosts: Sequence[str]) -> Iterator[str]:
    """Run a master and a worker on each address; yield the address of the master."""
    deploy, log4j = "org.apache.spark.deploy", _log4j(folder)
    brief = os.environ["SPARK_SUBMIT_OPTS"]
    options = {"SPARK_DAEMON_JAVA_OPTS": f"{brief} -Dlog4j2.configurationFile={log4j}"}
    options |= {"SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as stack:

        def start(name: str, host: str, until: str, *arguments: str) -> re.Match[str]:
            command = ["spark-class", f"{deploy}.{name}", "--host", host, *arguments]
            environment = clean_environment(SPARK_LOCAL_IP=host, **options)
            log = folder / f"{host}.log"
            return stack.enter_context(run_server(command, until, log, environment))

        ports = ["--port", "0", "--webui-port", "0"]
        master = start("master.Master", "127.0.0.1", r"Starting Spark master at (\S+)", *ports)[1]
        for host in hosts:
            room = ["--cores", "2", "--memory", "2g", "--work-dir", str(folder / host)]
            registered = "Successfully registered with master"
            start("worker.Worker", host, registered, *ports, *room, master)
        yield master


@contextmanager
def run_connect_server(folder: Path, python: Path) -> Iterator[str]:
    """Run a Spark Connect server whose workers use a separate Python; yield its address."""
    port = str(free_port())
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
    }
    confs = [f"--conf={name}={value}" for name, value in settings.items()]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["spark-submit", "--class", server, "--master", "local[2,4]", *confs]
    environment = clean_environment(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=str(python))
    with run_server(
        [*command, "spark-internal"], "server started", folder / "connect.log", environment
    ):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def run_driver(**resource: Any) -> Iterator[PeerProcess]:
    """Run a driver with the configuration of the Dagster resource."""
    environment = clean_environment(SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=str(HERE.parents[2]))
    del environment["SPARK_HOME"]
    talk = PeerProcess([sys.executable, str(HERE / "driver.py"), json.dumps(resource)], environment)
    try:
        yield talk
    finally:
        talk.close()


def _log4j(folder: Path) -> str:
    """Write a logging configuration that prints the messages of servers that are ready."""
    path = folder / "log4j2.properties"
    path.write_text(
        "rootLogger.level = info\n"
        "rootLogger.appenderRef.console.ref = console\n"
        "appender.console.type = Console\n"
        "appender.console.name = console\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %m%n\n"
    )
    return path.as_uri()
