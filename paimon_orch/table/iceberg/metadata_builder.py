"""Builds the table metadata of the newest snapshot: extends published metadata, or rebuilds it.

See docs/format/iceberg-metadata.md#publishing.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from paimon_orch.errors import NotFoundError, UnsupportedError
from paimon_orch.format.iceberg.iceberg_manifest import ROW_LINEAGE_VERSION
from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata, IcebergSnapshot
from paimon_orch.format.iceberg.iceberg_schema import (
    build_iceberg_schema,
    build_partition_spec,
    compute_last_column_id,
)
from paimon_orch.format.options.core_options import ICEBERG_FORMAT_VERSION
from paimon_orch.format.paths import parse_file_format
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import AtomicType, TypeRoot
from paimon_orch.safe_text import get_logger
from paimon_orch.table.iceberg.manifest_writer import inherit_first_row_ids
from paimon_orch.table.iceberg.metadata_store import UNREADABLE, IcebergMetadataStore
from paimon_orch.table.iceberg.publication_input import PublicationInput
from paimon_orch.table.iceberg.publishable import check_files_readable
from paimon_orch.table.iceberg.published_base import (
    PublishedBase,
    find_location,
    has_manifests,
    is_compatible,
)
from paimon_orch.table.iceberg.snapshot_replay import IcebergState, SnapshotReplay
from paimon_orch.table.iceberg.visible_files import (
    VISIBLE_LEVELS,
    IcebergEntryBuilder,
    find_visible_levels,
)
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import SnapshotStore

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The snapshots of new metadata, oldest first."""

    snapshots: Sequence[IcebergSnapshot]
    new: Sequence[IcebergSnapshot]
    """The last ones, which are not published yet."""
    next_row_id: int
    is_restart: bool
    """Whether no published snapshot is kept: older versions may name lost or unrelated files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataBuilder:
    """Builds the Iceberg metadata of one table."""

    schemas: SchemaStore
    snapshots: SnapshotStore
    manifests: ManifestReader

    def build(
        self,
        store: IcebergMetadataStore,
        table: PublicationInput,
        base: PublishedBase | None,
        files: Mapping[str, int],
    ) -> "tuple[IcebergMetadata, History]":
        """Write the manifests of the missing snapshots and return the new metadata.

        Some of the new snapshots in the history may have expired already.
        ``files`` are the sizes of the files of the store by name.
        """
        schema, version = table.schema, table.settings.format_version
        previous = None if base is None else base.metadata
        if previous is not None and previous.format_version > version:
            raise UnsupportedError(
                f"{store.directory} has metadata of format version {previous.format_version}, "
                f"which cannot become {version}; set '{ICEBERG_FORMAT_VERSION.key}' to "
                f"{previous.format_version}"
            )
        if previous is None or previous.current_schema_id != schema.id:
            older = [self.schemas.get(i) for i in self.schemas.ids() if i < schema.id]
            check_files_readable(schema, older, lambda: self._read_files(table))
        replay = self.create_replay(store, table, previous)
        usable = (
            base is not None
            and base.is_verified
            and has_manifests(store, base, files)
            and self._has_lists_for_java(store, base.metadata, table)
        )
        history = self._build_history(replay, previous, table, is_usable=usable)
        retained = table.select_retained(history.snapshots)
        schemas, last_column_id = self._build_schemas(base, table)
        metadata = IcebergMetadata(
            format_version=version,
            table_uuid=str(uuid4()) if previous is None else previous.table_uuid,
            location=replay.entries.location,
            last_updated_millis=int(time.time() * 1000),
            last_column_id=last_column_id,
            schemas=schemas,
            current_schema_id=schema.id,
            partition_spec=build_partition_spec(schema),
            snapshots=retained,
            next_row_id=history.next_row_id if version >= ROW_LINEAGE_VERSION else None,
            tags=table.find_tags(retained),
        )
        return metadata, history

    def create_replay(
        self, store: IcebergMetadataStore, table: PublicationInput, previous: IcebergMetadata | None
    ) -> SnapshotReplay:
        """Return a builder of snapshots; paths are spelled as in ``previous``."""
        return SnapshotReplay(
            store=store,
            settings=table.settings,
            schema=table.schema,
            snapshots=self.snapshots,
            manifests=self.manifests,
            entries=IcebergEntryBuilder(
                paths=self.snapshots.paths,
                schema=table.schema,
                read_schema=self.schemas.get,
                location=find_location(self.snapshots.paths.root, previous),
            ),
        )

    def _has_lists_for_java(
        self, store: IcebergMetadataStore, metadata: IcebergMetadata, table: PublicationInput
    ) -> bool:
        """Return whether Java Paimon can read the manifest lists with the present options.

        It fails on lists with the other names of counts. The option can only change with the schema.
        """
        if metadata.current_schema_id == table.schema.id:
            return True
        return store.has_legacy_counts(metadata.current) == table.settings.legacy_lists

    def _read_files(self, table: PublicationInput) -> set[tuple[int, str]]:
        """Return the schema ids and formats of the visible files."""
        levels = find_visible_levels(table.schema)
        live = self.manifests.read_live_entries(table.latest, levels=levels)
        return {(e.file.schema_id, parse_file_format(e.file.file_name)) for e in live}

    def _build_history(
        self,
        replay: SnapshotReplay,
        previous: IcebergMetadata | None,
        table: PublicationInput,
        *,
        is_usable: bool,
    ) -> "History":
        """Return the published snapshots and the missing ones, which are written."""
        snapshots: Sequence[IcebergSnapshot] = ()
        next_row_id = 0 if previous is None else _find_next_row_id(replay.store, previous)
        if is_usable and previous is not None and replay.entries.location == previous.location:
            snapshots = previous.snapshots
            try:
                if self._can_extend(replay, previous, table):
                    return self._extend(replay, previous, table.latest, next_row_id)
            except (*UNREADABLE, NotFoundError) as error:
                snapshots = ()
                replay.store.delete_written_files()
                logger.warning("the Iceberg metadata is rebuilt without its history: %s", error)
        parent = snapshots[-1] if snapshots else None
        names = set() if previous is None else _list_java_files(replay, previous)
        state = replay.rebuild(table.latest, next_row_id, parent, names)
        kept = [snapshot for snapshot in snapshots if snapshot.id < table.latest.id]
        return History(
            snapshots=[*kept, state.snapshot],
            new=[state.snapshot],
            next_row_id=state.next_row_id,
            is_restart=not snapshots,
        )

    def _can_extend(
        self, replay: SnapshotReplay, previous: IcebergMetadata, table: PublicationInput
    ) -> bool:
        """Return whether new snapshots can extend the newest published one.

        Java Paimon does not say which levels are visible. It can leave out files of primary-key
        tables, and extend metadata of snapshots that a rollback removed, so the files are compared;
        files of other levels stay visible. Its manifests have partitions of type TIMESTAMP in
        another unit.
        """
        if not is_compatible(previous, table):
            return False
        if VISIBLE_LEVELS in previous.current.summary:
            return True
        partition_types = [field.type for field in table.schema.partition_fields]
        if any(isinstance(t, AtomicType) and t.name is TypeRoot.TIMESTAMP for t in partition_types):
            return False
        return replay.has_visible_files(self.snapshots.get(previous.current.id), previous.current)

    def _extend(
        self,
        replay: SnapshotReplay,
        previous: IcebergMetadata,
        latest: Snapshot,
        next_row_id: int,
    ) -> "History":
        state = IcebergState(
            snapshot=previous.current,
            manifests=replay.store.read_manifests(previous.current),
            next_row_id=next_row_id,
        )
        snapshots = list(previous.snapshots)
        for snapshot_id in range(previous.current.id + 1, latest.id + 1):
            snapshot = latest if snapshot_id == latest.id else self.snapshots.get(snapshot_id)
            state = replay.extend(state, snapshot)
            snapshots.append(state.snapshot)
        return History(
            snapshots=snapshots,
            new=snapshots[len(previous.snapshots) :],
            next_row_id=state.next_row_id,
            is_restart=False,
        )

    def _build_schemas(
        self, base: PublishedBase | None, table: PublicationInput
    ) -> tuple[list[dict[str, Any]], int]:
        """Return the Iceberg schemas of all versions of the table's schema, and the last column id.

        Published schemas up to that of the newest published snapshot are reused; later ones can
        have been replaced by a branch.
        """
        version, ids = table.settings.format_version, self.schemas.ids()
        known: dict[int, Mapping[str, Any]] = {}
        if base is not None and base.is_verified:
            newest = base.metadata.current.schema_id
            known = {item["schema-id"]: item for item in base.metadata.schemas}
            known = {i: item for i, item in known.items() if newest is not None and i <= newest}
        unknown = [self.schemas.get(i) for i in ids if i < table.schema.id and i not in known]
        new = [*unknown, table.schema]
        known |= {schema.id: build_iceberg_schema(schema, version) for schema in new}
        last_column_id = max(map(compute_last_column_id, new))
        if base is not None:
            last_column_id = max(last_column_id, base.metadata.last_column_id)
        return [
            dict(known[i]) for i in sorted({*ids, table.schema.id}) if i in known
        ], last_column_id


def _list_java_files(replay: SnapshotReplay, metadata: IcebergMetadata) -> set[str]:
    """Return the data files that Java Paimon published, by any rule; none if they are unknown."""
    if VISIBLE_LEVELS in metadata.current.summary or not replay.keeps_other_levels:
        return set()
    try:
        return replay.list_data_files(metadata.current)
    except UNREADABLE:
        return set()


def _find_next_row_id(store: IcebergMetadataStore, metadata: IcebergMetadata) -> int:
    """Return the first unused row id.

    Java Paimon before 2.1 does not write it, and does not keep the row ids of snapshots. But it
    keeps manifests, whose entries can have row ids.
    """
    used = [(s.first_row_id or 0) + (s.added_rows or 0) for s in metadata.snapshots]
    if metadata.next_row_id is None and metadata.format_version >= ROW_LINEAGE_VERSION:
        try:
            for manifest in store.read_manifests(metadata.current):
                entries = inherit_first_row_ids(store.read_entries(manifest), manifest.first_row_id)
                files = [entry["data_file"] for entry in entries]
                used += [
                    file["first_row_id"] + file["record_count"]
                    for file in files
                    if file.get("first_row_id") is not None
                ]
        except UNREADABLE as error:
            logger.warning("row ids may be used again: %s", error)
    return max(metadata.next_row_id or 0, *used, 0)
