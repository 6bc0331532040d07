"""Credentials of REST catalogs appear in no text that steps, Spark or Dagster show or store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from storage.conftest import Bucket
from storage.rest_table import LENT_SECRET, LENT_TOKEN, KeyLender
from support.catalogs.fixtures import StartRestServer
from support.catalogs.rest_proxy import Fault, ProxiedRequest, RestProxy, run_rest_proxy
from support.catalogs.rest_server import JAVA_2_0, DlfKeys

from paimon_orch import Catalog

DLF_SECRET = "a-dlf-secret-5529"  # noqa: S105 - opens nothing
DLF_TOKEN = "a-dlf-security-token-6638"  # noqa: S105
SCRIPT = Path(__file__).parents[1] / "support" / "catalogs" / "secret_runs.py"
SECONDS = 110  # of a process with a Spark session


def create_table(proxy: RestProxy) -> None:
    Catalog(**proxy.options).create_table(
        "db.t",
        "k INT NOT NULL, v STRING",
        primary_key=["k"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "2"},
    )


def run(folder: Path, runs: list[dict[str, Any]]) -> tuple[list[bool], bytes]:
    """Return the outcomes of runs, and all that they printed, logged and stored."""
    folder.mkdir()
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        input=json.dumps(runs).encode(),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()[-4000:]
    stored = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    outcomes = json.loads((folder / "outcomes.json").read_text())
    return outcomes, b"\n".join([ended.stdout, ended.stderr, *stored])


@pytest.mark.slow
def test_secrets_are_not_shown_or_stored(
    start_rest_server: StartRestServer,
    s3_with_expiring_keys: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", f"{tmp_path}/*")
    keys = DlfKeys(access_key_secret=DLF_SECRET, security_token=DLF_TOKEN)
    bearer_server = start_rest_server(JAVA_2_0, tmp_path / "bearer")
    dlf_server = start_rest_server(JAVA_2_0, tmp_path / "dlf", keys=keys)
    with run_rest_proxy(bearer_server) as bearer, run_rest_proxy(dlf_server) as dlf:
        KeyLender(bearer, s3_with_expiring_keys, seconds=7200)
        for proxy in (bearer, dlf):
            create_table(proxy)
        bearer.refuse, dlf.refuse = EverySecondCompaction(), EverySecondCompaction(DLF_SECRET)
        runs = [
            {"with": kind, "options": proxy.options}
            for kind in ("steps", "steps", "dagster", "dagster")
            for proxy in (bearer, dlf)
        ]
        succeeded, shown = run(tmp_path / "shown", runs)

    assert succeeded == [False, False, True, True] * 2
    for text in (b"committed snapshot", b"SparkListenerApplicationStart", b"status 403", b"***"):
        assert text in shown, text
    secrets = (bearer_server.options["token"], DLF_SECRET, DLF_TOKEN, LENT_SECRET, LENT_TOKEN)
    leaks = [x for x in shown.splitlines() if any(secret.encode() in x for secret in secrets)]
    assert leaks == []


@dataclass
class EverySecondCompaction:
    """Refuses commits of compactions; the message contains the headers of the request."""

    secret: str = ""
    """What the message contains in addition."""
    seen: int = 0

    def __call__(self, request: ProxiedRequest) -> Fault | None:
        if request.name != "POST commit" or b'"COMPACT"' not in request.body:
            return None
        self.seen += 1
        message = f"{dict(request.headers)} {self.secret}"
        body = {"message": message, "code": 403}
        return Fault(status=403, body=body) if self.seen % 2 else None
