"""The cursor of a sensor: its position in the snapshots of a table, and partitions to revisit."""

import json
import time
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from paimon_orch.errors import InputError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.orchestration.partition_keys import parse_partition_path
from paimon_orch.table.table_stores import TableStores

CURSOR_VERSION = 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SnapshotIdentity:
    """The id and commit time of a snapshot; ids may be reused after a rollback."""

    snapshot_id: int
    time_millis: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> "SnapshotIdentity":
        """Return the identity of a snapshot."""
        return cls(snapshot.id, snapshot.time_millis)

    def __str__(self) -> str:
        return f"{self.snapshot_id}@{self.time_millis}"


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a sensor in the snapshots of a table."""

    table: str
    """The identity of the table; see :func:`get_table_identity`."""
    handled: SnapshotIdentity
    """The newest evaluated snapshot: its partitions were requested or are in :attr:`pending`."""
    pending: dict[str, str] = field(default_factory=dict)
    """Partitions that are not requested yet: run key suffixes by path."""
    waiting: dict[str, int] = field(default_factory=dict)
    """Partitions below all thresholds, or already requested: start of waiting by path, in epoch ms.

    They are evaluated again after ``max_wait``, even without a new commit.
    """

    def find_overdue(self, max_wait_millis: int) -> set[str]:
        """Return the paths that have waited for at least this time."""
        latest_start = now_millis() - max_wait_millis
        return {path for path, since in self.waiting.items() if since <= latest_start}

    def to_json(self) -> str:
        """Encode the cursor with the version of its format."""
        return json.dumps({"v": CURSOR_VERSION, **asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | None) -> "Cursor | None":
        """Decode a cursor, or return None if the cursor has another format."""
        try:
            stored = json.loads(text or "")
            if stored["v"] != CURSOR_VERSION:
                return None
            handled = stored["handled"]
            cursor = cls(
                table=_check_type(stored["table"], str),
                handled=SnapshotIdentity(
                    _check_type(handled["snapshot_id"], int),
                    _check_type(handled["time_millis"], int),
                ),
                pending=_check_values(stored.get("pending", {}), str),
                waiting=_check_values(stored.get("waiting", {}), int),
            )
            for path in {*cursor.pending, *cursor.waiting} - {""}:
                parse_partition_path(path)
        except (ValueError, TypeError, KeyError, RecursionError, InputError):
            return None
        return cursor


def _check_type(value: object, kind: type[T]) -> T:
    """Return the value; raises :class:`TypeError` if it has another type, such as ``bool``."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of the type {kind.__name__}")
    return value


def _check_values(mapping: object, kind: type[T]) -> dict[str, T]:
    return {key: _check_type(value, kind) for key, value in _check_type(mapping, dict).items()}


def get_table_identity(stores: TableStores) -> str:
    """Return a string that identifies a table; it changes if the table is recreated."""
    return f"{stores.paths.branch_root}@{stores.schemas.earliest().time_millis}"


def now_millis() -> int:
    """Return the current time in epoch milliseconds."""
    return int(time.time() * 1000)
