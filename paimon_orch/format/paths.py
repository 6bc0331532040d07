"""Computes the paths of the files of a table as strings, without I/O.

See docs/format/table-layout.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from paimon_orch.errors import CorruptFileError, UnsupportedError
from paimon_orch.format.external_paths import (
    DataFilePathFactory,
    ExternalPaths,
    NewFilePath,
    normalize_external_uri,
    parse_store_scheme,
    strip_file_scheme,
)
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import (
    DATA_FILE_PATH_DIRECTORY,
    GLOBAL_INDEX_EXTERNAL_PATH,
    INDEX_FILE_IN_DATA_FILE_DIR,
)
from paimon_orch.format.partition_path import build_directory_name, format_partition_values
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field

POSTPONE_BUCKET = -2
MAIN_BRANCH = "main"
BLOB_SUFFIX = ".blob"
MANAGED_BLOB_SUFFIX = ".managed.blob"
"""The suffix of files with BLOB values of a primary-key table."""


def bucket_dir_name(bucket: int) -> str:
    """Return the directory name of a bucket."""
    return "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{bucket}"


@dataclass(frozen=True, slots=True)
class TablePaths:
    """Absolute paths of one table and branch; ``root`` has no trailing slash."""

    root: str
    branch: str = MAIN_BRANCH

    find_directory: Callable[[str, str, Field], str] | None = field(
        default=None, repr=False, compare=False
    )
    """Returns the name of the directory of a partition value, which another writer may have created:
    from the path of its parent, its name in this library, and the partition column."""

    @property
    def branch_root(self) -> str:
        """Return the directory of the branch, with its schemas, snapshots and tags."""
        return (
            self.root if self.branch == MAIN_BRANCH else f"{self.root}/branch/branch-{self.branch}"
        )

    @property
    def schema_dir(self) -> str:
        """Return the directory of schema files."""
        return f"{self.branch_root}/schema"

    @property
    def snapshot_dir(self) -> str:
        """Return the directory of snapshots and their hints."""
        return f"{self.branch_root}/snapshot"

    @property
    def changelog_dir(self) -> str:
        """Return the directory of changelogs of expired snapshots, and their hints."""
        return f"{self.branch_root}/changelog"

    @property
    def tag_dir(self) -> str:
        """Return the directory of tags."""
        return f"{self.branch_root}/tag"

    @property
    def manifest_dir(self) -> str:
        """Return the directory of manifests, manifest lists and index manifests."""
        return f"{self.root}/manifest"

    @property
    def index_dir(self) -> str:
        """Return the directory of index files."""
        return f"{self.root}/index"

    @property
    def statistics_dir(self) -> str:
        """Return the directory of statistics files."""
        return f"{self.root}/statistics"

    def bucket_dir(self, schema: TableSchema, partition: bytes, bucket: int) -> str:
        """Return the directory of a bucket; ``partition`` is the serialized partition row."""
        return f"{self.root}/{self._relative_bucket_dir(schema, partition, bucket)}"

    def _relative_bucket_dir(self, schema: TableSchema, partition: bytes, bucket: int) -> str:
        options = schema.typed_options
        values = schema.decode_partition(partition)
        names = format_partition_values(values, schema.partition_fields, options)
        parent = (options.get(DATA_FILE_PATH_DIRECTORY) or "").strip("/")
        prefix = f"{parent}/" if parent else ""
        return f"{self.extend_by_partition(prefix, schema, names)}{bucket_dir_name(bucket)}"

    def extend_by_partition(self, path: str, schema: TableSchema, names: Mapping[str, str]) -> str:
        """Add ``k1=v1/k2=v2/`` to a path below the root; ``names`` are the texts of the values."""
        for each in schema.partition_fields:
            name = build_directory_name(each.name, names[each.name])
            if self.find_directory is not None:
                name = self.find_directory(f"{self.root}/{path}".rstrip("/"), name, each)
            path += f"{name}/"
        return path

    def create_data_file_path_factory(
        self, schema: TableSchema, partition: bytes, bucket: int
    ) -> DataFilePathFactory:
        """Return a factory for the paths of new data files of a bucket.

        Raises :class:`InputError` or :class:`UnsupportedError` for external paths that cannot be
        written.
        """
        external = ExternalPaths.of(schema.typed_options, self.root)
        relative = self._relative_bucket_dir(schema, partition, bucket)
        return DataFilePathFactory(self.root, relative, external)

    def data_file(
        self, schema: TableSchema, partition: bytes, bucket: int, file: DataFileMeta
    ) -> str:
        """Return the path of a data file: in its bucket, or its external path."""
        if file.external_path is None:
            return f"{self.bucket_dir(schema, partition, bucket)}/{file.file_name}"
        if not file.external_path.endswith(f"/{file.file_name}") or "/../" in file.external_path:
            raise CorruptFileError(
                file.external_path, f"is not a path of the file {file.file_name}"
            )
        return self._resolve_external_path(file.external_path)

    def _resolve_external_path(self, uri: str) -> str:
        path = strip_file_scheme(uri)
        if parse_store_scheme(path) != parse_store_scheme(self.root):
            raise UnsupportedError(
                f"{uri} is in a different store from the table, {self.root}; "
                "tables whose files are in several stores are not supported"
            )
        return path

    def index_file(self, schema: TableSchema, entry: IndexManifestEntry) -> str:
        """Return the path of an index file."""
        if entry.external_path is not None:
            return self._resolve_external_path(entry.external_path)
        if schema.typed_options.get(INDEX_FILE_IN_DATA_FILE_DIR):
            bucket_dir = self.bucket_dir(schema, entry.partition, entry.bucket)
            return f"{bucket_dir}/{entry.file_name}"
        return f"{self.index_dir}/{entry.file_name}"

    def new_index_file(
        self, schema: TableSchema, partition: bytes, bucket: int, name: str
    ) -> NewFilePath:
        """Return the path of a new index file."""
        options = schema.typed_options
        if options.get(INDEX_FILE_IN_DATA_FILE_DIR):
            return self.create_data_file_path_factory(schema, partition, bucket).place(name)
        if uri := (options.get(GLOBAL_INDEX_EXTERNAL_PATH) or "").strip():
            external = (
                f"{normalize_external_uri(GLOBAL_INDEX_EXTERNAL_PATH.key, uri, self.root)}/{name}"
            )
            return NewFilePath(strip_file_scheme(external), external)
        return NewFilePath(f"{self.index_dir}/{name}")


class FileNameGenerator:
    """Generates unique names: one random id, and a counter per kind.

    See docs/format/table-layout.md#directory-tree.
    """

    def __init__(self) -> None:
        self._uuid = uuid4()
        self._counters: dict[str, int] = {}

    def next(self, prefix: str, suffix: str = "") -> str:
        """Return the next name, ``<prefix><uuid>-<n><suffix>``."""
        number = self._counters.get(prefix, 0)
        self._counters[prefix] = number + 1
        return f"{prefix}{self._uuid}-{number}{suffix}"


_COMPRESSED_SUFFIXES = {"gz", "bz2", "deflate", "snappy", "lz4", "zst", "zstd"}


def is_blob_file(name: str) -> bool:
    """Return whether a data file has the values of one BLOB column, and nothing else."""
    return name.endswith(BLOB_SUFFIX) and not name.endswith(MANAGED_BLOB_SUFFIX)


def parse_file_format(name: str) -> str:
    """Return the file format from the name of a data file.

    See docs/format/table-layout.md#file-names.
    """
    parts: Sequence[str] = name.lower().split(".")
    if len(parts) > 2 and parts[-1] in _COMPRESSED_SUFFIXES:
        return parts[-2]
    return parts[-1]
