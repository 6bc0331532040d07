"""A real HDFS: MiniDFSCluster of Hadoop, with two NameNodes and one DataNode in one process.

Its jars come from a Maven repository.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from xml.sax.saxutils import escape

from support.local_server import find_free_ports
from support.peers.downloads import maven_jars
from support.peers.environments import PeerCommand, java_command
from support.peers.server_process import ServerProcess

_RELEASE = "3.4.2"
ARTIFACTS = (
    f"org.apache.hadoop:hadoop-client-minicluster:{_RELEASE}",
    f"org.apache.hadoop:hadoop-client-api:{_RELEASE}",
    f"org.apache.hadoop:hadoop-client-runtime:{_RELEASE}",
    "commons-logging:commons-logging:1.3.0",
)
NAME_SERVICE, MOUNT_TABLE = "lake", "mounts"
_SOURCE = Path(__file__).with_name("HdfsServer.java")


class HdfsCluster:
    """The process of a cluster; its commands change which NameNodes answer."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = MappingProxyType({}),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder, self._settings, self._environment = folder, settings, environment
        self._process = ServerProcess(folder)
        self.ports = find_free_ports(2)

    @property
    def uri(self) -> str:
        """The URI of the first NameNode, which is active at the beginning."""
        return f"hdfs://127.0.0.1:{self.ports[0]}"

    def write_configuration(self, folder: Path, **more: str) -> Path:
        """Write core-site.xml and hdfs-site.xml with the name service and a viewfs; return the folder.

        In names of further settings `__` is a dot and `_` a dash.
        """
        service = f"hdfs://{NAME_SERVICE}"
        mounts = f"fs.viewfs.mounttable.{MOUNT_TABLE}"
        named = {name.replace("__", ".").replace("_", "-"): text for name, text in more.items()}
        folder.mkdir(parents=True, exist_ok=True)
        core = {"fs.defaultFS": service, f"{mounts}.link./mounted": f"{service}/target"}
        write_settings(folder / "core-site.xml", core | named)
        addresses = {
            f"dfs.namenode.rpc-address.{NAME_SERVICE}.nn{number}": f"127.0.0.1:{port}"
            for number, port in enumerate(self.ports, 1)
        }
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        service_settings = {
            "dfs.nameservices": NAME_SERVICE,
            f"dfs.ha.namenodes.{NAME_SERVICE}": "nn1,nn2",
            f"dfs.client.failover.proxy.provider.{NAME_SERVICE}": provider,
        }
        write_settings(folder / "hdfs-site.xml", {**service_settings, **addresses})
        return folder

    def send(self, command: str, node: int, *arguments: object) -> None:
        """Send `standby`, `active`, `safe` or `unsafe` for a NameNode, or `token` with a file."""
        assert self._process.ask(" ".join(map(str, (command, node, *arguments)))) == "done\n"

    def start(self) -> None:
        """Start the process, with the files and ports of an earlier one."""
        # the environment is that of the tests, so the user of the tests is that of the cluster
        arguments = [str(self._folder / "data"), NAME_SERVICE, *map(str, self.ports)]
        arguments += [f"{name}={text}" for name, text in self._settings.items()]
        command = _server_command()
        command = PeerCommand(command.command, {**command.environment, **self._environment})
        self._process.start(command, arguments)

    def kill(self) -> None:
        """Kill the process; it can be started again."""
        self._process.kill()


@contextmanager
def run_hdfs(
    folder: Path,
    settings: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[HdfsCluster]:
    """Run a cluster in an empty folder, which is deleted afterwards."""
    folder.mkdir(parents=True)
    cluster = HdfsCluster(folder, settings, environment)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
        shutil.rmtree(folder)


def prepare_hdfs() -> None:
    """Download and compile what a cluster requires, or raise `PeerUnavailableError`."""
    _server_command()


def write_settings(file: Path, settings: Mapping[str, str]) -> None:
    """Write a file of Hadoop's settings."""
    lines = (
        f"<property><name>{escape(name)}</name><value>{escape(text)}</value></property>"
        for name, text in settings.items()
    )
    file.write_text("\n".join(["<configuration>", *lines, "</configuration>"]), encoding="utf-8")


def _server_command() -> PeerCommand:
    return java_command("HdfsServer", [_SOURCE], maven_jars(ARTIFACTS))
