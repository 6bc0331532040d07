"""Metrics of steps for OpenTelemetry; see docs/operations.md#opentelemetry.

Metrics are recorded only if the process has already imported ``opentelemetry.metrics``. Whoever
configures a meter provider imports it, so this module neither imports nor needs the package.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

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


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """Records the end of one execution of a step."""

    title: str
    """A verb phrase such as ``compact`` or ``expire snapshots of``."""
    table: str
    start: float = field(default_factory=time.monotonic)

    def record_success(self, io: StepIo, *, is_committed: bool) -> None:
        """Record that the step ended without an error."""
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
        meter = _find_meter()
        if meter is not None:
            outcome = {"paimon.outcome": "failed", "error.type": type(error).__name__}
            self._record_duration(meter, {**self._attributes, **outcome})

    @property
    def seconds(self) -> float:
        """Return the time since the start."""
        return time.monotonic() - self.start

    @property
    def _attributes(self) -> dict[str, str]:
        step = self.title
        for preposition in _PREPOSITIONS:
            step = step.removesuffix(preposition)
        return {"paimon.step": step, "paimon.table": self.table}

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
