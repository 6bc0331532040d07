"""Marks partitions as done, for readers and systems that wait for complete partitions.

See docs/format/procedures.md#mark-partitions-as-done.
"""

import json
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit

from paimon_orch.errors import InputError, StorageError, UnsupportedError, wrap_decode_errors
from paimon_orch.format.options.core_options import (
    METASTORE_PARTITIONED_TABLE,
    PARTITION_MARK_DONE_ACTION,
    PARTITION_MARK_DONE_HTTP_PARAMS,
    PARTITION_MARK_DONE_HTTP_TIMEOUT,
    PARTITION_MARK_DONE_HTTP_URL,
)
from paimon_orch.format.partition_path import build_directory_name
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.text import encode_json, parse_json_object
from paimon_orch.http_answers import limit_answers
from paimon_orch.storage import FileIO
from paimon_orch.table.catalog_environment import CatalogEnvironment
from paimon_orch.table.catalog_reports import mark_name
from paimon_orch.table.permissions import find_mark_requests

SUCCESS_FILE = "_SUCCESS"
"""The file in the directory of a partition that is marked as done."""
_MAX_ANSWER_BYTES, _MAX_SECONDS = 1 << 20, 180.0

PartitionNames = Mapping[str, str]
"""The text of a partition's values by column."""


def format_names(partition: PartitionNames) -> str:
    """Return the path of a partition: ``k1=v1/k2=v2/``."""
    return "".join(f"{build_directory_name(*item)}/" for item in partition.items())


def find_success_file(paths: TablePaths, schema: TableSchema, partition: PartitionNames) -> str:
    """Return the path of the file that marks a partition as done."""
    return f"{paths.root}/{paths.extend_by_partition('', schema, partition)}{SUCCESS_FILE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMarker:
    """Executes the actions of ``partition.mark-done-action`` of one table."""

    identifier: str
    environment: CatalogEnvironment
    schema: TableSchema
    io: FileIO
    paths: TablePaths
    clock: Callable[[], float] = time.time

    @property
    def actions(self) -> list[str]:
        """Return the names of the actions."""
        text = self.schema.typed_options.get(PARTITION_MARK_DONE_ACTION)
        return [name.strip().lower() for name in text.split(",") if name.strip()]

    def check(self) -> None:
        """Refuse actions that cannot be executed.

        Raises :class:`UnsupportedError` with the name of the action, and :class:`InputError` for
        an action or option that is not valid in Java Paimon either.
        """
        if not self.schema.partition_keys:
            raise InputError(f"{self.identifier} has no partition columns, so none can be marked")
        for action in self.actions:
            self.check_action(action)

    def check_action(self, action: str) -> None:
        """Refuse one action; raises the errors of :meth:`check`."""
        options, environment = self.schema.typed_options, self.environment
        named = f"{self.identifier}: {PARTITION_MARK_DONE_ACTION.key!r} = {action!r}"
        match action:
            case "success-file":
                return
            case "http-report":
                url = options.get(PARTITION_MARK_DONE_HTTP_URL) or ""
                if not _is_http_url(url):
                    raise InputError(
                        f"{named} needs an http or https URL without a user in the option "
                        f"{PARTITION_MARK_DONE_HTTP_URL.key!r}, which is {url!r}"
                    )
                environment.permissions.check(self.identifier, find_mark_requests(self.schema))
            case "done-partition" | "mark-event":
                is_done_partition = action == "done-partition"
                service = environment.partitions if is_done_partition else environment.marks
                if service is None:
                    raise UnsupportedError(
                        f"{named} needs a table that was opened through a catalog with partitions, "
                        "such as a Hive metastore. Open the table through its catalog, or remove "
                        "the action."
                    )
                if not options.get(METASTORE_PARTITIONED_TABLE):
                    raise InputError(
                        f"{named} needs the option {METASTORE_PARTITIONED_TABLE.key!r} = 'true'"
                    )
            case "custom":
                raise UnsupportedError(
                    f"{named} names a Java class, which this library cannot run. Use Java Paimon to "
                    "mark partitions, or another action."
                )
            case _:
                raise InputError(
                    f"{named} is unknown; the actions are success-file, done-partition, mark-event "
                    "and http-report"
                )

    def mark(self, partitions: Sequence[PartitionNames]) -> None:
        """Execute all actions for each partition; the partitions need not have rows."""
        self.check()
        for partition in partitions:
            for action in self.actions:
                self._execute(action, partition)

    def _execute(self, action: str, partition: PartitionNames) -> None:
        match action:
            case "success-file":
                self._write_success_file(partition)
            case "done-partition":
                assert self.environment.partitions is not None
                self.environment.partitions.add([mark_name(partition)])
            case "mark-event":
                assert self.environment.marks is not None
                self.environment.marks.mark_done([partition])
            case "http-report":
                self._report_by_http(partition)

    def _write_success_file(self, partition: PartitionNames) -> None:
        path = find_success_file(self.paths, self.schema, partition)
        now = int(self.clock() * 1000)
        created: object = now
        if self.io.exists(path):
            with wrap_decode_errors(path):
                created = parse_json_object(self.io.read_bytes(path)).get("creationTime", now)
        self.io.write(path, encode_json({"creationTime": created, "modificationTime": now}))

    def _report_by_http(self, partition: PartitionNames) -> None:
        options = self.schema.typed_options
        url = options.get(PARTITION_MARK_DONE_HTTP_URL)
        assert url is not None
        body = {
            "params": options.get(PARTITION_MARK_DONE_HTTP_PARAMS),
            "table": self.identifier,
            "path": self.paths.root,
            "partition": format_names(partition),
        }
        request = urllib.request.Request(  # noqa: S310 - check() allows only http and https
            url,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        timeout = options.get(PARTITION_MARK_DONE_HTTP_TIMEOUT).total_seconds()
        try:
            answer = json.loads(_send(request, timeout))
        # a deep answer is a RecursionError, and an answer that is not HTTP an HTTPException
        except (URLError, OSError, ValueError, RecursionError, HTTPException) as error:
            raise StorageError(
                f"{url} did not accept {format_names(partition)}: {error}"
            ) from error
        result = answer.get("result") if isinstance(answer, dict) else None
        if str(result).upper() != "SUCCESS":
            raise StorageError(
                f"{url} did not accept {format_names(partition)}: its answer has the result "
                f"{result!r}, not 'SUCCESS'"
            )


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(valid) and "@" not in parts.netloc and url.isprintable()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        """Take a redirect as an error: its target is a host that nobody has allowed."""


class _LimitedHttp(urllib.request.HTTPHandler):
    def do_open(self, http_class: Any, req: urllib.request.Request, **settings: Any) -> Any:
        """Send a request; its timeout is that of the whole answer."""
        limited: Any = limit_answers(http_class)
        return super().do_open(limited, req, **settings)


class _LimitedHttps(urllib.request.HTTPSHandler):
    def do_open(self, http_class: Any, req: urllib.request.Request, **settings: Any) -> Any:
        """Send a request; its timeout is that of the whole answer."""
        limited: Any = limit_answers(http_class)
        return super().do_open(limited, req, **settings)


def _send(request: urllib.request.Request, timeout: float) -> bytes:
    """Return the answer to a request; a server cannot make it larger or slower than the limits."""
    opener = urllib.request.build_opener(_NoRedirects, _LimitedHttp, _LimitedHttps)
    with opener.open(request, timeout=min(timeout, _MAX_SECONDS)) as response:
        body: bytes = response.read(_MAX_ANSWER_BYTES + 1)
    if len(body) > _MAX_ANSWER_BYTES:
        raise ValueError(f"its answer has more than {_MAX_ANSWER_BYTES} bytes")
    return body
