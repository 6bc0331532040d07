"""Builds the Iceberg snapshot of a Paimon snapshot from the Iceberg snapshot before it.

See docs/format/iceberg-metadata.md#publishing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_orch.errors import NotFoundError
from paimon_orch.format.iceberg.iceberg_manifest import (
    ROW_LINEAGE_VERSION,
    Entry,
    ManifestContent,
    ManifestFormat,
    is_live,
)
from paimon_orch.format.iceberg.iceberg_manifest_list import IcebergManifestFile
from paimon_orch.format.iceberg.iceberg_metadata import (
    COMMIT_IDENTITY,
    IcebergSnapshot,
    build_commit_identity,
)
from paimon_orch.format.iceberg.iceberg_schema import (
    build_iceberg_schema,
    build_partition_avro_fields,
    build_partition_spec,
)
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.live_entries import merge_entries
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.table.iceberg.iceberg_settings import IcebergSettings
from paimon_orch.table.iceberg.manifest_writer import (
    IcebergManifestWriter,
    assign_first_row_ids,
    inherit_first_row_ids,
    may_contain,
    to_deleted,
    to_existing,
)
from paimon_orch.table.iceberg.metadata_store import (
    IcebergMetadataStore,
    get_file_name,
    normalize_path,
)
from paimon_orch.table.iceberg.summary import FileTotals, SnapshotDelta, build_summary
from paimon_orch.table.iceberg.visible_files import (
    VISIBLE_LEVELS,
    IcebergEntryBuilder,
    build_sort_key,
    describe_visible_levels,
    find_visible_levels,
)
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.snapshot_store import SnapshotStore

_MAX_SEARCHED_NAMES = 100
"""The number of file names up to which a search is faster than decoding a manifest."""

_MAX_PENDING_ENTRIES = 10_000
"""The number of entries of rewritten manifests that are held in memory."""

Keep = Callable[[Entry], bool]
"""Whether the file of a live entry still belongs to the snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergState:
    """The metadata of the newest snapshot and its manifests."""

    snapshot: IcebergSnapshot
    manifests: Sequence[IcebergManifestFile]
    next_row_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReplay:
    """Builds Iceberg snapshots of one table, one for each Paimon snapshot."""

    store: IcebergMetadataStore
    settings: IcebergSettings
    schema: TableSchema
    """The newest schema of the table."""
    snapshots: SnapshotStore
    manifests: ManifestReader
    entries: IcebergEntryBuilder

    def rebuild(
        self,
        snapshot: Snapshot,
        next_row_id: int,
        parent: IcebergSnapshot | None,
        published_names: Collection[str],
    ) -> IcebergState:
        """Build the Iceberg snapshot of a Paimon snapshot from its live files.

        Files with ``published_names`` stay visible on any level.
        """
        levels = find_visible_levels(self.schema)
        live = self.manifests.read_live_entries(
            snapshot, levels=None if published_names else levels
        )
        live = [e for e in live if e.file.level in levels or e.file.file_name in published_names]
        writer = self._create_writer(snapshot)
        live.sort(key=lambda entry: self.entries.build_sort_key(entry.partition))
        manifests = writer.write_lazily(
            len(live),
            lambda start, end: [
                self.entries.build_data_entry(entry, snapshot.id) for entry in live[start:end]
            ],
        )
        if self.settings.publishes_vectors:
            vectors = self._build_vectors(snapshot, live, partitions=None)
            manifests += writer.write(self._sort(vectors.values()), ManifestContent.DELETES)
        delta = SnapshotDelta.of_new_files(live)
        totals = FileTotals.of(manifests, delta.added.size)
        return self._finish(
            snapshot,
            writer,
            manifests,
            delta,
            totals=totals,
            parent=parent,
            next_row_id=next_row_id,
        )

    def has_visible_files(self, snapshot: Snapshot, published: IcebergSnapshot) -> bool:
        """Return whether a published snapshot has all visible files and vectors, and no wrong ones.

        Java Paimon may publish live files of other levels. They are right unless the table has
        deletion vectors that are not published.
        """
        levels = find_visible_levels(self.schema)
        live = self.manifests.read_live_entries(snapshot)
        visible = {entry.file.file_name for entry in live if entry.file.level in levels}
        right = {entry.file.file_name for entry in live} if self.keeps_other_levels else visible
        listed = self.list_data_files(published)
        return visible <= listed <= right and self._has_vectors(
            snapshot, published, [entry for entry in live if entry.file.file_name in listed]
        )

    def _has_vectors(
        self, snapshot: Snapshot, published: IcebergSnapshot, live: Sequence[ManifestEntry]
    ) -> bool:
        """Return whether the vectors of visible files are published, and no others of them."""
        vectors: Iterable[Entry] = ()
        if self.settings.publishes_vectors:
            vectors = self._build_vectors(snapshot, live, partitions=None).values()
        names = {entry.file.file_name for entry in live}
        listed = self._list_live_entries(published, ManifestContent.DELETES)
        locations = {_locate_vector(entry) for entry in listed}
        return {_locate_vector(entry) for entry in vectors} == {
            location for location in locations if location[0] in names
        }

    @property
    def keeps_other_levels(self) -> bool:
        """Return whether files of other levels that Java Paimon published may stay visible."""
        has_vectors = self.schema.typed_options.has_deletion_vectors
        return not has_vectors or self.settings.publishes_vectors

    def list_data_files(self, published: IcebergSnapshot) -> set[str]:
        """Return the names of the data files of a published snapshot."""
        return {
            get_file_name(entry["data_file"]["file_path"])
            for entry in self._list_live_entries(published, ManifestContent.DATA)
        }

    def _list_live_entries(
        self, published: IcebergSnapshot, content: ManifestContent
    ) -> Iterator[Entry]:
        for manifest in self.store.read_manifests(published):
            if manifest.content is content:
                yield from filter(is_live, self.store.read_entries(manifest))

    def extend(self, base: IcebergState, snapshot: Snapshot) -> IcebergState:
        """Build the Iceberg snapshot of the Paimon snapshot after the one of ``base``."""
        writer = self._create_writer(snapshot)
        changes = self._read_changes(snapshot)
        delta = SnapshotDelta.of((), ())
        data = [m for m in base.manifests if m.content is ManifestContent.DATA]
        if changes.present or changes.removed:
            data, delta = self._update_data(data, changes, writer)
        deletes = self._update_vectors(base, snapshot, changes, writer)
        compacted = self._merge_small_manifests(data, writer)
        return self._finish(
            snapshot,
            writer,
            [*compacted, *deletes],
            delta,
            totals=self._compute_totals([*compacted, *deletes], delta, base),
            parent=base.snapshot,
            next_row_id=base.next_row_id,
        )

    def _create_writer(self, snapshot: Snapshot) -> IcebergManifestWriter:
        settings = self.settings
        return IcebergManifestWriter(
            store=self.store,
            settings=settings,
            manifest_format=ManifestFormat(
                format_version=settings.format_version,
                schema=build_iceberg_schema(self.schema, settings.format_version),
                partition_spec=build_partition_spec(self.schema),
                partition_fields=build_partition_avro_fields(self.schema),
                codec=settings.codec,
                level=settings.level,
            ),
            location=self.metadata_location,
            partition_fields=self.schema.partition_fields,
            snapshot_id=snapshot.id,
        )

    @property
    def metadata_location(self) -> str:
        """Return the metadata directory, spelled as in the paths of the metadata."""
        root, directory = self.entries.paths.root, self.settings.directory
        if directory.startswith(f"{root}/"):
            return self.entries.location + directory.removeprefix(root)
        # a catalog location is next to the database, in the same warehouse
        warehouse = root.rsplit("/", 2)[0]
        spelled = self.entries.location.rsplit("/", 2)[0]
        return spelled + directory.removeprefix(warehouse)

    def _build_data_entries(
        self, entries: Iterable[ManifestEntry], snapshot_id: int
    ) -> dict[str, Entry]:
        return {
            normalize_path(self.entries.find_path(entry)): self.entries.build_data_entry(
                entry, snapshot_id
            )
            for entry in entries
        }

    def _read_changes(self, snapshot: Snapshot) -> "_Changes":
        entries = self.manifests.read_delta_entries(snapshot)
        levels = find_visible_levels(self.schema)
        present = {}
        removed = set()
        for entry in merge_entries(entries):
            key = normalize_path(self.entries.find_path(entry))
            if entry.kind is FileKind.ADD and entry.file.level in levels:
                present[key] = entry
            else:
                removed.add(key)
        return _Changes(
            present=present,
            removed=removed,
            partitions={entry.partition for entry in entries},
        )

    def _update_data(
        self,
        manifests: Sequence[IcebergManifestFile],
        changes: "_Changes",
        writer: IcebergManifestWriter,
    ) -> tuple[list[IcebergManifestFile], SnapshotDelta]:
        present = dict(changes.present)

        def keep(entry: Entry) -> bool:
            key = normalize_path(entry["data_file"]["file_path"])
            if present.pop(key, None) is not None:
                return True  # the file only changed its level
            return key not in changes.removed

        kept = list(manifests)
        removed: list[Entry] = []
        if changes.removed:
            names = {get_file_name(path) for path in (*changes.removed, *changes.present)}
            kept, removed = self._remove_entries(
                manifests, changes.partitions, keep, writer, names=names
            )
        added = list(self._build_data_entries(present.values(), writer.snapshot_id).values())
        new = writer.write(added, ManifestContent.DATA)
        return [*kept, *new], SnapshotDelta.of(added, removed)

    def _remove_entries(
        self,
        manifests: Iterable[IcebergManifestFile],
        partitions: Collection[bytes] | None,
        keep: Keep,
        writer: IcebergManifestWriter,
        *,
        names: Collection[str] = (),
    ) -> tuple[list[IcebergManifestFile], list[Entry]]:
        """Rewrite the manifests with removed files; return all manifests and the removed entries.

        Rewritten manifests are merged and sorted, so that the next commits rewrite fewer. Only
        manifests that may have files of ``partitions`` are read; None stands for all. If there are
        few ``names``, only manifests that contain one of these file names are decoded.
        """
        selected = names if 0 < len(names) <= _MAX_SEARCHED_NAMES else None
        result: list[IcebergManifestFile] = []
        pending: list[Entry] = []
        all_removed: list[Entry] = []
        for manifest in manifests:
            kept: list[Entry] = []
            removed: list[Entry] = []
            if self._may_contain(manifest, partitions):
                entries = self.store.read_entries(manifest, selected)
                for entry in filter(is_live, inherit_first_row_ids(entries, manifest.first_row_id)):
                    (kept if keep(entry) else removed).append(entry)
            if not removed:
                result.append(manifest)
                continue
            all_removed += removed
            pending += map(to_existing, kept)
            pending += (to_deleted(entry, writer.snapshot_id) for entry in removed)
            if len(pending) >= _MAX_PENDING_ENTRIES:
                result += writer.write(self._sort(pending), manifest.content)
                pending = []
        if pending:
            content = ManifestContent(pending[0]["data_file"]["content"])
            result += writer.write(self._sort(pending), content)
        return result, all_removed

    def _may_contain(
        self, manifest: IcebergManifestFile, partitions: Collection[bytes] | None
    ) -> bool:
        if partitions is None:
            return True
        values = [self.entries.decode_partition(partition) for partition in partitions]
        return may_contain(manifest, values, self.schema.partition_fields)

    def _update_vectors(
        self,
        base: IcebergState,
        snapshot: Snapshot,
        changes: "_Changes",
        writer: IcebergManifestWriter,
    ) -> list[IcebergManifestFile]:
        """Return the delete manifests of a snapshot: entries of changed vectors are replaced."""
        if not self.settings.publishes_vectors:
            return []
        manifests = [
            m for m in base.manifests if m.content is ManifestContent.DELETES and m.live_files
        ]
        partitions = self._find_partitions_with_changed_vectors(snapshot, changes)
        if partitions is not None and not partitions:
            return manifests
        live = self.manifests.read_live_entries(
            snapshot,
            levels=find_visible_levels(self.schema),
            partitions=None if partitions is None else lambda _: partitions,
        )
        vectors = self._build_vectors(snapshot, live, partitions)
        selected = None
        if partitions is not None:
            selected = {self._to_tuple(self.entries.encode_partition(part)) for part in partitions}

        def keep(entry: Entry) -> bool:
            file = entry["data_file"]
            if selected is not None and self._to_tuple(file["partition"]) not in selected:
                return True
            key = normalize_path(file["referenced_data_file"])
            new = vectors.get(key)
            if new is None or _locate(new) != _locate(entry):
                return False
            del vectors[key]
            return True

        kept, _ = self._remove_entries(manifests, partitions, keep, writer)
        return [*kept, *writer.write(list(vectors.values()), ManifestContent.DELETES)]

    def _to_tuple(self, partition: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(partition[name] for name in self.schema.partition_keys)

    def _build_vectors(
        self,
        snapshot: Snapshot,
        live: Iterable[ManifestEntry],
        partitions: "set[bytes] | None",
    ) -> dict[str, Entry]:
        paths = {
            (entry.partition, entry.bucket, entry.file.file_name): self.entries.find_path(entry)
            for entry in live
        }
        index = [
            item
            for item in self.manifests.read_index_entries(snapshot)
            if partitions is None or item.partition in partitions
        ]
        return self.entries.build_vector_entries(index, paths, snapshot.id)

    def _find_partitions_with_changed_vectors(
        self, snapshot: Snapshot, changes: "_Changes"
    ) -> set[bytes] | None:
        """Return the partitions whose vectors or files changed; None stands for all."""
        try:
            previous = self.snapshots.get(snapshot.id - 1)
            if previous.index_manifest == snapshot.index_manifest:
                return set(changes.partitions)
            before = self.manifests.read_index_entries(previous)
        except NotFoundError:
            return None
        after = self.manifests.read_index_entries(snapshot)
        unchanged = set(map(_identify, before)) & set(map(_identify, after))
        changed = {item.partition for item in (*before, *after) if _identify(item) not in unchanged}
        return changed | changes.partitions

    def _merge_small_manifests(
        self, manifests: Sequence[IcebergManifestFile], writer: IcebergManifestWriter
    ) -> list[IcebergManifestFile]:
        """Merge small data manifests when there are many; drop the ones without a live file.

        See docs/format/iceberg-metadata.md#manifests.
        """
        settings, snapshot_id = self.settings, writer.snapshot_id
        manifests = [
            m for m in manifests if m.live_files or m.added_snapshot_id == writer.snapshot_id
        ]
        small = [m for m in manifests if writer.is_small(m)]
        total = sum(manifest.length for manifest in small)
        if len(small) < settings.min_small_manifests or (
            len(small) < settings.max_small_manifests and total < settings.target_manifest_size
        ):
            return manifests
        entries = [
            entry for manifest in small for entry in self._carry_entries(manifest, snapshot_id)
        ]
        merged = writer.write(self._sort(entries), ManifestContent.DATA)
        for manifest in small:
            if manifest.added_snapshot_id == snapshot_id:
                self.store.delete(manifest.path)
        names = {manifest.path for manifest in small}
        return [*(m for m in manifests if m.path not in names), *merged]

    def _sort(self, entries: Iterable[Entry]) -> list[Entry]:
        """Sort entries by partition, so that later commits change few manifests."""
        names = self.schema.partition_keys
        return sorted(
            entries, key=lambda entry: build_sort_key(entry["data_file"]["partition"], names)
        )

    def _carry_entries(self, manifest: IcebergManifestFile, snapshot_id: int) -> Iterable[Entry]:
        entries = self.store.read_entries(manifest)
        for entry in inherit_first_row_ids(entries, manifest.first_row_id):
            if entry["snapshot_id"] == snapshot_id:
                yield entry
            elif is_live(entry):
                yield to_existing(entry)

    def _finish(
        self,
        snapshot: Snapshot,
        writer: IcebergManifestWriter,
        manifests: Sequence[IcebergManifestFile],
        delta: SnapshotDelta,
        *,
        totals: FileTotals,
        parent: IcebergSnapshot | None,
        next_row_id: int,
    ) -> IcebergState:
        first_row_id = added_rows = None
        if self.settings.format_version >= ROW_LINEAGE_VERSION:
            first_row_id = next_row_id
            manifests, next_row_id = assign_first_row_ids(manifests, next_row_id)
            added_rows = next_row_id - first_row_id
        parent_id = None if parent is None or parent.id >= snapshot.id else parent.id
        path = writer.write_list(manifests, parent_id)
        operation = "append"
        if delta.removed.files:
            is_compaction = snapshot.commit_kind is CommitKind.COMPACT
            operation = "replace" if is_compaction else "overwrite"
        return IcebergState(
            snapshot=IcebergSnapshot(
                id=snapshot.id,
                parent_id=parent_id,
                time_millis=snapshot.time_millis,
                manifest_list=path,
                schema_id=snapshot.schema_id,
                summary={
                    **snapshot.properties,
                    **build_summary(delta, totals, operation),
                    COMMIT_IDENTITY: build_commit_identity(snapshot),
                    VISIBLE_LEVELS: describe_visible_levels(self.schema),
                },
                first_row_id=first_row_id,
                added_rows=added_rows,
            ),
            manifests=manifests,
            next_row_id=next_row_id,
        )

    def _compute_totals(
        self,
        manifests: Sequence[IcebergManifestFile],
        delta: SnapshotDelta,
        base: IcebergState,
    ) -> FileTotals:
        size = FileTotals.find_data_size(base.snapshot.summary, base.manifests)
        if size is None:
            size = self._sum_file_sizes(base.manifests)
        return FileTotals.of(manifests, size + delta.added.size - delta.removed.size)

    def _sum_file_sizes(self, manifests: Iterable[IcebergManifestFile]) -> int:
        return sum(
            int(entry["data_file"]["file_size_in_bytes"])
            for manifest in manifests
            if manifest.content is ManifestContent.DATA
            for entry in self.store.read_entries(manifest)
            if is_live(entry)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """The files of a commit by their normalized paths."""

    present: Mapping[str, ManifestEntry]
    """Files that are visible after the commit."""
    removed: set[str]
    """Files that were deleted, or are not visible after the commit, unless they are present."""
    partitions: set[bytes]


def _locate(entry: Entry) -> tuple[Any, ...]:
    file = entry["data_file"]
    return normalize_path(file["file_path"]), file["content_offset"], file["content_size_in_bytes"]


def _locate_vector(entry: Entry) -> tuple[Any, ...]:
    data_file = get_file_name(entry["data_file"]["referenced_data_file"])
    return data_file, *_locate(entry)


def _identify(item: IndexManifestEntry) -> tuple[object, ...]:
    return item.partition, item.bucket, item.index_type, item.file_name
