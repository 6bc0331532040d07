"""HDFS with Kerberos, with a real KDC: who writes, and errors that say what is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from support.hdfs.cluster import HdfsCluster, prepare_hdfs
from support.hdfs.kerberos import (
    REALM,
    SERVER_PRINCIPALS,
    SERVICE,
    Realm,
    run_realm,
    run_secure_hdfs,
)
from support.peers.downloads import PeerUnavailableError

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("kerberos")]

_COMMAND = "from paimon_orch.cli.app import main; main()"
_MAKE_DIRECTORY = """
import sys
from paimon_orch.storage import resolve_warehouse
resolve_warehouse(sys.argv[1], {"fs.permissions.umask-mode": "000"})[0].make_dir(sys.argv[1])
"""
# Prints the owner of a new file, or the error, without waiting between attempts.
_WRITE = """
import json, sys
from paimon_orch.errors import PaimonError
from paimon_orch.retry_policy import RetryPolicy
from paimon_orch.storage import hdfs, resolve_warehouse
hdfs.STORE_CALL = RetryPolicy(attempts=2, min_wait=0.01, max_wait=0.01)
root = sys.argv[1]
io = resolve_warehouse(root, json.loads(sys.argv[2]))[0]
try:
    io.write(f"{root}/file", b"rows")
    assert io.read_bytes(f"{root}/file") == b"rows"
    name = f"/{root.split('/', 3)[3]}/file"
    print(io.client.call(name, lambda client: client.get_file_info(name)).owner)
except PaimonError as error:
    print(type(error).__name__, error)
"""
# Clients with other settings have other connections.
_WAIT_FOR_A_TICKET = """
import sys, time
from paimon_orch.errors import AccessDeniedError
from paimon_orch.storage import resolve_warehouse
def exists(number):
    return resolve_warehouse(sys.argv[1], {"dfs.number": str(number)})[0].exists(sys.argv[1])
number = 0
while True:
    try:
        exists(number := number + 1)
        time.sleep(0.2)
    except AccessDeniedError as error:
        print(error, flush=True)
        break
input()
print(exists(0))
"""


@dataclass(frozen=True)
class SecureLake:
    """A directory of an HDFS with Kerberos, to which everybody can write."""

    realm: Realm
    cluster: HdfsCluster
    config_dir: Path
    keytab: Path
    """That of the principal `writer`."""

    def get_environment(self, **more: str) -> dict[str, str]:
        """Return the variables of a process with Hadoop's and Kerberos' configuration."""
        without = {"KRB5CCNAME": "FILE:/no/ticket", "HADOOP_CONF_DIR": str(self.config_dir)}
        return {**os.environ, **self.realm.environment, **without, **more}

    def run(self, program: str, *arguments: str, **environment: str) -> str:
        """Run a program of Python, which must succeed; return its output."""
        finished = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=self.get_environment(**environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    def write(self, options: Mapping[str, str], **environment: str) -> list[str]:
        """Return the owner of a new file, or an error, as lines."""
        return self.run(_WRITE, self.new_root(), json.dumps(options), **environment).splitlines()

    def new_root(self) -> str:
        return f"hdfs:///tests/{uuid4()}"

    def get_ticket(self, name: str = "ticket", life: str = "1h") -> dict[str, str]:
        return self.realm.get_ticket("writer", self.keytab, life, name)

    def write_config(self, folder: Path, **more: str) -> Path:
        secure = {"hadoop__security__authentication": "kerberos"}
        return self.cluster.write_configuration(folder, **secure, **more)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureLake]:
    pytest.importorskip("hdfs_native", reason="the tests of HDFS need hdfs-native")
    folder = tmp_path_factory.mktemp("kerberos")
    try:
        prepare_hdfs()
        with run_realm(folder / "kdc") as realm:
            keytab = realm.add_keytab("servers", *SERVER_PRINCIPALS)
            with run_secure_hdfs(folder / "hdfs", realm, keytab) as cluster:
                lake = SecureLake(realm, cluster, folder / "c", realm.add_keytab("w", "writer"))
                lake.write_config(lake.config_dir, dfs__data__transfer__protection="privacy")
                superuser = realm.get_ticket(SERVICE, keytab, "1h", "superuser")
                lake.run(_MAKE_DIRECTORY, "hdfs:///tests", **superuser)
                yield lake
    except PeerUnavailableError as error:
        pytest.skip(str(error))


def test_a_table_is_created_loaded_compacted_and_read_with_a_ticket(
    lake: SecureLake, tmp_path: Path
) -> None:
    """Each command is a process, whose exit status says whether it succeeded."""
    root, ticket = lake.new_root(), lake.get_ticket()
    source = tmp_path / "rows.csv"
    source.write_text("k,v\n1,a\n1,b\n")

    def run(command: str, *arguments: str) -> str:
        return lake.run(_COMMAND, command, root, "db.t", *arguments, **ticket)

    columns = ["--columns", "k BIGINT, v STRING", "--primary-key", "k"]
    run("create", *columns, "--option", "bucket=1")
    run("ingest", "--from", str(source))
    run("compact", "--strategy", "full")

    assert '{"k":1,"v":"b"}' in run("read", "--json").replace(" ", "")


def test_the_owner_of_files_is_the_principal(lake: SecureLake) -> None:
    assert lake.write({}, **lake.get_ticket()) == ["writer"]


def test_a_keytab_needs_no_ticket(lake: SecureLake) -> None:
    options = {"kerberos_principal": "writer", "kerberos_keytab": str(lake.keytab)}
    assert lake.write(options) == ["writer"]


def test_a_token_file_needs_no_ticket(lake: SecureLake, tmp_path: Path) -> None:
    """Tasks on YARN have such files instead of tickets."""
    lake.cluster.send("token", 0, tmp_path / "tokens")
    root = f"{lake.cluster.uri}/tests/{uuid4()}"
    tokens = {"HADOOP_TOKEN_FILE_LOCATION": str(tmp_path / "tokens")}
    assert lake.run(_WRITE, root, "{}", **tokens) == "hdfs\n"


def test_a_process_goes_on_with_a_new_ticket(lake: SecureLake) -> None:
    environment = lake.get_environment(**lake.get_ticket("renewed", "1s"))
    command = [sys.executable, "-c", _WAIT_FOR_A_TICKET, lake.new_root()]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert re.search("expired.*; get a ticket", process.stdout.readline())
        lake.get_ticket("renewed")
        assert process.communicate("go on\n", timeout=60)[0] == "False\n"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no ticket", "No Kerberos credentials available.*; get a ticket with kinit"),
        ("no library", "Failed to load libgssapi_krb.*; install libgssapi-krb5-2"),
        ("no realm", "Cannot find KDC for realm.*; /etc/krb5.conf .* must name the realm"),
        ("key of another principal", "; .*of a keytab that has a key of the principal"),
        ("no setting of the client", "if the cluster demands Kerberos: hadoop.security.auth"),
        ("no protection of data", "if the DataNodes demand it, set dfs.data.transfer.protection"),
    ],
)
def test_an_error_says_what_is_missing(
    lake: SecureLake, tmp_path: Path, case: str, message: str
) -> None:
    ticket, keytab = lake.get_ticket(), {"kerberos_keytab": str(lake.keytab)}
    (tmp_path / "libgssapi_krb5.so.2").touch()  # it cannot be loaded
    (tmp_path / "krb5.conf").touch()
    environment, options = {
        "no ticket": ({}, {}),
        "no library": ({**ticket, "LD_LIBRARY_PATH": str(tmp_path)}, {}),
        "no realm": (
            {"KRB5_CONFIG": str(tmp_path / "krb5.conf")},
            {"kerberos_principal": f"writer@{REALM}", **keytab},
        ),
        "key of another principal": ({}, {"kerberos_principal": "reader", **keytab}),
        "no setting of the client": (ticket, {"hadoop.security.authentication": "simple"}),
        "no protection of data": (ticket, {"config_dir": str(lake.write_config(tmp_path / "c"))}),
    }[case]

    [line] = lake.write(options, **environment)

    kind, _, text = line.partition(" ")
    assert kind in {"AccessDeniedError", "StorageError"}
    assert re.search(message, text), text
    assert not re.search("GssMajorCodes|Minor code|\\n", text), "it is for people"
