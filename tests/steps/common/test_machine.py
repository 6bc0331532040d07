"""The cores and the memory of a machine and of a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paimon_orch.steps.common.machine import count_cores, read_available_memory

MEMINFO = "MemTotal:       32000 kB\nMemFree:         1000 kB\nMemAvailable:    8000 kB\n"


@pytest.mark.parametrize(
    ("cpu_max", "cores"),
    [(None, 8), ("max 100000\n", 8), ("250000 100000\n", 2), ("50000 100000\n", 1)],
)
def test_the_quota_of_a_container_limits_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu_max: str | None, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    if cpu_max is not None:
        (tmp_path / "cpu.max").write_text(cpu_max)
    assert count_cores(tmp_path) == cores


def test_the_limit_of_a_container_limits_the_memory(tmp_path: Path) -> None:
    meminfo, missing = tmp_path / "meminfo", tmp_path / "missing"
    assert read_available_memory(missing, missing) is None
    meminfo.write_text(MEMINFO)
    assert read_available_memory(missing, meminfo) == 8000 << 10

    (tmp_path / "memory.current").write_text("5000000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert read_available_memory(tmp_path, meminfo) == 8000 << 10
    (tmp_path / "memory.max").write_text("6000000\n")
    assert read_available_memory(tmp_path, meminfo) == 1_000_000
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 250000\n")
    assert read_available_memory(tmp_path, meminfo) == 1_250_000
