"""Finds the source of each column of the read schema: a column of the file, or a constant.

See docs/format/schema-evolution.md.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.files.arrow_conversion import build_constant_column
from paimon_orch.files.row_tracking import ROW_TRACKING_FIELDS
from paimon_orch.files.schema_evolution.evolve import evolve, find_source_field
from paimon_orch.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from paimon_orch.format.types.data_types import DataType, Field

_STORED_FIELDS = (SEQUENCE_NUMBER, VALUE_KIND, *ROW_TRACKING_FIELDS)


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """The source of one column: a column of the file, or a constant."""

    field: Field
    physical: str | None
    """The name of the column in the file, or None for a constant."""
    physical_type: DataType
    constant: object = None

    @property
    def has_unchanged_type(self) -> bool:
        """Return whether the file has the type of the read schema; nullability is ignored."""
        return self.physical_type.with_nullable(True) == self.field.type.with_nullable(True)

    def read(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the column of a batch of the file, as the type of the read schema."""
        if self.physical is not None:
            column = batch.column(self.physical)
            if pa.types.is_dictionary(column.type):  # read as dictionary if its type is unchanged
                return column
            return evolve(column, self.physical_type, self.field.type)
        return build_constant_column(self.constant, self.field.type, batch.num_rows)


def find_column_sources(
    fields: Sequence[Field],
    file_fields: Sequence[Field],
    names: Collection[str],
    *,
    constants: Mapping[str, object],
) -> list[ColumnSource]:
    """Return the source of each field; columns that the file does not have are null.

    :param file_fields: the columns of the schema that the file was written with
    :param names: the columns that the file has
    :param constants: values of columns that are the same in all rows, such as partition values
    """
    columns = []
    for field in fields:
        source = field if field in _STORED_FIELDS else find_source_field(field, file_fields)
        if field.name in constants:
            columns.append(ColumnSource(field, None, field.type, constants[field.name]))
        elif source is None or source.name not in names:
            columns.append(ColumnSource(field, None, field.type))
        else:
            # Java Paimon 0.9 may write null instead of the key into the value columns
            key = KEY_PREFIX + source.name
            name = key if key in names else source.name
            columns.append(ColumnSource(field, name, source.type))
    return columns
