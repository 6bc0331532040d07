"""The processor cores and the memory that this process may use.

Containers limit both with control groups, which the counts of the operating system ignore.
"""

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def count_cores(cgroup: Path = _CGROUP) -> int:
    """Return the number of cores that this process may use, at least 1."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        cores = min(cores, int(quota) // int(period))
    return max(1, cores)


def read_available_memory(cgroup: Path = _CGROUP, meminfo: Path = _MEMINFO) -> int | None:
    """Return the bytes that new processes can use without swapping; None if it is unknown."""
    limits = [
        int(line.split()[1]) << 10
        for line in _read(meminfo).splitlines()
        if line.startswith("MemAvailable:")
    ]
    limit, used = _read(cgroup / "memory.max").strip(), _read(cgroup / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        limits.append(max(0, int(limit) - int(used) + _read_reclaimable(cgroup)))
    return min(limits, default=None)


def _read_reclaimable(cgroup: Path) -> int:
    """Return the bytes of cached files that the kernel drops if processes need memory."""
    for line in _read(cgroup / "memory.stat").splitlines():
        name, _, size = line.partition(" ")
        if name == "inactive_file":
            return int(size)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
