"""A table in S3 whose REST server keeps its metadata in a local folder and lends keys that expire.

The proxy in front of the server copies the schemas and snapshots, which the server writes, to S3.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.conftest import Bucket
from support.catalogs.rest_proxy import ProxiedRequest, RestProxy

LENT_SECRET = "a-lent-secret-key-9182"  # noqa: S105 - opens nothing
LENT_TOKEN = "a-lent-session-token-7364"  # noqa: S105


@dataclass
class KeyLender:
    """Rewrites the answers of a server for a table in a bucket."""

    proxy: RestProxy
    bucket: Bucket
    seconds: float
    """How long lent keys are valid."""
    lent: list[str] = field(default_factory=list)
    _folder: Path = Path()

    def __post_init__(self) -> None:
        self.proxy.rewrites |= {
            "GET config": self._enable_tokens,
            "GET table": self._move_table,
            "POST commit": self._copy_snapshots,
            "GET token": self._lend_key,
        }

    def _enable_tokens(self, _: ProxiedRequest, answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "overrides": {"data-token.enabled": "true"}}

    def _move_table(self, _: ProxiedRequest, answer: dict[str, Any]) -> dict[str, Any]:
        self._folder = Path(answer["path"].removeprefix("file:"))
        self._copy("schema")
        return {**answer, "path": self._root}

    def _copy_snapshots(self, _: ProxiedRequest, answer: dict[str, Any]) -> dict[str, Any]:
        self._copy("snapshot")
        return answer

    @property
    def _root(self) -> str:
        return f"{self.bucket.root}/db.db/t"

    def _copy(self, directory: str) -> None:
        for path in (self._folder / directory).iterdir():
            self.bucket.io.write(f"{self._root}/{directory}/{path.name}", path.read_bytes())

    def _lend_key(self, _: ProxiedRequest, __: dict[str, Any]) -> dict[str, Any]:
        expires = int((time.time() + self.seconds) * 1000)
        self.lent.append(f"expires-{expires}")
        token = {
            "s3.access-key": self.lent[-1],
            "s3.secret-key": LENT_SECRET,
            "s3.session.token": LENT_TOKEN,
            "s3.endpoint": self.bucket.options["endpoint_url"],
        }
        return {"token": token, "expiresAtMillis": expires}
