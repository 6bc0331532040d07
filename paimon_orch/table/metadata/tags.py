"""Tags: names of snapshots, which keep the files of these snapshots.

See docs/format/tags-branches-consumers.md#overview-of-the-files and
docs/format/rollback.md#rollback-in-the-format.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from paimon_orch.errors import InputError, NotFoundError, wrap_decode_errors
from paimon_orch.format.argument_checks import check_text, to_whole_number
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.text import encode_json, parse_json_object
from paimon_orch.format.times import parse_duration
from paimon_orch.retry_policy import EXPIRED_READ
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.metadata.metadata_io import read_json_to_copy
from paimon_orch.table.metadata.name_lookup import check_path_component, resolve_name
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.metadata.time_travel import SnapshotSelector

_TAG_NAME = re.compile(r"[^/\\\x00-\x1f]*[^/\\\s\x00-\x1f][^/\\\x00-\x1f]*")
_CREATE_TIME_KEY, _TIME_RETAINED_KEY = "tagCreateTime", "tagTimeRetained"


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of one table or branch. Files of a tagged snapshot are kept when it expires.

    >>> table.tags.create("2026-01-31", time_retained=timedelta(days=30))
    >>> table.scan(tag="2026-01-31")
    """

    snapshots: SnapshotStore
    clock: Callable[[], datetime] = datetime.now
    check: Callable[[], None] = lambda: None
    """Raises an error if the table's options forbid changes of tags."""
    on_change: Callable[[str | None, str | None], None] = lambda _created, _deleted: None
    """Called with the created and the deleted tag after each change; must not raise an error."""

    def names(self) -> list[str]:
        """Return the names of all tags, sorted."""
        return self.snapshots.tags()

    def get(self, name: str) -> Snapshot:
        """Return the snapshot of a tag; raises :class:`NotFoundError`."""
        return self.snapshots.tag(check_path_component("tag", name))

    def find(self, text: str) -> str:
        """Return the name of the tag that a user means; see :func:`resolve_name`."""
        return resolve_name("tag", text, self.names)

    def path(self, name: str) -> str:
        """Return the path of a tag; raises :class:`InputError` if no file can have its name.

        Other writers may create tags with names that :meth:`create` refuses.
        """
        return f"{self.snapshots.paths.tag_dir}/tag-{check_path_component('tag', name)}"

    def check_unused(self, name: str) -> None:
        """Raise :class:`InputError` for a name that no new tag can have, or that a tag has."""
        if self.snapshots.io.file_exists(self._get_new_path(name)):
            raise self._build_used_error(name)

    def _build_used_error(self, name: str) -> InputError:
        return InputError(
            f"{self.snapshots.paths.root} already has a tag {name!r}; delete or replace it"
        )

    def _get_new_path(self, name: str) -> str:
        """Return the path of a new tag; raises :class:`InputError` for an invalid name."""
        check_text("a tag name", name, "2026-01-31")
        if not _TAG_NAME.fullmatch(name):
            raise InputError(f"tag name {name!r} must not be blank or contain a slash")
        return self.path(name)

    def create(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        time_retained: timedelta | None = None,
    ) -> Snapshot:
        """Tag a snapshot, by default the newest, also if this expires meanwhile.

        An expired snapshot can be tagged only if it has another tag.
        """
        self.check()
        path = self._get_new_path(name)

        def create() -> Snapshot:
            snapshot, data = self._build_content(snapshot_id, time_retained)
            if not self.snapshots.io.create(path, data):
                raise self._build_used_error(name)
            if not self._is_kept(snapshot.id, exclude=name):
                self.snapshots.io.delete(path)
                raise _build_expired_error(snapshot)
            return snapshot

        snapshot = _call_for_newest(create, snapshot_id)
        self.on_change(name, None)
        return snapshot

    def replace(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        time_retained: timedelta | None = None,
    ) -> Snapshot:
        """Change the snapshot (default: the newest) or the retention time of an existing tag."""
        self.check()
        old = self.get(name)
        io, path = self.snapshots.io, self.path(name)
        previous = read_json_to_copy(io, path)

        def replace() -> Snapshot:
            snapshot, data = self._build_content(snapshot_id, time_retained)
            if unknown := self._find_unknown_keys(old):
                data = _encode_tag({**unknown, **_parse_json_object(data, path)})
            io.write(path, data)
            if not self._is_kept(snapshot.id, exclude=name):
                io.write(path, previous)
                raise _build_expired_error(snapshot)
            return snapshot

        snapshot = _call_for_newest(replace, snapshot_id)
        self.on_change(name, None)
        return snapshot

    def _find_unknown_keys(self, tagged: Snapshot) -> dict[str, Any]:
        """Return the unknown keys of a tag that its snapshot does not have."""
        snapshot, keys = self.snapshots.find(tagged.id), tagged.inherited
        own = {} if snapshot is None else snapshot.additional
        names = keys.keys() - own.keys() - {_CREATE_TIME_KEY, _TIME_RETAINED_KEY}
        return {name: item for name, item in keys.items() if name in names}

    def rename(self, name: str, to: str) -> None:
        """Rename a tag to an unused name. If the call failed, repeat it to complete the rename."""
        self.check()
        self.get(name)
        io, path = self.snapshots.io, self._get_new_path(to)
        data = read_json_to_copy(io, self.path(name))
        # An interrupted rename has written a file with equal content.
        if name == to or not (io.create(path, data) or io.read_bytes(path) == data):
            raise InputError(f"{self.snapshots.paths.root} already has a tag {to!r}")
        io.delete(self.path(name))
        self.on_change(to, name)

    def delete(self, name: str) -> None:
        """Delete a tag. Files that only it referred to are deleted as orphan files later."""
        self.check()
        self.get(name)
        self.snapshots.io.delete(self.path(name))
        self.on_change(None, name)

    def _is_kept(self, snapshot_id: int, *, exclude: str) -> bool:
        """Return whether a snapshot has not expired, or has a tag other than ``exclude``.

        Call this after writing a tag: an expiration moves the hint EARLIEST, then reads the tags,
        then deletes files.
        """
        store = self.snapshots
        if snapshot_id >= (store.earliest_id() or 0) and store.exists(snapshot_id):
            return True
        return self._find_tag_of(snapshot_id, exclude=exclude) is not None

    def _find_tag_of(self, snapshot_id: int, *, exclude: str = "") -> str | None:
        """Return a tag of a snapshot other than ``exclude``, or None if it has no such tag."""
        names = [name for name in self.names() if name != exclude]
        tagged = map_concurrently(self.snapshots.io, self.snapshots.tag, names)
        for name, snapshot in zip(names, tagged, strict=True):
            if snapshot.id == snapshot_id:
                return name
        return None

    def find_snapshot(self, snapshot_id: int | None) -> Snapshot:
        """Return the snapshot that a new tag would keep, by default the newest.

        Raises :class:`NotFoundError` if the table is empty, or if the snapshot has expired and has
        no tag.
        """
        return self._find_snapshot(snapshot_id)[0]

    def _find_snapshot(self, snapshot_id: int | None) -> tuple[Snapshot, str | None]:
        """Return a snapshot; if it has expired, also the name of a tag that has it."""
        store, snapshot_id = self.snapshots, to_whole_number("snapshot_id", snapshot_id)
        expired = snapshot_id is not None and not store.exists(snapshot_id)
        other_tag = None if snapshot_id is None or not expired else self._find_tag_of(snapshot_id)
        selector = SnapshotSelector(snapshot_id if other_tag is None else None, other_tag)
        snapshot = selector.find(store)
        if snapshot is None:
            raise NotFoundError(f"{store.paths.root} has no snapshot to tag: the table is empty")
        return snapshot, other_tag

    def _build_content(
        self, snapshot_id: int | None, time_retained: timedelta | None
    ) -> tuple[Snapshot, bytes]:
        store = self.snapshots
        snapshot, other_tag = self._find_snapshot(snapshot_id)
        if other_tag is None:
            try:
                data = read_json_to_copy(store.io, store.path(snapshot.id))
            except FileNotFoundError as error:
                raise _build_expired_error(snapshot) from error
        else:
            data = extract_snapshot(store.io.read_bytes(self.path(other_tag)), self.path(other_tag))
        if time_retained is None:
            return snapshot, data
        value = _parse_json_object(data, store.path(snapshot.id))
        retained = parse_duration("time_retained", time_retained)
        return snapshot, self._encode_with_retention(value, retained)

    def _encode_with_retention(self, value: dict[str, Any], time_retained: timedelta) -> bytes:
        if time_retained <= timedelta(0):
            raise InputError(f"a tag cannot be retained for {time_retained}; give a positive time")
        value[_CREATE_TIME_KEY] = _encode_local_time(self.clock())
        value[_TIME_RETAINED_KEY] = time_retained.total_seconds()
        return _encode_tag(value)


class _ExpiredError(NotFoundError):
    """The snapshot to tag expired."""


def _build_expired_error(snapshot: Snapshot) -> _ExpiredError:
    return _ExpiredError(f"snapshot {snapshot.id} expired while the tag was created")


def _call_for_newest(function: Callable[[], Snapshot], snapshot_id: int | None) -> Snapshot:
    """Call a function, and again if it tags the newest snapshot and this has expired."""
    return EXPIRED_READ.call(
        function, retry_on=lambda error: snapshot_id is None and isinstance(error, _ExpiredError)
    )


def _parse_json_object(data: bytes, path: str) -> dict[str, Any]:
    with wrap_decode_errors(path):
        return parse_json_object(data)


def _encode_local_time(moment: datetime) -> list[int]:
    """Return a local time as Java's Jackson writes it: without seconds and nanoseconds if 0."""
    parts = [moment.year, moment.month, moment.day, moment.hour, moment.minute]
    nanos = moment.microsecond * 1000
    return [
        *parts,
        *([moment.second] if moment.second or nanos else []),
        *([nanos] if nanos else []),
    ]


def parse_tag_time(value: object) -> datetime | None:
    """Return a local time, stored as ISO 8601 or as a list of year, month ... nanoseconds."""
    if value is None:
        return None
    if isinstance(value, str):
        return datetime.fromisoformat(value).replace(tzinfo=None)
    if not isinstance(value, list) or not all(isinstance(part, int) for part in value):
        raise ValueError(f"{value!r} is not a time")
    year, month, day, hour, minute, second, nanos = [*value, 0, 0, 0, 0, 0][:7]
    return datetime(year, month, day, hour, minute, second, nanos // 1000)


def extract_snapshot(data: bytes, path: str) -> bytes:
    """Return the snapshot file from which a tag file was created."""
    value = _parse_json_object(data, path)
    snapshot_fields = {
        key: item
        for key, item in value.items()
        if key not in (_CREATE_TIME_KEY, _TIME_RETAINED_KEY)
    }
    return _encode_tag(snapshot_fields)


def _encode_tag(value: Mapping[str, Any]) -> bytes:
    return encode_json(value)
