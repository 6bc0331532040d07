"""Where work units run: the one contract, and the plain loop that keeps it without Spark."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

U = TypeVar("U")

Progress = Callable[[int, int], None]
"""Called with (units done, units in all), now and then, in the thread that called ``map``."""


Undo = Callable[[list[bytes]], None]
"""Takes back what finished units did."""

Join = Callable[[Sequence[bytes]], bytes]
"""Makes one result of all pieces of one part, in whichever order they come."""


class Executor(Protocol):
    """Runs independent work units, perhaps at the same time and perhaps elsewhere."""

    def map(
        self,
        run: Callable[[U], bytes],
        units: Sequence[U],
        *,
        label: str,
        progress: Progress | None = None,
        undo: Undo | None = None,
    ) -> list[bytes]:
        """Return ``run(unit)`` for each unit, in the order of the units.

        A unit may run more than once, and a run may be killed half way: ``run`` writes only new,
        uniquely named files, and names them in what it returns.

        :param run: a pure function of a unit that can be pickled
        :param label: what is being done, for error texts and the Spark UI
        :param undo: called with the results that are there when another unit has failed
        :raises PaimonError: the first failing unit's error, of the class that ``run`` raised
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
    ) -> list[bytes]:
        """Bring together what units found, and return ``join`` of each part's pieces, in the order of the parts.

        Pieces pass from unit to part without the caller, who holds no more than what ``join`` returns. Both functions
        may run more than once, and neither writes anything. A part without pieces has no result.

        :param split: a pure function of a unit; yields pieces, each with its part, below ``parts``
        :raises PaimonError: as :meth:`map`
        """
        ...


class InProcessExecutor:
    """Runs one unit after the other in the calling thread: for tests and small work."""

    def map(
        self,
        run: Callable[[U], bytes],
        units: Sequence[U],
        *,
        label: str,  # noqa: ARG002 - part of the contract
        progress: Progress | None = None,
        undo: Undo | None = None,
    ) -> list[bytes]:
        """Return ``run(unit)`` for each unit; what ``run`` raises comes through as it is."""
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
    ) -> list[bytes]:
        """Return ``join`` of each part's pieces; they are all in memory meanwhile."""
        pieces: dict[int, list[bytes]] = {}
        for done, unit in enumerate(units, 1):
            for part, piece in split(unit):
                pieces.setdefault(part, []).append(piece)
            if progress is not None:
                progress(done, len(units))
        return [join(pieces[part]) for part in sorted(pieces)]


_DEFAULT_MIN_UNITS = 16


@dataclass(frozen=True, slots=True)
class ThresholdExecutor:
    """Does little work in the calling thread, and hands much of it to another executor, which it makes then.

    For what most tables need little of: Spark would take longer to start than such a table to list.
    """

    make: Callable[[], Executor]
    many: int = _DEFAULT_MIN_UNITS

    def map(
        self,
        run: Callable[[U], bytes],
        units: Sequence[U],
        *,
        label: str,
        progress: Progress | None = None,
        undo: Undo | None = None,
    ) -> list[bytes]:
        """Return ``run(unit)`` for each unit, as the executor that fits does."""
        executor = self._choose_executor(len(units))
        return executor.map(run, units, label=label, progress=progress, undo=undo)

    def shuffle(
        self,
        split: Callable[[U], Iterable[tuple[int, bytes]]],
        units: Sequence[U],
        join: Join,
        *,
        parts: int,
        label: str,
        progress: Progress | None = None,
    ) -> list[bytes]:
        """Return ``join`` of each part's pieces, as the executor that fits does."""
        executor = self._choose_executor(len(units))
        return executor.shuffle(split, units, join, parts=parts, label=label, progress=progress)

    def _choose_executor(self, units: int) -> Executor:
        return self.make() if units >= self.many else InProcessExecutor()
