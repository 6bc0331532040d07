"""Default values of columns: strings in the schema that writers store instead of null.

See docs/format/schema-evolution.md.
"""

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.schema_evolution.cast import cast
from paimon_orch.format.types.data_types import AtomicType, Field, parse_type, type_to_sql

_STRING_TYPE = parse_type("STRING")


def parse_default(field: Field) -> pa.Scalar:
    """Return the default of a column that has one, in its Arrow type."""
    if not isinstance(field.type, AtomicType):
        raise UnsupportedError(
            f"column {field.name!r}: default values of type {type_to_sql(field.type)} are not "
            "supported"
        )
    try:
        return cast(pa.array([field.default_value], pa.string()), _STRING_TYPE, field.type)[0]
    except InputError as error:
        raise InputError(
            f"the default {field.default_value!r} of column {field.name!r} is not a valid "
            f"{type_to_sql(field.type)}"
        ) from error


def fill_default(array: pa.Array, field: Field) -> pa.Array:
    """Return a column with nulls replaced by its default, if it has one."""
    if field.default_value is None or not array.null_count:
        return array
    return pc.if_else(array.is_valid(), array, parse_default(field).cast(array.type))
