"""What a publication needs to know of the table.

See docs/format/iceberg-metadata.md#publishing.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from paimon_orch.errors import NotFoundError
from paimon_orch.format.iceberg.iceberg_metadata import IcebergSnapshot
from paimon_orch.format.options.core_options import (
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
    SNAPSHOT_TIME_RETAINED,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage.concurrency import map_concurrently, start_call
from paimon_orch.table.iceberg.iceberg_settings import IcebergSettings, build_iceberg_settings
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST, SnapshotStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationInput:
    """The newest snapshot and schema of a table, and what it retains."""

    schema: TableSchema
    settings: IcebergSettings
    latest: Snapshot
    earliest_hint: int | None
    """The hint EARLIEST, which an expiration moves before it deletes files."""
    snapshot_ids: frozenset[int]
    """The ids of the snapshots that are not being expired."""
    tags: Mapping[str, int]
    """The snapshot ids of all tags."""

    def find_tags(self, published: Sequence[IcebergSnapshot]) -> dict[str, int]:
        """Return the tags of published snapshots."""
        ids = {snapshot.id for snapshot in published}
        return {name: number for name, number in self.tags.items() if number in ids}

    def select_retained(self, published: Sequence[IcebergSnapshot]) -> list[IcebergSnapshot]:
        """Return the snapshots to keep: the table has their files, and they have not expired.

        See docs/format/iceberg-metadata.md#expiration-of-metadata.
        """
        options = self.schema.typed_options
        current, tagged = published[-1].id, set(self.tags.values())
        least = options.get(SNAPSHOT_NUM_RETAINED_MIN)
        most = options.get(SNAPSHOT_NUM_RETAINED_MAX)
        retained: timedelta = options.get(SNAPSHOT_TIME_RETAINED)
        oldest_millis = int(time.time() * 1000) - retained // timedelta(milliseconds=1)
        return [
            item
            for item in published
            if item.id == current
            or item.id in tagged
            or (
                item.id in self.snapshot_ids
                and item.id > current - most
                and (item.id > current - least or item.time_millis >= oldest_millis)
            )
        ]


def read_publication_input(
    schemas: SchemaStore, snapshots: SnapshotStore, schema: TableSchema | None = None
) -> PublicationInput | None:
    """Return the state of the table, or None if there is nothing to publish.

    ``schema`` is the newest schema if it was just read.
    """
    schema = schema or schemas.latest()
    settings = build_iceberg_settings(schema, snapshots.paths)
    if settings is None:
        return None
    read_latest = start_call(snapshots.io, snapshots.latest)
    read_hint = start_call(snapshots.io, partial(snapshots.hint, EARLIEST))
    ids, hint = snapshots.ids(), read_hint()
    latest = read_latest()
    if latest is None:
        return None
    earliest = hint if hint in ids else min(ids, default=0)
    tags = snapshots.tags()
    tagged = map_concurrently(snapshots.io, partial(_find_tagged_snapshot, snapshots), tags)
    return PublicationInput(
        schema=schema,
        settings=settings,
        latest=latest,
        earliest_hint=hint,
        snapshot_ids=frozenset(number for number in ids if number >= earliest),
        tags={name: id_ for name, id_ in zip(tags, tagged, strict=True) if id_ is not None},
    )


def _find_tagged_snapshot(snapshots: SnapshotStore, name: str) -> int | None:
    try:
        return snapshots.tag(name).id
    except NotFoundError:  # it was deleted after it was listed
        return None
