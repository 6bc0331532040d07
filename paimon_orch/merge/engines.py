"""Merge engines: what becomes of the rows of one key (merge-tree facts 3)."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.row_kind import is_retract
from paimon_orch.format.schema import VALUE_KIND, TableSchema
from paimon_orch.merge.stream import Step

MergeFunction = Callable[[Step], pa.Table]


def deduplicate(step: Step) -> pa.Table:
    """Keep the newest row of each key, with its kind."""
    if step.order is step.starts:
        return step.rows  # one run alone: nothing to merge, nothing to move
    return step.rows.take(pa.array(step.lasts))


def merge_function(schema: TableSchema) -> MergeFunction:
    """Return the merge function of a table; engines that are not implemented are refused by name."""
    options = schema.typed_options
    if options.merge_engine != "deduplicate":
        raise UnsupportedError(f"'merge-engine' = {options.merge_engine!r} is not supported yet")
    for key in ("sequence.field", "ignore-delete"):
        if options.text(key) not in ("", "false"):
            raise UnsupportedError(f"option {key!r} is not supported yet")
    return deduplicate


def drop_retracts(rows: pa.Table) -> pa.Table:
    """Return the rows that are there for a reader: no -U and no -D."""
    retracts = is_retract(rows.column(VALUE_KIND.name))
    return rows.filter(pc.invert(retracts)) if pc.any(retracts).as_py() else rows
