"""Reads and writes the manifests of a table.

See docs/format/manifest.md.
"""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from paimon_orch.errors import CorruptFileError, MissingFileError, wrap_decode_errors
from paimon_orch.format.arrays import Indices
from paimon_orch.format.manifest.columnar_manifest import Manifest, open_manifest
from paimon_orch.format.manifest.index_manifest import (
    IndexManifestEntry,
    decode_index_manifest,
    encode_index_manifest,
)
from paimon_orch.format.manifest.live_entries import read_live_entries
from paimon_orch.format.manifest.manifest_entry import ManifestEntry, encode_manifest
from paimon_orch.format.manifest.manifest_format import check_manifest_format
from paimon_orch.format.manifest.manifest_list import (
    ManifestFileMeta,
    decode_manifest_list,
    encode_manifest_list,
)
from paimon_orch.format.options.core_options import MANIFEST_TARGET_FILE_SIZE
from paimon_orch.format.paths import FileNameGenerator, TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage import FileIO
from paimon_orch.table.metadata.metadata_io import read_metadata_file

ManifestFilter = Callable[[ManifestFileMeta], bool]
ManifestSelector = Callable[[Sequence[ManifestFileMeta]], Sequence[ManifestFileMeta]]
PartitionSelector = Callable[[Sequence[bytes]], Collection[bytes]]
EntrySelector = Callable[[Manifest, Indices], Indices]


@dataclass(frozen=True, slots=True)
class ManifestReader:
    """Reads the manifests of snapshots."""

    io: FileIO
    paths: TablePaths

    def _read_bytes(self, name: str, size: int | None = None) -> tuple[bytes, str]:
        """Return the content and path of a file of the expected size."""
        path = f"{self.paths.manifest_dir}/{name}"
        try:
            data = read_metadata_file(self.io, path)
        except FileNotFoundError:
            raise MissingFileError(path, "is missing, but a snapshot needs it") from None
        if size is not None and size != len(data):
            raise CorruptFileError(
                path, f"has {len(data)} bytes, not {size} as in the file that references it"
            )
        return data, path

    def manifest_list(self, name: str, size: int | None = None) -> list[ManifestFileMeta]:
        """Read a manifest list; ``size`` is its size in the snapshot."""
        return decode_manifest_list(*self._read_bytes(name, size))

    def manifests(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """Return the base manifests of a snapshot, then its delta manifests."""
        return [
            *self.manifest_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            *self._read_delta_list(snapshot),
        ]

    def _read_delta_list(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        return self.manifest_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)

    def entries(
        self, manifests: Iterable[ManifestFileMeta], keep: ManifestFilter | None = None
    ) -> list[ManifestEntry]:
        """Read the entries of the manifests that ``keep`` selects, in the order of manifests."""
        with _disable_gc():
            return [
                entry
                for meta in manifests
                if keep is None or keep(meta)
                for entry in self.open(meta).entries()
            ]

    def read_live_entries(
        self,
        snapshot: Snapshot,
        *,
        manifests: ManifestSelector | None = None,
        partitions: PartitionSelector | None = None,
        levels: range | None = None,
        choose: EntrySelector | None = None,
    ) -> list[ManifestEntry]:
        """Return the entries of a snapshot's live files, in the order of its manifests.

        ``manifests`` selects the manifests to open. It must not separate the ADD and the DELETE of
        a file, so it may only use the partition, bucket and level. ``partitions`` selects from the
        distinct serialized partitions. ``choose`` selects entries of a manifest by their index.
        Entry objects are created only for selected entries.
        """
        with _disable_gc():
            metas = self.manifests(snapshot)
            opened = list(map(self.open, metas if manifests is None else manifests(metas)))
            selected = None
            if partitions is not None:
                parts = (part for manifest in opened for part in manifest.partitions())
                with wrap_decode_errors(self.paths.manifest_dir):
                    selected = set(partitions(list(dict.fromkeys(parts))))
            return read_live_entries(opened, selected, levels, choose)

    def read_delta_entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Read the entries that one commit added and deleted."""
        return self.entries(self._read_delta_list(snapshot))

    def open(self, meta: ManifestFileMeta) -> Manifest:
        """Read a manifest as columns; raises :class:`CorruptFileError` for wrong counts."""
        data, path = self._read_bytes(meta.file_name, meta.file_size)
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

    def read_index_entries(self, snapshot: Snapshot | None) -> list[IndexManifestEntry]:
        """Read the index files of a snapshot."""
        if snapshot is None or snapshot.index_manifest is None:
            return []
        return self.index_manifest(snapshot.index_manifest)

    def index_manifest(self, name: str) -> list[IndexManifestEntry]:
        """Read an index manifest."""
        return decode_index_manifest(*self._read_bytes(name))


@contextmanager
def _disable_gc() -> Iterator[None]:
    """Disable cyclic garbage collection, which would repeatedly traverse all entries."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class ManifestWriter:
    """Writes the manifests of one commit, and can delete them if the commit fails."""

    def __init__(self, io: FileIO, paths: TablePaths, schema: TableSchema) -> None:
        check_manifest_format(schema.typed_options)
        options = schema.typed_options
        self._io, self._paths, self._schema = io, paths, schema
        self._codec, self._level = options.manifest_codec, options.zstd_level
        self._target = options.get(MANIFEST_TARGET_FILE_SIZE)
        self._names = FileNameGenerator()
        self.written: list[str] = []

    def _write(self, name: str, data: bytes) -> tuple[str, int]:
        path = f"{self._paths.manifest_dir}/{name}"
        self.written.append(path)
        with self._io.open_output(path) as sink:
            sink.write(data)
        return name, len(data)

    def manifests(self, entries: Sequence[ManifestEntry]) -> list[ManifestFileMeta]:
        """Write entries to manifests of about the target size; writes none if there are none."""
        written: list[ManifestFileMeta] = []
        step = self._estimate_entries_per_manifest(entries)
        for start in range(0, len(entries), step):
            part = entries[start : start + step]
            data = encode_manifest(part, self._codec, self._level)
            name, size = self._write(self._names.next("manifest-"), data)
            fields = self._schema.partition_fields
            written.append(ManifestFileMeta.of(name, size, part, fields, self._schema.id))
        return written

    def _estimate_entries_per_manifest(self, entries: Sequence[ManifestEntry]) -> int:
        """Estimate from a sample how many entries fill a manifest.

        At most 1,000 entries are written to one manifest without an estimate.
        """
        if len(entries) <= 1_000:
            return max(1, len(entries))
        sample = entries[:: len(entries) // 250]
        size = len(encode_manifest(sample, self._codec, self._level))
        return max(1, self._target * len(sample) // size)

    def manifest_list(self, manifests: Iterable[ManifestFileMeta]) -> tuple[str, int]:
        """Write a manifest list, which may be empty; return its name and size."""
        data = encode_manifest_list(manifests, self._codec, self._level)
        return self._write(self._names.next("manifest-list-"), data)

    def index_manifest(self, entries: Iterable[IndexManifestEntry]) -> str:
        """Write an index manifest, which may be empty; return its name."""
        data = encode_index_manifest(entries, self._codec, self._level)
        return self._write(self._names.next("index-manifest-"), data)[0]

    def remove(self) -> None:
        """Delete all written files. Call this only if the commit certainly failed."""
        for path in self.written:
            self._io.delete(path)
        self.written.clear()
