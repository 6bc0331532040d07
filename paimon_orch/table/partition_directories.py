"""Finds the directories of FLOAT and DOUBLE partition values, which writers name differently.

See docs/format/table-layout.md#partition-directories.
"""

from dataclasses import dataclass, field

from paimon_orch.errors import InputError
from paimon_orch.format.partition_path import has_floating_type, normalize_directory_name
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.types.data_types import Field
from paimon_orch.storage import FileIO


@dataclass(frozen=True, slots=True)
class PartitionDirectories:
    """Lists the directories of each level at most once; an operation has its own."""

    io: FileIO
    _listed: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def find(self, parent: str, name: str, partition_field: Field) -> str:
        """Return the name of the existing directory of a value, or ``name`` if there is none.

        Lists nothing for types other than FLOAT and DOUBLE. Raises :class:`InputError` if two
        directories have the value.
        """
        if not has_floating_type(partition_field):
            return name
        if parent not in self._listed:
            names: dict[str, list[str]] = {}
            for info in self.io.list_dir(parent):
                normalized = normalize_directory_name(info.name, partition_field)
                names.setdefault(normalized, []).append(info.name)
            self._listed[parent] = names
        found = self._listed[parent].get(name, [name])
        if len(found) > 1:
            raise InputError(
                f"{parent} has several directories of one {partition_field.name!r}: "
                f"{', '.join(sorted(found))}. Java before 19 writes some numbers with more digits "
                "than later releases. Move the files into the directory that the other writers of "
                "the table use, and delete the empty one"
            )
        return found[0]


def open_paths(io: FileIO, root: str, branch: str = MAIN_BRANCH) -> TablePaths:
    """Return the paths of a table for one operation, which finds existing directories."""
    return TablePaths(root, branch, PartitionDirectories(io).find)
