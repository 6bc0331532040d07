"""The columns of a Parquet file as its footer describes them."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from paimon_orch.files.parquet.thrift_compact import (
    BINARY,
    STRUCT_END,
    ThriftFields,
    decode_integer,
    decode_list,
    encode_integer,
    encode_list,
    split_struct,
)
from paimon_orch.format.bytes.varint import decode_varint

# field numbers of an element of the schema
_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED = 1, 2, 3, 4, 5, 6
_FIELD_ID = 9
_ELEMENT_FIELDS = frozenset(range(1, 11))
_SCHEMA = 2  # the field number of the schema in a footer

FIXED_LEN_BYTE_ARRAY = encode_integer(7)
"""The encoded type of columns of fixed length."""
_MAP_KEY_VALUE = encode_integer(2)


class ElementSignature(NamedTuple):
    """What a reader needs to know of an element of a Parquet schema."""

    type: bytes | None
    length: bytes | None
    repetition: bytes | None
    name: bytes
    children: bytes | None
    annotations: tuple[tuple[int, bytes], ...]


class SchemaLayout(NamedTuple):
    """The columns of a Parquet file; files with equal layouts have the same columns."""

    elements: tuple[ElementSignature, ...]
    leaf_types: tuple[bytes, ...]
    leaf_paths: tuple[bytes, ...]


@lru_cache(maxsize=32)
def decode_schema_layout(head: bytes) -> SchemaLayout:
    """Return the columns of the fields before the number of rows in a footer."""
    _, schema = split_struct(head + STRUCT_END)[_SCHEMA]
    root, *elements = (split_struct(schema, span.start) for span in decode_list(schema, 0))
    remaining = iter(elements)
    leaves = [
        leaf
        for _ in range(decode_integer(root[_CHILDREN][1], 0))
        for leaf in _find_leaves(remaining, ())
    ]
    return SchemaLayout(
        tuple(map(_sign_element, elements)),
        tuple(kind for kind, _ in leaves),
        tuple(encode_list(path, BINARY) for _, path in leaves),
    )


@lru_cache(maxsize=32)
def number_leaves(paths: tuple[bytes, ...]) -> dict[str, int]:
    """Return the numbers of the leaves that are not in another column, by name."""
    numbers = {}
    for number, path in enumerate(paths):
        first, *others = decode_list(path, 0)
        if not others:
            _, start = decode_varint(path, first.start)
            numbers[path[start : first.end].decode()] = number
    return numbers


def _find_leaves(
    elements: Iterator[ThriftFields], parent: tuple[bytes, ...]
) -> Iterator[tuple[bytes, tuple[bytes, ...]]]:
    """Yield the types and the paths of the leaves of the next element."""
    element = next(elements, None)
    if element is None:
        raise ValueError("the schema has fewer elements than its groups have children")
    path = (*parent, element[_NAME][1])
    if _TYPE in element:
        yield element[_TYPE][1], path
        return
    for _ in range(decode_integer(element[_CHILDREN][1], 0)):
        yield from _find_leaves(elements, path)


def _sign_element(element: ThriftFields) -> ElementSignature:
    if not element.keys() <= _ELEMENT_FIELDS:
        raise ValueError(f"unknown fields of a column: {sorted(element.keys() - _ELEMENT_FIELDS)}")
    values = {number: value for number, (_, value) in element.items()}
    kind = values.get(_TYPE)
    ignored = {_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN, _FIELD_ID}
    if kind is None and values.get(_CONVERTED) == _MAP_KEY_VALUE:
        ignored.add(_CONVERTED)  # Java annotates the entries of a map, pyarrow does not
    return ElementSignature(
        type=kind,
        length=values.get(_TYPE_LENGTH) if kind == FIXED_LEN_BYTE_ARRAY else None,
        repetition=values.get(_REPETITION),
        name=values[_NAME],
        children=values.get(_CHILDREN),
        annotations=tuple(sorted((n, v) for n, v in values.items() if n not in ignored)),
    )
