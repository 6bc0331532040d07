"""Credentials of DLF: fixed ones, those of a file, and those of an ECS instance's role."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import requests

from paimon_orch.catalog.rest.rest_errors import RequestLine, RestUnavailableError
from paimon_orch.catalog.rest.transport_errors import build_transport_error
from paimon_orch.errors import InputError, PaimonError
from paimon_orch.http_answers import limit_session
from paimon_orch.retry_policy import TOKEN_FILE_READ
from paimon_orch.safe_text import get_logger

logger = get_logger(__name__)

RENEWAL_MARGIN = 3600.0
"""Tokens that expire within these seconds are loaded again."""
RELOAD_INTERVAL = 30.0
"""A token that is still valid is loaded at most once in these seconds."""
_EXPIRATION_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_MAX_BYTES = 1 << 16
_ECS_TIMEOUTS = (5.0, 10.0)
_ROLE_NAME = re.compile(r"[A-Za-z0-9._@-]{1,200}")


@dataclass(frozen=True, slots=True, repr=False)
class DlfToken:
    """An access key, and the security token of a temporary one."""

    access_key_id: str
    access_key_secret: str
    security_token: str | None = None
    expires_at: float | None = field(default=None, compare=False)
    """Seconds since the epoch, or None if the token does not expire."""

    def __post_init__(self) -> None:
        texts = (self.access_key_id, self.access_key_secret, self.security_token or "x")
        if not all(text and text.isascii() and text.isprintable() for text in texts):
            raise InputError("the DLF credentials must be printable ASCII texts")

    @classmethod
    def parse(cls, content: bytes) -> "DlfToken":
        """Parse the JSON of a token; raises :class:`InputError` without its content."""
        try:
            fields = json.loads(content)
            texts = [_read_text(fields, name) for name in ("AccessKeyId", "AccessKeySecret")]
            token = _read_optional_text(fields, "SecurityToken")
            expiration = _read_optional_text(fields, "Expiration")
            expires_at = None
            if expiration is not None:
                date = datetime.strptime(expiration, _EXPIRATION_FORMAT).replace(tzinfo=UTC)
                expires_at = date.timestamp()
        except (ValueError, RecursionError):
            fields = None
        if fields is None:
            raise InputError(
                "the token is not a JSON object with AccessKeyId, AccessKeySecret, and "
                "optionally SecurityToken and Expiration like 2030-01-31T00:00:00Z"
            )
        return cls(texts[0], texts[1], token, expires_at)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the texts that messages must not contain."""
        return tuple(filter(None, (self.access_key_secret, self.security_token)))


def _read_text(fields: object, name: str) -> str:
    text = fields.get(name) if isinstance(fields, Mapping) else None
    if not isinstance(text, str) or not text:
        raise ValueError(name)
    return text


def _read_optional_text(fields: Mapping[str, Any], name: str) -> str | None:
    return None if fields.get(name) is None else _read_text(fields, name)


class TokenSource(Protocol):
    """Where credentials come from. It is hashable, and can be pickled."""

    def load(self) -> DlfToken:
        """Load the credentials of this moment."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class FixedToken:
    """Credentials that the options of the catalog contain."""

    token: DlfToken

    def load(self) -> DlfToken:
        """Return the credentials."""
        return self.token


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Credentials in a JSON file of each machine, which another program replaces."""

    path: str

    def load(self) -> DlfToken:
        """Read the file, several times if it is being replaced."""
        return TOKEN_FILE_READ.call(
            self._read, retry_on=lambda error: isinstance(error, InputError)
        )

    def _read(self) -> DlfToken:
        try:
            with Path(self.path).open("rb") as file:
                return DlfToken.parse(file.read(_MAX_BYTES))
        except OSError as error:
            reason = error.strerror or type(error).__name__
        except InputError as error:
            reason = str(error)
        raise InputError(f"dlf.token-path: {self.path} cannot be used: {reason}")


@dataclass(frozen=True, slots=True)
class EcsToken:
    """Credentials of the role of an Alibaba ECS instance, from its metadata service."""

    url: str
    role: str | None

    def load(self) -> DlfToken:
        """Ask the metadata service for the role, if it is not known, and its credentials."""
        url = self.url.rstrip("/") + "/"
        role = self.role or _fetch(url).decode("ascii", errors="replace").strip()
        if not _ROLE_NAME.fullmatch(role) or role in (".", ".."):
            raise RestUnavailableError(
                "the ECS metadata service has no valid role; check that the instance has a role, "
                "or set dlf.token-ecs-role-name"
            )
        content = _fetch(f"{url}{role}")
        try:
            return DlfToken.parse(content)
        except InputError as error:
            reason = str(error)
        raise RestUnavailableError(f"credentials of the ECS role {role}: {reason}")


def _fetch(url: str) -> bytes:
    line = RequestLine("GET", url)
    content = b""
    try:
        with requests.Session() as session:
            limit_session(session)
            session.trust_env = False  # the service is local: no proxy, no ~/.netrc
            with session.get(url, timeout=_ECS_TIMEOUTS, stream=True) as response:
                status = response.status_code
                if status == requests.codes.ok:
                    content = next(response.iter_content(_MAX_BYTES), b"")
        failure = None
    except requests.RequestException as error:
        failure = build_transport_error(line, error)
    if failure is not None:
        raise failure
    if status != requests.codes.ok:
        raise RestUnavailableError(f"{line} failed (status {status})")
    return content


_loaded: dict[TokenSource, tuple[float, DlfToken]] = {}


def load_token(source: TokenSource, rejected: DlfToken | None = None) -> DlfToken:
    """Return the credentials of a source; this process keeps them until they expire.

    They are loaded again if the server rejected them.
    """
    if isinstance(source, FixedToken):
        return source.token
    loaded_at, token = _loaded.get(source, (0.0, None))
    if token is not None and token != rejected and not _needs_renewal(token, loaded_at):
        return token
    try:
        renewed = source.load()
    except PaimonError as error:
        if token is None or token == rejected or _get_lifetime(token) <= 0:
            raise
        logger.warning("the credentials were not renewed, and expire soon: %s", error)
        renewed = token
    _loaded[source] = time.monotonic(), renewed
    return renewed


def _needs_renewal(token: DlfToken, loaded_at: float) -> bool:
    lifetime = _get_lifetime(token)
    if lifetime <= 0:
        return True
    return lifetime < RENEWAL_MARGIN and time.monotonic() - loaded_at >= RELOAD_INTERVAL


def _get_lifetime(token: DlfToken) -> float:
    return float("inf") if token.expires_at is None else token.expires_at - time.time()
