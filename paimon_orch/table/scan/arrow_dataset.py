"""Scans as Arrow data sets, to which DuckDB passes the columns and the filter of a query."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from paimon_orch.format.types.predicate import collect_columns, split_conjuncts
from paimon_orch.table.filter.arrow_filter import translate_arrow_filter
from paimon_orch.table.scan.pushdown import narrow_scan

if TYPE_CHECKING:
    from paimon_orch.table.scan.scan import Scan


class ScanDataset(pads.Dataset):
    """The rows of a scan, for DuckDB alone: only what it calls is implemented.

    The inherited methods would use a data set of Arrow's own, which does not exist.
    """

    def __init__(self, scan: "Scan") -> None:
        self._scan = scan

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return self._scan.arrow_schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        **_options: Any,
    ) -> pads.Scanner:
        """Return a scanner of the rows that match a filter."""
        names = None if columns is None else [*columns]
        if filter is None:
            return _build_scanner(narrow_scan(self._scan, names), names, None)
        test = translate_arrow_filter(filter, self.schema)
        # The columns of a filter that is not translated are among those that its text names.
        text = str(filter)
        used = (
            {x for x in self.schema.names if x in text} if test is None else collect_columns(test)
        )
        needed = None if names is None else [*dict.fromkeys((*names, *sorted(used)))]
        tests = () if test is None else split_conjuncts(test)
        return _build_scanner(narrow_scan(self._scan, needed, tests), names, filter)


def _build_scanner(
    scan: "Scan", columns: list[str] | None, filter: pc.Expression | None
) -> pads.Scanner:
    return pads.Scanner.from_batches(scan.to_reader(), columns=columns, filter=filter)
