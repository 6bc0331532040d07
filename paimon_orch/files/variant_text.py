"""Converts VARIANT columns from and to JSON text."""

import pyarrow as pa

from paimon_orch.files.nested_arrays import (
    build_map_entries,
    contains_type,
    map_key_value_fields,
    replace_types,
    with_fields,
    with_values,
)
from paimon_orch.format.types.arrow import VARIANT_TYPE, is_variant
from paimon_orch.format.variant.value import parse_json, to_json_text


def has_variants(arrow: pa.DataType) -> bool:
    """Return whether a type is VARIANT or contains it."""
    return contains_type(arrow, is_variant)


def to_readable_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type with text in place of VARIANT, at any depth."""
    return replace_types(arrow, is_variant, pa.string())


def format_variants(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Return a column of type ``arrow`` with JSON text in place of VARIANT, at any depth.

    Raises ``ValueError`` for damaged values.
    """
    target = to_readable_type(arrow)
    if is_variant(arrow):
        texts = [
            None if item is None else to_json_text(item["value"], item["metadata"])
            for item in array.to_pylist()
        ]
        return pa.array(texts, target)
    if not has_variants(arrow):
        return array
    if isinstance(arrow, pa.StructType):
        children = [
            format_variants(child, field.type)
            for child, field in zip(array.flatten(), arrow, strict=True)
        ]
        return with_fields(array, target, children)
    if isinstance(arrow, pa.MapType):
        parts = [
            format_variants(array.values.field(index), field.type)
            for index, field in enumerate(map_key_value_fields(arrow))
        ]
        return with_values(array, target, build_map_entries(target, parts))
    assert isinstance(arrow, pa.ListType)
    return with_values(array, target, format_variants(array.values, arrow.value_type))


def parse_variants(texts: pa.Array) -> pa.Array:
    """Return JSON texts as VARIANT; raises ``ValueError`` for invalid JSON."""
    encoded = texts.dictionary_encode()
    parsed = [parse_json(text) for text in encoded.dictionary.to_pylist()]
    children = [pa.array([pair[index] for pair in parsed], pa.binary()) for index in range(2)]
    variants = pa.StructArray.from_arrays(children, fields=list(VARIANT_TYPE))
    return variants.take(encoded.indices)
