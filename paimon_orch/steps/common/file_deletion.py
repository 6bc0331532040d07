"""Deletes many files in work units, for all steps that delete files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

from paimon_orch.steps.common.step import StepOutcome, WorkUnits
from paimon_orch.storage import FileIO
from paimon_orch.table.cleanup.safe_delete import SafeDeleter

_PATHS_PER_UNIT = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionResult(StepOutcome):
    """The result of a step that deletes files."""

    bytes: int = 0
    """The size of the deleted data files."""
    directories: int = 0
    refused: tuple[str, ...] = ()
    """Files that were not deleted because they are outside of the table's directories."""

    def to_dict(self) -> dict[str, object]:
        """Return the metrics as JSON values."""
        names = [each.name for each in fields(self) if each.name != "attempts"]
        values: dict[str, object] = {name: getattr(self, name) for name in names}
        values |= {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
        return values | {"duration_seconds": round(self.duration_seconds, 3)}


@dataclass(frozen=True, slots=True)
class DeletionScope:
    """The directories in which files may be deleted."""

    io: FileIO
    roots: tuple[str, ...]


def run(scope: DeletionScope, paths: Sequence[str]) -> bytes:
    """Delete files and return the refused paths as JSON; may run more than once."""
    deleter = SafeDeleter(io=scope.io, roots=scope.roots)
    deleter.delete_many(paths)
    return json.dumps(deleter.refused).encode()


def collect_deletions(
    io: FileIO, roots: Sequence[str], paths: Sequence[str]
) -> WorkUnits[DeletionScope, Sequence[str]]:
    """Return the work units that delete files below some directories."""
    units = [
        paths[start : start + _PATHS_PER_UNIT] for start in range(0, len(paths), _PATHS_PER_UNIT)
    ]
    return WorkUnits(shared=DeletionScope(io, tuple(roots)), units=units)
