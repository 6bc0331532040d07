"""Reads a table batch by batch in a process of its own, and tells the peak memory: WAREHOUSE db.t."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from paimon_orch import Catalog


def peak() -> float:
    """Return the most memory that this process ever had, in MB (Linux tells; what it was forked from does not count)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main(warehouse: str, name: str) -> None:
    """Print rows and memory as JSON."""
    table = Catalog(warehouse).table(name)
    before = peak()
    rows = sum(batch.num_rows for batch in table.scan().to_batches())
    sys.stdout.write(json.dumps({"rows": rows, "mb": peak(), "base": before}))


if __name__ == "__main__":
    main(*sys.argv[1:])
