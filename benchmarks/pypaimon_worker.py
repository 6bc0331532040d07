"""Plans or reads a table with pypaimon, in its environment: plan|read WAREHOUSE db.t REPEAT."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

from pypaimon import CatalogFactory


def main(command: str, warehouse: str, name: str, repeat: str) -> None:
    """Print the median CPU seconds of each measurement as JSON."""
    table = CatalogFactory.create({"warehouse": warehouse}).get_table(name)
    builder = table.new_read_builder()
    seconds: dict[str, list[float]] = {}
    for _ in range(int(repeat)):
        start = time.process_time()
        splits: Any = builder.new_scan().plan().splits()
        seconds.setdefault("plan", []).append(time.process_time() - start)
        if command == "read":
            start = time.process_time()
            rows = builder.new_read().to_arrow(splits).num_rows
            seconds.setdefault("read", []).append(time.process_time() - start)
            seconds["rows"] = [rows]
    sys.stdout.write(json.dumps({key: statistics.median(value) for key, value in seconds.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
