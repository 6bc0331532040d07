"""The interfaces of authentication: credentials that change, and signatures of requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


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
