"""The deletion vectors of one bucket while it is compacted.

See docs/format/deletion-vectors-in-compaction.md#vectors-of-a-bucket.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paimon_orch.errors import CorruptFileError, wrap_decode_errors
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.deletion_vector import (
    DeletionVector,
    decode_deletion_vector_file,
    encode_deletion_vector_file,
)
from paimon_orch.format.manifest.index_manifest import DELETION_VECTORS_INDEX, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.paths import FileNameGenerator, TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage import FileIO
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.storage.recent_inputs import RecentInputs


def read_deletion_vectors(
    io: FileIO,
    paths: TablePaths,
    schema: TableSchema,
    entries: Iterable[IndexManifestEntry],
    *,
    inputs: RecentInputs | None = None,
) -> dict[str, DeletionVector]:
    """Return the deletion vectors of index files by data file name.

    ``inputs`` has the files that :func:`open_vectors_ahead` has started to open.
    """
    by_path: dict[str, IndexManifestEntry] = {}
    for entry in entries:
        path = paths.index_file(schema, entry)
        if entry.ranges and by_path.setdefault(path, entry) != entry:
            raise CorruptFileError(path, "has different entries in the index manifest")

    def read(item: tuple[str, IndexManifestEntry]) -> dict[str, DeletionVector]:
        path, entry = item
        with wrap_decode_errors(path):
            data = (inputs or RecentInputs()).read_bytes(io, path, entry.file_size)
        return decode_deletion_vector_file(data, entry.ranges or (), path)

    vectors: dict[str, DeletionVector] = {}
    for of_file in map_concurrently(io, read, by_path.items()):
        vectors |= of_file
    return vectors


def open_vectors_ahead(reader: FileReader, entries: Iterable[IndexManifestEntry]) -> bool:
    """Start to open index files of deletion vectors; return False if too many files are open."""
    return all(
        reader.inputs.start(
            reader.io, reader.paths.index_file(reader.schema, entry), entry.file_size
        )
        for entry in entries
        if entry.ranges
    )


@dataclass(slots=True)
class BucketDeletionVectors:
    """The deletion vectors of a bucket while it is compacted."""

    vectors: dict[str, DeletionVector]
    modified: bool = field(default=False)
    """Whether the deletion vectors differ from the stored ones."""
    new_deletion_vectors: dict[str, DeletionVector] = field(default_factory=dict)
    """The deletion vectors that this compaction added, without the stored ones."""

    def add(self, added: Mapping[str, DeletionVector]) -> None:
        """Add the deleted rows of data files."""
        for name, vector in added.items():
            for vectors in (self.vectors, self.new_deletion_vectors):
                existing = vectors.get(name)
                vectors[name] = vector if existing is None else existing | vector
            self.modified = True

    def drop(self, name: str) -> None:
        """Drop the deletion vector of a file that was rewritten."""
        if self.vectors.pop(name, None) is not None:
            self.modified = True

    def write(
        self, io: FileIO, paths: TablePaths, schema: TableSchema, partition: bytes, bucket: int
    ) -> IndexManifestEntry | None:
        """Write an index file with all deletion vectors, if they changed; the file may be empty."""
        if not self.modified:
            return None
        data, ranges = encode_deletion_vector_file(
            self.vectors, bitmap64=schema.typed_options.bitmap64
        )
        name = FileNameGenerator().next("index-")
        location = paths.new_index_file(schema, partition, bucket, name)
        with io.open_output(location.path) as sink:
            sink.write(data)
        return IndexManifestEntry(
            kind=FileKind.ADD,
            partition=partition,
            bucket=bucket,
            index_type=DELETION_VECTORS_INDEX,
            file_name=name,
            file_size=len(data),
            row_count=len(ranges),
            ranges=ranges,
            external_path=location.external,
        )
