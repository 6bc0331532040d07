"""Which options a Hive catalog takes, and what it reads from `hive-site.xml`."""

import pickle
import socket
from pathlib import Path
from typing import Any

import pytest

from paimon_orch import Catalog, InputError
from paimon_orch.catalog.hive.hive_backend import HiveBackend
from paimon_orch.catalog.hive.hive_settings import read_settings
from paimon_orch.errors import MissingPackageError
from paimon_orch.metastore.hive_address import SOCKET_TIMEOUT
from paimon_orch.optional_packages import is_installed

OPTIONS: dict[str, Any] = {
    "metastore": "hive",
    "uri": "thrift://one:9000, thrift://two",
    "warehouse": "/lake/",
}


def write_site(folder: Path, **properties: str) -> Path:
    """Write `hive-site.xml`; in names of properties `__` is a dot."""
    lines = (
        f"<property><name>{name.replace('__', '.')}</name><value> {value} </value></property>"
        for name, value in properties.items()
    )
    text = f'<?xml version="1.0"?><configuration>{"".join(lines)}</configuration>'
    (folder / "hive-site.xml").write_text(text)
    return folder


def test_several_addresses_and_the_warehouse_are_options() -> None:
    settings = read_settings(OPTIONS)
    assert settings.address.uris == (("one", 9000), ("two", 9083))
    assert settings.warehouse == "/lake"
    assert Catalog(**OPTIONS).uri == "thrift://one:9000,thrift://two:9083"


def test_the_user_is_that_of_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    assert read_settings(OPTIONS).address.user == "etl"


def test_a_user_that_the_system_does_not_know_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_USER_NAME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)

    assert read_settings(OPTIONS).address.user == "4000000000"


@pytest.mark.parametrize("by_environment", [False, True])
def test_hive_site_names_the_metastore_and_the_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    write_site(
        tmp_path,
        hive__metastore__uris="thrift://site:1",
        hive__metastore__warehouse__dir="hdfs://nn/warehouse",
        hive__metastore__client__socket__timeout="5s",
        other__option="ignored",
    )
    options: dict[str, Any] = {"metastore": "hive"}
    if by_environment:
        monkeypatch.setenv("HIVE_CONF_DIR", str(tmp_path))
    else:
        options["hive-conf-dir"] = str(tmp_path)

    settings = read_settings(options)

    assert settings.address.uris == (("site", 1),)
    assert settings.warehouse == "hdfs://nn/warehouse"
    assert settings.options.get(SOCKET_TIMEOUT).total_seconds() == 5
    assert read_settings({**OPTIONS, **options}).address.uris == (("one", 9000), ("two", 9083))


def test_entities_in_hive_site_are_refused(tmp_path: Path) -> None:
    (tmp_path / "hive-site.xml").write_text(
        '<!DOCTYPE c [<!ENTITY a SYSTEM "file:///etc/passwd">]><configuration>&a;</configuration>'
    )
    with pytest.raises(InputError, match=r"hive-site\.xml has a DOCTYPE"):
        read_settings({**OPTIONS, "hive-conf-dir": str(tmp_path)})


def test_a_damaged_or_missing_hive_site_is_refused(tmp_path: Path) -> None:
    options = {**OPTIONS, "hive-conf-dir": str(tmp_path)}
    with pytest.raises(InputError, match=r"hive-site\.xml does not exist"):
        read_settings(options)
    (tmp_path / "hive-site.xml").write_text("<configuration>")
    with pytest.raises(InputError, match=r"hive-site\.xml cannot be read: no element found"):
        read_settings(options)


def test_variables_in_hive_site_are_not_resolved(tmp_path: Path) -> None:
    write_site(tmp_path, hive__metastore__uris="thrift://${host}:1")
    with pytest.raises(InputError, match=r"hive\.metastore\.uris has a variable"):
        read_settings({**OPTIONS, "hive-conf-dir": str(tmp_path)})


@pytest.mark.parametrize("missing", ["uri", "warehouse"])
def test_an_address_and_a_warehouse_are_required(missing: str) -> None:
    options = {name: value for name, value in OPTIONS.items() if name != missing}
    with pytest.raises(InputError, match=f"needs the option '{missing}', or 'hive-conf-dir'"):
        Catalog(**options)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("uri", "http://one:9083", "must be thrift://host:port"),
        ("uri", "thrift://user:secret@one:9083", "must be thrift://host:port"),
        ("uri", "thrift://one:port", "must be thrift://host:port"),
        ("table.type", "virtual", "must be managed or external"),
        ("lock.type", "zookeeper", "'zookeeper' is not supported"),
        ("lock-acquire-timeout", "soon", "option 'lock-acquire-timeout' = 'soon' cannot be parsed"),
        ("hive.metastore.batch.retrieve.max", "0", "must be at least 1"),
        ("hive.metastore.sasl.enabled", "true", "needs hive.metastore.kerberos.principal"),
        ("hive.metastore.client.auth.mode", "PLAIN", "hive.metastore.client.auth.mode = PLAIN"),
        ("metastore.client.class", "com.example.Glue", "metastore.client.class = com.example.Glue"),
        ("table_type", "external", "has no option 'table_type'; did you mean 'table.type'"),
    ],
)
def test_options_that_are_not_supported_are_refused(option: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        Catalog(**{**OPTIONS, option: value})
    assert "secret" not in str(raised.value)


def test_another_protocol_in_hive_site_is_refused(tmp_path: Path) -> None:
    write_site(tmp_path, hive__metastore__client__thrift__transport__mode="http")
    with pytest.raises(InputError, match=r"transport\.mode = http is not supported"):
        read_settings({**OPTIONS, "hive-conf-dir": str(tmp_path)})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pymetastore", None)
    with pytest.raises(InputError, match=r"pip install 'paimon-orch\[hive\]'"):
        Catalog(**OPTIONS)


def test_options_of_the_store_are_not_shown() -> None:
    secrets = {"storage.secret": "my password", "s3.secret-key": "my password"}
    catalog = Catalog(**{**OPTIONS, **secrets})
    assert isinstance(catalog.backend, HiveBackend)
    settings = catalog.backend.settings
    assert "my password" not in repr(catalog) + repr(catalog.backend) + repr(settings)
    assert b"my password" not in pickle.dumps((settings, catalog.backend.client))


def test_a_relative_warehouse_is_that_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_settings({**OPTIONS, "warehouse": "lake/"}).warehouse == f"{tmp_path}/lake"


@pytest.mark.parametrize("principal", ["hive", "hive/", "hive/a/b@R", "hive/host@R@S", "hive/h t"])
def test_a_principal_of_a_metastore_names_service_and_host(principal: str) -> None:
    secure = {"hive.metastore.sasl.enabled": True, "hive.metastore.kerberos.principal": principal}
    with pytest.raises(InputError, match="with the principal of the metastore, such as"):
        read_settings({**OPTIONS, **secure})


def test_hive_site_says_that_a_metastore_demands_kerberos_and_tls(tmp_path: Path) -> None:
    write_site(
        tmp_path,
        hive__metastore__sasl__enabled="TRUE",
        hive__metastore__kerberos__principal="hive/_HOST@EXAMPLE.COM",
        hive__metastore__use__SSL="true",
        hive__metastore__truststore__path="/etc/trust.jks",
    )
    address = read_settings({**OPTIONS, "hive-conf-dir": str(tmp_path)}).address

    assert (address.principal, address.uses_tls) == ("hive/_HOST@EXAMPLE.COM", True)
    assert not read_settings(OPTIONS).address.uses_tls


def test_kerberos_without_its_packages_names_the_extra() -> None:
    pytest.importorskip("thrift", reason="the tests of Hive need thrift")
    secure = {
        "hive.metastore.sasl.enabled": True,
        "hive.metastore.kerberos.principal": "hive/_HOST@EXAMPLE.COM",
    }
    if is_installed("kerberos"):
        pytest.skip("the packages of Kerberos are installed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"thrift://127.0.0.1:{server.getsockname()[1]}"
        catalog = Catalog(**{**OPTIONS, **secure, "uri": uri})
        with pytest.raises(MissingPackageError, match=r"paimon-orch\[hive-kerberos\]"):
            catalog.databases()
