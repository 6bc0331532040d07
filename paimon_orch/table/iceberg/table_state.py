"""What a publication needs to know of the table.

See docs/format/iceberg-metadata.md#publishing.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from paimon_orch.errors import (
    NotFoundError,
)
from paimon_orch.format.iceberg.iceberg_metadata import (
    IcebergSnapshot,
)
from paimon_orch.format.options.core_options import (
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
    SNAPSHOT_TIME_RETAINED,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.iceberg.iceberg_settings import IcebergSettings, build_iceberg_settings
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST, SnapshotStore

_MAX_CONCURRENT_READS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
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


def read_table_state(schemas: SchemaStore, snapshots: SnapshotStore) -> TableState | None:
    """Return the state of the table, or None if there is nothing to publish."""
    schema = schemas.latest()
    settings = build_iceberg_settings(schema, snapshots.paths)
    latest = None if settings is None else snapshots.latest()
    if settings is None or latest is None:
        return None
    hint, earliest = snapshots.hint(EARLIEST), snapshots.earliest_id() or 0
    return TableState(
        schema=schema,
        settings=settings,
        latest=latest,
        earliest_hint=hint,
        snapshot_ids=frozenset(i for i in snapshots.ids() if i >= earliest),
        tags=_read_tags(snapshots),
    )


def _read_tags(snapshots: SnapshotStore) -> dict[str, int]:
    names = snapshots.tags()
    with ThreadPoolExecutor(_MAX_CONCURRENT_READS) as pool:
        ids = pool.map(partial(_find_tagged_snapshot, snapshots), names)
    return {name: number for name, number in zip(names, ids, strict=True) if number is not None}


def _find_tagged_snapshot(snapshots: SnapshotStore, name: str) -> int | None:
    try:
        return snapshots.tag(name).id
    except NotFoundError:  # it was deleted after it was listed
        return None
