"""Plans or reads a table with pypaimon-rust, in its environment: plan|read WAREHOUSE db.t REPEAT."""

from __future__ import annotations

import json
import statistics
import sys
import time

from pypaimon_rust.datafusion import PaimonCatalog


def main(command: str, warehouse: str, name: str, repeat: str) -> None:
    """Print the median CPU seconds of each measurement as JSON."""
    builder = PaimonCatalog({"warehouse": warehouse}).get_table(name).new_read_builder({})
    seconds: dict[str, list[float]] = {}
    for _ in range(int(repeat)):
        start = time.process_time()
        splits = builder.new_scan().plan().splits()
        planned = time.process_time()
        seconds.setdefault("plan", []).append(planned - start)
        if command == "read":
            batches = list(builder.new_read().read(splits))
            seconds.setdefault("read", []).append(time.process_time() - planned)
            seconds["rows"] = [sum(batch.num_rows for batch in batches)]
    sys.stdout.write(json.dumps({key: statistics.median(value) for key, value in seconds.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
