"""Reads the reports of steps that ran in other processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from paimon_orch import errors
from paimon_orch.errors import CorruptFileError, PaimonError, TransientError


def raise_reported_error(error: Mapping[str, Any]) -> NoReturn:
    """Raise the error of a report, of the same class if it is one of the library.

    Other errors get a class of the same name, which is transient if the report says that the step
    may succeed again.
    """
    name, message = error["type"], error["message"]
    kind = vars(errors).get(name)
    if not (isinstance(kind, type) and issubclass(kind, PaimonError)):
        base = TransientError if error["may_succeed_again"] else PaimonError
        raise type(name, (base,), {})(message)
    if issubclass(kind, CorruptFileError):
        path, _, reason = message.partition(": ")
        raise kind(path, reason)
    raise kind(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedUnit:
    """A work unit of a compaction."""

    partition_text: str
    bucket: int
    reason: str
    files: int
    rows: int
    bytes: int
    output_level: int

    @classmethod
    def of(cls, unit: Mapping[str, Any]) -> "ReportedUnit":
        """Return a unit of a report."""
        names = ("bucket", "reason", "files", "rows", "bytes", "output_level")
        return cls(partition_text=unit["partition"], **{name: unit[name] for name in names})


@dataclass(frozen=True, slots=True)
class ReportedPlan:
    """The plan of a compaction; a report does not name its files."""

    units: Sequence[ReportedUnit]
    inputs = ()

    @property
    def buckets(self) -> int:
        """Return the number of buckets to compact."""
        return len({(unit.partition_text, unit.bucket) for unit in self.units})

    @property
    def bytes(self) -> int:
        """Return the size of the files to compact."""
        return sum(unit.bytes for unit in self.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedCompaction:
    """The result of a compaction; the default is one that had nothing to do."""

    plan: ReportedPlan = ReportedPlan(())
    snapshot_id: int | None = None
    buckets: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    duration_seconds: float = 0.0
    attempts: int = 0

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> "ReportedCompaction":
        """Return the compaction of a report that is not of a dry run."""
        outcome, units = report["outcome"], report["plan"]["units"]
        names = (
            *("snapshot_id", "buckets", "rows_written", "bytes_written"),
            *("duration_seconds", "attempts"),
        )
        plan = ReportedPlan([ReportedUnit.of(unit) for unit in units])
        return cls(plan=plan, **{name: outcome[name] for name in names})
