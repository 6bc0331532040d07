"""Addresses of Spark clusters: their forms, and whether a host answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from paimon_orch.errors import InputError, TransientError
from paimon_orch.spark.session.master_url import check_master, list_endpoints, require_reachable


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture(autouse=True)
def without_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "grpc", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[1]", "local[16]", "local[*]", "local[4,2]", "local[*, 3]"),
        *("local-cluster[2,1,1024]", "spark://host:7077", "spark://a:7077,b:7077"),
        *("spark://[::1]:7077", "k8s://host:6443", "k8s://https://host:6443", "k8s://http://host"),
        *("sc://host", "sc://host:443/;use_ssl=true;token=a/b?c", "sc://[::1]:15002"),
    ],
)
def test_forms_that_spark_documents_are_accepted(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    "master",
    [
        *("", "foo", "Local", "local[0]", "local[x]", "local[]", "local[2", "local[2,0]"),
        *("spark://host", "spark://", "spark://a:1,b", "spark://host:0", "spark://host:99999"),
        *("spark:host:7077", "mesos://host:5050", "http://host:80", "yarn-client"),
        *("k8s://", "k8s://ftp://host:1", "sc://", "sc://:15002", "sc://host/path", "sc://h:x"),
    ],
)
def test_other_forms_are_refused_with_the_known_ones(master: str) -> None:
    with pytest.raises(InputError, match=r"is not a Spark master; use local\[\*\] or .* sc://"):
        check_master(master)


def test_a_refused_address_is_shown_without_its_token() -> None:
    with pytest.raises(InputError) as caught:
        check_master("sc://host:x/;token=secret")
    assert "secret" not in str(caught.value)


def test_yarn_needs_the_configuration_of_hadoop() -> None:
    with pytest.raises(InputError, match="HADOOP_CONF_DIR or YARN_CONF_DIR"):
        check_master("yarn", {})
    check_master("yarn", {"YARN_CONF_DIR": "/etc/hadoop"})


@pytest.mark.parametrize(
    ("master", "endpoints"),
    [
        ("local[*]", []),
        ("yarn", []),
        ("spark://a:1,b:2", [("a", 1), ("b", 2)]),
        ("sc://host/;token=x", [("host", 15002)]),
        ("k8s://host", [("host", 443)]),
        ("k8s://http://host", [("host", 80)]),
        ("k8s://https://[::1]:6443", [("::1", 6443)]),
    ],
)
def test_the_endpoints_of_an_address(master: str, endpoints: list[tuple[str, int]]) -> None:
    assert list_endpoints(master) == endpoints


@pytest.mark.parametrize("form", ["spark://{}", "sc://{}/;token=secret", "k8s://https://{}"])
def test_a_host_that_refuses_connections_is_reported_with_the_reason(
    form: str, closed_port: int
) -> None:
    with pytest.raises(TransientError) as caught:
        require_reachable(form.format(f"127.0.0.1:{closed_port}"))
    assert f"127.0.0.1:{closed_port}: connection refused" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_host_that_does_not_answer_is_reported_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port = server.getsockname()[1]
        # the connection fills the queue of the server
        with (
            socket.create_connection(("127.0.0.1", port)),
            pytest.raises(TransientError, match=r"no answer within 0\.2 seconds"),
        ):
            require_reachable(f"spark://127.0.0.1:{port}", timeout=0.2)


def test_one_of_several_masters_must_answer(open_port: int, closed_port: int) -> None:
    require_reachable(f"spark://127.0.0.1:{closed_port},127.0.0.1:{open_port}")
    with pytest.raises(TransientError, match=f"{closed_port}: .*; localhost:{closed_port}: "):
        require_reachable(f"spark://127.0.0.1:{closed_port},localhost:{closed_port}")


def test_an_address_behind_a_proxy_is_not_checked(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    require_reachable(f"sc://127.0.0.1:{closed_port}")
    with pytest.raises(TransientError):
        require_reachable(f"spark://127.0.0.1:{closed_port}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(TransientError):
        require_reachable(f"sc://127.0.0.1:{closed_port}")
