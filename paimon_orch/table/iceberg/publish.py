"""Publishes the newest snapshot of a table as Iceberg metadata.

See docs/format/iceberg-metadata.md#publishing.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from paimon_orch.errors import (
    CommitConflictError,
    CorruptFileError,
    MissingFileError,
    NotFoundError,
    PaimonError,
    UnsupportedError,
)
from paimon_orch.format.iceberg.iceberg_manifest import ROW_LINEAGE_VERSION
from paimon_orch.format.iceberg.iceberg_metadata import (
    COMMIT_IDENTITY,
    IcebergMetadata,
    IcebergSnapshot,
    build_commit_identity,
)
from paimon_orch.format.iceberg.iceberg_schema import (
    build_iceberg_schema,
    build_partition_spec,
    compute_last_column_id,
)
from paimon_orch.format.options.core_options import (
    ICEBERG_FORMAT_VERSION,
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
    SNAPSHOT_TIME_RETAINED,
)
from paimon_orch.format.paths import parse_file_format
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import AtomicType, TypeRoot
from paimon_orch.table.iceberg.iceberg_settings import IcebergSettings, build_iceberg_settings
from paimon_orch.table.iceberg.manifest_writer import inherit_first_row_ids
from paimon_orch.table.iceberg.metadata_expiration import (
    delete_obsolete_files,
    find_obsolete_versions,
)
from paimon_orch.table.iceberg.metadata_store import (
    IcebergMetadataStore,
    find_versions,
    get_file_name,
    normalize_path,
)
from paimon_orch.table.iceberg.publishable import check_files_readable, check_readable
from paimon_orch.table.iceberg.snapshot_replay import IcebergState, SnapshotReplay
from paimon_orch.table.iceberg.visible_files import (
    VISIBLE_LEVELS,
    IcebergEntryBuilder,
    describe_visible_levels,
    find_visible_levels,
)
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST, SnapshotStore

logger = logging.getLogger(__name__)
_MAX_ATTEMPTS = 5
UNREADABLE = (CorruptFileError, MissingFileError, FileNotFoundError, UnsupportedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBase:
    """Published metadata, reduced to the snapshots that the table still has."""

    version: int
    """The version of the file that it was read from."""
    metadata: IcebergMetadata
    is_truncated: bool
    """Whether the table does not have all snapshots of the file, as after a rollback."""
    is_verified: bool
    """Whether the table still has the newest snapshot.

    If it has expired, the metadata may belong to another timeline.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What a publication needs to know of the table."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergPublisher:
    """Keeps the Iceberg metadata of the main branch of one table up to date."""

    schemas: SchemaStore
    snapshots: SnapshotStore
    manifests: ManifestReader

    def publish(self) -> int | None:
        """Publish the newest snapshot unless it is published; return its id.

        Returns None if the table has no Iceberg metadata or no snapshot. Snapshots since the last
        published one are published too. Raises an error if the metadata cannot be written; the
        next call then tries again.
        """
        for _ in range(_MAX_ATTEMPTS):
            table = self.read_table_state()
            if table is None:
                return None
            check_readable(table.schema, self.snapshots.paths)
            if self._publish(table) and not self._has_changed(table):
                return table.latest.id
        raise CommitConflictError(
            f"{self.snapshots.paths.root}: other processes changed the table while its Iceberg "
            f"metadata was written, {_MAX_ATTEMPTS} times"
        )

    def _publish(self, table: TableState) -> bool:
        """Publish a state of the table; return False if another process was faster."""
        store = IcebergMetadataStore(self.snapshots.io, table.settings.directory)
        files = store.list_files()
        versions = find_versions(files)
        base = self.find_base(store, versions, table)
        dropped: Sequence[IcebergSnapshot] = ()
        is_restart = False
        if (
            base is not None
            and self.is_current(base, table)
            and has_manifests(store, base, files)
            and self._has_visible_files(store, base.metadata, table)
        ):
            metadata = base.metadata
        else:
            has_version = table.latest.id in versions
            replaced = store.find_metadata(table.latest.id) if has_version else None
            try:
                metadata, history = self._build(store, table, base, files)
                is_overtaken = self._has_changed(table)
            except (PaimonError, OSError):
                store.delete_written_files()
                raise
            is_restart = history.is_restart
            dropped = [*history.new, *(() if replaced is None else replaced.snapshots)]
            dropped = [s for s in dropped if s.manifest_list not in metadata.manifest_lists]
            if is_overtaken or not store.write_metadata(metadata, replaced):
                store.delete_written_files()
                return False
        if store.read_hint() != metadata.current.id:
            if self._has_next_snapshot(table):
                return False
            store.write_hint(metadata.current.id)
        obsolete = find_obsolete_versions(
            table.settings, versions, table.latest.id, self.snapshots, is_restart=is_restart
        )
        is_repair = base is None or VISIBLE_LEVELS not in base.metadata.current.summary
        delete_obsolete_files(
            store, metadata, files, obsolete, dropped=dropped, is_repair=is_repair
        )
        return True

    def _has_visible_files(
        self, store: IcebergMetadataStore, metadata: IcebergMetadata, table: TableState
    ) -> bool:
        """Return whether current metadata of Java Paimon has the right files; ours always has."""
        if VISIBLE_LEVELS in metadata.current.summary:
            return True
        replay = self._create_replay(store, table, metadata)
        return replay.has_visible_files(table.latest, metadata.current)

    def _has_changed(self, table: TableState) -> bool:
        """Return whether another process has changed the table, and so may have published it.

        An older publication must not replace a newer one, which has deleted what it did not need.
        """
        return (
            self._has_next_snapshot(table)
            or self.snapshots.hint(EARLIEST) != table.earliest_hint
            or self.snapshots.tags() != list(table.tags)
        )

    def _has_next_snapshot(self, table: TableState) -> bool:
        return self.snapshots.exists(table.latest.id + 1)

    def is_current(self, base: PublishedBase, table: TableState) -> bool:
        """Return whether the newest snapshot is published with the present options and tags."""
        metadata = base.metadata
        return (
            not base.is_truncated
            and base.version == table.latest.id == metadata.current.id
            and metadata.current_schema_id == table.schema.id
            and has_columns(metadata, table)
            and (metadata.format_version < ROW_LINEAGE_VERSION or metadata.next_row_id is not None)
            and metadata.location == self.find_location(metadata)
            and is_compatible(metadata, table)
            and metadata.tags == table.find_tags(metadata.snapshots)
            and len(table.select_retained(metadata.snapshots)) == len(metadata.snapshots)
        )

    def read_table_state(self) -> TableState | None:
        """Return the state of the table, or None if there is nothing to publish."""
        schema = self.schemas.latest()
        settings = build_iceberg_settings(schema, self.snapshots.paths)
        latest = None if settings is None else self.snapshots.latest()
        if settings is None or latest is None:
            return None
        hint, earliest = self.snapshots.hint(EARLIEST), self.snapshots.earliest_id() or 0
        return TableState(
            schema=schema,
            settings=settings,
            latest=latest,
            earliest_hint=hint,
            snapshot_ids=frozenset(i for i in self.snapshots.ids() if i >= earliest),
            tags=self._read_tags(),
        )

    def _read_tags(self) -> dict[str, int]:
        tags = {}
        for name in self.snapshots.tags():
            with suppress(NotFoundError):  # it was deleted after it was listed
                tags[name] = self.snapshots.tag(name).id
        return tags

    def find_base(
        self, store: IcebergMetadataStore, versions: Sequence[int], table: TableState
    ) -> PublishedBase | None:
        """Return the published metadata that covers the newest snapshot of the present timeline."""
        best: PublishedBase | None = None
        for version in reversed(versions):
            if best is not None and best.is_verified and version <= best.metadata.current.id:
                break  # older files only have older snapshots
            metadata = store.find_metadata(version)
            base = None if metadata is None else self.match(version, metadata, table.latest)
            if base is not None and (best is None or _rank(base) > _rank(best)):
                best = base
        return best

    def match(
        self, version: int, metadata: IcebergMetadata, latest: Snapshot
    ) -> PublishedBase | None:
        """Reduce metadata to the snapshots up to the newest one of the present timeline.

        A rollback starts a new timeline, whose snapshots reuse ids. Java Paimon before 2.1 can add
        a snapshot of the new timeline to those of an old one. All snapshots before one that names
        its commit belong to its timeline. Returns None if the metadata has other timelines only.
        """
        newest, is_verified = None, False
        for published in reversed(metadata.snapshots):
            if published.id > latest.id:
                continue
            snapshot = latest if published.id == latest.id else self._find_snapshot(published.id)
            if snapshot is None:
                newest = newest or published.id
            elif not matches_commit(published, snapshot):
                newest, is_verified = None, False
            else:
                if not is_verified:
                    newest, is_verified = published.id, True
                if COMMIT_IDENTITY in published.summary:
                    break
        if newest is None:
            return None
        kept = [snapshot for snapshot in metadata.snapshots if snapshot.id <= newest]
        return PublishedBase(
            version=version,
            metadata=replace(metadata, snapshots=kept),
            is_truncated=len(kept) < len(metadata.snapshots),
            is_verified=is_verified,
        )

    def _find_snapshot(self, snapshot_id: int) -> Snapshot | None:
        try:
            return self.snapshots.get(snapshot_id)
        except NotFoundError:
            return None

    def _build(
        self,
        store: IcebergMetadataStore,
        table: TableState,
        base: PublishedBase | None,
        files: Mapping[str, int],
    ) -> "tuple[IcebergMetadata, _History]":
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
        replay = self._create_replay(store, table, previous)
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

    def _create_replay(
        self, store: IcebergMetadataStore, table: TableState, previous: IcebergMetadata | None
    ) -> SnapshotReplay:
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
                location=self.find_location(previous),
            ),
        )

    def _has_lists_for_java(
        self, store: IcebergMetadataStore, metadata: IcebergMetadata, table: TableState
    ) -> bool:
        """Return whether Java Paimon can read the manifest lists with the present options.

        It fails on lists with the other names of counts. The option can only change with the schema.
        """
        if metadata.current_schema_id == table.schema.id:
            return True
        return store.has_legacy_counts(metadata.current) == table.settings.legacy_lists

    def _read_files(self, table: TableState) -> set[tuple[int, str]]:
        """Return the schema ids and formats of the visible files."""
        levels = find_visible_levels(table.schema)
        live = self.manifests.read_live_entries(table.latest, levels=levels)
        return {(e.file.schema_id, parse_file_format(e.file.file_name)) for e in live}

    def find_location(self, previous: IcebergMetadata | None) -> str:
        """Return the table directory; paths keep the spelling of earlier metadata."""
        root = self.snapshots.paths.root
        if previous is not None and normalize_path(previous.location) == normalize_path(root):
            return previous.location
        return root

    def _build_history(
        self,
        replay: SnapshotReplay,
        previous: IcebergMetadata | None,
        table: TableState,
        *,
        is_usable: bool,
    ) -> "_History":
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
        return _History(
            snapshots=[*kept, state.snapshot],
            new=[state.snapshot],
            next_row_id=state.next_row_id,
            is_restart=not snapshots,
        )

    def _can_extend(
        self, replay: SnapshotReplay, previous: IcebergMetadata, table: TableState
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
    ) -> "_History":
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
        return _History(
            snapshots=snapshots,
            new=snapshots[len(previous.snapshots) :],
            next_row_id=state.next_row_id,
            is_restart=False,
        )

    def _build_schemas(
        self, base: PublishedBase | None, table: TableState
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    snapshots: Sequence[IcebergSnapshot]
    new: Sequence[IcebergSnapshot]
    """The last ones, which are not published yet."""
    next_row_id: int
    is_restart: bool
    """Whether no published snapshot is kept: older versions may name lost or unrelated files."""


def _list_java_files(replay: SnapshotReplay, metadata: IcebergMetadata) -> set[str]:
    """Return the data files that Java Paimon published, by any rule; none if they are unknown."""
    if VISIBLE_LEVELS in metadata.current.summary or not replay.keeps_other_levels:
        return set()
    try:
        return replay.list_data_files(metadata.current)
    except UNREADABLE:
        return set()


def _rank(base: PublishedBase) -> tuple[bool, int]:
    return base.is_verified, base.metadata.current.id


def matches_commit(published: IcebergSnapshot, snapshot: Snapshot) -> bool:
    """Return whether a published snapshot was made from a snapshot of the table.

    Java Paimon before 2.1 writes no identity, but the time of publication, which is later than
    the commit.
    """
    identity = published.summary.get(COMMIT_IDENTITY)
    if identity is None:
        return published.time_millis >= snapshot.time_millis
    return identity == build_commit_identity(snapshot)


def has_manifests(
    store: IcebergMetadataStore, base: PublishedBase, files: Mapping[str, int]
) -> bool:
    """Return whether all manifest lists, and the newest one's manifests, exist."""
    names = (get_file_name(path) for path in base.metadata.manifest_lists)
    if not all(name in files for name in names):
        return False
    try:
        manifests = store.read_manifests(base.metadata.current)
    except UNREADABLE:
        return False
    return all(files.get(get_file_name(item.path)) == item.length for item in manifests)


def has_columns(metadata: IcebergMetadata, table: TableState) -> bool:
    """Return whether the current schema has the table's columns; a branch may have replaced it."""
    schema = build_iceberg_schema(table.schema, metadata.format_version)
    schemas = {item["schema-id"]: item for item in metadata.schemas}
    current = schemas.get(metadata.current_schema_id)
    if current is None:
        return False
    columns, published = (
        [(field["id"], field["name"], field["type"]) for field in fields["fields"]]
        for fields in (schema, current)
    )
    return columns == published


def is_compatible(metadata: IcebergMetadata, table: TableState) -> bool:
    """Return whether new snapshots can extend published ones with the present settings."""
    levels = describe_visible_levels(table.schema)
    published = metadata.current.summary.get(VISIBLE_LEVELS, levels)
    return metadata.format_version == table.settings.format_version and published == levels


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
