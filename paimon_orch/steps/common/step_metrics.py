"""Metrics of steps for OpenTelemetry, and observers of steps; see docs/monitoring.md#opentelemetry.

Metrics are recorded only if the process has already imported ``opentelemetry.metrics``. Whoever
configures a meter provider imports it, so this module neither imports nor needs the package.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from paimon_orch.table.table import Table

_API = "opentelemetry.metrics"
_PREPOSITIONS = (" of", " into")
_SECONDS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
_OPERATIONS = ("read", "written", "deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepIo:
    """The rows and files that a step processed; sizes are in bytes."""

    rows_written: int = 0
    files_read: int = 0
    files_written: int = 0
    files_deleted: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_deleted: int = 0


class StepObserver(Protocol):
    """Observes one execution of a step, which has started. Its methods raise no errors."""

    def complete(self, io: StepIo, snapshot_id: int | None) -> None:
        """Observe the end of the step; the snapshot is the one that it created, if that is known."""
        ...

    def fail(self, error: BaseException) -> None:
        """Observe that the step failed."""
        ...


StartObserver = Callable[[str, Table, Sequence[str]], StepObserver]
"""Called with the name of a step, its table, and the files whose rows it loads."""

_observe: list[StartObserver] = []


def observe_steps(start: StartObserver) -> None:
    """Call a function when this process starts a step."""
    if start not in _observe:
        _observe.append(start)


@dataclass(slots=True)
class StepMetrics:
    """Records one execution of a step, from the creation of this object to its end."""

    title: str
    """A verb phrase such as ``compact`` or ``expire snapshots of``."""
    table: Table
    sources: Sequence[str] = ()
    """The files whose rows the step loads, as far as it knows them."""
    start: float = field(init=False, default_factory=time.monotonic)
    observers: list[StepObserver] = field(init=False)

    def __post_init__(self) -> None:
        self.observers = [start(self.step, self.table, self.sources) for start in _observe]

    def record_success(
        self, io: StepIo, *, is_committed: bool, snapshot_id: int | None = None
    ) -> None:
        """Record that the step ended without an error."""
        for observer in self.observers:
            observer.complete(io, snapshot_id)
        meter = _find_meter()
        if meter is None:
            return
        attributes = self._attributes
        outcome = "committed" if is_committed else "nothing to do"
        self._record_duration(meter, {**attributes, "paimon.outcome": outcome})
        counts = asdict(io)
        rows = meter.create_counter("paimon.step.rows", "{row}", "Rows that steps wrote")
        rows.add(counts["rows_written"], attributes)
        for name, unit in (("files", "{file}"), ("bytes", "By")):
            counter = meter.create_counter(
                f"paimon.step.{name}", unit, f"The {name} that steps read, wrote and deleted"
            )
            for operation in _OPERATIONS:
                if count := counts[f"{name}_{operation}"]:
                    counter.add(count, {**attributes, "paimon.operation": operation})

    @contextmanager
    def record_errors(self) -> Iterator[None]:
        """Record that the step failed if the block raises an error."""
        try:
            yield
        except BaseException as error:
            self._record_failure(error)
            raise

    def _record_failure(self, error: BaseException) -> None:
        for observer in self.observers:
            observer.fail(error)
        meter = _find_meter()
        if meter is not None:
            outcome = {"paimon.outcome": "failed", "error.type": type(error).__name__}
            self._record_duration(meter, {**self._attributes, **outcome})

    @property
    def seconds(self) -> float:
        """Return the time since the start."""
        return time.monotonic() - self.start

    @property
    def step(self) -> str:
        """Return the name of the step, such as ``expire snapshots``."""
        step = self.title
        for preposition in _PREPOSITIONS:
            step = step.removesuffix(preposition)
        return step

    @property
    def _attributes(self) -> dict[str, str]:
        return {"paimon.step": self.step, "paimon.table": self.table.identifier}

    def _record_duration(self, meter: Any, attributes: dict[str, str]) -> None:
        duration = meter.create_histogram(
            "paimon.step.duration",
            "s",
            "The time of a step with all attempts",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        duration.record(self.seconds, attributes)


def _find_meter() -> Any | None:
    api = sys.modules.get(_API)
    return None if api is None else api.get_meter("paimon_orch")
