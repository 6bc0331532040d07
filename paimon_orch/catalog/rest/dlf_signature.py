"""The two signatures of requests to DLF: that of its own endpoints, and that of Alibaba OpenAPI."""

import base64
import hashlib
import hmac
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import Enum
from urllib.parse import unquote_plus

from paimon_orch.catalog.rest.dlf_tokens import DlfToken
from paimon_orch.catalog.rest.resource_paths import encode_component
from paimon_orch.catalog.rest.signer import SignableRequest

_DLF_ALGORITHM = "DLF4-HMAC-SHA256"
_DLF_SCOPE = ("DlfNext", "aliyun_v4_request")
_UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
_DLF_DATE_FORMAT = "%Y%m%dT%H%M%SZ"
_OPENAPI_PREFIX = "x-acs-"
_OPENAPI_VERSION = "2026-01-18"
_OPENAPI_FIRST_LINES = ("Accept", "Content-MD5", "Content-Type", "Date")


class SigningAlgorithm(Enum):
    """The values of the option ``dlf.signing-algorithm``."""

    DEFAULT = "default"
    OPENAPI = "openapi"


@dataclass(frozen=True, slots=True, repr=False)
class DlfSigner:
    """Signs requests with one set of credentials."""

    algorithm: SigningAlgorithm
    region: str
    token: DlfToken

    def sign(self, request: SignableRequest) -> dict[str, str]:
        """Return the headers of a request that is sent now."""
        now = datetime.now(UTC)
        if self.algorithm is SigningAlgorithm.OPENAPI:
            return sign_for_openapi(request, self.token, now, nonce=str(uuid.uuid4()))
        return sign_for_dlf(request, self.token, now, region=self.region)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the texts that messages must not contain."""
        return self.token.secrets


def sign_for_dlf(
    request: SignableRequest, token: DlfToken, now: datetime, *, region: str
) -> dict[str, str]:
    """Return the headers of the algorithm DLF4-HMAC-SHA256."""
    headers = {
        "x-dlf-date": now.strftime(_DLF_DATE_FORMAT),
        "x-dlf-content-sha256": _UNSIGNED_PAYLOAD,
        "x-dlf-version": "v1",
        **_describe_body(request.body),
    }
    if token.security_token is not None:
        headers["x-dlf-security-token"] = token.security_token
    date = now.strftime("%Y%m%d")
    scope = "/".join((date, region, *_DLF_SCOPE))
    canonical = hashlib.sha256(_build_dlf_request(request, headers).encode()).hexdigest()
    text = "\n".join((_DLF_ALGORITHM, headers["x-dlf-date"], scope, canonical))
    key = f"aliyun_v4{token.access_key_secret}".encode()
    for part in (date, region, *_DLF_SCOPE):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{token.access_key_id}/{scope}"
    authorization = f"{_DLF_ALGORITHM} Credential={credential},Signature={signature}"
    return {**headers, "Authorization": authorization}


def _build_dlf_request(request: SignableRequest, headers: Mapping[str, str]) -> str:
    encoded = {name: encode_component(value) for name, value in request.params.items()}
    signed = sorted((name.lower(), value.strip()) for name, value in headers.items())
    lines = (f"{name}:{value}" for name, value in signed)
    query = _build_sorted_query(encoded)
    return "\n".join((request.method, request.path, query, *lines, _UNSIGNED_PAYLOAD))


def sign_for_openapi(
    request: SignableRequest, token: DlfToken, now: datetime, *, nonce: str
) -> dict[str, str]:
    """Return the headers of HMAC-SHA1 signatures of Alibaba OpenAPI."""
    headers = {
        "Date": format_datetime(now, usegmt=True),
        "Accept": "application/json",
        **_describe_body(request.body),
        "Host": request.host,
        "x-acs-signature-method": "HMAC-SHA1",
        "x-acs-signature-nonce": nonce,
        "x-acs-signature-version": "1.0",
        "x-acs-version": _OPENAPI_VERSION,
    }
    if token.security_token is not None:
        headers["x-acs-security-token"] = token.security_token
    own = sorted(name for name in headers if name.startswith(_OPENAPI_PREFIX))
    query = _build_sorted_query(request.params)
    lines = (
        request.method,
        *(headers.get(name, "") for name in _OPENAPI_FIRST_LINES),
        *(f"{name}:{headers[name].strip()}" for name in own),
        unquote_plus(request.path) + (f"?{query}" if query else ""),
    )
    key = token.access_key_secret.encode()
    signature = base64.b64encode(hmac.digest(key, "\n".join(lines).encode(), "sha1")).decode()
    return {**headers, "Authorization": f"acs {token.access_key_id}:{signature}"}


def _build_sorted_query(params: Mapping[str, str]) -> str:
    items = ((name.strip(), value) for name, value in sorted(params.items()))
    return "&".join(f"{name}={value}" if value else name for name, value in items)


def _describe_body(body: bytes) -> dict[str, str]:
    if not body:
        return {}
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    return {
        "Content-MD5": base64.b64encode(digest).decode(),
        "Content-Type": "application/json",
    }
