"""Finds and reads snapshots and tags, and their hint files.

:mod:`paimon_orch.table.commit.commit` creates snapshot files.
See docs/format/snapshot.md#hint-files.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeVar

from paimon_orch.errors import (
    CorruptFileError,
    MissingFileError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    raise_if_temporary,
)
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.snapshot import MAX_LONG, Snapshot
from paimon_orch.safe_text import format_names
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.storage.concurrency import (
    can_overlap,
    map_concurrently,
    read_concurrency,
    start_call,
)
from paimon_orch.table.catalog_environment import CatalogSnapshots, SnapshotsNotServedError
from paimon_orch.table.metadata.metadata_io import (
    list_metadata_directory,
    read_metadata_file,
    wrap_read_errors,
)

T = TypeVar("T")

SNAPSHOT_PREFIX = "snapshot-"
TAG_PREFIX = "tag-"
LATEST = "LATEST"
EARLIEST = "EARLIEST"
_NONE: Final = MappingProxyType[Any, Any]({})
_MAX_HINT_READS = 3
_MAX_LONG_DIGITS = len(str(MAX_LONG))


def list_numbered_files(io: FileIO, directory: str, prefix: str) -> list[int]:
    """Return the sorted numbers of the files ``<prefix><number>`` in a directory.

    Raises :class:`CorruptFileError` for a number that Java cannot read.
    """
    return sorted(number_files(list_metadata_directory(io, directory), prefix))


def number_files(entries: Iterable[FileInfo], prefix: str) -> dict[int, FileInfo]:
    """Return the files ``<prefix><number>`` of a listing by number.

    Raises :class:`CorruptFileError` for a number that Java cannot read.
    """
    suffixes = {
        info.name.removeprefix(prefix): info for info in entries if info.name.startswith(prefix)
    }
    files = {text: info for text, info in suffixes.items() if text.isascii() and text.isdigit()}
    for text, info in files.items():
        if len(text) >= _MAX_LONG_DIGITS and int(text) > MAX_LONG:
            raise CorruptFileError(
                info.path,
                f"has a number above {MAX_LONG}, the largest that Java can read; move the file "
                "out of the table",
            )
    return {int(text): info for text, info in files.items()}


def list_tag_files(io: FileIO, paths: TablePaths) -> list[FileInfo]:
    """Return the files of all tags of a branch, sorted by name."""
    return select_tag_files(list_metadata_directory(io, paths.tag_dir))


def select_tag_files(entries: Iterable[FileInfo]) -> list[FileInfo]:
    """Return the files of tags in a listing, sorted by name."""
    # The directory tag-success-file contains files of the option 'tag.create-success-file'.
    files = (info for info in entries if not info.is_dir)
    tags = (info for info in files if info.name.startswith(TAG_PREFIX))
    return sorted(tags, key=lambda info: info.name)


def read_hint(io: FileIO, path: str) -> int | None:
    """Return the number in a hint file, or None if it is missing or not a positive number.

    Raises :class:`StorageError` after a temporary error: a listing would also fail.
    """
    try:
        text = io.read_bytes(path).strip()
    except (OSError, ValueError, CorruptFileError, StorageError) as error:
        raise_if_temporary(error)
        return None
    number = int(text) if text.isdigit() and len(text) < 19 else 0
    return number if number > 0 else None


def describe_lost_snapshot(hint: int, newest: int) -> str:
    """Describe a LATEST hint that refers to a missing snapshot, and the ways to fix it."""
    existing = f"the newest existing snapshot is {newest}" if newest else "no snapshot exists"
    advice = (
        f"or roll back to snapshot {newest} and lose the later commits"
        if newest
        else "or delete LATEST if the table never had rows"
    )
    return f"is missing, but LATEST names snapshot {hint}; {existing}. Restore the file, {advice}"


def hides_snapshots(hint: int, ids: Collection[int]) -> bool:
    """Return whether readers take the snapshot of LATEST for the newest one, but it is not.

    A slow writer may have created it after the one with its id had expired. See
    docs/format/commit.md#late-creation.
    """
    return hint in ids and hint + 1 not in ids and hint < max(ids)


def describe_hidden_snapshots(hint: int, newest: int) -> str:
    """Describe a LATEST hint that hides later snapshots."""
    return (
        f"LATEST names snapshot {hint}, and there is no snapshot {hint + 1}, so readers do not see "
        f"the later snapshots up to {newest}. A slow writer may have created snapshot {hint} after "
        "the one with this id had expired; then no other snapshot has its rows: write them again"
    )


@dataclass(slots=True)
class LatestHint:
    """The hint LATEST that showed that a table exists, for the first load of the table.

    It may be old: the load looks for newer snapshots, as it does after it has read the hint.
    """

    snapshot_id: int | None = None

    def take(self) -> int | None:
        """Return the hint once, as later loads find another one."""
        taken, self.snapshot_id = self.snapshot_id, None
        return taken


@dataclass(frozen=True, slots=True)
class SnapshotStore:
    """The snapshots of one table and branch."""

    io: FileIO
    paths: TablePaths
    catalog: CatalogSnapshots | None = None
    """The catalog that makes the commits; it then decides which snapshot is the newest."""

    def path(self, snapshot_id: int) -> str:
        """Return the path of a snapshot file."""
        return f"{self.paths.snapshot_dir}/{SNAPSHOT_PREFIX}{snapshot_id}"

    def exists(self, snapshot_id: int) -> bool:
        """Return whether a snapshot file exists."""
        path = self.path(snapshot_id)
        with wrap_read_errors(path):
            return self.io.file_exists(path)

    def latest_id(self) -> int | None:
        """Return the newest snapshot id, or None if the table is empty.

        A missing or stale hint is ignored. Raises :class:`MissingFileError` if LATEST names a
        missing snapshot that is newer than all others; as in Java Paimon, no older snapshot is
        read instead.
        """
        if self.catalog is not None:
            with suppress(SnapshotsNotServedError):
                latest = self.catalog.load_latest()
                return None if latest is None else latest.id
        newest = self._find_newest(lambda number: self.exists(number) or None)
        return None if newest is None else newest[0]

    def _find_newest(self, look_up: Callable[[int], T | None]) -> tuple[int, T] | None:
        """Return the id of the newest snapshot file, and what ``look_up`` returns for it.

        ``look_up`` returns None for an id without a file. In most cases it is called for the hint
        and for the next id, at the same time.
        """
        hint = self.hint(LATEST)
        for _ in range(_MAX_HINT_READS):
            if hint is None:
                break
            at_hint, after_hint = map_concurrently(self.io, look_up, (hint, hint + 1))
            if after_hint is not None:
                break
            if at_hint is not None:
                return hint, at_hint
            newest = max(self.ids(), default=0)
            if newest >= hint:
                return self._look_up_listed(newest, look_up)
            previous, hint = hint, self.hint(LATEST)
            if hint == previous:  # if the hint has changed, a rollback deleted the snapshot
                raise MissingFileError(self.path(hint), describe_lost_snapshot(hint, newest))
        newest = max(self.ids(), default=0)
        return self._look_up_listed(newest, look_up) if newest else None

    def _look_up_listed(self, newest: int, look_up: Callable[[int], T | None]) -> tuple[int, T]:
        result = look_up(newest)
        if result is None:
            raise self._build_not_found_error(newest)
        return newest, result

    def require_latest_file(self, known_id: int | None = None) -> None:
        """Refuse to delete files if the newest snapshot of the catalog cannot be read as a file.

        Its files would look unreferenced. ``known_id`` was the newest id at an earlier time; if it
        still is, all requests are sent at once. Raises :class:`UnsupportedError`, and without a
        catalog the same errors as :meth:`latest_id`.
        """
        if known_id is not None and self.catalog is None:
            read_hint = start_call(self.io, partial(self.hint, LATEST))
            exist = list(map_concurrently(self.io, self.exists, (known_id, known_id + 1)))
            if read_hint() == known_id and exist == [True, False]:
                return
        self.require_file(self.latest_id())

    def require_file(self, latest: int | None) -> None:
        """Refuse as :meth:`require_latest_file`, for the newest snapshot that was just read."""
        if self.catalog is not None and latest is not None and not self.exists(latest):
            raise UnsupportedError(
                f"{self.paths.root}: no file was deleted, because {self.path(latest)} does not "
                "exist, although the catalog has this snapshot. Delete files with the means of the "
                "catalog."
            )

    def earliest_id(self) -> int | None:
        """Return the oldest snapshot id that is not expired, or None if the table is empty."""
        hint = self.hint(EARLIEST)
        if hint is not None and self.exists(hint):
            return hint
        return min(self.ids(), default=None)

    def hint(self, name: str) -> int | None:
        """Return the number in a hint file, or None if it is missing or not a positive number."""
        return read_hint(self.io, f"{self.paths.snapshot_dir}/{name}")

    def ids(self) -> list[int]:
        """List all snapshot ids, ascending."""
        return sorted(number_files(self._list_directory(), SNAPSHOT_PREFIX))

    def list_retained_ids(self) -> list[int]:
        """List the ids of snapshots that are not expired, ascending.

        Reads the hint EARLIEST only if the listing has it.
        """
        entries = self._list_directory()
        ids = sorted(number_files(entries, SNAPSHOT_PREFIX))
        hint = self.hint(EARLIEST) if any(info.name == EARLIEST for info in entries) else None
        return ids[ids.index(hint) :] if hint in ids else ids

    def _list_directory(self) -> list[FileInfo]:
        return list_metadata_directory(self.io, self.paths.snapshot_dir)

    def get(self, snapshot_id: int) -> Snapshot:
        """Read one snapshot; raises :class:`NotFoundError`."""
        snapshot = self.find(snapshot_id)
        if snapshot is not None:
            return snapshot
        newest = None if self.catalog is None else self.latest()
        if newest is not None and newest.id == snapshot_id:
            return newest  # not every catalog writes the file of its newest snapshot
        raise self._build_not_found_error(snapshot_id)

    def _build_not_found_error(self, snapshot_id: int) -> NotFoundError:
        ids = self.ids()
        existing = (
            "none" if not ids else f"only {ids[0]}" if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
        )
        return NotFoundError(f"{self.paths.root} has no snapshot {snapshot_id}; it has {existing}")

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Read the file of a snapshot; return None if there is no such file."""
        data = self._read_file(snapshot_id)
        return None if data is None else self._decode(snapshot_id, data)

    def find_many(self, snapshot_ids: Iterable[int]) -> dict[int, Snapshot]:
        """Read the files of snapshots, several at the same time; omit ids without a file."""
        ids = list(snapshot_ids)
        found = zip(ids, map_concurrently(self.io, self.find, ids), strict=True)
        return {number: snapshot for number, snapshot in found if snapshot is not None}

    def _read_file(self, snapshot_id: int) -> bytes | None:
        try:
            return read_metadata_file(self.io, self.path(snapshot_id))
        except FileNotFoundError:
            return None

    def _decode(self, snapshot_id: int, data: bytes) -> Snapshot:
        path = self.path(snapshot_id)
        snapshot = Snapshot.from_json(data, path)
        if snapshot.id != snapshot_id:
            raise CorruptFileError(path, f"contains snapshot {snapshot.id}")
        return snapshot

    def latest(self) -> Snapshot | None:
        """Read the newest snapshot; return None if the table is empty."""
        if self.catalog is not None:
            with suppress(SnapshotsNotServedError):
                return self.catalog.load_latest()
        newest = self._find_newest(self._read_file)
        return None if newest is None else self._decode(*newest)

    def latest_since(
        self, newest_id: int | None, found: Mapping[int, Snapshot | None] = _NONE
    ) -> Snapshot | None:
        """Read the newest snapshot; ``newest_id`` was its id at an earlier time.

        If it still is, these are two requests at once. The snapshot is read again, because after a
        rollback another one can have its id, unless it is one of those that were just ``found``;
        None stands for an id that was just found to have no file.
        """
        if self.catalog is not None:
            return self.latest()
        if newest_id is not None and newest_id + 1 in found and found[newest_id + 1] is None:
            same = found.get(newest_id) or self.find(newest_id)
            if same is not None:
                return same

        def look_up(number: int) -> Snapshot | bytes | None:
            return found.get(number) or self._read_file(number)

        newest: tuple[int, Snapshot | bytes] | None = self._find_newest_since(newest_id, look_up)
        if newest is None:
            return None
        number, content = newest
        return content if isinstance(content, Snapshot) else self._decode(number, content)

    def latest_after(self, known: Snapshot) -> tuple[Snapshot | None, bool]:
        """Read the newest snapshot like :meth:`latest_since`; ``known`` was it at an earlier time.

        The second result is whether the table still has ``known``. If not, it was rolled back or
        created again since, or the snapshot has expired.
        """
        if self.catalog is not None:
            latest = self.latest()
            return latest, latest == known
        contents = dict[int, bytes | None]()

        def look_up(number: int) -> bytes | None:
            contents[number] = self._read_file(number)
            return contents[number]

        newest = self._find_newest_since(known.id, look_up)
        has_known = False
        with suppress(CorruptFileError):  # a newer snapshot counts, even if this one is damaged
            content = contents[known.id]
            has_known = content is not None and self._decode(known.id, content) == known
        return None if newest is None else self._decode(*newest), has_known

    def _find_newest_since(
        self, newest_id: int | None, look_up: Callable[[int], T | None]
    ) -> tuple[int, T] | None:
        """Return the same as :meth:`_find_newest`; look first at an id that was the newest."""
        if newest_id is not None:
            same, later = map_concurrently(self.io, look_up, (newest_id, newest_id + 1))
            if same is not None and later is None:
                return newest_id, same
        return self._find_newest(look_up)

    def walk_back(self) -> Iterator[Snapshot]:
        """Yield the snapshots that are not expired, newest first."""
        latest = self.latest()
        if latest is None:
            return
        yield latest  # not every catalog writes the file of its newest snapshot
        earliest = self.earliest_id()
        if earliest is None:
            return
        for snapshot_id, snapshot in self._find_in_turn(range(latest.id - 1, earliest - 1, -1)):
            if snapshot is None:
                yield from self._walk_listed(earliest, snapshot_id)
                return
            yield snapshot

    def _walk_listed(self, earliest: int, end: int) -> Iterator[Snapshot]:
        """Yield the snapshots before a gap, which may be of any length, newest first."""
        ids = (number for number in reversed(self.ids()) if earliest <= number < end)
        yield from (found for _, found in self._find_in_turn(ids) if found is not None)

    def _find_in_turn(self, ids: Iterable[int]) -> Iterator[tuple[int, Snapshot | None]]:
        """Yield the result of :meth:`find` for each id; reads ahead, at first one snapshot only.

        Most walks end after a few snapshots. The error of one is raised when it is its turn.
        """
        remaining, pending, ahead = iter(ids), deque[tuple[int, Callable[[], Snapshot | None]]](), 1
        while True:
            for number in islice(remaining, ahead - len(pending)):
                pending.append((number, start_call(self.io, partial(self.find, number))))
            if not pending:
                return
            number, find = pending.popleft()
            yield number, find()
            ahead = min(2 * ahead, read_concurrency()) if can_overlap(self.io) else 1

    def tag(self, name: str) -> Snapshot:
        """Read the snapshot of a tag; raises :class:`NotFoundError`."""
        path = f"{self.paths.tag_dir}/tag-{name}"
        try:
            data = read_metadata_file(self.io, path)
        except FileNotFoundError:
            raise NotFoundError(
                f"{self.paths.root} has no tag {name!r}; it has {format_names(self.tags())}"
            ) from None
        return Snapshot.from_json(data, path)

    def tags(self) -> list[str]:
        """Return the names of all tags, sorted."""
        files = list_tag_files(self.io, self.paths)
        return [info.name.removeprefix(TAG_PREFIX) for info in files]

    def write_hint(self, name: str, snapshot_id: int) -> None:
        """Overwrite a hint file."""
        self.io.write(f"{self.paths.snapshot_dir}/{name}", str(snapshot_id).encode())
