"""How requests to a REST catalog prove who sends them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_orch.catalog.rest.rest_options import TOKEN, TOKEN_PROVIDER
from paimon_orch.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class SignableRequest:
    """The parts of a request that signatures cover."""

    method: str
    path: str
    """The encoded path from ``/v1`` on, without the path of the server's URL."""
    params: Mapping[str, str]
    """The query, not encoded."""
    body: bytes
    host: str
    """The host of the server's URL, with its port if it has one."""


class Signer(Protocol):
    """Credentials at one moment; equal signers have the same credentials."""

    def sign(self, request: SignableRequest) -> dict[str, str]:
        """Return the headers that authenticate the request."""
        ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the texts that messages must not contain."""
        ...


class Authentication(Protocol):
    """The source of credentials; it is hashable, and can be pickled."""

    def load_signer(self, rejected: Signer | None = None) -> Signer:
        """Return the signer to use now.

        ``rejected`` is a signer that the server refused: if possible, its credentials are loaded
        again.
        """
        ...


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


def open_authentication(options: Mapping[str, Any], uri: str) -> Authentication:  # noqa: ARG001
    """Return the authentication that the options of the user select."""
    provider = options.get(TOKEN_PROVIDER.key) or ("bear" if options.get(TOKEN.key) else None)
    if provider == "bear":
        token = str(options.get(TOKEN.key) or "")
        if not token:
            raise InputError("token.provider=bear needs the option 'token'")
        if not (token.isascii() and token.isprintable()):
            raise InputError("option 'token' must contain printable ASCII characters only")
        return BearerToken(token)
    raise InputError(
        "a catalog with metastore=rest needs the option 'token', or 'token.provider' = dlf with "
        "'dlf.token-path' or 'dlf.access-key-id' and 'dlf.access-key-secret'"
    )
