"""Converts columns of old files to the types of the read schema.

See docs/format/schema-evolution.md.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.nested_arrays import (
    build_map_entries,
    map_atoms,
    map_key_value_fields,
    map_key_value_types,
    with_fields,
    with_values,
)
from paimon_orch.files.schema_evolution.cast import cast, truncate_timestamps
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


def convert_to_arrow_type(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert data from a caller to a column's Arrow type; finer timestamps are truncated.

    Raises ``pyarrow.ArrowInvalid`` or ``ArrowNotImplementedError`` for any other loss.
    """
    if array.type == target:
        return array
    if isinstance(array.type, pa.TimestampType) and isinstance(target, pa.TimestampType):
        return _convert_timestamps(array, target)
    if isinstance(target, pa.TimestampType) and pa.types.is_string(array.type):
        return _parse_timestamps(array, target)
    if pa.types.is_decimal(target) and pa.types.is_integer(array.type):
        # Arrow checks the digits of the type; this checks only that the values fit
        wide = pa.decimal256(20 + target.scale, target.scale)
        return array.cast(wide).cast(target)
    if isinstance(array.type, pa.StructType) and isinstance(target, pa.StructType):
        return with_fields(array, target, _convert_fields(array, target))
    if isinstance(array.type, pa.MapType) and isinstance(target, pa.MapType):
        entries = array.values
        parts = [
            convert_to_arrow_type(entries.field(i), f.type)
            for i, f in enumerate(map_key_value_fields(target))
        ]
        return with_values(array, target, build_map_entries(target, parts))
    if isinstance(target, pa.ListType) and isinstance(array.type, _LIST_TYPES):
        lists = array.cast(pa.list_(array.type.value_field))  # for 32-bit offsets
        return with_values(lists, target, convert_to_arrow_type(lists.values, target.value_type))
    return array.cast(target)


def _convert_fields(array: pa.Array, target: pa.StructType) -> list[pa.Array]:
    """Convert the fields of a row.

    Arrow's cast drops unknown fields, and fails for fields of null rows.
    """
    names = {field.name for field in array.type}
    if unknown := sorted(names - {field.name for field in target}):
        raise pa.ArrowInvalid(f"the row has no field {', '.join(unknown)}")
    return [
        convert_to_arrow_type(array.field(field.name), field.type)
        if field.name in names
        else pa.nulls(len(array), field.type)
        for field in target
    ]


_LIST_TYPES = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_ZONE_PATTERN = r"(Z|[+-]\d{2}:?\d{2})$"


def _parse_timestamps(array: pa.Array, target: pa.TimestampType) -> pa.Array:
    """Parse ISO 8601 into UTC; text without a zone is UTC."""
    zoned = pc.match_substring_regex(array, _ZONE_PATTERN)
    nothing = pa.scalar(None, array.type)
    with_zone = pc.if_else(zoned, array, nothing).cast(pa.timestamp(target.unit, tz="UTC"))
    without = pc.if_else(zoned, nothing, array).cast(pa.timestamp(target.unit))
    return pc.coalesce(with_zone.view(without.type), without).view(target)


def conform(array: pa.Array, data_type: DataType) -> pa.Array:
    """Return stored values as the Arrow type of their Paimon type."""
    target = to_arrow_type(data_type)
    if array.type == target:
        return array
    return map_atoms(array, data_type, target, _conform_atom)


def _conform_atom(array: pa.Array, _type: AtomicType, target: pa.DataType) -> pa.Array:
    if isinstance(array.type, pa.TimestampType) and isinstance(target, pa.TimestampType):
        return _convert_timestamps(array, target)
    return array if array.type == target else array.cast(target)


def _convert_timestamps(array: pa.Array, target: pa.TimestampType) -> pa.Array:
    """Return timestamps in another unit, truncated; the zone is replaced, not converted."""
    truncated = truncate_timestamps(array, target.unit)
    return truncated.cast(pa.timestamp(target.unit, tz=array.type.tz)).view(target)


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
            children.append(pa.nulls(len(array), to_arrow_type(field.type)))
        else:
            children.append(evolve(array.field(source.name), source.type, field.type))
    return children
