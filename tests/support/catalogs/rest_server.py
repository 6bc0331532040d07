"""REST catalog servers of other projects, each in its process.

Both are the servers of the tests of Java Paimon and of pypaimon. Java's is the more complete one:
it checks signatures of DLF, refuses commits that lost a race, and serves branches, tags,
partitions and rollbacks. It keeps its state in memory and the tables in a folder.

A process ends when its input is closed, so also when the process of the test is killed. It runs one
server at a time; when that has been stopped, the process waits for the next server of its kind.
"""

from __future__ import annotations

import atexit
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.peers.downloads import maven_jars, python_environment
from support.peers.environments import PAIMON_JARS, PeerCommand, java_command
from support.peers.protocol import PeerError, PeerProcess

JAVA_1_4, JAVA_2_0 = "java-1.4", "java-2.0"
PYPAIMON_1_3, PYPAIMON_1_4 = "pypaimon-1.3", "pypaimon-1.4"
JAVA_SERVERS = (JAVA_1_4, JAVA_2_0)
PYPAIMON_SERVERS = (PYPAIMON_1_3, PYPAIMON_1_4)
REST_SERVERS = (*JAVA_SERVERS, *PYPAIMON_SERVERS)

_HERE = Path(__file__).parent
# The packages contain the server with its tests. Its dependencies are those of the client.
_PYPAIMON = {PYPAIMON_1_3: "pypaimon==1.3.1", PYPAIMON_1_4: "pypaimon==1.4.2"}
_JAVA_TESTS = {
    JAVA_1_4: "org.apache.paimon:paimon-core:1.4.2:jar:tests",
    JAVA_2_0: "org.apache.paimon:paimon-core:2.0.0:jar:tests",
}
TITLES = {
    **{name: f"Java {jar.split(':')[2]}" for name, jar in _JAVA_TESTS.items()},
    **{name: package.replace("==", " ") for name, package in _PYPAIMON.items()},
}
"""The servers with their releases."""

_WEB_SERVER = (
    "com.squareup.okhttp3:mockwebserver:4.12.0",
    "com.squareup.okhttp3:okhttp:4.12.0",
    "com.squareup.okio:okio-jvm:3.6.0",
    "org.jetbrains.kotlin:kotlin-stdlib:1.9.10",
    "junit:junit:4.13.2",
)
_WAREHOUSE = "warehouse"
_TOKEN = "a-bearer-token"  # noqa: S105

# Processes without a server, by the names of their servers: a start takes more than a second.
_idle: defaultdict[str, list[PeerProcess]] = defaultdict(list)


@dataclass(frozen=True, slots=True)
class DlfKeys:
    """The keys with which the Java server checks the signatures of requests."""

    access_key_id: str = "an-access-key-id"
    access_key_secret: str = "an-access-key-secret"  # noqa: S105
    security_token: str | None = None
    algorithm: str = "default"
    """`default` or `openapi`."""
    region: str = "cn-hangzhou"


@dataclass(frozen=True, slots=True)
class RestServer:
    """A running server."""

    name: str
    uri: str
    folder: Path
    """Contains the tables."""
    options: Mapping[str, Any]
    """The options with which a client opens the catalog."""
    _process: PeerProcess = field(repr=False)

    def forbid_database(self, database: str) -> None:
        """Answer 403 to all requests for a database."""
        self._process.ask("forbid_database", database=database)

    def forbid_table(self, database: str, table: str) -> None:
        """Answer 403 to all requests for a table."""
        self._process.ask("forbid_table", database=database, table=table)

    def set_data_token(
        self, database: str, table: str, token: Mapping[str, str], expires_at_millis: int
    ) -> None:
        """Set the options that the server gives to clients for the files of a table."""
        self._process.ask(
            "set_data_token",
            database=database,
            table=table,
            token={**token},
            expires_at_millis=expires_at_millis,
        )

    @property
    def pid(self) -> int | None:
        """The id of the process of the server."""
        return self._process.pid


@contextmanager
def run_rest_server(
    name: str,
    folder: Path,
    *,
    defaults: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    keys: DlfKeys | None = None,
    corrected: bool = True,
) -> Iterator[RestServer]:
    """Run a server, and stop it.

    Its configuration gives clients the options `defaults` and `overrides`. With `keys` the Java
    servers check signatures of DLF instead of a bearer token. `corrected=False` runs the servers of
    pypaimon as they are published: they check no token and accept commits that lost a race.
    """
    command = rest_server_command(name)
    idle = _idle[name]
    process = idle.pop() if idle else PeerProcess(command.command, command.environment)
    arguments: dict[str, Any] = {"corrected": corrected} if name in _PYPAIMON else {}
    try:
        uri, _ = process.ask(
            "start",
            folder=str(folder.resolve()),
            warehouse=_WAREHOUSE,
            config={
                "defaults": {"prefix": "paimon", **(defaults or {})},
                "overrides": {**(overrides or {})},
            },
            auth=_authentication(keys),
            **arguments,
        )
        options = _client_options(uri, keys)
        yield RestServer(name, uri.rstrip("/"), folder, options, process)
    finally:
        _stop(name, process)


def _stop(name: str, process: PeerProcess) -> None:
    try:
        process.ask("stop")
    except PeerError:  # the process was killed, or the server did not start or stop
        process.close()
    else:
        _idle[name].append(process)


@atexit.register
def _end_idle_processes() -> None:
    for processes in _idle.values():
        for process in processes:
            process.close()


@functools.cache
def rest_server_command(name: str) -> PeerCommand:
    """Return the command of a server; builds its environment if it does not exist."""
    if name in _PYPAIMON:
        python = python_environment(name.rpartition("-")[0], [_PYPAIMON[name]])
        script = _HERE / "pypaimon_rest_server.py"
        return PeerCommand((str(python), "-I", "-X", "utf8", str(script)), {})
    return java_command(
        "RestServer", [_HERE / "java" / "RestServer.java"], maven_jars(java_artifacts(name))
    )


def java_artifacts(name: str) -> list[str]:
    """Return the jars of a server of Java, Paimon first."""
    return [PAIMON_JARS[name], _JAVA_TESTS[name], *_WEB_SERVER]


def _authentication(keys: DlfKeys | None) -> dict[str, str]:
    if keys is None:
        return {"token": _TOKEN}
    parts = {
        "access_key_id": keys.access_key_id,
        "access_key_secret": keys.access_key_secret,
        "algorithm": keys.algorithm,
        "region": keys.region,
    }
    return parts | ({"security_token": keys.security_token} if keys.security_token else {})


def _client_options(uri: str, keys: DlfKeys | None) -> dict[str, str]:
    options = {"metastore": "rest", "uri": uri, "warehouse": _WAREHOUSE}
    if keys is None:
        return options | {"token.provider": "bear", "token": _TOKEN}
    options |= {
        "token.provider": "dlf",
        "dlf.access-key-id": keys.access_key_id,
        "dlf.access-key-secret": keys.access_key_secret,
        "dlf.signing-algorithm": keys.algorithm,
        "dlf.region": keys.region,
    }
    return options | ({"dlf.security-token": keys.security_token} if keys.security_token else {})
