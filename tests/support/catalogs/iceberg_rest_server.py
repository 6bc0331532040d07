"""A REST catalog of Iceberg: the adapter of Iceberg's own tests, over a SQLite database.

It is a process with its state in a folder, so it can be killed and started again. It checks a bearer
token.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.peers.downloads import maven_jars
from support.peers.environments import PeerCommand, java_command, spark_jars
from support.peers.server_process import ServerProcess

TOKEN = "an-iceberg-token"  # noqa: S105

ICEBERG_VERSION = "1.11.0"
ARTIFACTS = (
    f"org.apache.iceberg:iceberg-core:{ICEBERG_VERSION}:jar:tests",
    f"org.apache.iceberg:iceberg-core:{ICEBERG_VERSION}",
    f"org.apache.iceberg:iceberg-api:{ICEBERG_VERSION}",
    f"org.apache.iceberg:iceberg-common:{ICEBERG_VERSION}",
    f"org.apache.iceberg:iceberg-bundled-guava:{ICEBERG_VERSION}",
    "com.github.ben-manes.caffeine:caffeine:2.9.3",
    "org.apache.httpcomponents.client5:httpclient5:5.6",
    "org.apache.httpcomponents.core5:httpcore5:5.4",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
_SOURCE = Path(__file__).parent / "java" / "IcebergRestServer.java"


class IcebergRestServer:
    """The process of a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = 0
        self._process = ServerProcess(folder)

    @property
    def uri(self) -> str:
        """As in the property `uri` of a client; a restart does not change it."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a client."""
        return {"uri": self.uri, "token": TOKEN, "oauth2-server-uri": f"{self.uri}/v1/oauth/tokens"}

    def start(self) -> None:
        """Start the process; after the first start it has the same port."""
        command = iceberg_rest_command()
        arguments = [str(self._port), str(self.folder / "catalog.db"), f"file:{self.folder}/served"]
        self._port = int(self._process.start(command, [*arguments, TOKEN]))

    def kill(self) -> None:
        """Kill the process. It can be started again, and keeps what it stored."""
        self._process.kill()


@contextmanager
def run_iceberg_rest_server(folder: Path) -> Iterator[IcebergRestServer]:
    """Run a server in an empty folder, which is deleted afterwards."""
    folder.mkdir(parents=True)
    server = IcebergRestServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)


def iceberg_rest_command() -> PeerCommand:
    """Download and compile what the server requires, or raise `PeerUnavailableError`."""
    path = [*maven_jars(ARTIFACTS), spark_jars() / "*"]
    return java_command("org.apache.iceberg.rest.IcebergRestServer", [_SOURCE], path)
