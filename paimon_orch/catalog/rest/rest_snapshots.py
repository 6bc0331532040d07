"""The snapshots of a table whose REST server makes the commits.

See docs/format/catalogs.md#commits-through-a-rest-catalog.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.catalog.rest import resource_paths
from paimon_orch.catalog.rest.answer_fields import read_flag, read_object
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.catalog.rest.rest_errors import (
    RestError,
    RestNotFoundError,
    RestUnsupportedError,
    refuse_unserved,
)
from paimon_orch.errors import AlreadyExistsError, CommitOutcomeUnknownError, CorruptFileError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.catalog_environment import PartitionStatistics, SnapshotsNotServedError

_SNAPSHOT_RESOURCE = "SNAPSHOT"
_UUID = "uuid"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSnapshots:
    """The snapshots of one table or branch on a server."""

    client: RestClient
    identifier: TableIdentifier
    table_id: str
    """The UUID of the table; the server refuses commits to another table with the same name."""

    def of_branch(self, branch: str) -> "RestSnapshots":
        """Return the snapshots of another branch of the same table."""
        return replace(self, identifier=replace(self.identifier, branch=branch))

    def load_latest(self) -> Snapshot | None:
        """Ask for the newest snapshot; one request."""
        return load_latest_snapshot(self.client, self.identifier)

    def commit(
        self,
        snapshot: Snapshot,
        base: Snapshot | None,
        statistics: Sequence[PartitionStatistics],
    ) -> bool:
        """Post a snapshot; return False if the server has a newer one than ``base``.

        Raises :class:`CommitOutcomeUnknownError` if the answer is lost or a failure of the server.
        """
        path = _build_path(self.identifier, "commit")
        base_uuid = None if base is None else base.additional.get(_UUID)
        content = json.loads(snapshot.to_json())
        if base_uuid is not None:
            # Servers of Paimon 2 compare it with the base of the next commit. Clients of Paimon 1
            # send no base, so they could not commit after the first snapshot with a UUID.
            content[_UUID] = str(uuid4())
        body = {
            "tableId": self.table_id,
            "baseSnapshotUuid": base_uuid,
            "snapshot": content,
            "statistics": [_encode_statistics(change) for change in statistics],
        }
        try:
            return read_flag(self.client.post(path, body), "success", path)
        except AlreadyExistsError:
            return False  # status 409: another commit was first
        except RestError as error:
            if not error.outcome_unknown and not isinstance(error, CorruptFileError):
                raise
            raise CommitOutcomeUnknownError(
                f"{self.identifier}: it is not known whether the server committed snapshot "
                f"{snapshot.id} ({error})"
            ) from error

    def rollback(self, snapshot: Snapshot, tag: str | None) -> None:
        """Ask the server to make an older snapshot the newest; it deletes later ones."""
        target: dict[str, Any] = {"type": "snapshot", "snapshotId": snapshot.id}
        if tag is not None:
            target = {"type": "tag", "tagName": tag}
        path = _build_path(self.identifier, "rollback")
        with refuse_unserved("rollbacks"):
            self.client.post(path, {"instant": target, "fromSnapshot": None})


def load_latest_snapshot(client: RestClient, identifier: TableIdentifier) -> Snapshot | None:
    """Ask for the newest snapshot of a table; return None if it has none.

    Raises :class:`NotFoundError` if there is no such table, and
    :class:`SnapshotsNotServedError` if the server does not answer this question.
    """
    path = _build_path(identifier, "snapshot")
    try:
        answer = client.get(path)
    except RestNotFoundError as error:
        if error.resource_type == _SNAPSHOT_RESOURCE:
            return None
        if error.resource_type is None:  # the path does not exist on servers of Paimon 1.2
            raise SnapshotsNotServedError(str(error)) from None
        raise
    except RestUnsupportedError as error:
        raise SnapshotsNotServedError(str(error)) from None
    content = read_object(answer, "snapshot", path)
    if "snapshot" in content:  # the answer counts the rows and files of the snapshot too
        content = read_object(content, "snapshot", path)
    return Snapshot.from_json(json.dumps(content).encode(), path)


def _build_path(identifier: TableIdentifier, action: str) -> str:
    return resource_paths.table(identifier.database, identifier.object_name, action)


def _encode_statistics(change: PartitionStatistics) -> dict[str, Any]:
    return {
        "spec": dict(change.spec),
        "recordCount": change.record_count,
        "fileSizeInBytes": change.file_size,
        "fileCount": change.file_count,
        "lastFileCreationTime": change.last_file_creation_millis,
        "totalBuckets": change.total_buckets,
    }
