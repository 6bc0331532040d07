"""Converts the simple values of nested Arrow columns by their Paimon types."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.types.data_types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    VariantType,
    VectorType,
    type_to_sql,
)
from paimon_orch.format.variant.shredding import assemble_variants

_LIST_ARRAYS = (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)  # MapArray is a ListArray
MULTISET_COUNT_TYPE = AtomicType(False, TypeRoot.INT)
_BYTES = AtomicType(False, TypeRoot.VARBINARY, (MAX_LENGTH,))
AtomConverter = Callable[[pa.Array, AtomicType, pa.DataType], pa.Array]


def map_key_value_types(data_type: MapType | MultisetType) -> tuple[DataType, DataType]:
    """Return the key and value types. A multiset is a map from its elements to their counts."""
    if isinstance(data_type, MapType):
        return data_type.key, data_type.value
    return data_type.element, MULTISET_COUNT_TYPE


def with_values(array: pa.Array, target: pa.DataType, values: pa.Array) -> pa.Array:
    """Return a list or map as ``target`` with other values; offsets and nulls are unchanged."""
    buffers = array.buffers()[: target.num_buffers]
    return pa.Array.from_buffers(
        target, len(array), buffers, array.null_count, array.offset, [values]
    )


def with_fields(array: pa.Array, target: pa.DataType, fields: Sequence[pa.Array]) -> pa.Array:
    """Return a struct as type ``target`` with other fields; nulls are unchanged."""
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(list(fields), fields=list(target), mask=mask)


def has_required_fields(arrow: pa.DataType) -> bool:
    """Return whether rows inside of a type have NOT NULL fields."""
    return contains_type(
        arrow, lambda kind: isinstance(kind, pa.StructType) and not all(x.nullable for x in kind)
    )


def fill_required_fields(array: pa.Array, hidden: pa.Array | None = None) -> pa.Array:
    """Return an array whose NOT NULL fields have empty values below null rows.

    No reader sees these values, but Arrow writes no Parquet file without them. ``hidden`` is a mask
    of the values below null.
    """
    if isinstance(array, pa.StructArray):
        if array.null_count:
            nulls = array.is_null()
            hidden = nulls if hidden is None else pc.or_(hidden, nulls)
        fields = []
        for number, field in enumerate(array.type):
            values = fill_required_fields(array.field(number), hidden)
            if hidden is not None and not field.nullable and values.null_count:
                empty = pa.array([None], pa.struct({"": values.type})).field(0)[0]
                values = pc.if_else(pc.and_(hidden, values.is_null()), empty, values)
            fields.append(values)
        return with_fields(array, array.type, fields)
    if isinstance(array, _LIST_ARRAYS):
        return with_values(array, array.type, fill_required_fields(array.values))
    return array


def _check_layout(array: pa.Array, data_type: DataType, *expected: type[pa.Array]) -> None:
    """Raise ``ValueError`` for a column whose nesting differs from its type in a damaged file."""
    if not isinstance(array, expected):
        raise ValueError(  # noqa: TRY004 - damage, not a bug
            f"a column of type {type_to_sql(data_type)} has the Arrow type {array.type}"
        )


def _check_not_shredded(array: pa.Array, data_type: DataType) -> None:
    if isinstance(array.type, pa.StructType):
        raise UnsupportedError(
            f"a column of type {type_to_sql(data_type)} is stored in the layout 'shared-shredding' "
            "(option 'fields.<column>.map.storage-layout'), which is not implemented"
        )


def map_atoms(
    array: pa.Array, data_type: DataType, target: pa.DataType, convert: AtomConverter
) -> pa.Array:
    """Return a column as an Arrow type of the same nesting, with converted simple values.

    Fields of rows are found by name; a missing field becomes null.
    """
    match data_type:
        case AtomicType():
            return convert(array, data_type, target)
        case VariantType():
            _check_layout(array, data_type, pa.StructArray)
            return assemble_variants(array)
        case RowType(fields=fields):
            _check_layout(array, data_type, pa.StructArray)
            names = {field.name for field in array.type}
            children = [
                map_atoms(array.field(field.name), field.type, child.type, convert)
                if field.name in names
                else pa.nulls(len(array), child.type)
                for field, child in zip(fields, target, strict=True)
            ]
            return with_fields(array, target, children)
        case ArrayType(element=element):
            _check_layout(array, data_type, *_LIST_ARRAYS)
            return with_values(
                array, target, map_atoms(array.values, element, target.value_type, convert)
            )
        case VectorType(element=element, length=length):
            _check_layout(array, data_type, *_LIST_ARRAYS)
            vectors = array.cast(pa.list_(array.type.value_field, length))
            if not isinstance(target, pa.FixedSizeListType):
                vectors = vectors.cast(pa.list_(array.type.value_field))
            return with_values(
                vectors, target, map_atoms(vectors.values, element, target.value_type, convert)
            )
        case MapType() | MultisetType():
            _check_not_shredded(array, data_type)
            _check_layout(array, data_type, *_LIST_ARRAYS)
            entries, kinds = array.values, map_key_value_types(data_type)
            parts = [
                map_atoms(entries.field(index), kind, child.type, convert)
                for index, (kind, child) in enumerate(
                    zip(kinds, map_key_value_fields(target), strict=True)
                )
            ]
            return with_values(array, target, build_map_entries(target, parts))
    raise TypeError(data_type)


def map_key_value_fields(
    target: pa.DataType,
) -> "tuple[pa.Field[pa.DataType], pa.Field[pa.DataType]]":
    """Return the key and the value field of a map type."""
    return target.key_field, target.item_field


def child_fields(arrow: pa.DataType) -> "list[pa.Field[pa.DataType]]":
    """Return the fields of a nested type; those of a map are its key and value."""
    if isinstance(arrow, pa.MapType):
        return list(map_key_value_fields(arrow))
    return [arrow.field(index) for index in range(arrow.num_fields)]


def contains_type(arrow: pa.DataType, matches: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type or one inside of it matches."""
    return matches(arrow) or any(contains_type(x.type, matches) for x in child_fields(arrow))


def rebuild_type(
    arrow: pa.DataType, convert: Callable[[pa.DataType], pa.DataType | None]
) -> pa.DataType:
    """Return a type with the results of ``convert`` in place of types, at any depth.

    Types are kept, and those inside of them converted, if the result is None.
    """
    converted = convert(arrow)
    if converted is not None:
        return converted
    children = [x.with_type(rebuild_type(x.type, convert)) for x in child_fields(arrow)]
    if isinstance(arrow, pa.StructType):
        return pa.struct(children)
    if isinstance(arrow, pa.MapType):
        return pa.map_(*children)
    if isinstance(arrow, pa.FixedSizeListType):
        return pa.list_(children[0], arrow.list_size)
    return pa.list_(children[0]) if isinstance(arrow, pa.ListType) else arrow


def replace_types(
    arrow: pa.DataType, matches: Callable[[pa.DataType], bool], target: pa.DataType
) -> pa.DataType:
    """Return a type with ``target`` in place of the types that match, at any depth."""
    return rebuild_type(arrow, lambda part: target if matches(part) else None)


def build_map_entries(target: pa.DataType, parts: Sequence[pa.Array]) -> pa.Array:
    """Return keys and values as the entries of a map of type ``target``."""
    return pa.StructArray.from_arrays(list(parts), fields=list(map_key_value_fields(target)))


def flatten_values(array: pa.Array) -> tuple[pa.Array, list[int]]:
    """Return the concatenated values of lists or maps, the start of each and the end."""
    if isinstance(array, pa.FixedSizeListArray):
        array = array.cast(pa.list_(array.type.value_field))
    offsets = array.offsets.to_pylist()
    return _slice_values(array, array.offsets), [offset - offsets[0] for offset in offsets]


def _slice_values(array: pa.Array, offsets: pa.Array) -> pa.Array:
    first = offsets[0].as_py()
    return array.values.slice(first, offsets[-1].as_py() - first)


def find_nested_null(array: pa.Array, data_type: DataType) -> str | None:
    """Return the path of a null in a NOT NULL part, such as ``item.price``, or None."""
    parts: Sequence[tuple[str, DataType, pa.Array]] = ()
    non_null = array.drop_null() if array.null_count else array
    match data_type:
        case RowType(fields=fields):
            columns = non_null.flatten()
            parts = [(f.name, f.type, column) for f, column in zip(fields, columns, strict=True)]
        case ArrayType(element=element):
            parts = [("element", element, _slice_values(non_null, non_null.offsets))]
        case VariantType():
            parts = [("value", _BYTES, non_null.field(0)), ("metadata", _BYTES, non_null.field(1))]
        case VectorType(element=element):
            parts = [("element", element.with_nullable(False), non_null.flatten())]
        case MapType(value=value):
            parts = [("value", value, _slice_values(non_null, non_null.offsets).field(1))]
    for name, kind, column in parts:
        if column.null_count and not kind.nullable:
            return name
        if (below := find_nested_null(column, kind)) is not None:
            return f"{name}.{below}"
    return None
