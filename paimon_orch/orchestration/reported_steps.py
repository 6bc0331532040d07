"""Reads the reports of steps that ran in other processes.

A report is data of another process, which may have another version: :func:`check_report` checks
all that is read from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

from paimon_orch import errors
from paimon_orch.errors import CorruptFileError, PaimonError, TransientError
from paimon_orch.safe_text import clean_line

_ERROR = {"error": {"type": str, "message": str, "may_succeed_again": bool}}
_VALUE = str | int | float | None
_REPORT = {"plan": dict, "action": str, "columns": {...: str}, "items": [{...: _VALUE}]}
_RESULT = {"snapshot_id": int | None, "duration_seconds": int | float}
_UNIT = {"partition": str, "files": int, "bytes": int}
_OUTCOMES: Mapping[str, Any] = MappingProxyType(
    {
        "compact": {
            "outcome": _RESULT
            | dict.fromkeys(("buckets", "rows_written", "bytes_written", "attempts"), int),
            "plan": {
                "units": [
                    _UNIT | {"bucket": int, "reason": str, "rows": int, "output_level": int},
                ]
            },
        },
        "rewrite-file-index": {
            "outcome": _RESULT | dict.fromkeys(("files", "embedded", "index_files"), int),
            "plan": {
                "snapshot_id": int | None,
                "skipped_files": int,
                "units": [_UNIT | {...: _VALUE}],
            },
        },
        "compact-manifests": {
            "outcome": dict.fromkeys(
                (
                    *("manifests", "merged_files", "written_files"),
                    *("bytes", "merged_bytes", "written_bytes"),
                ),
                int,
            )
        },
    }
)
"""What is read from the reports of some steps: types of values by key; ``...`` is any other key."""


def check_report(report: Mapping[str, Any], step: str, *, dry_run: bool) -> None:
    """Raise the error of a report of a failed step.

    Raises :class:`PaimonError` for a report without a value that is read, or with a wrong type.
    """
    if "error" in report:
        _check_shape(report, _ERROR, "")
        raise_reported_error(report["error"])
    _check_shape(report, _REPORT, "")
    if not dry_run:
        _check_shape(report, {"outcome": dict, **_OUTCOMES.get(step, {})}, "")


def _check_shape(value: object, shape: Any, name: str) -> None:
    """Raise :class:`PaimonError` unless a JSON value has a shape; ``name`` is its place."""
    if isinstance(shape, list) and isinstance(value, list):
        for number, item in enumerate(value):
            _check_shape(item, shape[0], f"{name}[{number}]")
    elif isinstance(shape, dict) and isinstance(value, dict):
        others = value if ... in shape else ()
        for key in [*(each for each in shape if each is not ...), *others]:
            place = f"{name}.{key}" if name else key
            if key not in value:
                raise _build_error(f"{place} is missing")
            _check_shape(value[key], shape.get(key, shape.get(...)), place)
    elif isinstance(shape, list | dict) or not isinstance(value, shape):
        raise _build_error(f"{name} is {repr(value)[:100]}")


def _build_error(reason: str) -> PaimonError:
    return PaimonError(
        f"the report of the process cannot be read: {reason}. Install the same version of "
        "paimon-orch there. The step may have changed the table: look at its newest snapshots "
        "before you repeat it"
    )


def raise_reported_error(error: Mapping[str, Any]) -> NoReturn:
    """Raise the error of a report, of the same class if it is one of the library.

    Other errors get a class of the same name, which is transient if the report says that the step
    may succeed again.
    """
    name, message = error["type"], error["message"]
    kind = vars(errors).get(name)
    if not (isinstance(kind, type) and issubclass(kind, PaimonError)):
        base = TransientError if error["may_succeed_again"] else PaimonError
        raise type(clean_line(name), (base,), {})(message)  # Python refuses some characters
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
