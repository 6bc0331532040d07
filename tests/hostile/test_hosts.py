"""Options of a table and answers of a server lead no request to a host that nobody allowed."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faulty_server import Answer, FaultyServer, run_faulty_server
from support.tables import table_of

from paimon_orch import Catalog
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.errors import NotAllowedError, PaimonError, StorageError, UnsupportedError
from paimon_orch.steps.inspection.doctor.doctor import examine_table
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule
from paimon_orch.table.iceberg.iceberg_rest_client import open_rest_catalog, read_rest_properties
from paimon_orch.table.table import Table

PLACES: dict[str, dict[str, str]] = {
    "data files": {
        "data-file.external-paths": "file:///elsewhere/t",
        "data-file.external-paths.strategy": "round-robin",
    },
    "global indexes": {"global-index.external-path": "file:///elsewhere/t"},
    "a report": {
        "partition.mark-done-action": "http-report",
        "partition.mark-done-action.http.url": "http://169.254.169.254/latest",
        "partition.end-input-to-done": "true",
    },
    "a metastore": {
        "metadata.iceberg.storage": "hive-catalog",
        "metadata.iceberg.uri": "thrift://10.0.0.1:9083",
    },
    "settings of a metastore": {
        "metadata.iceberg.storage": "hive-catalog",
        "metadata.iceberg.hive-conf-dir": "/elsewhere",
    },
    "a REST catalog": {
        "metadata.iceberg.storage": "rest-catalog",
        "metadata.iceberg.rest.uri": "http://127.0.0.1:1/catalog",
    },
    "an OAuth server": {
        "metadata.iceberg.storage": "rest-catalog",
        "metadata.iceberg.rest.uri": "http://allowed:1/catalog",
        "metadata.iceberg.rest.oauth2-server-uri": "http://127.0.0.1:1/token",
    },
}


def create(root: Path, options: dict[str, str]) -> Table:
    return Catalog(str(root)).create_table(
        "db.t", "p INT, v STRING", partition_by=["p"], options={"bucket": "-1"} | options
    )


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with run_faulty_server() as running:
        yield running


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_the_operator_has_not_allowed_stops_a_write_and_is_found_by_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("PAIMON_ALLOWED_HOSTS", "allowed")
    table = create(tmp_path, PLACES[place])

    with pytest.raises(NotAllowedError, match=r"which is not allowed.*catalog option 'allowed-"):
        table.append(table_of("p v", [(1, "a")]))

    assert table.snapshot() is None
    findings = [
        x for x in examine_table(Catalog(str(tmp_path)), "db.t") if x.rule is DoctorRule.NOT_ALLOWED
    ]
    assert len(findings) == 1
    assert any(option in findings[0].text for option in PLACES[place])


def test_stale_external_systems_are_allowed_without_a_request(
    tmp_path: Path, server: FaultyServer
) -> None:
    for name in ("a REST catalog", "a report"):
        options = {
            key: text.replace("http://127.0.0.1:1", server.uri).replace(
                "http://169.254.169.254", server.uri
            )
            for key, text in PLACES[name].items()
        }
        table = create(tmp_path / name, options).allow(stale_external=True)
        table.append(table_of("p v", [(1, "a")]))
        assert table.snapshot() is not None
    assert (server.handshakes, server.requests) == ([], [])


def report_to(server: FaultyServer, root: Path, **options: str) -> Table:
    catalog = Catalog(str(root), allowed_hosts=["127.0.0.1"])
    url = {"partition.mark-done-action.http.url": f"{server.uri}/done", **options}
    return catalog.create_table(
        "db.t", "p INT", partition_by=["p"], options=PLACES["a report"] | url
    )


@pytest.mark.parametrize("target", ["http://169.254.169.254/", "ftp://127.0.0.1/", "file:///etc"])
def test_a_report_follows_no_redirect(tmp_path: Path, server: FaultyServer, target: str) -> None:
    server.answers = [Answer(status=302, headers={"Location": target})]

    with pytest.raises(StorageError, match="302"):
        report_to(server, tmp_path).stores.build_marker().mark([{"p": "1"}])
    assert len(server.requests) == 1


def test_the_answer_to_a_report_is_limited(tmp_path: Path, server: FaultyServer) -> None:
    server.answers = [Answer(body=b" " * (2 << 20))]

    with pytest.raises(StorageError, match="more than 1048576 bytes"):
        report_to(server, tmp_path).stores.build_marker().mark([{"p": "1"}])


@pytest.mark.parametrize("answer", [b"[" * 100_000, b"no HTTP at all\r\n\r\n"])
def test_an_answer_to_a_report_may_be_anything(tmp_path: Path, answer: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" if answer.startswith(b"[") else b""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(head + answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(StorageError, match="did not accept p=1/"):
            report_to(FaultyServer(uri=url), tmp_path).stores.build_marker().mark([{"p": "1"}])
        thread.join()


@pytest.mark.parametrize("place", ["a report", "a metastore", "a REST catalog"])
def test_a_url_that_cannot_be_parsed_is_not_allowed(tmp_path: Path, place: str) -> None:
    options = {
        key: "http://user:password@[x" if text.startswith(("http:", "thrift:")) else text
        for key, text in PLACES[place].items()
    }
    table = create(tmp_path, options)

    with pytest.raises(PaimonError) as caught:
        table.append(table_of("p v", [(1, "a")]))
    findings = examine_table(Catalog(str(tmp_path)), "db.t")

    texts = [str(caught.value), *(finding.text for finding in findings)]
    assert any("a URL that cannot be parsed, which is not allowed" in text for text in texts)
    assert not any("password" in text or "internal error" in text for text in texts)


@pytest.mark.parametrize(
    "location",
    [
        "reference://x",
        "filecache://x",
        "s3::file:///x",
        "simplecache::s3://b/x",
        "http://127.0.0.1/x",
        "github://a:b@/x",
        "memory://x",
    ],
)
def test_a_server_chooses_no_other_file_system(server: FaultyServer, location: str) -> None:
    server.answers = [Answer(body={"path": location, "id": "1", "schemaId": 0, "schema": {}})]
    server.config = {"overrides": {"storage.fo": "x", "storage.target_protocol": "file"}}

    with pytest.raises(PaimonError, match=r"location|must look like") as caught:
        Catalog(metastore="rest", uri=server.uri, token="t").table("db.t")  # noqa: S106
    assert isinstance(caught.value, UnsupportedError)


def test_allowed_places_are_texts_lists_and_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".paimon_orch.yaml").write_text(
        f"catalog:\n  lake:\n    warehouse: {tmp_path}\n    allowed-hosts: [one, two:1]\n"
        "    allowed-external-paths: file:///a/{table}, s3://b/{database}\n"
    )
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))
    monkeypatch.setenv("PAIMON_ALLOWED_HOSTS", "four")

    permissions = Catalog("lake", allowed_hosts=["Three"]).permissions

    assert permissions.hosts == ("one", "two:1", "three", "four")
    assert permissions.list_directories("db.t$branch_x") == ["/a/t/db.db", "s3://b/db/t"]


def test_a_server_sets_only_listed_options(server: FaultyServer) -> None:
    server.config = {
        "defaults": {"storage.client_kwargs": '{"endpoint_url": "http://x"}', "prefix": "p"},
        "overrides": {
            "dlf.token-path": "/etc/passwd",
            "allowed-hosts": "169.254.169.254",
            "s3.access-key": "lent",
            "uri": "http://other",
        },
    }
    client = RestClient.connect({"metastore": "rest", "uri": server.uri, "token": "t"})

    own = {"metastore", "uri", "token"}
    assert {name: client.options[name] for name in client.options.keys() - own} == {
        "prefix": "p",
        "s3.access-key": "lent",
    }
    assert client.options["uri"] == server.uri


@pytest.mark.parametrize(
    "name",
    [
        "s3.endpoint",
        "fs.s3a.endpoint",
        "fs.oss.endpoint",
        "fs.obs.endpoint",
        "fs.cosn.bucket.endpoint_suffix",
    ],
)
def test_a_server_names_an_endpoint_only_on_an_allowed_host(
    server: FaultyServer, name: str
) -> None:
    user = {"metastore": "rest", "uri": server.uri, "token": "t"}
    server.config = {"overrides": {name: "http://169.254.169.254/x"}}

    with pytest.raises(NotAllowedError, match=r"169\.254\.169\.254.*'allowed-hosts'"):
        RestClient.connect(user)
    allowed = RestClient.connect(user | {"allowed-hosts": "169.254.169.254"})
    assert allowed.options[name] == "http://169.254.169.254/x"
    own = RestClient.connect(user | {name: "http://mine"})
    assert own.options[name] == "http://mine"


class TestIcebergServer:
    """A REST catalog that the operator allows, but whose answers are hostile."""

    @pytest.fixture(autouse=True)
    def _needs_pyiceberg(self) -> None:
        pytest.importorskip("pyiceberg")

    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """A module that is importable, and must not be imported."""
        (tmp_path / "hostile_module.py").write_text("class Hostile:\n    pass\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        return "hostile_module.Hostile"

    @pytest.mark.parametrize("field", ["overrides", "defaults"])
    def test_no_class_is_loaded_that_the_server_names(
        self, server: FaultyServer, module: str, field: str
    ) -> None:
        server.config = {field: {"py-io-impl": module, "auth": "x", "prefix": "p"}}
        metadata = {
            "format-version": 2,
            "location": "file:///x",
            "last-column-id": 1,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {"py-io-impl": module},
            "last-updated-ms": 0,
        }
        config = {"py-io-impl": module}
        server.answers = [
            Answer(body={"metadata-location": "x", "metadata": metadata, "config": config})
        ]

        with open_rest_catalog({"uri": server.uri}) as catalog:
            catalog.load_table(("db", "t"))

        assert "hostile_module" not in sys.modules
        assert server.requests[0].path == "/v1/p/namespaces/db/tables/t"

    def test_no_class_is_loaded_that_an_option_of_the_table_names(self, module: str) -> None:
        prefix = "metadata.iceberg.rest."
        properties = read_rest_properties(
            {f"{prefix}uri": "http://x", f"{prefix}py-io-impl": module, f"{prefix}ssl": "x"}
        )
        assert properties == {"uri": "http://x"}

    def test_the_server_cannot_move_requests_to_another_host(self, server: FaultyServer) -> None:
        server.config = {"overrides": {"uri": "http://169.254.169.254/"}}

        with (
            pytest.raises(NotAllowedError, match="another server"),
            open_rest_catalog({"uri": server.uri, "token": "secret"}),
        ):
            pytest.fail("the context was entered")

    def test_redirects_are_not_followed(self, server: FaultyServer) -> None:
        with run_faulty_server() as other:
            other.answers = [Answer(body={})]
            server.answers = [Answer(status=307, headers={"Location": f"{other.uri}/stolen"})]
            with pytest.raises(PaimonError), open_rest_catalog({"uri": server.uri}) as catalog:
                catalog.load_table(("db", "t"))
            assert other.requests == []

    def test_a_huge_answer_is_refused(
        self, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from paimon_orch.table.iceberg import confined_rest_catalog

        monkeypatch.setattr(confined_rest_catalog, "_MAX_ANSWER_BYTES", 1000)
        server.answers = [Answer(body=b" " * 2000)]
        with (
            pytest.raises(PaimonError, match="more than 1000 bytes"),
            open_rest_catalog({"uri": server.uri}) as catalog,
        ):
            catalog.load_table(("db", "t"))
