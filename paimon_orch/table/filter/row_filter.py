"""Evaluates filters on rows, also tests of values inside of VARIANT columns."""

from collections.abc import Mapping

import pyarrow as pa

from paimon_orch.files.variant_access import variant_get
from paimon_orch.format.types.predicate import Leaf, Predicate, iterate_leaves, to_arrow_expression


class RowFilter:
    """Selects the rows that match a bound predicate."""

    def __init__(self, predicate: Predicate) -> None:
        self._condition = to_arrow_expression(predicate)
        self._tested_values: Mapping[str, Leaf] = {
            leaf.name: leaf for leaf in iterate_leaves(predicate) if leaf.variant is not None
        }

    def select(self, rows: pa.Table) -> pa.Table:
        """Return the matching rows.

        Raises :class:`InputError` for a value of a variant that cannot be read as its type.
        """
        names, extended = rows.column_names, rows
        for name, leaf in self._tested_values.items():
            assert leaf.variant is not None
            values = variant_get(rows.column(leaf.column), leaf.variant.path, leaf.variant.type)
            extended = extended.append_column(name, values)
        matching = extended.filter(self._condition)
        return matching.select(names) if self._tested_values else matching
