"""A client of Iceberg REST catalogs that takes few settings from the server, and no code.

A server could otherwise name a class to import, another server, or a huge answer. See SECURITY.md.
"""

import time
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from requests import PreparedRequest, Response, Session
from requests.exceptions import ContentDecodingError, ReadTimeout

from paimon_orch.errors import NotAllowedError

_CONNECT_TIMEOUT, _READ_TIMEOUT = 10.0, 180.0
"""The longest wait for a connection, and for the next bytes of an answer, in seconds."""
_MAX_ANSWER_BYTES, _CHUNK_BYTES = 256 << 20, 1 << 16
_SERVED = ("prefix", "namespace-separator", "token")
"""The properties that the configuration of a server may set."""


class ConfinedRestCatalog(RestCatalog):
    """A client of one server; see the module."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        timeouts = _CONNECT_TIMEOUT, _READ_TIMEOUT  # pyiceberg would wait forever
        session.request = partial(session.request, timeout=timeouts)  # type: ignore[method-assign]
        session.send = partial(_send_within_limits, session.send)  # type: ignore[method-assign]
        session.get_redirect_target = _find_no_target  # type: ignore[assignment]
        return session

    def _fetch_config(self) -> None:
        own = self.properties
        super()._fetch_config()
        served = self.properties
        self.properties = own | {key: served[key] for key in _SERVED if key in served}
        if urlsplit(self.uri).hostname != urlsplit(own["uri"]).hostname:
            raise NotAllowedError(
                "the configuration of the Iceberg REST catalog names another server, "
                f"{urlsplit(self.uri).hostname}, which is not used; set it in the options"
            )

    def _load_file_io(self, *_args: object, **_kwargs: object) -> FileIO:
        return _NoFiles()


class _NoFiles(FileIO):
    """Opens no files: this library reads and writes the metadata itself."""

    def new_input(self, location: str) -> InputFile:
        raise NotImplementedError(location)

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError(location)


def _find_no_target(_response: Response) -> None:
    """Follow no redirect: its target is a host that nobody has allowed."""


def _send_within_limits(send: Any, request: PreparedRequest, **settings: Any) -> Response:
    response: Response = send(request, **settings | {"stream": True, "allow_redirects": False})
    deadline = time.monotonic() + _READ_TIMEOUT
    body = bytearray()
    with response:
        for chunk in response.iter_content(_CHUNK_BYTES):
            body += chunk
            if len(body) > _MAX_ANSWER_BYTES:
                raise ContentDecodingError(f"the answer has more than {_MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise ReadTimeout(f"the answer is not complete after {_READ_TIMEOUT:g} seconds")
    response._content = bytes(body)  # noqa: SLF001 - requests has no method for a limited read
    return response
