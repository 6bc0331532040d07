"""The actions that mark partitions as done, and when writes execute them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from support.recorded_partitions import RecordedPartitions, through_catalog

from paimon_orch import Catalog, Table
from paimon_orch.errors import InputError, StorageError, UnsupportedError
from paimon_orch.table.partition_marks import PartitionMarker


def new_table(root: Path, **options: str) -> Table:
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    return Catalog(str(root)).create_table(
        "db.t", "p STRING, v INT", partition_by=["p"], options=named
    )


def rows(*partitions: str) -> pa.Table:
    values = pa.array([1] * len(partitions), pa.int32())
    return pa.table({"p": pa.array(partitions, pa.string()), "v": values})


def marker_at(table: Table, seconds: float) -> PartitionMarker:
    return replace(table.stores.build_marker(), clock=lambda: seconds)


def success_file(table: Table, directory: str) -> Path:
    return Path(table.paths.root, directory, "_SUCCESS")


def test_a_success_file_keeps_its_creation_time(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    marker_at(table, 1.5).mark([{"p": "a:b"}])
    path = success_file(table, "p=a%3Ab")
    # The layout of Java's files: see docs/format/procedures.md.
    assert path.read_text() == '{\n  "creationTime": 1500,\n  "modificationTime": 1500\n}'
    marker_at(table, 2.0).mark([{"p": "a:b"}])
    assert json.loads(path.read_text()) == {"creationTime": 1500, "modificationTime": 2000}


def test_done_partition_and_mark_event_report_to_the_catalog(tmp_path: Path) -> None:
    catalog = RecordedPartitions()
    table = through_catalog(
        new_table(
            tmp_path,
            partition__mark_done_action="done-partition, mark-event",
            metastore__partitioned_table="true",
        ),
        catalog,
    )
    table.stores.build_marker().mark([{"p": "a"}])
    assert catalog.calls == [("add", [{"p": "a.done"}]), ("mark", [{"p": "a"}])]


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        ("custom", UnsupportedError, "Java class"),
        ("done-partition", UnsupportedError, "through a catalog with partitions"),
        ("mark-event", UnsupportedError, "through a catalog with partitions"),
        ("http-report", InputError, "needs an http or https URL"),
        ("success-file,party", InputError, "'party' is unknown"),
    ],
)
def test_an_action_that_cannot_be_executed_stops_all_actions(
    action: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    table = new_table(tmp_path, partition__mark_done_action=action)
    with pytest.raises(error, match=message):
        table.stores.build_marker().mark([{"p": "a"}])
    assert not success_file(table, "p=a").exists()


def test_done_partitions_need_a_partitioned_metastore_table(tmp_path: Path) -> None:
    table = new_table(tmp_path, partition__mark_done_action="done-partition")
    with pytest.raises(InputError, match=r"'metastore\.partitioned-table' = 'true'"):
        through_catalog(table, RecordedPartitions()).stores.build_marker().check()


def test_writes_mark_their_partitions_at_their_end(tmp_path: Path) -> None:
    table = new_table(tmp_path, partition__end_input_to_done="true")
    table.append(rows("a", "b"))
    table.append(rows("c"))
    marked = {path.parent.name for path in Path(table.paths.root).rglob("_SUCCESS")}
    assert marked == {"p=a", "p=b", "p=c"}


def test_writes_mark_nothing_by_default(tmp_path: Path) -> None:
    table = new_table(tmp_path, partition__mark_done_action="custom")
    table.append(rows("a"))
    assert not list(Path(table.paths.root).rglob("_SUCCESS"))


def test_a_write_is_refused_if_it_could_not_mark_its_partitions(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, partition__end_input_to_done="true", partition__mark_done_action="custom"
    )
    with pytest.raises(UnsupportedError, match=r"'custom'.*end-input-to-done.*Nothing was changed"):
        table.append(rows("a"))
    assert table.snapshot() is None
    assert table.allow(stale_external=True).append(rows("a")) is not None


def test_a_failed_mark_after_a_write_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(
        tmp_path,
        partition__end_input_to_done="true",
        partition__mark_done_action="mark-event",
        metastore__partitioned_table="true",
    )
    catalog = RecordedPartitions(failure="the metastore is down")
    with caplog.at_level(logging.WARNING):
        assert through_catalog(table, catalog).append(rows("a")) is not None
    assert "snapshot 1 are not all marked as done: the metastore is down" in caplog.text
    assert "run mark-done" in caplog.text


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """A server that records requests; it refuses the partition ``p=bad/``."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append((self.headers["Content-Type"], body))
            result = "failed" if body["partition"] == "p=bad/" else "success"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"result": result, "more": 1}).encode())

        def log_message(self, *_: object) -> None:
            pass

    requests: list[tuple[str, dict[str, Any]]] = []
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.requests = requests  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def _allowed_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_ALLOWED_HOSTS", "127.0.0.1")


@pytest.mark.usefixtures("_allowed_host")
def test_http_reports_name_the_partition(tmp_path: Path, server: HTTPServer) -> None:
    table = new_table(
        tmp_path,
        partition__mark_done_action="http-report",
        partition__mark_done_action__http__url=f"http://127.0.0.1:{server.server_port}/done",
        partition__mark_done_action__http__params="team=a",
    )
    table.stores.build_marker().mark([{"p": "a"}])
    [(content_type, body)] = server.requests  # type: ignore[attr-defined]
    assert content_type == "application/json"
    assert body == {
        "params": "team=a",
        "table": "db.t",
        "path": table.paths.root,
        "partition": "p=a/",
    }
    with pytest.raises(StorageError, match="p=bad/: its answer has the result 'failed'"):
        table.stores.build_marker().mark([{"p": "bad"}])


@pytest.mark.usefixtures("_allowed_host")
def test_a_server_that_does_not_answer_is_an_error(tmp_path: Path, server: HTTPServer) -> None:
    url = f"http://127.0.0.1:{server.server_port}/done"
    server.shutdown()
    server.server_close()
    table = new_table(
        tmp_path,
        partition__mark_done_action="http-report",
        partition__mark_done_action__http__url=url,
    )
    with pytest.raises(StorageError, match="did not accept p=a/"):
        table.stores.build_marker().mark([{"p": "a"}])
