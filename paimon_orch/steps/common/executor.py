"""Executors run work units: the protocol, and executors that do not need Spark."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from paimon_orch.steps.compaction.plan import CompactionPlan, CompactionResult
    from paimon_orch.steps.ingest import IngestPreview, IngestResult
    from paimon_orch.steps.ingest_files import CsvFormat
    from paimon_orch.steps.row_level.ingest import FileLoad
    from paimon_orch.steps.row_level.merge_clauses import MergeClauses
    from paimon_orch.steps.row_level.row_level_write import RowLevelPlan, RowLevelResult
    from paimon_orch.table.table import Table

U = TypeVar("U")

Progress = Callable[[int, int], None]
"""Called repeatedly with the number of finished units and of all units, in ``map``'s thread."""

Undo = Callable[[list[bytes]], None]
"""Reverts the effects of finished units, given their results."""

Join = Callable[[Sequence[bytes]], bytes]
"""Combines all pieces of one part into one result; the order of pieces is undefined."""


class Executor(Protocol):
    """Runs independent work units, possibly in parallel and in other processes."""

    def map(
        self,
        run: Callable[[U], bytes],
        units: Sequence[U],
        *,
        label: str,
        progress: Progress | None = None,
        undo: Undo | None = None,
        work_bytes: int | None = None,
    ) -> list[bytes]:
        """Return ``run(unit)`` for each unit, in the order of the units.

        A unit may run more than once, and may be killed, so ``run`` must only write new files with
        unique names and return these names.

        :param run: a pure function that can be pickled; serialized once per job
        :param undo: called with the results of the finished units if another unit fails
        :param work_bytes: the size of the files that all units read, or None if it is unknown
        :raises PaimonError: the error of the first unit that fails, with the class of that error
        :raises CancelledError: if the work was cancelled
        """
        ...

    def shuffle(
        self,
        split: Callable[[U], Iterable[tuple[int, bytes]]],
        units: Sequence[U],
        join: Join,
        *,
        parts: int,
        label: str,
        progress: Progress | None = None,
        work_bytes: int | None = None,
    ) -> list[bytes]:
        """Split units into pieces, call ``join`` on the pieces of each part; return the results.

        Tasks exchange the pieces; the caller receives only the results of ``join``. Both functions
        may run more than once and must not write. The results are ordered by part; a part without
        pieces has no result.

        :param split: a pure function of a unit; yields pairs of a part below ``parts`` and a piece
        :raises PaimonError: as :meth:`map`
        """
        ...


class FileMerge(Protocol):
    """A merge of files into a table, whose clauses are checked."""

    def preview(self) -> "RowLevelResult":
        """Count the rows that would change; writes nothing."""
        ...

    def run(self, progress: Progress | None = None) -> "RowLevelResult":
        """Change the rows."""
        ...


@runtime_checkable
class FrameExecutor(Executor, Protocol):
    """An executor that also reads files and evaluates SQL expressions as data frames."""

    def load_files(
        self, load: "FileLoad", *, preview: bool, progress: Progress | None
    ) -> "IngestResult | IngestPreview":
        """Load files into a table, or count what this would change."""
        ...

    def open_merge(
        self,
        table: "Table",
        paths: Sequence[str],
        csv_format: "CsvFormat",
        on: str,
        clauses: "MergeClauses",
    ) -> FileMerge:
        """Return a merge of files into a table."""
        ...

    def update_rows(
        self, table: "Table", planned: "RowLevelPlan", progress: Progress | None
    ) -> "RowLevelResult":
        """Execute the plan of an update."""
        ...

    def sort_rows(
        self, table: "Table", planned: "CompactionPlan", progress: Progress | None
    ) -> "CompactionResult":
        """Execute the plan of a sort compaction."""
        ...


class InProcessExecutor:
    """Runs the units sequentially in the calling thread: for tests and small work."""

    def map(
        self,
        run: Callable[[U], bytes],
        units: Sequence[U],
        *,
        label: str,  # noqa: ARG002 - part of the contract
        progress: Progress | None = None,
        undo: Undo | None = None,
        work_bytes: int | None = None,  # noqa: ARG002
    ) -> list[bytes]:
        """Return ``run(unit)`` for each unit; errors are raised unchanged."""
        results: list[bytes] = []
        try:
            for unit in units:
                results.append(run(unit))
                if progress is not None:
                    progress(len(results), len(units))
        except BaseException:
            if undo is not None:
                undo(results)
            raise
        return results

    def shuffle(
        self,
        split: Callable[[U], Iterable[tuple[int, bytes]]],
        units: Sequence[U],
        join: Join,
        *,
        parts: int,  # noqa: ARG002 - part of the contract
        label: str,  # noqa: ARG002
        progress: Progress | None = None,
        work_bytes: int | None = None,  # noqa: ARG002
    ) -> list[bytes]:
        """Call ``join`` on the pieces of each part; holds all pieces in memory."""
        pieces: dict[int, list[bytes]] = {}
        for finished, unit in enumerate(units, 1):
            for part, piece in split(unit):
                pieces.setdefault(part, []).append(piece)
            if progress is not None:
                progress(finished, len(units))
        return [join(pieces[part]) for part in sorted(pieces)]


class ForwardingExecutor(ABC):
    """Base class of executors that pass their work to another executor."""

    @abstractmethod
    def choose_executor(self, unit_count: int, work_bytes: int | None) -> Executor:
        """Return the executor that runs this number of units; ``work_bytes`` as in ``map``."""

    def build_label(self, label: str) -> str:
        """Return the label that the other executor receives."""
        return label

    def map(
        self,
        run: Callable[[U], bytes],
        units: Sequence[U],
        *,
        label: str,
        progress: Progress | None = None,
        undo: Undo | None = None,
        work_bytes: int | None = None,
    ) -> list[bytes]:
        """Return ``run(unit)`` for each unit; see :meth:`Executor.map`."""
        executor = self.choose_executor(len(units), work_bytes)
        return executor.map(
            run,
            units,
            label=self.build_label(label),
            progress=progress,
            undo=undo,
            work_bytes=work_bytes,
        )

    def shuffle(
        self,
        split: Callable[[U], Iterable[tuple[int, bytes]]],
        units: Sequence[U],
        join: Join,
        *,
        parts: int,
        label: str,
        progress: Progress | None = None,
        work_bytes: int | None = None,
    ) -> list[bytes]:
        """Call ``join`` on the pieces of each part; see :meth:`Executor.shuffle`."""
        executor = self.choose_executor(len(units), work_bytes)
        return executor.shuffle(
            split,
            units,
            join,
            parts=parts,
            label=self.build_label(label),
            progress=progress,
            work_bytes=work_bytes,
        )


SMALL_WORK_BYTES = 8 << 20
"""Work up to this size is done in the calling thread: processes take as long to start."""
_DEFAULT_MIN_UNITS = 16


@dataclass(frozen=True, slots=True)
class ThresholdExecutor(ForwardingExecutor):
    """Runs small work in the calling thread, and other work on another executor.

    Work is small if it reads few bytes or, if their number is unknown, if it has few units. This
    suits work that is small in most tables: starting Spark takes longer than listing a small table.
    """

    make: Callable[[], Executor]
    """Creates the other executor; called only if it is needed."""
    many: int = _DEFAULT_MIN_UNITS
    """The minimum number of units of unknown size for which the other executor is used."""

    def choose_executor(self, unit_count: int, work_bytes: int | None) -> Executor:
        """Return the other executor for work that is not small."""
        is_small = unit_count < self.many if work_bytes is None else work_bytes <= SMALL_WORK_BYTES
        return InProcessExecutor() if is_small else self.make()
