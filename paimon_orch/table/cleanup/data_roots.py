"""Finds the directories that only a table uses: its own, and its external paths.

See docs/format/orphan-files.md#removing-orphan-files.
"""

from collections.abc import Callable
from dataclasses import dataclass

from paimon_orch.errors import NotAllowedError, PaimonError, raise_if_temporary
from paimon_orch.format.options.core_options import DATA_FILE_EXTERNAL_PATHS_STRATEGY
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage import FileIO
from paimon_orch.table.cleanup.safe_delete import is_plain_path, list_data_roots
from paimon_orch.table.metadata.schema_store import SchemaStore

TABLE_FOLDERS = ("schema", "snapshot")
"""A directory with one of these is a table."""


@dataclass(frozen=True, slots=True)
class DataRoots:
    """The root directories of a table's data files: its own, and its external paths."""

    roots: tuple[str, ...]

    refused: tuple[str, ...] = ()
    """External paths that are not cleaned because other tables may use them, with the reason."""

    @classmethod
    def of(
        cls, io: FileIO, paths: TablePaths, schema: TableSchema, owns: Callable[[str], bool]
    ) -> "DataRoots":
        """Return the roots of a table, including external paths if it has a strategy for them.

        ``owns`` returns whether no other table may use a directory.
        """
        roots, refused = [paths.root], []
        strategy = schema.typed_options.get(DATA_FILE_EXTERNAL_PATHS_STRATEGY)
        for path in list_data_roots(paths, schema)[1:] if strategy != "none" else ():
            try:
                reason = _find_reason_to_refuse(io, paths.root, path, is_own=owns(path))
            except NotAllowedError as error:
                reason = str(error)
            if reason:
                refused.append(f"{path}: {reason}")
            elif path not in roots:
                roots.append(path)
        return cls(tuple(roots), tuple(refused))


def _find_reason_to_refuse(io: FileIO, root: str, path: str, *, is_own: bool) -> str | None:
    """Return why other tables may use an external directory, or None if only this one uses it.

    The names of data files do not identify their table, so files of another table would look like
    orphans.
    """
    parent, _, name = path.rpartition("/")
    if _parse_scheme(path) != _parse_scheme(root) or not is_plain_path(path):
        return "it is not in the table's store"
    if f"{path}/".startswith(f"{root}/") or f"{root}/".startswith(f"{path}/"):
        return "it contains the table's directory, or the table's directory contains it"
    if name != root.rpartition("/")[2]:
        table_name = root.rpartition("/")[2]
        return f"it does not end with the table's directory name, {table_name}: others may use it"
    # The operator chooses the allowed directories themselves, which may be links.
    if path not in io.roots and any(
        info.name == name and info.is_link for info in io.list_dir(parent)
    ):
        return "it is a symbolic link"
    if any(info.name in TABLE_FOLDERS for info in io.list_dir(path)):
        return "it contains another table"
    other = None if is_own else _find_table_with_same_path(io, root, path)
    return None if other is None else f"the table {other} may have files there too"


def _find_table_with_same_path(io: FileIO, root: str, path: str) -> str | None:
    """Return a table with the same name in another database that may use the external path.

    A table whose options cannot be read may use any path.
    """
    database, _, name = root.rpartition("/")
    warehouse = database.rpartition("/")[0]
    io = io.confine((warehouse,))
    for info in io.list_dir(warehouse):
        paths = TablePaths(f"{info.path}/{name}")
        if not info.name.endswith(".db") or info.path == database:
            continue
        schemas = SchemaStore(io, paths)
        try:
            external = list_data_roots(paths, schemas.latest())[1:] if schemas.ids() else ()
        except (PaimonError, OSError) as error:
            raise_if_temporary(error)
            return f"{paths.root}, which cannot be read ({error}),"
        if any(
            f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")
            for other in external
        ):
            return paths.root
    return None


def _parse_scheme(path: str) -> str:
    return path.partition("://")[0] if "://" in path else ""
