"""Columns of a scan that are values inside of VARIANT columns."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.files.variant_access import parse_path, variant_get
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType, Field, VariantType, is_blob, parse_type
from paimon_orch.format.types.predicate import VariantValue

_CALL = re.compile(r"\s*variant_get\s*\(", re.IGNORECASE)
_NO_ID = -1


@dataclass(frozen=True, slots=True)
class VariantColumn:
    """A column with the values at a path of a VARIANT column."""

    field: Field
    """The name and type of the column; the id is that of no column of a table."""
    source: str
    value: VariantValue

    def read(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the values of some rows, which have the column ``source``."""
        values = variant_get(rows.column(self.source), self.value.path, self.value.type)
        return values.combine_chunks()


def select_columns(
    schema: TableSchema, columns: Sequence[str]
) -> tuple[tuple[Field, ...], tuple[VariantColumn, ...]]:
    """Return the fields of a scan, and those of them that are values of VARIANT columns.

    Raises :class:`NotFoundError` for a column that does not exist, and :class:`InputError` if two
    columns have the same name.
    """
    fields, variants = list[Field](), list[VariantColumn]()
    for text in columns:
        if text in schema.names or not _CALL.match(text):
            fields.append(schema.field(text))
        else:
            variants.append(_parse_column(schema, text))
            fields.append(variants[-1].field)
    if variants:
        _check_names(schema, [column.field.name for column in variants])
    return tuple(fields), tuple(variants)


def _parse_column(schema: TableSchema, text: str) -> VariantColumn:
    from paimon_orch.table.filter.sql_parser import (  # sqlglot is slow to import
        parse_variant_column,
    )

    source, value, alias = parse_variant_column(text)
    if not isinstance(schema.field(source).type, VariantType):
        raise InputError(f"column {text!r}: {source!r} is not a VARIANT")
    parse_path(value.path)
    data_type = parse_type(value.type)
    if not isinstance(data_type, AtomicType | VariantType) or is_blob(data_type):
        raise InputError(f"column {text!r}: a value cannot be read as {value.type}")
    field = Field(id=_NO_ID, name=text if alias is None else alias, type=data_type)
    return VariantColumn(field, source, value)


def _check_names(schema: TableSchema, names: Sequence[str]) -> None:
    for name in names:
        if name in schema.names or names.count(name) > 1:
            raise InputError(
                f"two columns have the name {name!r}; name the value of the variant with AS"
            )


def compute_columns(
    rows: pa.RecordBatch, target: pa.Schema, variants: Iterable[VariantColumn]
) -> pa.RecordBatch:
    """Return the columns of ``target``, some of which are values of VARIANT columns."""
    computed = {column.field.name: column for column in variants}
    columns = [
        computed[name].read(rows) if name in computed else rows.column(name)
        for name in target.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)
