"""Hive metastores that demand Kerberos or TLS, with a real KDC and a real certificate."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, pkcs12
from support.catalogs.hive_metastore import (
    HiveMetastore,
    find_kerberos_packages,
    run_hive_metastore,
)
from support.hdfs.kerberos import REALM, Realm, run_realm
from support.peers.downloads import PeerUnavailableError

from paimon_orch import Catalog, CatalogUnavailableError

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("kerberos")]

_PRINCIPAL = f"hive/localhost@{REALM}"
_TLS = {"hive.metastore.use.SSL": "true"}
_PASSWORD = "changeit"  # noqa: S105
# Prints the databases, or the error.
_LIST_DATABASES = """
import json, sys
from paimon_orch import Catalog, PaimonError
try:
    print(Catalog(**json.loads(sys.argv[1])).databases())
except PaimonError as error:
    print(type(error).__name__, error)
"""
_COMMANDS = "from paimon_orch.cli.app import main; main()"


@dataclass(frozen=True)
class SecureMetastore:
    """A metastore that demands Kerberos and encryption."""

    metastore: HiveMetastore
    realm: Realm
    keytab: Path
    """That of the principal `writer`."""
    packages: str

    def get_options(self, principal: str = _PRINCIPAL) -> dict[str, str]:
        secure = {
            "hive.metastore.sasl.enabled": "true",
            "hive.metastore.kerberos.principal": principal,
        }
        return {**self.metastore.options(), **secure}

    def get_ticket(self) -> dict[str, str]:
        return self.realm.get_ticket("writer", self.keytab, "1h", "ticket")

    def list_databases(self, options: Mapping[str, str], **environment: str) -> str:
        return self.run(_LIST_DATABASES, json.dumps(options), **environment)

    def run(self, program: str, *arguments: str, **environment: str) -> str:
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), self.packages])
        without = {"KRB5CCNAME": "FILE:/no/ticket", "PYTHONPATH": path}
        finished = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, **self.realm.environment, **without, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout.strip()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureMetastore]:
    folder = tmp_path_factory.mktemp("hive")
    show_path = "import sysconfig; print(sysconfig.get_path('purelib'))"
    with pytest.MonkeyPatch.context() as variables:
        try:
            command = [str(find_kerberos_packages()), "-c", show_path]
            packages = subprocess.check_output(command, text=True).strip()
            with run_realm(folder / "kdc") as realm:
                keytab = realm.add_keytab("metastore", _PRINCIPAL)
                krb5 = f"-Djava.security.krb5.conf={realm.settings_file}"
                variables.setenv("JDK_JAVA_OPTIONS", krb5)
                settings = {
                    "hadoop__security__authentication": "kerberos",
                    "hadoop__rpc__protection": "privacy",
                    "hive__metastore__sasl__enabled": "true",
                    "hive__metastore__kerberos__principal": _PRINCIPAL,
                    "hive__metastore__kerberos__keytab__file": str(keytab),
                }
                with run_hive_metastore("2.3", folder / "metastore", **settings) as metastore:
                    writer = realm.add_keytab("writer", "writer")
                    yield SecureMetastore(metastore, realm, writer, packages)
        except PeerUnavailableError as error:
            pytest.skip(str(error))


def test_a_table_is_created_loaded_compacted_and_read_with_a_ticket(
    secure: SecureMetastore, tmp_path: Path
) -> None:
    """Each command is a process, whose exit status says whether it succeeded."""
    names = {
        f"PAIMON_ORCH_CATALOG__PROD__{name.replace('.', '__').replace('-', '_').upper()}": text
        for name, text in secure.get_options().items()
    }
    source = tmp_path / "rows.csv"
    source.write_text("k,v\n1,a\n1,b\n")

    def run(command: str, *arguments: str) -> str:
        variables = {**names, **secure.get_ticket()}
        return secure.run(_COMMANDS, command, "prod", "db.t", *arguments, **variables)

    columns = ["--columns", "k BIGINT, v STRING", "--primary-key", "k"]
    run("create", *columns, "--option", "bucket=1")
    run("ingest", "--from", str(source))
    run("compact", "--strategy", "full")

    assert '{"k":1,"v":"b"}' in run("read", "--json").replace(" ", "")
    assert secure.metastore.table("t")["owner"]


def test_the_host_replaces_the_variable_of_the_principal(secure: SecureMetastore) -> None:
    options = secure.get_options(f"hive/_HOST@{REALM}")
    by_name = {**options, "uri": options["uri"].replace("127.0.0.1", "localhost")}

    assert secure.list_databases(by_name, **secure.get_ticket()).startswith("[")


def test_a_keytab_is_enough(secure: SecureMetastore, tmp_path: Path) -> None:
    variables = {
        "KRB5_CLIENT_KTNAME": f"FILE:{secure.keytab}",
        "KRB5CCNAME": f"FILE:{tmp_path / 'cache'}",
    }
    assert secure.list_databases(secure.get_options(), **variables).startswith("[")


def test_without_a_ticket_the_error_says_what_to_do(secure: SecureMetastore) -> None:
    error = secure.list_databases(secure.get_options())

    assert error.startswith(f"AccessDeniedError {_PRINCIPAL} at 127.0.0.1 cannot be used with")
    assert "a ticket of kinit is needed" in error
    assert "\n" not in error


def test_a_service_that_the_realm_does_not_know_is_refused(secure: SecureMetastore) -> None:
    options = secure.get_options(f"other/localhost@{REALM}")
    error = secure.list_databases(options, **secure.get_ticket())

    assert error.startswith("AccessDeniedError other/localhost")
    assert "not found in Kerberos database" in error


def test_without_the_option_the_error_names_it(secure: SecureMetastore) -> None:
    error = secure.list_databases(secure.metastore.options(), **secure.get_ticket())

    assert error.startswith("CatalogUnavailableError")
    assert "if the metastore demands Kerberos, set hive.metastore.sasl.enabled = true" in error


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a certificate of 127.0.0.1, which signs itself, and its key store."""
    folder = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "metastore")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    protected = BestAvailableEncryption(_PASSWORD.encode())
    store = pkcs12.serialize_key_and_certificates(b"metastore", key, signed, None, protected)
    (folder / "server.p12").write_bytes(store)
    return folder


@pytest.fixture(scope="module")
def encrypted(
    certificate: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HiveMetastore]:
    settings = {
        "hive__metastore__use__SSL": "true",
        "hive__metastore__keystore__path": str(certificate / "server.p12"),
        "hive__metastore__keystore__password": _PASSWORD,
    }
    folder = tmp_path_factory.mktemp("tls") / "metastore"
    try:
        with run_hive_metastore("2.3", folder, **settings) as metastore:
            yield metastore
    except PeerUnavailableError as error:
        pytest.skip(str(error))


def _open(metastore: HiveMetastore, **more: str) -> Catalog:
    options: dict[str, Any] = {**metastore.options(), **more}
    return Catalog(**options)


def test_a_trusted_metastore_is_used_with_tls_also_after_a_restart(
    encrypted: HiveMetastore, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "server.pem"))
    catalog = _open(encrypted, **_TLS)
    catalog.create_database("db")

    encrypted.kill()
    encrypted.start()
    catalog.create_database("other")  # a change, which is never repeated

    assert {"db", "other"} <= set(catalog.databases())


def test_a_certificate_that_nobody_trusts_is_refused(encrypted: HiveMetastore) -> None:
    # Another timeout is another connection than that of the test above.
    timeout = {"hive.metastore.client.socket.timeout": "5 s"}
    catalog = _open(encrypted, **_TLS, **timeout)
    with pytest.raises(CatalogUnavailableError, match=r"certificate verify failed.*SSL_CERT_FILE"):
        catalog.databases()


def test_without_the_option_of_tls_the_error_names_it(encrypted: HiveMetastore) -> None:
    with pytest.raises(CatalogUnavailableError, match=r"or TLS, set hive\.metastore\.use\.SSL"):
        _open(encrypted).databases()
