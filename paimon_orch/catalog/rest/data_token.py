"""Credentials of the store that a REST server lends for one table.

They expire. Each process renews them, also in Spark tasks.

See docs/format/catalogs.md#data-tokens.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paimon_orch.catalog.rest import resource_paths
from paimon_orch.catalog.rest.answer_fields import read_number, read_options
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.catalog.rest.rest_options import DLF_OSS_ENDPOINT
from paimon_orch.catalog.rest.served_options import select_served_options
from paimon_orch.catalog.store_options import translate_store_options
from paimon_orch.errors import AccessDeniedError, NotFoundError

_MAX_MARGIN_MILLIS = 3_600_000
"""Java Paimon renews a token an hour before it expires."""


@dataclass(frozen=True, slots=True)
class _Token:
    options: Mapping[str, Any]
    renewal_millis: float
    """The time from which the token is renewed, in epoch milliseconds."""


@dataclass(slots=True)
class _Entry:
    token: _Token | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_tokens: dict[tuple[RestClient, str, str, str], _Entry] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTokenCredentials:
    """Loads the options of the store of one table; see :class:`StorageCredentials`."""

    client: RestClient = field(repr=False)
    database: str
    object_name: str
    location: str
    """The path of the table, whose scheme selects the names of the options."""
    clock: Callable[[], float] = time.time

    def load(self) -> Mapping[str, Any]:
        """Return the options of a valid token; asks the server if there is none in this process."""
        now = self.clock() * 1000
        key = self.client, self.database, self.object_name, self.location
        with _lock:
            entry = _tokens.setdefault(key, _Entry())
        with entry.lock:  # tables do not wait for each other
            if entry.token is None or now >= entry.token.renewal_millis:
                entry.token = self._request_token(now)
            return entry.token.options

    def _request_token(self, now_millis: float) -> _Token:
        path = resource_paths.table(self.database, self.object_name, "token")
        try:
            answer = self.client.get(path)
        except NotFoundError as error:
            # Readers of files would take it for a snapshot or schema that does not exist.
            raise AccessDeniedError(
                f"the server lends no credentials for the files of {self.database}."
                f"{self.object_name}: {error}"
            ) from error
        own = self.client.options
        options = select_served_options(read_options(answer, "token", path), own, self.client.uri)
        expires = read_number(answer, "expiresAtMillis", path)
        endpoint = own.get(DLF_OSS_ENDPOINT.key)
        merged = {**own, **options}
        if endpoint:
            merged["fs.oss.endpoint"] = endpoint
        # A token that is valid for an hour or less would be renewed at each use.
        margin = min(_MAX_MARGIN_MILLIS, (expires - now_millis) / 2)
        return _Token(translate_store_options(merged, self.location), expires - margin)
