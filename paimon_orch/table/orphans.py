"""Where files that nothing refers to may lie: the candidates of orphan cleanup (maintenance facts 10.1)."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from paimon_orch.errors import PaimonError
from paimon_orch.format.manifest_list import ManifestFileMeta
from paimon_orch.format.partition import escape, unescape
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.table.manifests import ManifestReader
from paimon_orch.table.removal import data_roots, is_plain
from paimon_orch.table.snapshots import EARLIEST, LATEST

# folders of a branch, and the names in them that are no leftovers
_BRANCH_FOLDERS = {
    "snapshot": ("snapshot-", EARLIEST, LATEST),
    "changelog": ("changelog-", EARLIEST, LATEST),
}
_TEMPORARY_FOLDERS = ("schema", "tag", "consumer")
_SHARED_FOLDERS = ("manifest", "index", "statistics")
_ROUNDED_SECONDS = 1.0  # stores tell the time of a file in whole seconds, rounded down
_BLOB_PACK = (
    ".managed.blob"  # named by no manifest: what needs one is told by side files of data files
)


@dataclass(frozen=True, slots=True)
class ListingUnit:
    """Directories to look into for files last written before a time, in epoch seconds."""

    io: FileIO
    directories: tuple[str, ...]
    before: float


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file that is old enough to be an orphan; ``size`` is in bytes."""

    path: str
    size: int

    @property
    def name(self) -> str:
        """Return the last component of the path."""
        return self.path.rpartition("/")[2]


def list_old_files(unit: ListingUnit) -> bytes:
    """Look into the directories of a unit; a pure function of the unit, for an executor.

    Links are left alone, as are directories and packs of blobs. Returns JSON: per directory its path, names and sizes
    of old files, and how many entries it holds.
    """
    found, before = [], _certainly(unit.io, unit.before)
    for directory in unit.directories:
        names, sizes, entries = [], [], 0
        for info in unit.io.list_dir(directory):
            entries += 1
            candidate = not info.is_dir and not info.is_link
            if candidate and info.modified < before and not info.name.endswith(_BLOB_PACK):
                names.append(info.name)
                sizes.append(info.size)
        found.append((directory, names, sizes, entries))
    return json.dumps(found).encode()


@dataclass(frozen=True, slots=True)
class ManifestUnit:
    """Manifests to read for the names of files."""

    reader: ManifestReader
    metas: tuple[ManifestFileMeta, ...]


def named_files(unit: ManifestUnit) -> bytes:
    """Read the manifests of a unit; a pure function of the unit, for an executor.

    Returns JSON: by manifest the names of all its files. One that cannot be read is left out: whoever asked reads it
    again, and knows whether it may be missing.
    """
    found = {}
    for meta in unit.metas:
        with suppress(PaimonError):
            manifest = unit.reader.open(meta)
            found[meta.file_name] = [*manifest.names, *manifest.extra_names()]
    return json.dumps(found).encode()


def _certainly(io: FileIO, before: float) -> float:
    """Return what the time of a file must be below to be certainly before a moment."""
    return before - _ROUNDED_SECONDS if io.remote else before


def decode_listing(data: bytes) -> Iterator[tuple[str, list[str], list[int], int]]:
    """Yield what :func:`list_old_files` found: (directory, names, sizes, number of entries)."""
    yield from json.loads(data)


def shared_directories(paths: TablePaths) -> list[str]:
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
        strategy = schema.typed_options.text("data-file.external-paths.strategy", "none").lower()
        for path in data_roots(paths, schema)[1:] if strategy != "none" else ():
            reason = _not_its_own(io, paths.root, path)
            if reason:
                refused.append(f"{path}: {reason}")
            elif path not in roots:
                roots.append(path)
        return cls(tuple(roots), tuple(refused))


def _not_its_own(io: FileIO, root: str, path: str) -> str | None:
    """Return why a folder elsewhere is not certainly one table's own; None if it is.

    Names of data files say nothing of their table: what a neighbour keeps there would be an orphan here.
    """
    parent, _, name = path.rpartition("/")
    if _store(path) != _store(root) or not is_plain(path):
        return "it does not lie in the table's store"
    if f"{path}/".startswith(f"{root}/") or f"{root}/".startswith(f"{path}/"):
        return "it and the table lie in one another"
    if name != root.rpartition("/")[2]:
        return f"it does not end in the table's folder, {root.rpartition('/')[2]}, so others may use it too"
    if any(info.name == name and info.is_link for info in io.list_dir(parent)):
        return "it is a link"
    if any(info.name in ("schema", "snapshot") for info in io.list_dir(path)):
        return "it holds another table"
    return None


def _store(path: str) -> str:
    return path.partition("://")[0] if "://" in path else ""


def bucket_directories(
    io: FileIO,
    root: str,
    schema: TableSchema,
    specs: Iterable[Mapping[str, object]] | None = None,
) -> list[FileInfo]:
    """Find the bucket directories below a data root: as many levels of ``key=value`` as there are partition columns.

    With ``specs`` only those of matching partitions. Whatever else lies there is not looked into.
    """
    parent = schema.options.get("data-file.path-directory", "").strip("/")
    level = [f"{root}/{parent}" if parent else root]
    chosen = None if specs is None else list(specs)
    accepted = {level[0]: chosen}
    for key in schema.partition_keys:
        below: dict[str, list[Mapping[str, object]] | None] = {}
        for directory, wanted in accepted.items():
            for info in io.list_dir(directory):
                name, separator, value = info.name.partition("=")
                if not info.is_dir or not separator or name != escape(key):
                    continue
                kept = _matching(wanted, key, unescape(value), schema)
                if kept is None or kept:
                    below[info.path] = kept
        accepted = below
    return [
        info
        for directory in accepted
        for info in io.list_dir(directory)
        if info.is_dir and info.name.startswith("bucket-")
    ]


def _matching(
    specs: list[Mapping[str, object]] | None, key: str, value: str, schema: TableSchema
) -> list[Mapping[str, object]] | None:
    """Return the specs that agree with one value; None means that all partitions are wanted."""
    if specs is None:
        return None
    default = schema.typed_options.default_partition_name
    return [
        spec
        for spec in specs
        if key not in spec or str(default if spec[key] is None else spec[key]) == value
    ]


def leftovers(io: FileIO, paths: TablePaths, before: float) -> Iterator[OldFile]:
    """Yield old files in a branch's own folders that no writer finished: no reader looks at their names."""
    for folder, known in _BRANCH_FOLDERS.items():
        yield from _old(io, f"{paths.branch_root}/{folder}", before, _unless(known))
    for folder in _TEMPORARY_FOLDERS:
        yield from _old(io, f"{paths.branch_root}/{folder}", before, _is_temporary)


def _unless(known: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda name: not name.startswith(known)


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _old(
    io: FileIO, directory: str, before: float, chosen: Callable[[str], bool]
) -> Iterator[OldFile]:
    limit = _certainly(io, before)
    for info in io.list_dir(directory):
        if not info.is_dir and not info.is_link and info.modified < limit and chosen(info.name):
            yield OldFile(info.path, info.size)
