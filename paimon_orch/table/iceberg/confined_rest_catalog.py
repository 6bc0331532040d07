"""A client of Iceberg REST catalogs that takes few settings from the server, and no code.

A server could otherwise name a class to import, another server, or a huge answer. See SECURITY.md.
"""

from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from requests import PreparedRequest, Response, Session
from requests.exceptions import ContentDecodingError

from paimon_orch.errors import NotAllowedError
from paimon_orch.http_answers import limit_session

_CONNECT_TIMEOUT, _READ_TIMEOUT = 10.0, 180.0
"""The longest wait for a connection, and for a whole answer, in seconds."""
_MAX_ANSWER_BYTES, _CHUNK_BYTES = 256 << 20, 1 << 16
_PORTS = {"http": 80, "https": 443}
_SERVED = ("prefix", "namespace-separator", "token")
"""The properties that the configuration of a server may set."""


class ConfinedRestCatalog(RestCatalog):
    """A client of one server; see the module."""

    def _config_headers(self, session: Session) -> None:
        """Set the headers and limits of a session, before it sends the credentials for a token."""
        super()._config_headers(session)
        timeouts = _CONNECT_TIMEOUT, _READ_TIMEOUT  # pyiceberg would wait forever
        session.request = partial(session.request, timeout=timeouts)  # type: ignore[method-assign]
        session.send = partial(_send_within_limits, session.send)  # type: ignore[method-assign]
        limit_session(session)

    def _fetch_config(self) -> None:
        own = self.properties
        super()._fetch_config()
        served = self.properties
        self.properties = own | {key: served[key] for key in _SERVED if key in served}
        if _find_server(self.uri) != _find_server(own["uri"]):
            raise NotAllowedError(
                "the configuration of the Iceberg REST catalog names another server, "
                f"{self.uri}, which is not used; set it in the options"
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


def _find_server(uri: str) -> tuple[str, str | None, int | None]:
    """Return what identifies a server: the scheme, the host and the port."""
    parts = urlsplit(uri)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _send_within_limits(send: Any, request: PreparedRequest, **settings: Any) -> Response:
    response: Response = send(request, **settings | {"stream": True})
    body = bytearray()
    with response:
        for chunk in response.iter_content(_CHUNK_BYTES):
            body += chunk
            if len(body) > _MAX_ANSWER_BYTES:
                raise ContentDecodingError(f"the answer has more than {_MAX_ANSWER_BYTES} bytes")
    response._content = bytes(body)  # noqa: SLF001 - requests has no method for a limited read
    return response
