"""The user-defined sequence: the order of rows of one key by ``sequence.field``."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrays import Indices, to_numpy
from paimon_orch.merge.sort.key_order import to_comparable_column


@dataclass(frozen=True, slots=True)
class SequenceOrder:
    """``sequence.field`` and its direction, which precede ``_SEQUENCE_NUMBER``."""

    names: tuple[str, ...] = ()
    descending: bool = False

    def compute_ranks(self, rows: pa.Table) -> list[Indices]:
        """Return the ranks of every row by field; null is smallest in both directions."""
        return [self._compute_rank(to_comparable_column(rows.column(name))) for name in self.names]

    def _compute_rank(self, column: pa.Array) -> Indices:
        ranks = compute_dense_rank(column)
        if not self.descending:
            return ranks
        valid = to_numpy(column.is_valid())
        return np.where(valid, ranks.max(initial=0) + 1 - ranks, 0)


def compute_dense_rank(column: pa.Array) -> Indices:
    """Return the rank of each value among the distinct values, from 1; the rank of null is 0."""
    ranks = to_numpy(pc.rank(column, "ascending", tiebreaker="dense")).astype(np.int64)
    return np.where(to_numpy(column.is_valid()), ranks, 0)


NO_SEQUENCE_FIELD = SequenceOrder()
