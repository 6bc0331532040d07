"""Record batches: of no columns but with rows nevertheless, and with the numbers of their rows."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from paimon_orch.format.deletion_vector import Positions

NumberedBatch = tuple[Positions, pa.RecordBatch]
"""Rows behind their physical numbers in a file."""


def number_batches(first_row: int, batches: Iterable[pa.RecordBatch]) -> Iterator[NumberedBatch]:
    """Yield batches without a gap between them behind the numbers of their rows."""
    for batch in batches:
        if batch.num_rows:
            yield np.arange(first_row, first_row + batch.num_rows), batch
        first_row += batch.num_rows


def build_record_batch(
    arrays: Sequence[pa.Array], names: Sequence[str], rows: int
) -> pa.RecordBatch:
    """Return columns as a batch of ``rows`` rows."""
    if arrays:
        return pa.RecordBatch.from_arrays(list(arrays), list(names))
    nothing = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(nothing)
