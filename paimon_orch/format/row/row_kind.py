"""Row kinds: insert, update and delete, as codes and as text.

See docs/format/data-files.md#physical-columns.
"""

from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Mask, to_numpy


class RowKind(IntEnum):
    """The kind of change that a row represents."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3


ROW_KIND_SYMBOLS = ("+I", "-U", "+U", "-D")


def is_retract(kinds: pa.ChunkedArray | pa.Array) -> Mask:
    """Return which rows are -U or -D: the odd codes."""
    is_odd: Mask = np.bitwise_and(to_numpy(kinds), 1).astype(bool)
    return is_odd


def parse_row_kinds(symbols: pa.Array) -> pa.Array:
    """Return the codes of ``+I``, ``-U``, ``+U``, ``-D``; raise :class:`InputError` for others."""
    if not (pa.types.is_string(symbols.type) or pa.types.is_large_string(symbols.type)):
        raise InputError(
            f"the row kind column has type {symbols.type}; it must be a string, one of "
            f"{', '.join(ROW_KIND_SYMBOLS)}"
        )
    codes = pc.index_in(symbols, value_set=pa.array(ROW_KIND_SYMBOLS))
    if codes.null_count:
        invalid_symbols = pc.unique(symbols.filter(codes.is_null())).to_pylist()[:3]
        raise InputError(
            f"row kind {', '.join(map(repr, invalid_symbols))} must be one of "
            f"{', '.join(ROW_KIND_SYMBOLS)}"
        )
    return codes.cast(pa.int8())
