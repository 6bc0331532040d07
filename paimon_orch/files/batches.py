"""Record batches that may have no columns, and have rows nevertheless."""

from collections.abc import Sequence

import pyarrow as pa


def record_batch(arrays: Sequence[pa.Array], names: Sequence[str], rows: int) -> pa.RecordBatch:
    """Return columns as a batch of ``rows`` rows."""
    if arrays:
        return pa.RecordBatch.from_arrays(list(arrays), list(names))
    nothing = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(nothing)
