"""Ignores or drops retracts (-U and -D rows) as the merge engine requires.

See docs/format/sequence-and-row-kinds.md.
"""

import pyarrow as pa

from paimon_orch.format.arrays import Mask, to_arrow_array, to_numpy
from paimon_orch.format.options.core_options import IGNORE_UPDATE_BEFORE
from paimon_orch.format.row.row_kind import RowKind, is_retract
from paimon_orch.format.schema import VALUE_KIND, TableSchema
from paimon_orch.merge.sort.sort_merge_reader import MergeBatch


def drop_ignored_rows(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the rows to write; ignored rows get no sequence number and no changelog."""
    kinds = rows.column(VALUE_KIND.name)
    if schema.typed_options.ignores_delete:
        ignored = is_retract(kinds)
    elif schema.typed_options.get(IGNORE_UPDATE_BEFORE):
        ignored = to_numpy(kinds) == int(RowKind.UPDATE_BEFORE)
    else:
        return rows
    return rows.filter(to_arrow_array(~ignored)) if ignored.any() else rows


def should_drop_retracts(schema: TableSchema) -> bool:
    """Return whether a merge drops retracts that were written before they were ignored."""
    options = schema.typed_options
    return options.ignores_delete and not options.combines_rows


def find_retracts(step: MergeBatch) -> Mask:
    """Return a mask of the -U and -D rows, in the order of ``step.order``."""
    mask: Mask = is_retract(step.rows.column(VALUE_KIND.name))[step.order]
    return mask


def drop_retracts(rows: pa.Table) -> pa.Table:
    """Return the rows without -U and -D rows."""
    retracts = is_retract(rows.column(VALUE_KIND.name))
    return rows.filter(to_arrow_array(~retracts)) if retracts.any() else rows
