"""Credentials that only permit to read: the table is read and unchanged, and errors say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from typing import Any

import pytest
from storage.conftest import Bucket
from support.faulty_server import Answer, FaultyServer, Request, run_faulty_server
from support.tables import rows_of, table_of

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import StorageError
from paimon_orch.steps.compaction.compact import compact

_REFUSAL = (
    "reader@project.iam.gserviceaccount.com does not have storage.objects.create access to the "
    "Google Cloud Storage object."
)


def build_shared_access(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with a signature that permits to read and to list."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    settings = dict(entry.split("=", 1) for entry in options["connection_string"].split(";"))
    signature = generate_account_sas(
        settings["AccountName"],
        settings["AccountKey"],
        ResourceTypes(service=True, container=True, object=True),
        AccountSasPermissions(read=True, list=True),
        datetime.now(UTC) + timedelta(days=1),
    )
    endpoint = settings["BlobEndpoint"]
    return {"connection_string": f"BlobEndpoint={endpoint};SharedAccessSignature={signature}"}


def forward_reads(server: FaultyServer, uri: str) -> None:
    """Let a server refuse all requests but GET, as Google does."""

    def answer(request: Request) -> Answer:
        if request.method != "GET":
            return Answer(status=403, body={"error": {"code": 403, "message": _REFUSAL}})
        store = HTTPConnection(uri.removeprefix("http://"))
        ranged = {name: text for name, text in request.headers.items() if name == "Range"}
        store.request("GET", request.path, headers=ranged)
        got = store.getresponse()
        return Answer(status=got.status, body=got.read())

    server.answers.append(answer)


@pytest.fixture(params=["azure", "gcs"])
def credentials(request: pytest.FixtureRequest) -> Iterator[tuple[Bucket, dict[str, Any], str]]:
    """Return a bucket, options that only permit to read, and a text of the store's refusal."""
    bucket: Bucket = request.getfixturevalue(request.param)
    with ExitStack() as stack:
        if request.param == "azure":
            yield bucket, build_shared_access(bucket.options), "is not authorized to perform"
        else:
            server = stack.enter_context(run_faulty_server())
            forward_reads(server, bucket.options["endpoint_url"])
            yield bucket, {**bucket.options, "endpoint_url": server.uri}, re.escape(_REFUSAL[:-1])


@pytest.mark.slow
def test_a_table_is_read_and_not_changed(credentials: tuple[Bucket, dict[str, Any], str]) -> None:
    bucket, options, refusal = credentials
    table = Catalog(bucket.root, **bucket.options).create_table(
        "db.t", "k INT, v STRING", primary_key=["k"], options={"bucket": "1"}
    )
    for value in "ab":
        table.upsert(table_of("k v", [(1, value)]))
    before = sorted((file.path, file.version) for file in bucket.io.list_tree(bucket.root) or ())
    catalog = Catalog(bucket.root, **options)
    reader = catalog.table("db.t")

    assert rows_of(reader) == [(1, "b")]
    for change in (
        lambda: reader.upsert(table_of("k v", [(2, "c")])),
        lambda: compact(reader, strategy="full"),
        lambda: catalog.create_table("db.u", "k INT"),
        lambda: catalog.drop_table("db.t"),
    ):
        with pytest.raises(
            StorageError, match=rf"{refusal}.*; check the credentials, and what they permit"
        ) as caught:
            change()
        assert bucket.root in str(caught.value)
    after = sorted((file.path, file.version) for file in bucket.io.list_tree(bucket.root) or ())
    assert after == before
