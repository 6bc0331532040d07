"""Reads a table batch by batch in a separate process and prints its peak memory: WAREHOUSE db.t."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from paimon_orch import Catalog


def peak_memory() -> float:
    """Return the peak resident memory of this process in MB, without that of its parent (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main(warehouse: str, name: str) -> None:
    """Print the number of rows and the memory as JSON."""
    table = Catalog(warehouse).table(name)
    memory_before = peak_memory()
    rows = sum(batch.num_rows for batch in table.scan().to_batches())
    sys.stdout.write(
        json.dumps({"rows": rows, "peak_mb": peak_memory(), "mb_before": memory_before})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
