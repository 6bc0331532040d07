"""Deletion vectors of append tables, and the rewrite of their index files.

See docs/format/deletion-vectors-in-compaction.md#append-tables and
docs/format/append-table-compaction.md#tables-without-buckets.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.files.uncommitted_files import UncommittedFiles, delete_unused_files
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.options.core_options import DELETION_VECTOR_INDEX_FILE_TARGET_SIZE
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)


@dataclass(slots=True, kw_only=True)
class DeletionVectorRewrite(UncommittedFiles):
    """Rewrites the index files of one bucket whose deletion vectors change."""

    reader: FileReader
    partition: bytes
    bucket: int
    index_files: tuple[IndexManifestEntry, ...]
    """The index files of the bucket."""
    live: Collection[str]
    """The live data files; deletion vectors of other files are dropped."""
    written: list[IndexManifestEntry] = field(default_factory=list)
    """The index files written so far."""

    def run(
        self, *, drop: Collection[str] = (), add: Mapping[str, DeletionVector] | None = None
    ) -> list[IndexManifestEntry]:
        """Drop the deletion vectors of some data files, add others, and return the index changes.

        A bucket has one index file, which is replaced. In a table without buckets every index file
        with a changed deletion vector is deleted, and its other deletion vectors are written again.
        """
        added = add or {}
        changed = {*drop, *added}
        touched = [
            entry
            for entry in self.index_files
            if any(item.data_file in changed for item in entry.ranges or ())
        ]
        if not touched and not added:
            return []
        reader = self.reader
        is_unaware = reader.schema.is_bucket_unaware
        old = read_deletion_vectors(
            reader.io, reader.paths, reader.schema, touched if is_unaware else self.index_files
        )
        unchanged = {
            name: vector
            for name, vector in old.items()
            if name in self.live and name not in drop and name not in added
        }
        extended = {
            name: old[name] | vector if name in old else vector for name, vector in added.items()
        }
        if not is_unaware:
            return [self._write(unchanged | extended)]
        written = [
            self._write(part)
            for group in (unchanged, extended)
            for part in self._split_by_target_size(group)
        ]
        return [*(entry.deleted() for entry in touched), *written]

    def _split_by_target_size(
        self, vectors: Mapping[str, DeletionVector]
    ) -> Iterator[dict[str, DeletionVector]]:
        """Group deletion vectors by index file; a file over the target size is complete."""
        options = self.reader.schema.typed_options
        target = options.get(DELETION_VECTOR_INDEX_FILE_TARGET_SIZE)
        part, size = dict[str, DeletionVector](), 1
        for name, vector in vectors.items():
            part[name] = vector
            size += len(vector.encode_payload(bitmap64=options.bitmap64)) + 8
            if size > target:
                yield part
                part, size = {}, 1
        if part:
            yield part

    def _write(self, vectors: Mapping[str, DeletionVector]) -> IndexManifestEntry:
        reader = self.reader
        holder = BucketDeletionVectors(dict(vectors), modified=True)
        entry = holder.write(reader.io, reader.paths, reader.schema, self.partition, self.bucket)
        assert entry is not None
        self.written.append(entry)
        return entry

    def delete_files(self) -> None:
        """Delete every written index file."""
        reader = self.reader
        files = (reader.paths.index_file(reader.schema, entry) for entry in self.written)
        delete_unused_files(reader.io, files)
