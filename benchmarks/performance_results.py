"""Stored figures of performance.py: answers, and the machine and versions that gave them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

import pendulum
from measurement import HERE

RESULTS = HERE / "performance.json"


def describe_machine() -> str:
    """Return date, hardware and versions in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {version(name)}" for name in ("pyarrow", "numpy", "pyspark"))
    return (
        f"{pendulum.now('UTC').to_date_string()}, {os.cpu_count()} cores of {_read_processor()}, "
        f"{memory:.0f} GB, {platform.system()}, Python {platform.python_version()}, {versions}"
    )


def _read_processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One figure of a plot."""

    group: str
    """What was done."""
    series: str
    """Who did it, or how."""
    unit: str
    """Bars of each unit have their own axis."""
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The figures that answer one question."""

    title: str
    """The question."""
    bars: Sequence[Bar]
    details: Mapping[str, str] = field(default_factory=dict)
    """Figures that are not in the plot, and the sizes of the workload."""
    measured: str = field(default_factory=describe_machine)


def read_answers() -> dict[str, Answer]:
    """Return the stored answers by question."""
    if not RESULTS.exists():
        return {}
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {
        name: Answer(**{**answer, "bars": [Bar(**bar) for bar in answer["bars"]]})
        for name, answer in stored.items()
    }


def store_answer(name: str, answer: Answer) -> None:
    """Store an answer; the earlier answer to the same question is replaced."""
    answers = {**read_answers(), name: answer}
    document = {key: asdict(answers[key]) for key in sorted(answers)}
    RESULTS.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
