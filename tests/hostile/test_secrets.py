"""Secrets of options and URLs do not leave the process, in any text that it writes."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from support.commands import Run, build_runner
from support.tables import new_table, table_of

from paimon_orch import safe_text
from paimon_orch.catalog.catalog import Catalog
from paimon_orch.catalog.open_catalog import open_catalog
from paimon_orch.errors import InputError, PaimonError
from paimon_orch.format.options.option_lookup import OPTION_REGISTRY
from paimon_orch.format.options.secret_options import hide_secrets, is_secret_option
from paimon_orch.retry_policy import STORE_CALL
from paimon_orch.safe_text import (
    clean_values,
    get_logger,
    is_secret_name,
    mask_secrets,
    note_secret_options,
    note_secrets,
)
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.storage import store_operation
from paimon_orch.table.table import Table

SECRET = "hunter2-and-more"  # noqa: S105 - not a password
URLS = (
    f"https://me:{SECRET}@host/x",
    f"https://{SECRET}@host/x",
    f"https://me:a/{SECRET}@host/x",
    f"https://me:a@{SECRET}@host",
    f"s3://AKIA:{SECRET}@bucket/path",
    f"https://host/x?token={SECRET}",
    f"https://host/x?a=1&access_token={SECRET}&b=2",
    f"https://host/x?sig={SECRET}",
    f"https://host/x?X-Amz-Signature={SECRET}",
    f"https://host/x?X-Amz-Security-Token={SECRET}",
    f"https://host/x?X-Goog-Credential={SECRET}",
    f"https://host/x?AWSAccessKeyId={SECRET}",
    f"https://host/x?%74oken={SECRET}",
    f"https://host/x#access_token={SECRET}",
    f"jdbc:mysql://host/db?user=me&password={SECRET}",
    f"jdbc:sqlserver://host;user=me;password={SECRET};x=y",
    f"jdbc:oracle:thin:scott/{SECRET}@//host:1521/x",
    f"thrift://me:{SECRET}@host:9083",
    f"abfss://container:{SECRET}@account.dfs.core.windows.net/x",
)
SECRET_OPTIONS = (
    "my.password",
    "fs.azure.account.key.store.blob.core.windows.net",
    "fs.oss.accessKeySecret",
    "s3.secret-key",
    "custom.sas",
    "custom.Authorization",
    "metadata.iceberg.rest.token",
    "metadata.iceberg.rest.header.X-Api",
    "metadata.iceberg.rest.credential",
    "metadata.iceberg.rest.client.secret",
    "partition.mark-done-action.http.params",
    "commit.callback.org.example.Callback.param",
    "parquet.encryption.footer.key",
    "scan.signature",
)
PUBLIC_OPTIONS = {
    "bucket-key": "k",
    "primary-key": "k",
    "fields.token.aggregate-function": "max",
    "fields.password.sequence-group": "v",
    "file-index.bloom-filter.token.fpp": "0.1",
    "metadata.iceberg.rest.uri": "https://host/x",
    "metadata.iceberg.rest.header.User-Agent": "agent",
    "sink.key-only-deletes.enabled": "true",
}


@pytest.fixture(autouse=True)
def _forget_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_text, "_noted", {})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return build_runner(monkeypatch, capsys)


# -- the mask --------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", URLS)
def test_the_secret_of_a_url_is_masked_wherever_it_stands(url: str) -> None:
    for text in (
        url,
        f"cannot read {url}: refused",
        f"('{url}')",
        f'{{"url": "{url}"}}',
        f"<{url}>",
    ):
        masked = mask_secrets(text)
        assert SECRET not in masked
        assert "***" in masked
        assert mask_secrets(masked) == masked
        assert ("host" in masked) == ("host" in url)


@pytest.mark.parametrize(
    "text",
    [
        "https://host:8080/a@b/c?x=1&y=2",
        "s3://bucket/db.db/t/dt=a@b.com/bucket-0",
        "abfss://container@account.dfs.core.windows.net/lake",
        "/lake/token=abc/password=1/x",
        "user@example.com wrote 3 files",
        "the token is a JSON object: see docs",
        "bearer authentication is not supported",
        "hdfs://namenode:8020/x",
    ],
)
def test_texts_without_secrets_are_kept(text: str) -> None:
    assert mask_secrets(text) == text


def test_headers_with_credentials_are_masked() -> None:
    for text in (
        f"Authorization: Bearer {SECRET}",
        f"'Authorization': 'Basic {SECRET}'",
        f"sent bearer {SECRET}-and-even-more",
        f"host=h password={SECRET} dbname=d",
    ):
        assert SECRET not in mask_secrets(text)


def test_the_mask_is_fast_for_texts_of_an_attacker() -> None:
    start = time.perf_counter()
    for part in ("//a:", "x://a:", "?a", "a@", "w", "authorization:", "bearer ", "jdbc:oracle:x:"):
        mask_secrets(part * (20_000 // len(part)) + "@=")
    assert time.perf_counter() - start < 5


def test_noted_secrets_are_masked_everywhere_and_short_ones_nowhere() -> None:
    note_secret_options(
        {"client": {"aws_secret_key": SECRET}, "region": "eu-central-1", "pwd": "abc"}
    )
    assert (
        mask_secrets(f"header.{SECRET} of eu-central-1, abc") == "header.*** of eu-central-1, abc"
    )
    assert str(PaimonError(f"no option {SECRET!r}")) == "no option '***'"
    assert clean_values({SECRET: [SECRET, 1]}) == {"***": ["***", 1]}


def test_only_the_newest_secrets_are_remembered() -> None:
    note_secrets(f"secret-number-{n}" for n in range(3000))
    assert mask_secrets("secret-number-2999 secret-number-1") == "*** secret-number-1"


# -- options ---------------------------------------------------------------------------------------


def test_registered_options_are_shown_unless_they_are_passed_to_other_programs() -> None:
    hidden = {key for key in OPTION_REGISTRY if is_secret_option(key)}
    assert hidden == {
        "partition.mark-done-action.http.params",
        "commit.callback.#.param",
        "tag.callback.#.param",
    }


def test_options_are_hidden_by_their_names_and_values() -> None:
    shown = hide_secrets(dict.fromkeys(SECRET_OPTIONS, SECRET) | PUBLIC_OPTIONS)
    assert {key: shown[key] for key in PUBLIC_OPTIONS} == PUBLIC_OPTIONS
    assert {shown[key] for key in SECRET_OPTIONS} == {"***"}
    assert SECRET not in str(hide_secrets({f"x{n}": url for n, url in enumerate(URLS)}))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with secrets in its options, and in the name of one of them."""
    table = new_table(tmp_path, "k BIGINT, dt STRING", key=["dt", "k"], partition_by=["dt"])
    table.upsert(table_of("k dt", [(1, "a")]))
    path = Path(table.paths.root) / "schema/schema-0"
    schema = json.loads(path.read_text())
    schema["options"] |= dict.fromkeys(SECRET_OPTIONS, SECRET)
    schema["options"] |= {f"url.{n}": url for n, url in enumerate(URLS)}
    schema["options"][f"https://me:{SECRET}@host/"] = "x"
    schema["options"] |= {
        "partition.mark-done-action": "http-report",
        "partition.mark-done-action.http.url": f"http://me:{SECRET}@127.0.0.1:9/?token={SECRET}",
        "metadata.iceberg.storage": "rest-catalog",
        "metadata.iceberg.rest.uri": f"http://me:{SECRET}@127.0.0.1:9/?token={SECRET}",
        "metadata.iceberg.uri": f"thrift://me:{SECRET}@127.0.0.1:9",
    }
    path.write_text(json.dumps(schema))
    return table


ALLOWANCES = ["--allow-unknown-options", "--allow-stale-external"]
COMMANDS = (
    ["describe"],
    ["describe", "--json"],
    ["describe", "--ddl"],
    ["inspect"],
    ["inspect", "--json"],
    ["read", "db.t$options"],
    ["read", "db.t$schemas"],
    ["read", "db.t$options", "--json"],
    ["read", "sys.all_table_options"],
    ["alter", "--set", f"x.password={SECRET}", "--dry-run"],
    ["check"],
    ["check", "--json"],
    ["compact"],
    ["compact", *ALLOWANCES],
    ["compact", "--json"],
    ["compact", "--json", *ALLOWANCES],
    ["sync-iceberg"],
    ["sync-iceberg", *ALLOWANCES],
    ["mark-done", "--partitions", "dt=a"],
    ["mark-done", "--partitions", "dt=a", *ALLOWANCES],
    ["expire-snapshots"],
    ["expire-snapshots", *ALLOWANCES],
    ["doctor"],
    ["doctor", "--json"],
    ["autopilot", "--dry-run"],
    ["autopilot", "--dry-run", "--json"],
    ["delete", "--where", "k = 1"],
    ["delete", "--where", "k = 1", *ALLOWANCES],
    ["repair", "--dry-run"],
    ["repair", "--dry-run", *ALLOWANCES],
)


def test_a_url_that_cannot_be_parsed_is_not_shown(tmp_path: Path, run: Run) -> None:
    table = new_table(
        tmp_path,
        "k BIGINT, dt STRING",
        key=["dt", "k"],
        partition_by=["dt"],
        partition__mark_done_action="http-report",
    )
    path = Path(table.paths.root) / "schema/schema-0"
    schema = json.loads(path.read_text())
    for url in (f"http://me:{SECRET}@127.0.0.1/", f"http://{SECRET}@[::1/", f"ftp://{SECRET}@x/"):
        schema["options"]["partition.mark-done-action.http.url"] = url
        path.write_text(json.dumps(schema))
        answer = run("-v", "mark-done", tmp_path, "db.t", "--partitions", "dt=a")
        assert answer.status == 1
        assert "http-report' needs an http or https URL" in answer.error
        assert SECRET not in answer.error


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_secrets_of_a_table(
    command: list[str], table: Table, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    name, *rest = command
    catalog_wide = name in ("doctor", "autopilot") or (rest and rest[0].startswith(("db.", "sys.")))
    with caplog.at_level(logging.DEBUG, "paimon_orch"):
        answer = run("-v", name, tmp_path, *([] if catalog_wide else ["db.t"]), *rest)
    assert "No such option" not in answer.error
    assert answer.status in (0, 1), answer.error
    assert SECRET not in answer.out
    assert SECRET not in answer.error
    assert SECRET not in caplog.text


def test_representations_have_no_secrets(table: Table) -> None:
    for shown in (
        table,
        table.load().schema,
        table.load().schema.typed_options,
        table.stores.iceberg,
        inspect(table),
        table.scan(),
    ):
        assert SECRET not in repr(shown)
        html = getattr(shown, "_repr_html_", lambda: "")()
        assert SECRET not in html


def test_the_report_of_the_doctor_has_no_secrets(table: Table, tmp_path: Path, run: Run) -> None:
    page = tmp_path / "report.html"
    run("doctor", tmp_path, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert DoctorRule.OPTION.value in text
    assert SECRET not in text


@pytest.mark.slow
def test_options_of_a_catalog_are_not_in_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # this machine, not Google's, refuses the requests, which are not repeated for long
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    monkeypatch.setattr(store_operation, "STORE_CALL", replace(STORE_CALL, timeout=0.3))
    options: dict[str, str]
    for options in (
        {"metastore": "rest", "uri": f"http://me:{SECRET}@host", "token": SECRET},
        {"metastore": "rest", "uri": f"http://127.0.0.1:9/?token={SECRET}"},
        {"metastore": "hive", "uri": f"thrift://me:{SECRET}@host:1", "warehouse": str(tmp_path)},
        {"metastore": "jdbc", "uri": f"jdbc:sqlserver://h;password={SECRET}", "warehouse": "/x"},
        {
            "metastore": "jdbc",
            "uri": f"jdbc:mysql://h:1/d?password={SECRET}&x=1",
            "warehouse": "/x",
        },
        {"warehouse": f"s3://AKIA:{SECRET}@bucket/x", "metastore": "filesystem"},
        {
            "warehouse": f"gs://{SECRET}@bucket/x",
            "metastore": "filesystem",
            "storage.token": "anon",
        },
        {"metastore": "filesystem", "warehouse": "/x", f"header.{SECRET}": "x", "x.token": SECRET},
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever is raised is shown
            Catalog(**options).databases()  # type: ignore[arg-type]
        assert SECRET not in "".join(traceback.format_exception(caught.value)), options


# -- servers ---------------------------------------------------------------------------------------


class _Echo(BaseHTTPRequestHandler):
    """Answers with what it was sent, in keys and values."""

    def do_GET(self) -> None:
        token = self.headers["Authorization"].removeprefix("Bearer ")
        names = {f"header.{token} ": token, f"no.{token}": token, "header.host": token}
        answer: dict[str, object] = {
            "defaults": names,
            "overrides": {"prefix": "p"},
            "databases": [token],
        }
        if "/databases" in self.path:
            answer = {"databases": [], "nextPageToken": [token], "message": token, "code": 500}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def echo_server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Echo)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_a_server_echoes_is_masked(echo_server: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(PaimonError) as caught:
        open_catalog(
            "w", catalog_options={"metastore": "rest", "uri": echo_server, "token": SECRET}
        ).databases()
    text = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert SECRET not in text
    assert "***" in text


def test_log_lines_have_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    note_secrets([SECRET])
    logger = get_logger("paimon_orch.test")
    with caplog.at_level(logging.INFO):
        logger.warning("%s and %s", URLS[0], {"x": SECRET})
        try:
            raise ValueError(f"option {SECRET} of {URLS[5]}")
        except ValueError:
            logger.warning("failed", exc_info=True)
    assert SECRET not in caplog.text
    assert caplog.text.count("***") == 4


def test_errors_keep_their_attributes_and_are_masked() -> None:
    error = InputError(f"{URLS[0]} cannot be read", 3)
    error.add_note(URLS[5])
    assert error.args == ("https://***@host/x cannot be read", 3)
    assert SECRET not in repr(error) + "".join(error.__notes__)


def test_names_of_secrets() -> None:
    assert all(map(is_secret_name, ("PASSWORD", "apiKey", "x.sas", "sig", "header.x", "id_token")))
    assert not any(map(is_secret_name, ("design", "sassy", "token-path", "token.provider", "uri")))
