"""Finds the candidates of orphan file removal: old files in a table's directories.

See docs/format/orphan-files.md#removing-orphan-files.
"""

import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import PaimonError, StorageError, raise_if_temporary
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options.core_options import DATA_FILE_PATH_DIRECTORY
from paimon_orch.format.partition_path import (
    escape_path_name,
    normalize_directory_name,
    unescape_path_name,
)
from paimon_orch.format.paths import MANAGED_BLOB_SUFFIX, TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.cleanup.data_roots import TABLE_FOLDERS
from paimon_orch.table.filter.partition_spec import build_directory_names, build_partition_matcher
from paimon_orch.table.metadata.branches import BRANCH_DIRECTORY
from paimon_orch.table.metadata.changelog_store import CHANGELOG_PREFIX
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.small_listings import NewestFiles
from paimon_orch.table.metadata.snapshot_store import EARLIEST, LATEST, SNAPSHOT_PREFIX

# The keys are directories of a branch; the values are the prefixes of their regular file names.
_BRANCH_FOLDERS = {
    "snapshot": (SNAPSHOT_PREFIX, EARLIEST, LATEST),
    "changelog": (CHANGELOG_PREFIX, EARLIEST, LATEST),
}
_MAX_SMALL_TREE = 1_000
"""The number of files that a store lists by one request."""
_TEMPORARY_FOLDERS = ("schema", "tag", "consumer")
_SHARED_FOLDERS = ("manifest", "index", "statistics")
_DirectoryNames = Mapping[str, set[str]]  # directory names by partition column


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanSearch:
    """The data that all units of an orphan search share."""

    io: FileIO
    reader: ManifestReader
    before: float
    """Epoch seconds; only files whose last write was before this time are listed."""
    partition_fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchedDirectory:
    """A directory in which a unit lists the files: those of a bucket, or of all buckets below it."""

    path: str

    levels: int | None = None
    """The number of levels of partition directories below it, or None if it has the files itself.

    0 stands for the directory of a partition, which has bucket directories.
    """

    specs: tuple["_DirectoryNames", ...] | None = None
    """The partitions to search below the directory; None means all."""

    modified: float | None = None
    """The modification time of a bucket directory, which is removed if it is old and empty."""


@dataclass(frozen=True, slots=True)
class ListingUnit:
    """Directories in which to list old files."""

    directories: tuple[SearchedDirectory, ...]


@dataclass(frozen=True, slots=True)
class ListedUnit:
    """Files that are listed already, on a store without directories."""

    files: tuple[FileInfo, ...]


@dataclass(frozen=True, slots=True)
class FileTree:
    """All files below the directories of a table, from a store without directories."""

    directories: Mapping[str, Sequence[FileInfo]]

    @classmethod
    def read(cls, io: FileIO, roots: Iterable[str]) -> "FileTree | None":
        """List all files below some directories; return None if the store has directories."""
        trees = [io.list_tree(root) for root in roots]
        files = [info for tree in trees for info in tree or ()]
        return None if None in trees else cls(_group_by_directory(files))

    @classmethod
    def read_small(cls, io: FileIO, root: str) -> "FileTree | None":
        """List all files below a directory, or return None if one request does not suffice."""
        files = io.list_few(f"{root}/", _MAX_SMALL_TREE)
        return None if files is None else cls(_group_by_directory(files))

    def find_newest_files(self, paths: TablePaths) -> NewestFiles:
        """Return the schemas and snapshots of a branch."""
        return NewestFiles(self.list_dir(paths.schema_dir), self.list_dir(paths.snapshot_dir))

    def list_dir(self, path: str) -> Sequence[FileInfo]:
        """Return the files directly below a path."""
        return self.directories.get(path, ())

    def list_versions(self, root: str) -> dict[str, Sequence[FileInfo]]:
        """Return the directories of the snapshots, tags and changelogs of a table.

        Returns nothing if it has branches: the tree has no directories that name them.
        """
        branches, main = f"{root}/{BRANCH_DIRECTORY}", TablePaths(root)
        if any(path.startswith(f"{branches}/") for path in self.directories):
            return {}
        versions = (main.snapshot_dir, main.tag_dir, main.changelog_dir, branches)
        return {path: self.list_dir(path) for path in versions}

    def find_files(
        self, paths: TablePaths, roots: Iterable[str], schema: TableSchema
    ) -> Iterator[FileInfo]:
        """Yield the metadata and index files, and the files of all buckets below data roots."""
        for directory in list_shared_directories(paths):
            yield from self.list_dir(directory.path)
        for root in roots:
            for path in self._find_buckets(_build_root(root, schema, None).path, schema):
                yield from self.list_dir(path)

    def _find_buckets(self, top: str, schema: TableSchema) -> Iterator[str]:
        """Yield the bucket directories; leaves out those of another table, as _expand_directory."""
        keys = [escape_path_name(key) for key in schema.partition_keys]
        tables, buckets = set[tuple[str, ...]](), list[tuple[str, tuple[str, ...]]]()
        for path, files in self.directories.items():
            if not path.startswith(f"{top}/"):
                continue
            parts = tuple(path.removeprefix(f"{top}/").split("/"))
            names = [*parts[: len(keys) + 1]]
            if len(parts) <= len(keys) and any(info.name in TABLE_FOLDERS for info in files):
                tables.add(parts)
            tables.update(
                parts[:level] for level in range(1, len(names)) if names[level] in TABLE_FOLDERS
            )
            is_bucket = len(parts) == len(keys) + 1 and parts[-1].startswith("bucket-")
            if is_bucket and all(map(_is_partition_of, parts, keys)):
                buckets.append((path, parts))
        for path, parts in buckets:
            if not any(parts[:level] in tables for level in range(1, len(parts))):
                yield path


def _group_by_directory(files: Iterable[FileInfo]) -> dict[str, list[FileInfo]]:
    directories = dict[str, list[FileInfo]]()
    for info in files:
        directories.setdefault(info.path.rpartition("/")[0], []).append(info)
    return directories


def _is_partition_of(name: str, key: str) -> bool:
    """Return whether a directory has a value of a partition column, whose name is escaped."""
    return name.partition("=")[:2] == (key, "=")


@dataclass(frozen=True, slots=True)
class OrphanCandidate:
    """A file that is old enough to be an orphan; ``size`` is in bytes."""

    path: str
    size: int

    @property
    def name(self) -> str:
        """Return the last component of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ManifestUnit:
    """Manifests to read for the names of referenced files."""

    metas: tuple[ManifestFileMeta, ...]


_LISTING_COLUMNS = ("name", "directory", "size")


def list_names_by_part(
    search: OrphanSearch, unit: ListingUnit | ListedUnit | ManifestUnit, parts: int
) -> list[tuple[int, bytes]]:
    """List old files of directories, or referenced files of manifests: the map side of a shuffle.

    Pieces are Arrow tables: the columns of listed files, or only the names of referenced files.
    Ignores links, directories and managed blobs. Skips manifests that cannot be read: the caller
    reads them again and decides whether they may be missing.
    """
    if isinstance(unit, ListingUnit):
        table, summary = _list_directories(search, unit)
    elif isinstance(unit, ListedUnit):
        files = _select_old_files(search.io, unit, search.before)
        table, summary = files.to_table(), {}
    else:
        table, summary = _read_manifests(search.reader, unit)
    codes = np.zeros(table.num_rows, np.int64)
    if parts > 1:  # the part of a name is equal in all processes
        names = table["name"].to_pylist()
        codes = np.fromiter(map(zlib.crc32, names), np.int64, len(names)) % parts
    order = np.argsort(codes, kind="stable")
    ordered = table.take(pa.array(order)) if parts > 1 else table
    bounds = np.searchsorted(codes[order], np.arange(parts + 1)).tolist()
    pieces = []
    for part, (start, end) in enumerate(pairwise(bounds)):
        has_summary = part == 0 and any(summary.values())
        if end > start or has_summary:
            values = {"part": part} | (summary if part == 0 else {})
            pieces.append((part, _encode_piece(ordered.slice(start, end - start), values)))
    return pieces


def _encode_piece(table: pa.Table, values: Mapping[str, object]) -> bytes:
    table = table.combine_chunks().replace_schema_metadata({"values": json.dumps(values)})
    sink = BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _list_directories(
    search: OrphanSearch, unit: ListingUnit
) -> tuple[pa.Table, dict[str, object]]:
    """Return the old files, and the empty directories."""
    below = [found for each in unit.directories for found in _find_listed_directories(search, each)]

    def list_directory(directory: SearchedDirectory) -> list[FileInfo]:
        return list(search.io.list_dir(directory.path))

    files, empty = _OldFiles(_compute_safe_cutoff(search.io, search.before)), []
    listings = map_concurrently(search.io, list_directory, below)
    for directory, entries in zip(below, listings, strict=True):
        files.add(directory.path, entries)
        is_old = directory.modified is not None and directory.modified < search.before
        if not entries and is_old:
            empty.append(directory.path)
    return files.to_table(), {"empty": empty}


def list_old_names(io: FileIO, unit: ListedUnit, before: float) -> list[str]:
    """Return the names of listed files that were last written before a time in epoch seconds."""
    return list(map(_decode_name, _select_old_files(io, unit, before).names))


def _select_old_files(io: FileIO, unit: ListedUnit, before: float) -> "_OldFiles":
    files = _OldFiles(_compute_safe_cutoff(io, before))
    for directory, entries in groupby(unit.files, lambda info: info.path.rpartition("/")[0]):
        files.add(directory, entries)
    return files


@dataclass(slots=True)
class _OldFiles:
    """The columns of the files that were last written before a time in epoch seconds."""

    before: float
    names: list[bytes] = field(default_factory=list)
    directories: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    paths: list[bytes] = field(default_factory=list)

    def add(self, directory: str, entries: Iterable[FileInfo]) -> None:
        """Add the old files of a directory."""
        number = len(self.paths)
        self.paths.append(_encode_name(directory))
        for info in entries:
            if info.is_dir or info.is_link or info.modified >= self.before:
                continue
            if not info.name.endswith(MANAGED_BLOB_SUFFIX):
                self.names.append(_encode_name(info.name))
                self.directories.append(number)
                self.sizes.append(info.size)

    def to_table(self) -> pa.Table:
        """Return the columns of listed files."""
        columns = [
            pa.array(self.names, pa.binary()),
            pa.array(self.paths, pa.binary()).take(pa.array(self.directories, pa.int64())),
            pa.array(self.sizes, pa.int64()),
        ]
        return pa.Table.from_arrays(columns, names=_LISTING_COLUMNS)


def _read_manifests(
    reader: ManifestReader, unit: ManifestUnit
) -> tuple[pa.Table, dict[str, object]]:
    """Return the names of referenced files, and their number in each manifest that was read."""
    arrays = [pa.array([], pa.binary())]
    read = {}

    def read_names(meta: ManifestFileMeta) -> list[str] | None:
        try:
            manifest = reader.open(meta)
            return [*manifest.names, *manifest.extra_file_names()]
        except PaimonError as error:  # the caller reads the manifest, and raises the error
            raise_if_temporary(error)
            return None

    found = map_concurrently(reader.io, read_names, unit.metas)
    for meta, names in zip(unit.metas, found, strict=True):
        if names is not None:
            arrays.append(pa.array(list(map(_encode_name, names)), pa.binary()))
            read[meta.file_name] = len(names)
    return pa.Table.from_arrays([pa.concat_arrays(arrays)], names=["name"]), {"read": read}


def _find_listed_directories(
    search: OrphanSearch, directory: SearchedDirectory
) -> Iterator[SearchedDirectory]:
    """Yield the directories with files: this one, or the bucket directories below it."""
    if directory.levels is None:
        yield directory
        return
    for below in _expand_directory(search.io, directory, search.partition_fields):
        yield from _find_listed_directories(search, below)


def _encode_name(name: str) -> bytes:
    """Encode a file name, which may be invalid Unicode."""
    return name.encode("utf-8", "surrogatepass")


def _decode_name(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")


def find_unreferenced_names(pieces: Sequence[bytes]) -> bytes:
    """Return the listed files of a part that no manifest names, and counts, as JSON."""
    listings, referenced = [], [pa.array([], pa.binary())]
    parts, empty, read = set[int](), list[str](), dict[str, int]()
    for piece in pieces:
        with pa.ipc.open_stream(piece) as stream:
            table = stream.read_all()
        values = json.loads(table.schema.metadata[b"values"])
        parts.add(values["part"])
        empty += values.get("empty", ())
        read |= values.get("read", {})
        if "directory" in table.schema.names:
            listings.append(table.replace_schema_metadata())
        else:
            referenced += table["name"].chunks
    names = pa.concat_arrays(referenced)
    scanned = sum(table.num_rows for table in listings)
    unreferenced: dict[str, dict[str, int]] = {}
    if listings:
        listed = pa.concat_tables(listings)
        # is_in compares the bytes of names, not only their hashes
        orphans = listed.filter(pc.invert(pc.is_in(listed["name"], value_set=names)))
        for row in orphans.to_pylist():
            directory = unreferenced.setdefault(_decode_name(row["directory"]), {})
            directory[_decode_name(row["name"])] = row["size"]
    return json.dumps([[*parts], unreferenced, scanned, len(names), empty, read]).encode()


@dataclass(frozen=True, slots=True)
class OrphanListing:
    """Old files that no manifest of ``manifests`` names."""

    files: list[OrphanCandidate] = field(default_factory=list)

    empty: list[str] = field(default_factory=list)
    """Empty directories."""

    manifests: list[str] = field(default_factory=list)
    """The names of the manifests that were read."""

    scanned: int = 0
    """The number of old files."""

    @classmethod
    def of(cls, results: Iterable[bytes]) -> "OrphanListing":
        """Combine the results of :func:`find_unreferenced_names`.

        Raises :class:`StorageError` if names were lost between tasks or a part was split between
        two tasks, because referenced files would then look like orphans.
        """
        files, empty, read, parts = (
            list[OrphanCandidate](),
            list[str](),
            dict[str, int](),
            list[int](),
        )
        scanned = received = 0
        for result in results:
            part_numbers, unreferenced, file_count, name_count, empty_directories, manifests = (
                json.loads(result)
            )
            files += [
                OrphanCandidate(f"{directory}/{name}", size)
                for directory, sizes in unreferenced.items()
                for name, size in sizes.items()
            ]
            scanned, received = scanned + file_count, received + name_count
            parts += part_numbers
            empty += empty_directories
            read |= manifests
        if received != sum(read.values()) or len(parts) != len(set(parts)):
            raise StorageError(
                f"{sum(read.values())} file names were read from manifests, but {received} names "
                f"in {len(set(parts))} parts were compared with stored files, by {len(parts)} "
                "tasks: names were lost between tasks, or a part was split. Nothing was deleted; "
                "try again"
            )
        return cls(sorted(files, key=lambda file: file.path), sorted(empty), list(read), scanned)


def _compute_safe_cutoff(io: FileIO, before: float) -> float:
    """Return the modification time before which all files were written before ``before``."""
    return before - io.time_precision_seconds


def list_shared_directories(paths: TablePaths) -> list[SearchedDirectory]:
    """Return the directories of metadata and index files."""
    return [SearchedDirectory(f"{paths.root}/{name}") for name in _SHARED_FOLDERS]


def find_partition_directories(
    io: FileIO,
    root: str,
    schema: TableSchema,
    *,
    specs: Iterable[Mapping[str, object]] | None = None,
    enough: int,
) -> list[SearchedDirectory]:
    """Return directories with all buckets below a data root, with ``specs`` of some partitions.

    Lists levels of partitions, and the buckets, only until there are ``enough`` directories.
    """
    level, fields = [_build_root(root, schema, specs)], tuple(schema.partition_fields)
    while level and level[0].levels is not None and len(level) < enough:
        level = [below for each in level for below in _expand_directory(io, each, fields)]
    return level


def has_bucket_directories(
    io: FileIO, root: str, schema: TableSchema, spec: Mapping[str, object]
) -> bool:
    """Return whether a matching partition has a bucket directory below a data root."""
    return bool(find_partition_directories(io, root, schema, specs=[spec], enough=sys.maxsize))


def _build_root(
    root: str, schema: TableSchema, specs: Iterable[Mapping[str, object]] | None
) -> SearchedDirectory:
    parent = (schema.typed_options.get(DATA_FILE_PATH_DIRECTORY) or "").strip("/")
    return SearchedDirectory(
        path=f"{root}/{parent}" if parent else root,
        levels=len(schema.partition_keys),
        specs=None
        if specs is None
        else tuple(_build_directory_names(spec, schema) for spec in specs),
    )


def _expand_directory(
    io: FileIO, directory: SearchedDirectory, partition_fields: tuple[Field, ...]
) -> Iterator[SearchedDirectory]:
    """Yield the directories of the next level: those of partitions, or those of buckets.

    Yields nothing for another table below the table's root.
    """
    levels = directory.levels
    assert levels is not None
    entries = list(io.list_dir(directory.path))
    is_top = levels == len(partition_fields)
    if not is_top and any(info.name in TABLE_FOLDERS for info in entries):
        return
    for info in entries:
        if not info.is_dir:
            continue
        if not levels:
            if info.name.startswith("bucket-"):
                yield SearchedDirectory(info.path, modified=info.modified)
            continue
        column = partition_fields[-levels]
        key, name = column.name, normalize_directory_name(info.name, column)
        if not _is_partition_of(name, escape_path_name(key)):
            continue
        value = unescape_path_name(name.partition("=")[2])
        specs = directory.specs  # None for all partitions
        if specs is not None:
            specs = tuple(spec for spec in specs if key not in spec or value in spec[key])
        if specs is None or specs:
            yield SearchedDirectory(info.path, levels - 1, specs)


def _build_directory_names(spec: Mapping[str, object], schema: TableSchema) -> _DirectoryNames:
    """Return the possible directory names of a spec: its values as given and as writers encode."""
    # Other columns are refused, because a spec without partition columns matches all partitions.
    build_partition_matcher(spec, schema)
    options = schema.typed_options
    default = options.default_partition_name
    values = {key: default if value is None else str(value) for key, value in spec.items()}
    fields = [field for field in schema.partition_fields if field.name in values]
    encoded = build_directory_names(values, fields, options)
    return {key: {value, encoded[key]} for key, value in values.items()}


def find_unfinished_files(
    io: FileIO, paths: TablePaths, before: float, tree: FileTree | None = None
) -> Iterator[OrphanCandidate]:
    """Yield old unfinished files of a branch's directories, which readers ignore by their names.

    They are searched in ``tree``, if there is one.
    """
    # The known prefixes of a folder's names; None if its unfinished files have temporary names.
    folders: dict[str, tuple[str, ...] | None] = {
        **dict.fromkeys(_TEMPORARY_FOLDERS),
        **_BRANCH_FOLDERS,
    }

    def list_folder(folder: str) -> list[FileInfo]:
        path = f"{paths.branch_root}/{folder}"
        return list(io.list_dir(path) if tree is None else tree.list_dir(path))

    limit = _compute_safe_cutoff(io, before)
    listings = map_concurrently(io, list_folder, folders)
    for prefixes, infos in zip(folders.values(), listings, strict=True):
        for info in infos:
            is_file = not info.is_dir and not info.is_link
            is_unfinished = (
                info.name.startswith(".") and info.name.endswith(".tmp")
                if prefixes is None
                else not info.name.startswith(prefixes)
            )
            if is_file and is_unfinished and info.modified < limit:
                yield OrphanCandidate(info.path, info.size)
