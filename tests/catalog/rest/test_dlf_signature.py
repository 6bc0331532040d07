"""Signatures of DLF, equal to those of Java Paimon."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from support.packed_data import data_file

from paimon_orch.catalog.rest.dlf_signature import sign_for_dlf, sign_for_openapi
from paimon_orch.catalog.rest.dlf_tokens import DlfToken
from paimon_orch.catalog.rest.signer import SignableRequest

VECTORS: list[dict[str, Any]] = json.loads(data_file("vectors/dlf_signatures.json"))["signatures"]
KEY, SECRET = "access-key-id", "access-key-secret"


def request(vector: dict[str, Any]) -> SignableRequest:
    return SignableRequest(
        method=vector["method"],
        path=vector["path"],
        params=vector["params"],
        body=vector["body"].encode(),
        host="dlfnext.cn-hangzhou.aliyuncs.com:8080",
    )


def test_the_vectors_have_both_algorithms() -> None:
    assert [vector["algorithm"] for vector in VECTORS] == ["default"] * 14 + ["openapi"] * 14


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_signatures_and_headers_equal_those_of_java(vector: dict[str, Any]) -> None:
    token = DlfToken(KEY, SECRET, vector["security_token"])
    now = datetime(2025, 4, 6, 3, 44, 46, tzinfo=UTC)

    if vector["algorithm"] == "default":
        headers = sign_for_dlf(request(vector), token, now, region="cn-hangzhou")
    else:
        nonce = vector["headers"]["x-acs-signature-nonce"]
        headers = sign_for_openapi(request(vector), token, now, nonce=nonce)

    assert headers == {**vector["headers"], "Authorization": vector["authorization"]}


def test_the_signature_in_the_tests_of_java_and_pypaimon() -> None:
    signable = SignableRequest(
        method="POST",
        path="/v1/paimon/databases",
        params={"k1": "v1", "k2": "v2"},
        body=b'{"name":"database","options":{"a":"b"}}',
        host="host",
    )
    token = DlfToken(KEY, SECRET, "securityToken")
    now = datetime(2023, 12, 3, 12, 12, 12, tzinfo=UTC)

    headers = sign_for_dlf(signable, token, now, region="cn-hangzhou")

    assert headers["Authorization"] == (
        "DLF4-HMAC-SHA256 Credential=access-key-id/20231203/cn-hangzhou/DlfNext/aliyun_v4_request,"
        "Signature=c72caf1d40b55b1905d891ee3e3de48a2f8bebefa7e39e4f277acc93c269c5e3"
    )
