"""What a table needs of its catalog: locks, commits, and reports of partitions.

The catalogs implement these protocols. The objects are pickled with the table for Spark tasks, and
must not show secrets in their ``repr``. See docs/format/catalogs.md.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.permissions import NO_PERMISSIONS, TablePermissions


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatistics:
    """The files of a partition: totals, or the changes of one commit, which may be negative."""

    spec: Mapping[str, str]
    """The values by partition column, as in the partition's path; null has its default name."""
    record_count: int
    file_size: int
    """Bytes."""
    file_count: int
    last_file_creation_millis: int
    """The time of the newest file, in epoch milliseconds."""
    total_buckets: int


class CommitLock(Protocol):
    """The lock of one table, which all committers hold while they create a snapshot or schema."""

    def hold(self) -> AbstractContextManager[None]:
        """Wait for the lock, and release it at the end.

        Raises :class:`LockTimeoutError` if other committers hold it too long.
        """
        ...


class SnapshotsNotServedError(UnsupportedError):
    """The catalog makes the commits, but does not say which snapshot is the newest."""


class CatalogSnapshots(Protocol):
    """The snapshots of one table and branch in a catalog that makes the commits itself."""

    def of_branch(self, branch: str) -> "CatalogSnapshots":
        """Return the snapshots of another branch of the same table."""
        ...

    def load_latest(self) -> Snapshot | None:
        """Return the newest snapshot, or None if the table has none.

        Raises :class:`SnapshotsNotServedError` if the snapshot files have to be read instead.
        """
        ...

    def commit(
        self,
        snapshot: Snapshot,
        base: Snapshot | None,
        statistics: Sequence[PartitionStatistics],
    ) -> bool:
        """Add a snapshot after ``base``; return False if another commit was first.

        ``statistics`` are the changes of this commit. Raises :class:`StorageError` if the catalog
        may have added the snapshot, and another error if it has not.
        """
        ...

    def rollback(self, snapshot: Snapshot, tag: str | None) -> None:
        """Make an older snapshot, which may exist only as a tag, the newest one."""
        ...


class PartitionMarks(Protocol):
    """Reports complete partitions of one table to its catalog."""

    def mark_done(self, specs: Sequence[Mapping[str, str]]) -> None:
        """Report that partitions are complete; partitions that the catalog lacks are ignored."""
        ...


class CatalogBranches(Protocol):
    """The branches of one table in a catalog that creates and deletes them itself."""

    def create(self, name: str, tag: str | None) -> None:
        """Create a branch, from a tag or without rows."""
        ...

    def delete(self, name: str) -> None:
        """Delete a branch."""
        ...

    def fast_forward(self, name: str) -> None:
        """Move main to the state of a branch."""
        ...


class CatalogPartitions(Protocol):
    """The partitions that a catalog lists for one table, such as those of a Hive metastore.

    Values are the text of the partition's path before it is escaped. A spec has all partition
    columns in their order. The exception are tags that the catalog shows as partitions: their
    spec has one key, the column that the option ``metastore.tag-to-partition`` names. The callers
    check the options of the table, so an implementation does what it is asked.
    """

    def list(self) -> list[dict[str, str]]:
        """Return all partitions of the catalog, in any order."""
        ...

    def add(self, specs: Sequence[Mapping[str, str]]) -> None:
        """Add partitions, located in their directories of data files; existing ones are kept."""
        ...

    def drop(self, specs: Sequence[Mapping[str, str]]) -> None:
        """Drop partitions but no files; missing ones are not an error."""
        ...

    def update_statistics(self, statistics: Sequence[PartitionStatistics]) -> None:
        """Replace the statistics of partitions by new totals; missing partitions are ignored."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEnvironment:
    """The catalog of a table, as far as the table needs it."""

    snapshots: CatalogSnapshots | None = None
    """Set if the catalog makes the commits; else a commit creates a snapshot file."""
    branches: CatalogBranches | None = None
    """Set if the catalog creates and deletes branches; else they are directories."""
    lock: CommitLock | None = None
    """Set if committers take a lock."""
    partitions: CatalogPartitions | None = None
    """Set if partitions are added to the catalog and dropped from it, as in a Hive metastore."""
    marks: PartitionMarks | None = None
    """Set if complete partitions can be reported to the catalog."""
    is_service: bool = False
    """Whether a catalog service loaded the table: a REST server, a metastore or a database.

    Such a catalog knows whether it lists partitions. A table of a plain directory may belong to a
    metastore that this process does not know.
    """

    permissions: TablePermissions = NO_PERMISSIONS
    """What tables may use outside of their directories."""

    command_argument: str | None = None
    """How the command line names the catalog; None for the warehouse of the table's path."""

    def hold_lock(self) -> AbstractContextManager[None]:
        """Hold the lock of the table, if it has one."""
        return nullcontext() if self.lock is None else self.lock.hold()


NO_CATALOG = CatalogEnvironment()
"""The environment of tables in a plain file system."""
