"""Where files that nothing refers to may lie: the candidates of orphan cleanup.

See docs/format/orphan-files.md#removing-orphan-files.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from paimon_orch.errors import PaimonError, StorageError
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options.core_options import (
    DATA_FILE_EXTERNAL_PATHS_STRATEGY,
    DATA_FILE_PATH_DIRECTORY,
)
from paimon_orch.format.partition_path import escape_path_name, unescape_path_name
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.table.cleanup.safe_delete import is_plain_path, list_data_roots
from paimon_orch.table.filter.partition_spec import build_directory_names, build_partition_matcher
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST, LATEST

# folders of a branch, and the names in them that are no leftovers
_BRANCH_FOLDERS = {
    "snapshot": ("snapshot-", EARLIEST, LATEST),
    "changelog": ("changelog-", EARLIEST, LATEST),
}
_TEMPORARY_FOLDERS = ("schema", "tag", "consumer")
_SHARED_FOLDERS = ("manifest", "index", "statistics")
_STORE_TIME_PRECISION_SECONDS = 1.0  # stores tell the time of a file in whole seconds, rounded down
_DirectoryNames = Mapping[str, set[str]]  # of directories, by partition column
_BLOB_PACK_SUFFIX = (
    ".managed.blob"  # named by no manifest: what needs one is told by side files of data files
)


@dataclass(frozen=True, slots=True)
class ListingUnit:
    """Directories to look into for files last written before a time, in epoch seconds."""

    io: FileIO
    directories: tuple[str, ...]
    before: float


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
    """Manifests to read for the names of files."""

    reader: ManifestReader
    metas: tuple[ManifestFileMeta, ...]


@dataclass(frozen=True, slots=True)
class _PartListing:
    """What a unit found of the names of one part; the first part also has what belongs to none.

    ``old`` are sizes by directory and name, ``named`` the names of used files, ``empty`` directories that hold nothing,
    and ``read`` how many names each manifest held.
    """

    old_files: dict[str, dict[str, int]] = field(default_factory=dict)
    referenced_names: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)

    def encode(self, part: int) -> bytes:
        return json.dumps(
            [part, self.old_files, self.referenced_names, self.empty, self.read]
        ).encode()


def list_names_by_part(unit: ListingUnit | ManifestUnit, parts: int) -> list[tuple[int, bytes]]:
    """Look into directories for old files, or into manifests for used ones: a unit's half of a shuffle.

    Links are left alone, as are directories and packs of blobs. A manifest that cannot be read is left out: whoever asked
    reads it again, and knows whether it may be missing.
    """
    pieces = [_PartListing() for _ in range(parts)]
    if isinstance(unit, ListingUnit):
        _list_directories(unit, pieces)
    else:
        _read_manifests(unit, pieces)
    nothing = _PartListing()
    return [(part, piece.encode(part)) for part, piece in enumerate(pieces) if piece != nothing]


def _list_directories(unit: ListingUnit, pieces: Sequence[_PartListing]) -> None:
    before = _compute_safe_cutoff(unit.io, unit.before)
    for directory in unit.directories:
        entries = 0
        for info in unit.io.list_dir(directory):
            entries += 1
            if info.is_dir or info.is_link or info.modified >= before:
                continue
            name = info.name
            if not name.endswith(_BLOB_PACK_SUFFIX):
                old = pieces[_compute_part(name, len(pieces))].old_files
                old.setdefault(directory, {})[name] = info.size
        if not entries:
            pieces[0].empty.append(directory)


def _read_manifests(unit: ManifestUnit, pieces: Sequence[_PartListing]) -> None:
    for meta in unit.metas:
        with suppress(PaimonError):
            manifest = unit.reader.open(meta)
            names = [*manifest.names, *manifest.extra_file_names()]
            for name in names:
                pieces[_compute_part(name, len(pieces))].referenced_names.append(name)
            pieces[0].read[meta.file_name] = len(names)


def _compute_part(name: str, parts: int) -> int:
    """Return the part that a name falls into, in each process the same; names on a disk may be no text."""
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % parts if parts > 1 else 0


def find_unreferenced_names(pieces: Sequence[bytes]) -> bytes:
    """Return what was listed and is not named, of one part: the other half of the shuffle.

    JSON: the part, sizes by directory and name, how many old files and how many names there were, and what belongs to no
    part.
    """
    listed, used, scanned, received = [], set[str](), 0, 0
    parts, empty, read = set[int](), list[str](), dict[str, int]()
    for piece in pieces:
        part, old, named, nothing, manifests = json.loads(piece)
        parts.add(part)
        listed.append(old)
        used.update(named)
        received += len(named)
        empty += nothing
        read |= manifests
    found: dict[str, dict[str, int]] = {}
    for directory, files in (item for old in listed for item in old.items()):
        scanned += len(files)
        left = {name: size for name, size in files.items() if name not in used}
        if left:
            found[directory] = left
    return json.dumps([[*parts], found, scanned, received, empty, read]).encode()


@dataclass(frozen=True, slots=True)
class OrphanListing:
    """Old files that no manifest of ``manifests`` names, directories that hold nothing, and how many old files there are."""

    files: list[OrphanCandidate] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    manifests: list[str] = field(default_factory=list)
    scanned: int = 0

    @classmethod
    def of(cls, results: Iterable[bytes]) -> "OrphanListing":
        """Put together what :func:`find_unreferenced_names` returned.

        Names that were lost on their way, or did not meet others of their part, are an error: a file whose name they are
        would seem to be unused.
        """
        files, empty, read, parts = (
            list[OrphanCandidate](),
            list[str](),
            dict[str, int](),
            list[int](),
        )
        scanned = received = 0
        for result in results:
            of_parts, found, old, names, nothing, manifests = json.loads(result)
            files += [
                OrphanCandidate(f"{directory}/{name}", size)
                for directory, sizes in found.items()
                for name, size in sizes.items()
            ]
            scanned, received = scanned + old, received + names
            parts += of_parts
            empty += nothing
            read |= manifests
        if received != sum(read.values()) or len(parts) != len(set(parts)):
            raise StorageError(
                f"{sum(read.values())} names of files were read from manifests, and {received} in {len(set(parts))} parts "
                f"were compared with what is stored, by {len(parts)} tasks: names were lost between tasks or did not "
                "meet. Nothing was deleted; try again"
            )
        return cls(sorted(files, key=lambda file: file.path), sorted(empty), list(read), scanned)


def _compute_safe_cutoff(io: FileIO, before: float) -> float:
    """Return what the time of a file must be below to be certainly before a moment."""
    return before - _STORE_TIME_PRECISION_SECONDS if io.remote else before


def list_shared_directories(paths: TablePaths) -> list[str]:
    """Return the directories of metadata and index files."""
    return [f"{paths.root}/{name}" for name in _SHARED_FOLDERS]


@dataclass(frozen=True, slots=True)
class DataRoots:
    """The folders below which a table's data files may lie: its own, and its folder below each external path.

    ``refused`` are external paths that may hold files of others, each with the reason: they are left alone.
    """

    roots: tuple[str, ...]
    refused: tuple[str, ...] = ()

    @classmethod
    def of(cls, io: FileIO, paths: TablePaths, schema: TableSchema) -> "DataRoots":
        """Take the options of a table. Writers use external paths only where a strategy chooses among them."""
        roots, refused = [paths.root], []
        strategy = schema.typed_options.get(DATA_FILE_EXTERNAL_PATHS_STRATEGY)
        for path in list_data_roots(paths, schema)[1:] if strategy != "none" else ():
            reason = _find_reason_to_refuse(io, paths.root, path)
            if reason:
                refused.append(f"{path}: {reason}")
            elif path not in roots:
                roots.append(path)
        return cls(tuple(roots), tuple(refused))


def _find_reason_to_refuse(io: FileIO, root: str, path: str) -> str | None:
    """Return why a folder elsewhere is not certainly one table's own; None if it is.

    Names of data files say nothing of their table: what a neighbour keeps there would be an orphan here.
    """
    parent, _, name = path.rpartition("/")
    if _parse_scheme(path) != _parse_scheme(root) or not is_plain_path(path):
        return "it does not lie in the table's store"
    if f"{path}/".startswith(f"{root}/") or f"{root}/".startswith(f"{path}/"):
        return "it and the table lie in one another"
    if name != root.rpartition("/")[2]:
        return f"it does not end in the table's folder, {root.rpartition('/')[2]}, so others may use it too"
    if any(info.name == name and info.is_link for info in io.list_dir(parent)):
        return "it is a link"
    if any(info.name in ("schema", "snapshot") for info in io.list_dir(path)):
        return "it holds another table"
    other = _find_table_with_same_path(io, root, path)
    return None if other is None else f"the table {other} may keep its files there too"


def _find_table_with_same_path(io: FileIO, root: str, path: str) -> str | None:
    """Return a table of the same name, in another database of the warehouse, that has an external path there."""
    database, _, name = root.rpartition("/")
    for info in io.list_dir(database.rpartition("/")[0]):
        paths = TablePaths(f"{info.path}/{name}")
        if not info.name.endswith(".db") or info.path == database:
            continue
        schemas = SchemaStore(io, paths)
        there = list_data_roots(paths, schemas.latest())[1:] if schemas.ids() else ()
        if any(
            f"{path}/".startswith(f"{one}/") or f"{one}/".startswith(f"{path}/") for one in there
        ):
            return paths.root
    return None


def _parse_scheme(path: str) -> str:
    return path.partition("://")[0] if "://" in path else ""


def find_bucket_directories(
    io: FileIO,
    root: str,
    schema: TableSchema,
    specs: Iterable[Mapping[str, object]] | None = None,
) -> list[FileInfo]:
    """Find the bucket directories below a data root: as many levels of ``key=value`` as there are partition columns.

    With ``specs`` only those of matching partitions. Whatever else lies there is not looked into.
    """
    parent = (schema.typed_options.get(DATA_FILE_PATH_DIRECTORY) or "").strip("/")
    level = [f"{root}/{parent}" if parent else root]
    chosen = None if specs is None else [_build_directory_names(spec, schema) for spec in specs]
    accepted = {level[0]: chosen}
    for key in schema.partition_keys:
        below: dict[str, list[_DirectoryNames] | None] = {}
        for directory, wanted in accepted.items():
            for info in _list_unless_table(io, directory, level[0]):
                name, separator, value = info.name.partition("=")
                if not info.is_dir or not separator or name != escape_path_name(key):
                    continue
                kept = _filter_specs(wanted, key, unescape_path_name(value))
                if kept is None or kept:
                    below[info.path] = kept
        accepted = below
    return [
        info
        for directory in accepted
        for info in _list_unless_table(io, directory, level[0])
        if info.is_dir and info.name.startswith("bucket-")
    ]


def _list_unless_table(io: FileIO, directory: str, top: str) -> list[FileInfo]:
    """Return what a directory holds; nothing if that is another table below ``top``."""
    found = list(io.list_dir(directory))
    nested = directory != top and any(info.name in ("schema", "snapshot") for info in found)
    return [] if nested else found


def _build_directory_names(spec: Mapping[str, object], schema: TableSchema) -> _DirectoryNames:
    """Return what directories of the values of a spec may be called: as given, or as the table's writers call them."""
    build_partition_matcher(
        spec, schema
    )  # refuses what is no partition column: it would choose all
    options = schema.typed_options
    default = options.default_partition_name
    given = {key: default if value is None else str(value) for key, value in spec.items()}
    fields = [field for field in schema.partition_fields if field.name in given]
    written = build_directory_names(given, fields, options)
    return {key: {text, written[key]} for key, text in given.items()}


def _filter_specs(
    specs: list[_DirectoryNames] | None, key: str, value: str
) -> list[_DirectoryNames] | None:
    """Return the specs that agree with one value; None means that all partitions are wanted."""
    if specs is None:
        return None
    return [spec for spec in specs if key not in spec or value in spec[key]]


def find_unfinished_files(
    io: FileIO, paths: TablePaths, before: float
) -> Iterator[OrphanCandidate]:
    """Yield old files in a branch's own folders that no writer finished: no reader looks at their names."""
    for folder, known in _BRANCH_FOLDERS.items():
        yield from _list_old_files(
            io, f"{paths.branch_root}/{folder}", before, _build_unknown_name_filter(known)
        )
    for folder in _TEMPORARY_FOLDERS:
        yield from _list_old_files(io, f"{paths.branch_root}/{folder}", before, _is_temporary_name)


def _build_unknown_name_filter(known: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda name: not name.startswith(known)


def _is_temporary_name(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _list_old_files(
    io: FileIO, directory: str, before: float, chosen: Callable[[str], bool]
) -> Iterator[OrphanCandidate]:
    limit = _compute_safe_cutoff(io, before)
    for info in io.list_dir(directory):
        if not info.is_dir and not info.is_link and info.modified < limit and chosen(info.name):
            yield OrphanCandidate(info.path, info.size)
