"""Reads and writes the manifests of a table.

See docs/format/manifest.md.
"""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import cast

import numpy as np

from paimon_orch.decode_limits import check_decoded_bytes
from paimon_orch.errors import CorruptFileError, MissingFileError, PaimonError, wrap_decode_errors
from paimon_orch.format.arrays import Indices
from paimon_orch.format.manifest.columnar_manifest import Manifest, open_manifest, read_entries_at
from paimon_orch.format.manifest.index_manifest import (
    IndexManifestEntry,
    decode_index_manifest,
    encode_index_manifest,
)
from paimon_orch.format.manifest.live_entries import DeletedFiles, iterate_live_rows
from paimon_orch.format.manifest.live_files import LiveFiles, collect_live_files
from paimon_orch.format.manifest.manifest_entry import ManifestEntry, encode_manifest
from paimon_orch.format.manifest.manifest_format import MAGIC_BYTES, ManifestEncoding, find_format
from paimon_orch.format.manifest.manifest_list import (
    ManifestFileMeta,
    check_distinct_manifests,
    decode_manifest_list,
    encode_manifest_list,
)
from paimon_orch.format.options.core_options import MANIFEST_TARGET_FILE_SIZE
from paimon_orch.format.paths import FileNameGenerator, TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import DataType
from paimon_orch.safe_text import get_logger
from paimon_orch.storage import FileIO
from paimon_orch.storage.concurrency import (
    map_concurrently,
    read_ahead,
    run_concurrently,
    start_call,
)
from paimon_orch.table.metadata.metadata_cache import keep_written_file, read_unchanging_file
from paimon_orch.table.metadata.metadata_io import read_metadata_file

logger = get_logger(__name__)

ManifestFilter = Callable[[ManifestFileMeta], bool]
ManifestSelector = Callable[[Sequence[ManifestFileMeta]], Sequence[ManifestFileMeta]]
PartitionSelector = Callable[[Sequence[bytes]], Collection[bytes]]
EntrySelector = Callable[[Manifest, Indices], Indices]

_SIZE_MARGIN = 1.03  # of estimated sizes, so that few manifests are encoded again
_ENTRY_BYTES = 2_000  # of the objects of an entry
_MAX_KEPT_BYTES = 4 << 20
"""The size of manifests that are kept so that they are not decoded twice."""
_MAX_PENDING_BYTES = 32 << 20
"""The size of encoded manifests in memory that are not written yet."""


@dataclass(frozen=True, slots=True)
class ManifestReader:
    """Reads the manifests of snapshots."""

    io: FileIO
    paths: TablePaths
    _: KW_ONLY
    is_cached: bool = False
    """Whether the process may keep the files in memory. Keep it off to verify or delete files."""

    @property
    def keeps_files(self) -> bool:
        """Return whether a file that was read once is found in memory later."""
        return self.is_cached

    def _path(self, name: str) -> str:
        return f"{self.paths.manifest_dir}/{name}"

    def _read_bytes(self, name: str, size: int | None = None) -> tuple[bytes, str]:
        """Return the content and path of a file of the expected size."""
        path = self._path(name)
        try:
            data = (
                read_unchanging_file(self.io, path, size=size)
                if self.is_cached
                else read_metadata_file(self.io, path)
            )
        except FileNotFoundError:
            raise MissingFileError(path, "is missing, but a snapshot needs it") from None
        if size is not None and size != len(data):
            raise CorruptFileError(
                path, f"has {len(data)} bytes, not {size} as in the file that references it"
            )
        return data, path

    def find_format(self, name: str) -> str:
        """Return the file format of a manifest, a manifest list or an index manifest."""
        return find_format(self._read_bytes(name)[0][:MAGIC_BYTES])

    def manifest_list(self, name: str, size: int | None = None) -> list[ManifestFileMeta]:
        """Read a manifest list; ``size`` is its size in the snapshot."""
        return decode_manifest_list(*self._read_bytes(name, size))

    def manifests(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """Return the base manifests of a snapshot, then its delta manifests."""
        read_base = start_call(
            self.io,
            lambda: self.manifest_list(
                snapshot.base_manifest_list, snapshot.base_manifest_list_size
            ),
        )
        delta = self.read_delta_list(snapshot)
        metas = [*read_base(), *delta]
        with wrap_decode_errors(self._path(snapshot.delta_manifest_list)):
            check_distinct_manifests([meta.file_name for meta in metas])
        return metas

    def read_lists_ahead(self, snapshots: Iterable[Snapshot]) -> None:
        """Read the manifest lists of snapshots that will be needed, if the reader keeps them."""
        lists = {
            name: size
            for snapshot in snapshots
            for name, size in (
                (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
                (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
            )
        }
        if self.keeps_files:
            read_ahead(self.io, (partial(self._read_bytes, *each) for each in lists.items()))

    def read_delta_list(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """Read the manifests that a snapshot added."""
        return self.manifest_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)

    def entries(
        self, manifests: Iterable[ManifestFileMeta], keep: ManifestFilter | None = None
    ) -> list[ManifestEntry]:
        """Read the entries of the manifests that ``keep`` selects, in the order of manifests."""
        with pause_garbage_collection():
            selected = manifests if keep is None else filter(keep, manifests)
            return [entry for each in self.open_all(selected) for entry in each.entries()]

    def read_live_entries(
        self,
        snapshot: Snapshot,
        *,
        manifests: ManifestSelector | Sequence[ManifestFileMeta] | None = None,
        partitions: PartitionSelector | None = None,
        levels: range | None = None,
        choose: EntrySelector | None = None,
    ) -> list[ManifestEntry]:
        """Return the entries of a snapshot's live files, in the order of its manifests.

        ``manifests`` selects the manifests to open. It must not separate the ADD and the DELETE of
        a file, so it may only use the partition, bucket and level. ``partitions`` selects from
        distinct serialized partitions, each of which it gets once. ``choose`` selects entries of a
        manifest by their index. Entry objects are created only for selected entries.
        """
        entries: list[ManifestEntry] = []
        with pause_garbage_collection():
            metas = self._select_manifests(snapshot, manifests)
            for _, manifest, rows in self._iterate_live_rows(metas, partitions, levels):
                entries += manifest.entries(rows if choose is None else choose(manifest, rows))
        return entries

    def read_live_files(  # noqa: PLR0913 - all but the snapshot are keywords
        self,
        snapshot: Snapshot,
        *,
        manifests: ManifestSelector | Sequence[ManifestFileMeta] | None = None,
        partitions: PartitionSelector | None = None,
        levels: range | None = None,
        with_names: bool = False,
        with_indexed: bool = False,
        with_row_ids: bool = False,
        key_types: Sequence[DataType] | None = None,
    ) -> LiveFiles:
        """Return a snapshot's live files as columns, in the order of its manifests.

        Holds one decoded manifest at a time. The first three parameters are those of
        :meth:`read_live_entries`, the others those of :func:`collect_live_files`. ``manifests`` may
        also be the selected manifests, if the caller has read the lists.
        """
        metas = self._select_manifests(snapshot, manifests)
        live = self._iterate_live_rows(metas, partitions, levels)
        return collect_live_files(
            metas,
            live,
            with_names=with_names,
            with_indexed=with_indexed,
            with_row_ids=with_row_ids,
            key_types=key_types,
        )

    def build_entries(self, files: LiveFiles) -> list[ManifestEntry]:
        """Return the entries of live files, in their order; may read their manifests again."""
        entries: list[ManifestEntry | None] = [None] * len(files)
        order = np.lexsort((np.abs(files.positions), files.manifest_codes))
        codes = files.manifest_codes[order]
        groups = np.split(order, np.flatnonzero(np.diff(codes)) + 1) if len(files) else []
        metas = [files.manifests[files.manifest_codes[rows[0]]] for rows in groups]
        with pause_garbage_collection():
            for rows, (data, path) in zip(groups, self._read_all(metas), strict=True):
                found = read_entries_at(data, path, files.positions[rows])
                for row, entry in zip(rows.tolist(), found, strict=True):
                    entries[row] = entry
        return cast("list[ManifestEntry]", entries)

    def _select_manifests(
        self, snapshot: Snapshot, select: ManifestSelector | Sequence[ManifestFileMeta] | None
    ) -> Sequence[ManifestFileMeta]:
        if isinstance(select, Sequence):
            return select
        metas = self.manifests(snapshot)
        return metas if select is None else select(metas)

    def _iterate_live_rows(
        self,
        metas: Sequence[ManifestFileMeta],
        partitions: PartitionSelector | None,
        levels: range | None,
    ) -> Iterator[tuple[int, Manifest, Indices]]:
        """Yield the index, the entries and the live rows of each manifest, one at a time."""
        kept: dict[int, Manifest] = {}  # by index, because damaged lists repeat a manifest

        def open_to_find_deletes() -> Iterator[Manifest]:
            size = 0
            numbers = [number for number, meta in enumerate(metas) if meta.num_deleted_files]
            opened = self.open_all([metas[number] for number in numbers])
            for number, manifest in zip(numbers, opened, strict=True):
                if size + metas[number].file_size <= _MAX_KEPT_BYTES:
                    kept[number] = manifest
                    size += metas[number].file_size
                yield manifest

        deleted = DeletedFiles.of(open_to_find_deletes())

        def select_partitions(candidates: Sequence[bytes]) -> Collection[bytes]:
            assert partitions is not None
            with wrap_decode_errors(self.paths.manifest_dir):
                return set(partitions(candidates))

        others = self.open_all([meta for n, meta in enumerate(metas) if n not in kept])
        opened = (kept.pop(n) if n in kept else next(others) for n in range(len(metas)))
        selector = None if partitions is None else select_partitions
        live = iterate_live_rows(opened, deleted, selector, levels)
        for number, (manifest, rows) in enumerate(live):
            yield number, manifest, rows

    def read_delta_entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Read the entries that one commit added and deleted."""
        return self.entries(self.read_delta_list(snapshot))

    def open_all(self, metas: Iterable[ManifestFileMeta]) -> Iterator[Manifest]:
        """Yield the manifests as columns; reads some of the next ones at the same time.

        Raises :class:`CorruptFileError` for wrong counts, and for more entries than the memory that
        is allowed for all manifests together.
        """
        metas = list(metas)
        with wrap_decode_errors(self.paths.manifest_dir):
            entries = sum(meta.num_added_files + meta.num_deleted_files for meta in metas)
            check_decoded_bytes(
                _ENTRY_BYTES * entries,
                sum(meta.file_size for meta in metas),
                f"{len(metas)} manifests have {entries} entries",
            )
        for meta, (data, path) in zip(metas, self._read_all(metas), strict=True):
            yield _open_manifest(meta, data, path)

    def _read_all(self, metas: Iterable[ManifestFileMeta]) -> Iterator[tuple[bytes, str]]:
        """Yield the content and path of each manifest."""
        return map_concurrently(
            self.io, lambda m: self._read_bytes(m.file_name, m.file_size), metas
        )

    def open(self, meta: ManifestFileMeta) -> Manifest:
        """Read a manifest as columns; raises :class:`CorruptFileError` for wrong counts."""
        return _open_manifest(meta, *self._read_bytes(meta.file_name, meta.file_size))

    def read_index_entries(self, snapshot: Snapshot | None) -> list[IndexManifestEntry]:
        """Read the index files of a snapshot."""
        if snapshot is None or snapshot.index_manifest is None:
            return []
        return self.index_manifest(snapshot.index_manifest)

    def index_manifest(self, name: str) -> list[IndexManifestEntry]:
        """Read an index manifest."""
        return decode_index_manifest(*self._read_bytes(name))


def _open_manifest(meta: ManifestFileMeta, data: bytes, path: str) -> Manifest:
    """Return a manifest as columns, after a comparison with its counts in the manifest list."""
    manifest = open_manifest(data, path)
    deleted = int(manifest.kinds.sum())
    added = len(manifest) - deleted
    if (added, deleted) != (meta.num_added_files, meta.num_deleted_files):
        raise CorruptFileError(
            path,
            f"adds {added} and deletes {deleted} files, not {meta.num_added_files} and "
            f"{meta.num_deleted_files} as in its manifest list",
        )
    return manifest


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause cyclic garbage collection, which would repeatedly traverse many new objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class ManifestWriter:
    """Writes the manifests of one commit at the same time, and can delete them if it fails.

    Files are encoded at once; :meth:`flush` writes them.
    """

    def __init__(self, io: FileIO, paths: TablePaths, schema: TableSchema) -> None:
        options = schema.typed_options
        self._io, self._paths, self._schema = io, paths, schema
        self._encoding = ManifestEncoding.of(options)
        self._target = options.get(MANIFEST_TARGET_FILE_SIZE)
        self._names = FileNameGenerator()
        self._pending: dict[str, bytes] = {}
        self._pending_bytes = 0
        self._written = set[str]()
        self._superseded = set[str]()

    @property
    def schema(self) -> TableSchema:
        """Return the schema of the entries."""
        return self._schema

    def with_schema(self, schema: TableSchema) -> "ManifestWriter":
        """Return a writer for another schema that also deletes the files of this one."""
        writer = ManifestWriter(self._io, self._paths, schema)
        writer._superseded = self._written | self._superseded
        return writer

    def _add(self, name: str, data: bytes) -> tuple[str, int]:
        """Add a file to those that :meth:`flush` writes; write them now if they are large."""
        self._pending[name] = data
        self._pending_bytes += len(data)
        if self._pending_bytes > _MAX_PENDING_BYTES:
            self.flush()
        return name, len(data)

    def flush(self) -> None:
        """Write the new files at the same time; if a write fails, the others end before."""
        files = list(self._pending.items())
        self._written.update(self._pending)
        self._pending, self._pending_bytes = {}, 0
        run_concurrently(self._io, self._write, files)

    def _write(self, file: tuple[str, bytes]) -> None:
        name, data = file
        path = f"{self._paths.manifest_dir}/{name}"
        with self._io.open_output(path) as sink:
            sink.write(data)
        if self._io.capabilities.has_slow_requests:
            keep_written_file(self._io, path, data)

    def manifests(self, entries: Sequence[ManifestEntry]) -> list[ManifestFileMeta]:
        """Add manifests of the target size or a bit more; add none if there are no entries.

        A commit merges manifests below the target size, so only the last one may be smaller.
        """
        added: list[ManifestFileMeta] = []
        step, start = self._estimate_entries_per_manifest(entries), 0
        while start < len(entries):
            part = entries[start : start + step]
            data = encode_manifest(part, self._encoding)
            if len(data) < self._target and start + step < len(entries):
                step = max(step + 1, int(step * self._target / len(data) * _SIZE_MARGIN))
                continue
            name, size = self._add(self._names.next("manifest-"), data)
            fields = self._schema.partition_fields
            with wrap_decode_errors(self._paths.manifest_dir):  # entries may be copied
                added.append(ManifestFileMeta.of(name, size, part, fields, self._schema.id))
            start += len(part)
        return added

    def _estimate_entries_per_manifest(self, entries: Sequence[ManifestEntry]) -> int:
        """Estimate from a sample how many entries fill a manifest.

        At most 1,000 entries are written to one manifest without an estimate.
        """
        if len(entries) <= 1_000:
            return max(1, len(entries))
        sample = entries[:: len(entries) // 250]
        size = len(encode_manifest(sample, self._encoding))
        return max(1, int(self._target * len(sample) / size * _SIZE_MARGIN))

    def manifest_list(self, manifests: Iterable[ManifestFileMeta]) -> tuple[str, int]:
        """Add a manifest list, which may be empty; return its name and size."""
        data = encode_manifest_list(manifests, self._encoding)
        return self._add(self._names.next("manifest-list-"), data)

    def index_manifest(self, entries: Iterable[IndexManifestEntry]) -> str:
        """Add an index manifest, which may be empty; return its name."""
        data = encode_index_manifest(entries, self._encoding)
        return self._add(self._names.next("index-manifest-"), data)[0]

    def keep_only(self, names: Collection[str]) -> None:
        """Note that the commit does not use its other files; those are not written or deleted.

        :meth:`remove_superseded` deletes those that were written.
        """
        self._pending = {name: data for name, data in self._pending.items() if name in names}
        self._pending_bytes = sum(map(len, self._pending.values()))
        self._superseded |= self._written.difference(names)
        self._written.intersection_update(names)

    def remove_superseded(self) -> None:
        """Delete the files that the commit does not use; log a warning if that fails."""
        self._delete(self._superseded)

    def remove(self) -> None:
        """Delete all written files; log a warning if that fails.

        Call this only if the commit certainly failed.
        """
        self._pending, self._pending_bytes = {}, 0
        self._delete(self._written | self._superseded)

    def _delete(self, names: set[str]) -> None:
        paths = [f"{self._paths.manifest_dir}/{name}" for name in names]
        try:
            run_concurrently(self._io, self._io.delete, paths)
        except (OSError, PaimonError) as error:
            logger.warning("%s: unused manifests remain: %s", self._paths.root, error)
        else:
            names.clear()
