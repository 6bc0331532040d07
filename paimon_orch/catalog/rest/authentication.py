"""How requests to a REST catalog prove who sends them: a bearer token, or signatures of DLF."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from paimon_orch.catalog.rest.dlf_signature import DlfSigner, SigningAlgorithm
from paimon_orch.catalog.rest.dlf_tokens import (
    DlfToken,
    EcsToken,
    FixedToken,
    TokenFile,
    TokenSource,
    load_token,
)
from paimon_orch.catalog.rest.rest_options import (
    DLF_ACCESS_KEY_ID,
    DLF_ACCESS_KEY_SECRET,
    DLF_REGION,
    DLF_SECURITY_TOKEN,
    DLF_SIGNING_ALGORITHM,
    DLF_TOKEN_ECS_METADATA_URL,
    DLF_TOKEN_ECS_ROLE_NAME,
    DLF_TOKEN_LOADER,
    DLF_TOKEN_PATH,
    TOKEN,
    TOKEN_PROVIDER,
)
from paimon_orch.catalog.rest.signer import Authentication, SignableRequest, Signer
from paimon_orch.errors import InputError

_REGION = re.compile(r"(?:pre-)?([a-z]+-[a-z]+(?:-\d+)?)")
_OPENAPI_HOSTS = "dlfnext"


@dataclass(frozen=True, slots=True, repr=False)
class BearerToken:
    """A fixed token in the header ``Authorization``."""

    token: str

    def load_signer(self, rejected: Signer | None = None) -> Signer:  # noqa: ARG002
        """Return itself: the token does not change."""
        return self

    def sign(self, request: SignableRequest) -> dict[str, str]:  # noqa: ARG002
        """Return the header with the token."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the token."""
        return (self.token,)


@dataclass(frozen=True, slots=True, repr=False)
class DlfAuthentication:
    """Signatures with credentials of DLF, which may be renewed."""

    algorithm: SigningAlgorithm
    region: str
    source: TokenSource

    def load_signer(self, rejected: Signer | None = None) -> Signer:
        """Return a signer with credentials that are valid now."""
        refused = rejected.token if isinstance(rejected, DlfSigner) else None
        return DlfSigner(self.algorithm, self.region, load_token(self.source, refused))


def open_authentication(options: Mapping[str, Any], uri: str) -> Authentication:
    """Return the authentication that the options of the user select."""
    provider = options.get(TOKEN_PROVIDER.key) or ("bear" if options.get(TOKEN.key) else None)
    if provider == "bear":
        return _open_bearer(options)
    if provider == "dlf":
        return _open_dlf(options, uri)
    raise InputError(
        "a catalog with metastore=rest needs the option 'token', or 'token.provider' = dlf with "
        "'dlf.token-path' or 'dlf.access-key-id' and 'dlf.access-key-secret'"
    )


def _open_bearer(options: Mapping[str, Any]) -> BearerToken:
    token = str(options.get(TOKEN.key) or "")
    if not token:
        raise InputError("token.provider=bear needs the option 'token'")
    if not (token.isascii() and token.isprintable()):
        raise InputError("option 'token' must contain printable ASCII characters only")
    return BearerToken(token)


def _open_dlf(options: Mapping[str, Any], uri: str) -> DlfAuthentication:
    name = options.get(DLF_SIGNING_ALGORITHM.key)
    if not name:
        name = "openapi" if _OPENAPI_HOSTS in uri.lower() else "default"
    region = options.get(DLF_REGION.key)
    if not region:
        match = _REGION.search(uri)
        if match is None:
            raise InputError("the option 'uri' contains no region; set 'dlf.region'")
        region = match[1]
    return DlfAuthentication(SigningAlgorithm(name), region, _find_token_source(options))


def _find_token_source(options: Mapping[str, Any]) -> TokenSource:
    loader, path = options.get(DLF_TOKEN_LOADER.key), options.get(DLF_TOKEN_PATH.key)
    if loader == "ecs":
        return _open_ecs(options)
    if path:
        return TokenFile(str(path))
    key_id = options.get(DLF_ACCESS_KEY_ID.key)
    secret = options.get(DLF_ACCESS_KEY_SECRET.key)
    if loader == "local_file" or not (key_id and secret):
        raise InputError(
            "token.provider=dlf needs 'dlf.token-path', or 'dlf.access-key-id' and "
            "'dlf.access-key-secret', or 'dlf.token-loader' = ecs"
        )
    return FixedToken(DlfToken(key_id, secret, options.get(DLF_SECURITY_TOKEN.key) or None))


def _open_ecs(options: Mapping[str, Any]) -> EcsToken:
    key = DLF_TOKEN_ECS_METADATA_URL.key
    url = str(options.get(key) or DLF_TOKEN_ECS_METADATA_URL.default)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query:
        raise InputError(f"option {key!r} must be a URL without user, password and query")
    return EcsToken(url, options.get(DLF_TOKEN_ECS_ROLE_NAME.key))
