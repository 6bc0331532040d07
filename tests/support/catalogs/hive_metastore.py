"""Hive metastores of two releases, each a process with a Derby database in a folder.

The metastore of Hive 2.3, and what that of Hive 3.1 requires, are among the jars of pyspark; three
more jars for 3.1 come from a Maven repository.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from xml.sax.saxutils import escape

from support.peers.downloads import maven_jars, python_environment
from support.peers.environments import PeerCommand, hive_client_jars, java_command, spark_jars
from support.peers.server_process import ServerProcess

METASTORES = ("2.3", "3.1")

ARTIFACTS = {
    "2.3": (),
    "3.1": (
        "org.apache.hive:hive-standalone-metastore:3.1.3",
        # The generated classes require these releases.
        "org.apache.thrift:libthrift:0.9.3",
        "commons-collections:commons-collections:3.2.2",
    ),
}
# They are compiled, and only one test needs them.
_KERBEROS_PACKAGES = ["kerberos==1.3.1", "pure-sasl==0.6.2"]
_SOURCE = Path(__file__).parent / "java" / "MetastoreServer.java"
_TIMEOUT = "hive.txn.timeout"
_REAPER_MILLISECONDS = 1000

Stored = dict[str, Any]


class HiveMetastore:
    """The process of a metastore, and what it stores."""

    def __init__(self, release: str, folder: Path, settings: Mapping[str, str]) -> None:
        self.release = release
        self.warehouse = folder / "warehouse"
        self._folder = folder
        self._port = 0
        # It takes 4 % of a core, and the default timeout is longer than the tests.
        self._reaper_millis = _REAPER_MILLISECONDS if _TIMEOUT in settings else 0
        self._process = ServerProcess(folder)
        _write_configuration(folder, settings)

    @property
    def uri(self) -> str:
        """As in the option ``uri``; a restart does not change it."""
        return f"thrift://127.0.0.1:{self._port}"

    def options(self, warehouse: Path | None = None, **more: str) -> dict[str, str]:
        """Return options of a catalog; in names of further options `__` is a dot and `_` a dash."""
        named = {name.replace("__", ".").replace("_", "-"): text for name, text in more.items()}
        folder = str(warehouse or self.warehouse)
        return {"metastore": "hive", "uri": self.uri, "warehouse": folder, **named}

    def stored(self) -> Stored:
        """Return all databases, tables, partitions and locks, with Hive's names of fields."""
        stored: Stored = json.loads(self._process.ask("stored"))
        return stored

    def databases(self) -> list[dict[str, Any]]:
        """Return what is stored about the databases, without the one that always exists."""
        return [each for each in self.stored()["databases"] if each["name"] != "default"]

    def table(self, name: str, database: str = "db") -> dict[str, Any]:
        """Return what is stored about one table."""
        [table] = [
            table
            for table in self.stored()["tables"]
            if (table["dbName"], table["tableName"]) == (database, name)
        ]
        assert isinstance(table, dict)
        return table

    def clear(self) -> None:
        """Delete all databases, tables and locks, and the files of the warehouse."""
        self._process.ask("clear")
        shutil.rmtree(self.warehouse, ignore_errors=True)

    def expire_locks(self) -> None:
        """Remove all locks as if their holders had sent no heartbeat for longer than the timeout."""
        self._process.ask("expire")

    def start(self) -> None:
        """Start the process; after the first start it has the same port."""
        command = _server_command(self.release, self._folder)
        arguments = [str(self._port), str(self._reaper_millis)]
        self._port = int(self._process.start(command, arguments))

    def kill(self) -> None:
        """Kill the process. It can be started again, and keeps what it stored."""
        self._process.kill()


class StartHiveMetastore(Protocol):
    """A function from a release and settings to a running metastore."""

    def __call__(self, release: str, /, **settings: str) -> HiveMetastore:
        """Start a metastore that no other test uses."""


@contextmanager
def run_hive_metastore(release: str, folder: Path, **settings: str) -> Iterator[HiveMetastore]:
    """Run a metastore in an empty folder, which is deleted afterwards.

    In names of Hive's settings `__` is a dot and `_` a dash: a lock without a heartbeat expires
    after `hive__txn__timeout="2s"`. Without this setting, locks expire by `expire_locks` only.
    """
    folder.mkdir(parents=True)
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in settings.items()}
    metastore = HiveMetastore(release, folder, named)
    try:
        metastore.start()
        yield metastore
    finally:
        metastore.kill()
        shutil.rmtree(folder)


def prepare_hive_metastore(release: str) -> None:
    """Download and compile what a metastore requires, or raise `PeerUnavailableError`."""
    _server_command(release, Path())


def find_kerberos_packages() -> Path:
    """Return the interpreter of an environment with what `hive-kerberos` adds to `hive`."""
    return python_environment("hive-kerberos", _KERBEROS_PACKAGES)


def _server_command(release: str, folder: Path) -> PeerCommand:
    jars = maven_jars(ARTIFACTS[release])
    # Its name is part of the name of the folder with the classes.
    first = jars or [jar for jar in hive_client_jars() if jar.name.startswith("hive-metastore")]
    path = [*first, spark_jars() / "*"]
    return java_command("MetastoreServer", [_SOURCE], path, [folder])


def _write_configuration(folder: Path, settings: Mapping[str, str]) -> None:
    properties = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{folder}/derby;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file:{folder}/warehouse",
        # BoneCP, the default of Hive 2.3, is not among the jars of pyspark.
        "datanucleus.connectionPoolingType": "hikaricp",
        # The default values of Hive 3.1 require hive-exec.
        "metastore.expression.proxy": (
            "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
        ),
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        **settings,
    }
    lines = (
        f"<property><name>{escape(name)}</name><value>{escape(text)}</value></property>"
        for name, text in properties.items()
    )
    text = "\n".join(["<configuration>", *lines, "</configuration>"])
    for name in ("hive-site.xml", "core-site.xml"):  # Hadoop's classes read only the second one
        (folder / name).write_text(text, encoding="utf-8")
