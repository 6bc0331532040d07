"""Row kinds: insert, update and delete, as codes and as text (format section 8.1)."""

from enum import IntEnum

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError


class RowKind(IntEnum):
    """The change that a row stands for."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3


KIND_TEXTS = ("+I", "-U", "+U", "-D")


def is_retract(kinds: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Tell which rows take something away: -U and -D."""
    return pc.is_in(kinds, value_set=pa.array([1, 3], pa.int8()))


def parse_kinds(texts: pa.Array) -> pa.Array:
    """Return codes for a column of ``+I``, ``-U``, ``+U``, ``-D``; anything else is an error."""
    codes = pc.index_in(texts, value_set=pa.array(KIND_TEXTS))
    if codes.null_count:
        wrong = pc.unique(texts.filter(codes.is_null())).to_pylist()[:3]
        raise InputError(
            f"row kind {', '.join(map(repr, wrong))} must be one of {', '.join(KIND_TEXTS)}"
        )
    return codes.cast(pa.int8())
