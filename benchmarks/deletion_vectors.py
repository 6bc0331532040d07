"""Deletion vectors, compared with the times that the format's proposal (PIP-16) published for Java.

    python benchmarks/deletion_vectors.py [--most 200000000] [--repeat 3]

Builds a vector of random positions below a maximum, serializes it, deserializes it, and checks for
every row up to the maximum whether it is deleted, like a scan. The proposal adds and checks the
same number of positions one at a time; it ran on another machine.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer
from measurement import console, medians, show

from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES
from paimon_orch.format.arrays import Positions
from paimon_orch.format.deleted_row_mask import DeletedRowMask
from paimon_orch.format.deletion_vector import DeletionVector, decode_deletion_vector_payload

SHARES = (0.2, 0.5, 0.8)
SIZES = (2_000_000, 20_000_000, 200_000_000)
STEPS = ("add", "serialize", "deserialize", "contains")
# Each value has the milliseconds of each step and then the size in megabytes.
PUBLISHED = {
    (0.2, 2_000_000): (43, 5, 26, 7, 0.24),
    (0.5, 2_000_000): (47, 3, 52, 5, 0.24),
    (0.8, 2_000_000): (57, 1, 24, 8, 0.24),
    (0.2, 20_000_000): (450, 13, 247, 49, 2.4),
    (0.5, 20_000_000): (629, 6, 222, 76, 2.4),
}


def count_live_rows(vector: DeletionVector, rows: int) -> int:
    """Return the number of rows that are not deleted, counted batch by batch."""
    mask, live_rows = DeletedRowMask.of(vector), 0
    for start in range(0, rows, DEFAULT_BATCH_SIZES.batch_rows):
        size = min(DEFAULT_BATCH_SIZES.batch_rows, rows - start)
        live = mask.build_live_mask(start, size)
        live_rows += size if live is None else live.true_count
    return live_rows


def measure(share: float, rows: int, repeat: int) -> tuple[str, ...]:
    """Return a row of the result: our time and the published time of each step."""
    deleted = np.arange(rows) < int(share * rows)
    np.random.default_rng(0).shuffle(deleted)
    positions: Positions = np.flatnonzero(deleted)
    del deleted
    vector = DeletionVector.of(positions)
    data = vector.encode_payload(bitmap64=False)
    decoded = decode_deletion_vector_payload(data, "")
    assert count_live_rows(decoded, rows) == rows - len(positions)
    runs: dict[str, Callable[[], object]] = {
        "add": lambda: DeletionVector.of(positions),
        "serialize": lambda: vector.encode_payload(bitmap64=False),
        "deserialize": lambda: decode_deletion_vector_payload(data, ""),
        "contains": lambda: count_live_rows(vector, rows),
    }
    seconds = medians(runs, repeat)
    times = [1000 * seconds[step] for step in STEPS]
    size = len(data) / 1e6
    published = PUBLISHED.get((share, rows))
    if published is None:
        return f"{share:.0%} of {rows:,}", *(f"{time:.1f}" for time in times), f"{size:.2f}"
    columns = [f"{ours:.1f} / {theirs}" for ours, theirs in zip(times, published, strict=False)]
    return f"{share:.0%} of {rows:,}", *columns, f"{size:.2f} / {published[-1]}"


def main(
    most: Annotated[int, typer.Option(help="Upper bound of the positions.")] = SIZES[-1],
    repeat: Annotated[int, typer.Option(help="Number of runs; the median is printed.")] = 3,
) -> None:
    """Measure and print."""
    pa.set_cpu_count(1)
    sizes = [size for size in SIZES if size <= most]
    lines = []
    for size, share in product(sizes, SHARES):
        lines.append(measure(share, size, repeat))
        console.print(*lines[-1], sep=" | ")
    show("Deletion vectors: ours / published", ("", *(f"{s} ms" for s in STEPS), "MB"), lines)


if __name__ == "__main__":
    typer.run(main)
