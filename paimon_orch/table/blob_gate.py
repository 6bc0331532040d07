"""Refuses the steps that are not implemented for tables with BLOB columns.

See docs/format/blob.md.
"""

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.options.core_options import DATA_EVOLUTION_ENABLED
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import is_blob


def require_blob_support(table: str, schema: TableSchema, step: StepKind) -> None:
    """Raise :class:`UnsupportedError` for a step that cannot handle the table's BLOB columns."""
    names = [field.name for field in schema.fields if is_blob(field.type)]
    if not names:
        return
    column = f"{table}: column {names[0]!r} of type BLOB"
    if schema.primary_keys:
        if step & (StepKind.WRITE_ROWS | StepKind.COMPACT):
            raise UnsupportedError(
                f"{column}: primary-key tables with BLOB columns cannot be written or compacted, "
                "because new data files would not list the files of their values; use Java Paimon"
            )
        return
    reads = step & (StepKind.READ | StepKind.DEFAULT_READ)
    if reads and not schema.typed_options.get(DATA_EVOLUTION_ENABLED):
        raise UnsupportedError(
            f"{column} needs 'data-evolution.enabled' = true in a table without primary key"
        )


def refuse_blob_columns(table: str, schema: TableSchema, action: str) -> None:
    """Raise :class:`UnsupportedError` if the table has BLOB columns."""
    for field in schema.fields:
        if is_blob(field.type):
            raise UnsupportedError(
                f"{table}: {action} is not supported for tables with BLOB columns, and "
                f"{field.name!r} is one"
            )
