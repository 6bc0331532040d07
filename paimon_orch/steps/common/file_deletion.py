"""Deletes many files in work units, for all steps that delete files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from paimon_orch.steps.common.step import FiguresOutcome, WorkUnits
from paimon_orch.storage import FileIO
from paimon_orch.table.cleanup.safe_delete import SafeDeleter

_PATHS_PER_UNIT = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionResult(FiguresOutcome):
    """The result of a step that deletes files."""

    bytes: int = 0
    """The size of the deleted data files."""
    directories: int = 0
    refused: tuple[str, ...] = ()
    """Files that were not deleted because they are outside of the table's directories."""


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
