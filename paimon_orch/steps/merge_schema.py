"""Finds the columns of input files that a table lacks, to add them before an ingest."""

from collections.abc import Iterable

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_paimon_type
from paimon_orch.format.types.data_types import DataType, parse_type
from paimon_orch.steps.ingest_columns import InputColumns


def find_new_columns(
    columns: InputColumns | None, schema: TableSchema, *, row_kind: str | None = None
) -> dict[str, DataType]:
    """Return the types of the columns to add, in the order of the files, except ``row_kind``.

    Columns of Parquet files have the types of the files; those of CSV and JSON files are STRING.
    Raises :class:`InputError` if the files leave a doubt about their columns.
    """
    if columns is None or not columns.is_complete:
        raise InputError(
            "--merge-schema cannot find the columns of the files without reading all rows; add the "
            "columns with the command alter. Nothing was changed"
        )
    names = find_new_names(columns.names, schema)
    return {name: _find_type(columns, name) for name in names if name != row_kind}


def find_new_names(names: Iterable[str], schema: TableSchema) -> list[str]:
    """Return the names of columns that a table does not have.

    Raises :class:`InputError` for a name that differs from one of the table only in its case.
    """
    folded = {name.lower(): name for name in schema.names}
    new = [name for name in names if name not in schema.names]
    for name in new:
        if name.lower() in folded:
            raise InputError(
                f"column {name!r} of the rows differs from the column {folded[name.lower()]!r} of "
                "the table only in its case; rename one of them. Nothing was changed"
            )
    return new


def _find_type(columns: InputColumns, name: str) -> DataType:
    if not columns.has_types:
        return parse_type("STRING")
    schema = columns.parquet_schema
    if schema is None or name not in schema.names:
        raise InputError(
            f"--merge-schema: the files have different types of column {name!r}, or it is a column "
            "of their directories; add it with the command alter. Nothing was changed"
        )
    try:
        return to_paimon_type(schema.field(name).type)
    except InputError as error:
        raise InputError(f"--merge-schema: column {name!r}: {error}") from error
