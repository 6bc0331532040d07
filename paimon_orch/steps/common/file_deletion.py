"""Deleting many files: work units of paths, for every step that deletes."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.storage import FileIO
from paimon_orch.table.cleanup.safe_delete import SafeDeleter

_PATHS_PER_UNIT = 2_000
_MAX_CONCURRENT_REQUESTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionResult:
    """What a step deleted; ``bytes`` are those of data files, ``refused`` files that lie outside the table's folders."""

    bytes: int = 0
    directories: int = 0
    refused: tuple[str, ...] = ()
    duration_seconds: float = 0.0

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {
            "refused": list(self.refused),
            "duration_seconds": round(self.duration_seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class DeletionUnit:
    """Files to delete, all below the roots."""

    io: FileIO
    roots: tuple[str, ...]
    paths: tuple[str, ...]


def run(unit: DeletionUnit) -> bytes:
    """Delete the files of a unit and return the paths that were refused, as JSON. Running it twice is harmless."""
    remover = SafeDeleter(io=unit.io, roots=unit.roots)
    delete_in_threads(remover, unit.paths)
    return json.dumps(remover.refused).encode()


def delete_in_threads(remover: SafeDeleter, paths: Sequence[str]) -> None:
    """Delete files, many at once: who deletes one by one waits for a store, or a disk, most of the time."""
    if len(paths) < _MAX_CONCURRENT_REQUESTS:
        for path in paths:
            remover.delete(path)
        return
    with ThreadPoolExecutor(_MAX_CONCURRENT_REQUESTS) as pool:
        list(pool.map(remover.delete, paths))


def delete_files(
    executor: Executor,
    io: FileIO,
    roots: tuple[str, ...],
    paths: Sequence[str],
    *,
    label: str,
    progress: Progress | None = None,
) -> list[str]:
    """Delete files and return those that were refused because they do not lie in the roots."""
    units = [DeletionUnit(io, roots, part) for part in _split_paths(paths)]
    results = executor.map(run, units, label=label, progress=progress) if units else []
    return [path for result in results for path in json.loads(result)]


def _split_paths(paths: Sequence[str]) -> list[tuple[str, ...]]:
    return [
        tuple(paths[start : start + _PATHS_PER_UNIT])
        for start in range(0, len(paths), _PATHS_PER_UNIT)
    ]
