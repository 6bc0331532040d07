"""Converts columns of old files to the types of the read schema.

See docs/format/schema-evolution.md.
"""

from collections.abc import Sequence

import pyarrow as pa

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.arrow_conversion import convert_timestamps
from paimon_orch.files.nested_arrays import (
    build_map_entries,
    map_atoms,
    map_key_value_types,
    with_fields,
    with_values,
)
from paimon_orch.files.schema_evolution.cast import cast
from paimon_orch.files.variant_text import has_variants
from paimon_orch.format.arrays import build_nulls
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
)


def find_source_field(field: Field, file_fields: Sequence[Field]) -> Field | None:
    """Return the column of a file's schema with the id of a column of the read schema."""
    return next((source for source in file_fields if source.id == field.id), None)


def conform(array: pa.Array, data_type: DataType) -> pa.Array:
    """Return stored values as the Arrow type of their Paimon type."""
    target = to_arrow_type(data_type)
    if array.type == target and not has_variants(target):
        return array
    return map_atoms(array, data_type, target, _conform_atom)


def _conform_atom(array: pa.Array, _type: AtomicType, target: pa.DataType) -> pa.Array:
    if isinstance(array.type, pa.TimestampType) and isinstance(target, pa.TimestampType):
        return convert_timestamps(array, target)
    return array if array.type == target else array.cast(target)


def evolve(array: pa.Array, old: DataType, new: DataType) -> pa.Array:
    """Return a column of type ``old`` as type ``new``; nullability is ignored."""
    array = conform(array, old)
    if old.with_nullable(True) == new.with_nullable(True):
        return array
    target = to_arrow_type(new)
    match old, new:
        case RowType(fields=old_fields), RowType(fields=new_fields):
            return with_fields(array, target, _evolve_fields(array, old_fields, new_fields))
        case ArrayType(element=old_element), ArrayType(element=new_element):
            return with_values(array, target, evolve(array.values, old_element, new_element))
        case MapType() | MultisetType(), MapType() | MultisetType() if type(old) is type(new):
            entries = array.values
            (old_key, old_value), (new_key, new_value) = (
                map_key_value_types(old),
                map_key_value_types(new),
            )
            parts = [
                evolve(entries.field(0), old_key, new_key),
                evolve(entries.field(1), old_value, new_value),
            ]
            return with_values(array, target, build_map_entries(target, parts))
        case _, AtomicType():
            return cast(array, old, new)
    raise UnsupportedError(f"a column of type {old} cannot be read as {new}")


def _evolve_fields(
    array: pa.Array, old_fields: Sequence[Field], new_fields: Sequence[Field]
) -> list[pa.Array]:
    children = []
    for field in new_fields:
        source = find_source_field(field, old_fields)
        if source is None:
            children.append(build_nulls(len(array), to_arrow_type(field.type)))
        else:
            children.append(evolve(array.field(source.name), source.type, field.type))
    return children
