"""Allowed changes of column types.

See docs/format/schema-evolution.md#casts.
"""

from collections.abc import Mapping, Sequence

from paimon_orch.format.types.data_types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    RowType,
    TypeRoot,
    VariantType,
    VectorType,
    is_blob,
)

_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_DATETIME_TYPES = (TypeRoot.DATE, TypeRoot.TIME, *_TIMESTAMPS)
_NUMBERS = (*_INTEGERS, TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL)

# for each type, this contains the types whose cast to it loses at most precision
_IMPLICIT: dict[str, tuple[str, ...]] = {
    TypeRoot.SMALLINT: (TypeRoot.TINYINT,),
    TypeRoot.INT: (TypeRoot.TINYINT, TypeRoot.SMALLINT),
    TypeRoot.BIGINT: (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT),
    TypeRoot.FLOAT: (*_INTEGERS, TypeRoot.DECIMAL),
    TypeRoot.DOUBLE: (*_INTEGERS, TypeRoot.FLOAT, TypeRoot.DECIMAL),
    TypeRoot.DECIMAL: _NUMBERS,
    TypeRoot.VARCHAR: _TEXTS,
    TypeRoot.VARBINARY: _BYTES,
    TypeRoot.DATE: _TIMESTAMPS,
    TypeRoot.TIME: _TIMESTAMPS,
    TypeRoot.TIMESTAMP: _TIMESTAMPS,
    TypeRoot.TIMESTAMP_LTZ: _TIMESTAMPS,
}
_EXPLICIT: dict[str, tuple[str, ...]] = {
    TypeRoot.BOOLEAN: (*_TEXTS, *_INTEGERS),
    TypeRoot.BINARY: (*_TEXTS, *_BYTES),
    TypeRoot.VARBINARY: (*_TEXTS, *_BYTES),
    TypeRoot.DECIMAL: (*_TEXTS, TypeRoot.BOOLEAN),
    TypeRoot.TINYINT: (*_NUMBERS, *_TEXTS, TypeRoot.BOOLEAN),
    TypeRoot.SMALLINT: (*_NUMBERS, *_TEXTS, TypeRoot.BOOLEAN),
    TypeRoot.INT: (*_NUMBERS, *_TEXTS, TypeRoot.BOOLEAN, *_TIMESTAMPS),
    TypeRoot.BIGINT: (*_NUMBERS, *_TEXTS, TypeRoot.BOOLEAN, *_TIMESTAMPS),
    TypeRoot.FLOAT: (*_NUMBERS, *_TEXTS, TypeRoot.BOOLEAN),
    TypeRoot.DOUBLE: (*_NUMBERS, *_TEXTS, TypeRoot.BOOLEAN),
    TypeRoot.DATE: _TEXTS,
    TypeRoot.TIME: _TEXTS,
    TypeRoot.TIMESTAMP: (TypeRoot.DATE, TypeRoot.TIME, *_TEXTS, TypeRoot.INT, TypeRoot.BIGINT),
    TypeRoot.TIMESTAMP_LTZ: (TypeRoot.DATE, TypeRoot.TIME, *_TEXTS, TypeRoot.INT, TypeRoot.BIGINT),
}


def can_cast(old: DataType, new: DataType, *, explicit: bool = True) -> bool:
    """Return whether a column may change from one type to another; nullability is ignored.

    Without ``explicit`` (``disable-explicit-type-casting``) only implicit casts are allowed.
    """
    if old.with_nullable(True) == new.with_nullable(True):
        return True
    if isinstance(old, VectorType | VariantType):
        return False  # Java Paimon has no casts of these, not even to STRING
    if is_blob(old) or is_blob(new):
        return False
    if not isinstance(new, AtomicType):
        return False  # nested fields, elements and values are changed individually
    if explicit and new.name in _TEXTS:
        # Java Paimon reads dates and times only as STRING, and fails for strings of limited
        # length.
        timed = isinstance(old, AtomicType) and old.name in _DATETIME_TYPES
        return not timed or (new.name == TypeRoot.VARCHAR and new.params == (MAX_LENGTH,))
    if not isinstance(old, AtomicType):
        return False
    return (
        old.name == new.name
        or old.name in _IMPLICIT.get(new.name, ())
        or (explicit and old.name in _EXPLICIT.get(new.name, ()))
    )


def find_unreadable_field(old: Sequence[Field], new: Sequence[Field]) -> tuple[Field, Field] | None:
    """Return the first field whose values cannot be cast, as it was and as it is, or None."""
    fields = {field.id: field for field in new}
    pairs = ((field, fields[field.id]) for field in old if field.id in fields)
    return next((pair for pair in pairs if not _is_readable(pair[0].type, pair[1].type)), None)


def _is_readable(old: DataType, new: DataType) -> bool:
    match old, new:
        case RowType(), RowType():
            return find_unreadable_field(old.fields, new.fields) is None
        case ArrayType(), ArrayType():
            return _is_readable(old.element, new.element)
        case MapType(), MapType():
            return _is_readable(old.value, new.value)
    return can_cast(old, new)


_DIGITS: Mapping[str, int] = {
    TypeRoot.BOOLEAN: 1,
    TypeRoot.TINYINT: 3,
    TypeRoot.SMALLINT: 5,
    TypeRoot.INT: 10,
    TypeRoot.BIGINT: 19,
}
_HELD_DIGITS: Mapping[str, int] = {
    **{name: digits - 1 for name, digits in _DIGITS.items()},
    TypeRoot.FLOAT: 7,
    TypeRoot.DOUBLE: 15,
}
"""The digits of integers that a type holds."""
_EXACT_CASTS = {(TypeRoot.FLOAT, TypeRoot.DOUBLE), (TypeRoot.DATE, TypeRoot.TIMESTAMP)}


def may_lose_values(old: DataType, new: DataType) -> bool:
    """Return whether values change if they are read in a new type, to which they can be cast."""
    match old, new:
        case AtomicType(), AtomicType():
            return _may_lose_atoms(old, new)
        case ArrayType(), ArrayType():
            return may_lose_values(old.element, new.element)
        case MapType(), MapType():
            return may_lose_values(old.value, new.value)
        case RowType(), RowType():
            types = {field.id: field.type for field in new.fields}
            return any(
                field.id in types and may_lose_values(field.type, types[field.id])
                for field in old.fields
            )
    return False


def _may_lose_atoms(old: AtomicType, new: AtomicType) -> bool:
    is_string = new.name == TypeRoot.VARCHAR and new.params == (MAX_LENGTH,)
    if is_string or old.with_nullable(True) == new.with_nullable(True):
        return False
    if old.name in _DIGITS or old.name == TypeRoot.DECIMAL:
        needed, held = _count_digits(old, _DIGITS), _count_digits(new, _HELD_DIGITS)
        return any(number > limit for number, limit in zip(needed, held, strict=True))
    if (old.name, new.name) in _EXACT_CASTS:
        return False
    is_family = any(old.name in names and new.name in names for names in (_TEXTS, _BYTES))
    return not (old.name == new.name or is_family) or old.params > new.params


def _count_digits(data_type: AtomicType, digits: Mapping[str, int]) -> tuple[int, int]:
    """Return the numbers of digits before and after the point."""
    if data_type.name == TypeRoot.DECIMAL:
        precision, scale = data_type.params
        return precision - scale, scale
    return digits.get(data_type.name, 0), 0
