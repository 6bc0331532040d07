"""Checks the rules of merge engines for row-level changes, and builds the rows to write."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.arrow_conversion import convert_to_arrow_type
from paimon_orch.format.arrays import to_arrow_array, to_numpy
from paimon_orch.format.options.core_options import (
    AGGREGATION_REMOVE_RECORD_ON_DELETE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP,
)
from paimon_orch.format.row.row_kind import RowKind
from paimon_orch.format.schema import VALUE_KIND, TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.merge.engine.update_rows import compute_update_rows, should_merge_updates
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    OLD_VALUE_PREFIX,
    group_rows_by_file,
)


def check_engine_supports(schema: TableSchema, operation: str) -> None:
    """Raise an error if the merge engine does not apply a row-level operation.

    :param operation: ``delete``, ``update``, ``merge`` (which may delete) or ``insert``
    """
    if operation == "insert":
        return
    if schema.typed_options.merge_engine == "first-row":
        raise UnsupportedError(
            f"{operation} of rows is not possible with 'merge-engine' = 'first-row': it keeps the "
            "first row of a key and ignores -D rows"
        )
    if operation != "update":
        _check_deletes_supported(schema, operation)


def _check_deletes_supported(schema: TableSchema, operation: str) -> None:
    options = schema.typed_options
    engine = options.merge_engine
    if options.ignores_delete:
        raise UnsupportedError("the table ignores deletes ('ignore-delete' = true)")
    removes = {
        "aggregation": options.get(AGGREGATION_REMOVE_RECORD_ON_DELETE),
        "partial-update": options.get(PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE)
        or bool(options.get(PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP)),
    }
    if engine != "deduplicate" and not removes.get(engine, False):
        by_group = " or 'partial-update.remove-record-on-sequence-group'"
        raise UnsupportedError(
            f"{operation} of rows with 'merge-engine' = {engine!r} needs "
            f"'{engine}.remove-record-on-delete' = true"
            f"{by_group if engine == 'partial-update' else ''}: otherwise a -D row retracts values "
            "but does not delete the key"
        )


def build_delete_rows(schema: TableSchema, rows: pa.Table) -> pa.Table:
    """Return -D rows for rows that were read.

    Raises :class:`InputError` if the merge engine would not delete a row.
    """
    kinds = to_arrow_array(np.full(rows.num_rows, int(RowKind.DELETE), np.int8))
    new = rows.add_column(0, VALUE_KIND.name, kinds)
    return compute_update_rows(schema, rows, new) if should_merge_updates(schema) else new


def build_rows_to_write(schema: TableSchema, rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows that the merge engine needs to apply converted rows with addresses.

    Rows without an address are new. If the table merges changes with old rows, ``rows`` have the
    old values in columns with the prefix ``OLD_VALUE_PREFIX``.
    """
    if not should_merge_updates(schema):
        yield rows.drop_columns([ADDRESS_COLUMN])
        return
    has_address = pc.is_valid(rows.column(ADDRESS_COLUMN))
    changed = rows.filter(has_address)
    names = [
        name
        for name in rows.column_names
        if name != ADDRESS_COLUMN and not name.startswith(OLD_VALUE_PREFIX)
    ]
    yield rows.filter(pc.invert(has_address)).select(names)
    if not changed.num_rows:
        return
    yield _build_updates(schema, changed, names)


def _build_updates(schema: TableSchema, changed: pa.Table, names: list[str]) -> pa.Table:
    # This raises an InputError if a row is changed more than once.
    group_rows_by_file([to_numpy(changed.column(ADDRESS_COLUMN))])
    columns = {}
    for field in schema.fields:
        column = changed.column(OLD_VALUE_PREFIX + field.name).combine_chunks()
        columns[field.name] = convert_to_arrow_type(column, to_arrow_type(field.type))
    new = changed.select([VALUE_KIND.name, *schema.names])
    updates = compute_update_rows(schema, pa.table(columns), new)
    for name in names:
        if name not in updates.column_names:
            updates = updates.append_column(name, changed.column(name))
    return updates
