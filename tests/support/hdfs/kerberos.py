"""A realm of Kerberos, and an HDFS that demands it: the KDC of MIT, from the packages of the system."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.hdfs.cluster import HdfsCluster, run_hdfs
from support.local_server import find_free_port, run_local_server
from support.peers.downloads import PeerUnavailableError

REALM = "LAKE.TEST"
SERVICE = "hdfs/localhost"
"""The principal of the servers, which is the superuser of HDFS."""
_WEB = "HTTP/localhost"
SERVER_PRINCIPALS = (SERVICE, _WEB)
_PROGRAMS = ("kdb5_util", "kadmin.local", "krb5kdc", "kinit")
_FOLDERS = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
# Names are not canonicalized: the machine of the tests may have no names but localhost.
_CLIENT_SETTINGS = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
"""
_SERVER_SETTINGS = """\
[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    max_life = 1d
  }}
"""


class Realm:
    """A running KDC, and the programs that use it."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        client, server = folder / "krb5.conf", folder / "kdc.conf"
        client.write_text(_CLIENT_SETTINGS.format(realm=REALM, port=port))
        server.write_text(_SERVER_SETTINGS.format(realm=REALM, port=port, folder=folder))
        self.environment = {"KRB5_CONFIG": str(client)}
        """The variables of clients."""
        self.server_environment = {**self.environment, "KRB5_KDC_PROFILE": str(server)}
        self.settings_file = client

    def create(self) -> None:
        """Create the database of principals."""
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "any")

    def add_keytab(self, name: str, *principals: str) -> Path:
        """Add principals with random keys; return a keytab with them."""
        keytab = self._folder / f"{name}.keytab"
        for principal in principals:
            self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-q", f"ktadd -k {keytab} {' '.join(principals)}")
        return keytab

    def get_ticket(self, principal: str, keytab: Path, life: str, name: str) -> dict[str, str]:
        """Get a ticket for a time such as `1h` in a named file; return the variables of clients."""
        cache = f"FILE:{self._folder / name}"
        self._run("kinit", "-c", cache, "-l", life, "-k", "-t", str(keytab), principal)
        return {"KRB5CCNAME": cache}

    def _run(self, program: str, *arguments: str) -> None:
        command = [find_program(program), *arguments]
        environment = {**os.environ, **self.server_environment}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)


def find_program(name: str) -> str:
    """Return the path of a program, or raise `PeerUnavailableError`."""
    program = shutil.which(name, path=_FOLDERS)
    if program is None:
        raise PeerUnavailableError(
            f"Kerberos needs {', '.join(_PROGRAMS)}: {name} is not installed (Debian's packages "
            "krb5-kdc, krb5-admin-server and krb5-user)"
        )
    return program


@contextmanager
def run_realm(folder: Path) -> Iterator[Realm]:
    """Run a KDC with its files in an empty folder."""
    for name in _PROGRAMS:
        find_program(name)
    folder.mkdir(parents=True)
    port = find_free_port()
    realm = Realm(folder, port)
    realm.create()
    command = [find_program("krb5kdc"), "-n", "-r", REALM]
    with run_local_server(command, port, folder, realm.server_environment):
        yield realm


@contextmanager
def run_secure_hdfs(folder: Path, realm: Realm, keytab: Path) -> Iterator[HdfsCluster]:
    """Run a cluster that demands Kerberos and encrypts; the keytab has `SERVER_PRINCIPALS`."""
    settings = {
        "hadoop.security.authentication": "kerberos",
        "hadoop.rpc.protection": "privacy",
        "dfs.data.transfer.protection": "privacy",
        "dfs.block.access.token.enable": "true",
        "dfs.web.authentication.kerberos.principal": f"{_WEB}@{REALM}",
        "dfs.web.authentication.kerberos.keytab": str(keytab),
        # servers without certificates on ports that any user can open
        "ignore.secure.ports.for.testing": "true",
    }
    for node in ("namenode", "datanode"):
        settings[f"dfs.{node}.kerberos.principal"] = f"{SERVICE}@{REALM}"
        settings[f"dfs.{node}.keytab.file"] = str(keytab)
    java = {"JDK_JAVA_OPTIONS": f"-Djava.security.krb5.conf={realm.settings_file}"}
    with run_hdfs(folder, settings, java) as cluster:
        yield cluster
