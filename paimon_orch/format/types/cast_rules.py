"""Allowed changes of column types.

See docs/format/schema-evolution.md#casts.
"""

from paimon_orch.format.types.data_types import (
    MAX_LENGTH,
    AtomicType,
    DataType,
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
