"""Deletion vectors beside the milliseconds that the format's proposal published for Java (PIP-16).

    python benchmarks/deletion_vectors.py [--most 200000000] [--repeat 3]

For so many random positions below a largest one: make the vector, serialize it, read it again, and ask for every row
up to the largest whether it is hidden, as a scan does. The proposal adds and asks position by position, for the same
number of positions; it ran on another machine.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer
from measure import console, medians, show

from paimon_orch.files.data_file_reader import BATCH_ROWS
from paimon_orch.format.arrays import Positions
from paimon_orch.format.deleted_row_mask import DeletedRowMask
from paimon_orch.format.deletion_vector import DeletionVector, decode_deletion_vector_payload

SHARES = (0.2, 0.5, 0.8)
SIZES = (2_000_000, 20_000_000, 200_000_000)
STEPS = ("add", "serialize", "deserialize", "contains")
# milliseconds of each step, then megabytes
PUBLISHED = {
    (0.2, 2_000_000): (43, 5, 26, 7, 0.24),
    (0.5, 2_000_000): (47, 3, 52, 5, 0.24),
    (0.8, 2_000_000): (57, 1, 24, 8, 0.24),
    (0.2, 20_000_000): (450, 13, 247, 49, 2.4),
    (0.5, 20_000_000): (629, 6, 222, 76, 2.4),
}


def count_visible(vector: DeletionVector, rows: int) -> int:
    """Return how many rows are not hidden, batch by batch."""
    hidden, visible = DeletedRowMask.of(vector), 0
    for start in range(0, rows, BATCH_ROWS):
        size = min(BATCH_ROWS, rows - start)
        kept = hidden.kept(start, size)
        visible += size if kept is None else kept.true_count
    return visible


def measure(share: float, most: int, repeat: int) -> tuple[str, ...]:
    """Return a line of the result: each step beside what was published of it."""
    chosen = np.arange(most) < int(share * most)
    np.random.default_rng(0).shuffle(chosen)
    positions: Positions = np.flatnonzero(chosen)
    del chosen
    vector = DeletionVector.of(positions)
    data = vector.encode_payload(bitmap64=False)
    assert count_visible(decode_deletion_vector_payload(data, ""), most) == most - len(positions)
    runs: dict[str, Callable[[], object]] = {
        "add": lambda: DeletionVector.of(positions),
        "serialize": lambda: vector.encode_payload(bitmap64=False),
        "deserialize": lambda: decode_deletion_vector_payload(data, ""),
        "contains": lambda: count_visible(vector, most),
    }
    seconds = medians(runs, repeat)
    found = [1000 * seconds[step] for step in STEPS]
    size = len(data) / 1e6
    published = PUBLISHED.get((share, most))
    if published is None:
        return f"{share:.0%} of {most:,}", *(f"{value:.1f}" for value in found), f"{size:.2f}"
    beside = [f"{ours:.1f} / {theirs}" for ours, theirs in zip(found, published, strict=False)]
    return f"{share:.0%} of {most:,}", *beside, f"{size:.2f} / {published[-1]}"


def main(
    most: Annotated[int, typer.Option(help="The largest position to try.")] = SIZES[-1],
    repeat: Annotated[int, typer.Option(help="Runs, of which the median counts.")] = 3,
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
