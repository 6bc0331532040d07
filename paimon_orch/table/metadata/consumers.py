"""Consumers: streaming readers that protect their unread snapshots from expiration.

See docs/format/tags-branches-consumers.md#consumers.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from paimon_orch.errors import InputError, wrap_decode_errors
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import CONSUMER_EXPIRATION_TIME
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.text import parse_integer, parse_json_object, select_names
from paimon_orch.storage import FileIO
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.metadata.name_lookup import check_path_component, resolve_name

_CONSUMER_PREFIX = "consumer-"


@dataclass(frozen=True, slots=True)
class ConsumerStore:
    """The consumers of one table or branch."""

    io: FileIO
    paths: TablePaths
    options: Options
    clock: Callable[[], float] = time.time
    check: Callable[[], None] = lambda: None
    """Raises an error if the table's options forbid changes of consumers."""

    def read_next_snapshots(self) -> dict[str, int]:
        """Return the next snapshot of each consumer, by the path of the consumer file.

        Leaves out expired consumers (``consumer.expiration-time``). Raises
        :class:`CorruptFileError`.
        """
        return self.read_progress()[0]

    def read_progress(self) -> tuple[dict[str, int], list[str]]:
        """Return the next snapshots as above, and the files of expired consumers; lists once."""
        modified = self._list_files()
        expired = self._select_expired(modified)
        return self._read_files([path for path in modified if path not in expired]), expired

    def read_all(self) -> dict[str, int]:
        """Return the next snapshot of each consumer by id, sorted; includes expired consumers.

        Raises :class:`CorruptFileError`.
        """
        by_path = self._read_files(sorted(self._list_files()))
        return {_get_name(path): next_snapshot for path, next_snapshot in by_path.items()}

    def _read_files(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the next snapshots by path; leaves out files that were deleted meanwhile."""
        paths = list(paths)
        found = zip(paths, map_concurrently(self.io, self._read_file, paths), strict=True)
        return {path: number for path, number in found if number is not None}

    def _read_file(self, path: str) -> int | None:
        """Return the next snapshot in a file, or None if there is no such file."""
        try:
            data = self.io.read_bytes(path)
        except FileNotFoundError:
            return None
        with wrap_decode_errors(path):
            return parse_integer(parse_json_object(data)["nextSnapshot"], "nextSnapshot")

    def read_next_snapshot(self, name: str) -> int | None:
        """Return the id of the next snapshot of a consumer, or None for an unknown consumer."""
        return self._read_file(self._get_path(name))

    def record(self, name: str, next_snapshot: int) -> None:
        """Record the next snapshot of a consumer; expiration keeps it and all later ones."""
        if not name:
            raise InputError("the name of a consumer must not be empty")
        self.io.write(self._get_path(name), json.dumps({"nextSnapshot": next_snapshot}).encode())

    def reset(self, name: str, snapshot: Snapshot) -> None:
        """Let a consumer continue with a snapshot that exists; creates an unknown consumer."""
        self.check()
        if "\\" in name and self.read_next_snapshot(name) is None:
            raise InputError(f"the name of a new consumer must not contain a backslash: {name!r}")
        self.record(name, snapshot.id)

    def delete(self, names: Iterable[str]) -> None:
        """Delete consumers, so that their unread snapshots can expire; ignores unknown ones."""
        self.check()
        for path in [self._get_path(name) for name in names]:
            self.io.delete(path)

    def find(self, text: str) -> str:
        """Return the id of the consumer that a user means; see :func:`resolve_name`."""
        return resolve_name("consumer", text, self.find_matching)

    def find_matching(
        self, including: str | None = None, excluding: str | None = None
    ) -> list[str]:
        """Return the sorted ids that match one regular expression and do not match another.

        The expressions must match the whole id; the first default matches all, the second none.
        Raises :class:`InputError` for an invalid expression.
        """
        return select_names(map(_get_name, sorted(self._list_files())), including, excluding)

    def _get_path(self, name: str) -> str:
        check_path_component("consumer", name)
        return f"{self.paths.branch_root}/consumer/{_CONSUMER_PREFIX}{name}"

    def _select_expired(self, files: Mapping[str, float]) -> list[str]:
        """Return the files of consumers that made no progress for ``consumer.expiration-time``."""
        expiration_time = self.options.get(CONSUMER_EXPIRATION_TIME)
        if expiration_time is None:
            return []
        before = self.clock() - expiration_time.total_seconds()
        return [path for path, modified in files.items() if modified < before]

    def _list_files(self) -> dict[str, float]:
        entries = self.io.list_dir(f"{self.paths.branch_root}/consumer")
        return {
            info.path: info.modified
            for info in entries
            if info.name.startswith(_CONSUMER_PREFIX) and not info.is_dir
        }


def _get_name(path: str) -> str:
    return path.rpartition("/")[2].removeprefix(_CONSUMER_PREFIX)
