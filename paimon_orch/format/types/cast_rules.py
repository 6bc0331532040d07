"""Which type of a column may become which other one.

See docs/format/schema-evolution.md#casts.
"""

from paimon_orch.format.types.data_types import MAX_LENGTH, AtomicType, DataType

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_TEXTS = ("CHAR", "VARCHAR")
_BYTES = ("BINARY", "VARBINARY")
_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ")
_DATETIME_TYPES = ("DATE", "TIME", *_TIMESTAMPS)
_NUMBERS = (*_INTEGERS, "FLOAT", "DOUBLE", "DECIMAL")

# to: from; what loses nothing, or only digits that the new type has no place for
_IMPLICIT: dict[str, tuple[str, ...]] = {
    "SMALLINT": ("TINYINT",),
    "INT": ("TINYINT", "SMALLINT"),
    "BIGINT": ("TINYINT", "SMALLINT", "INT"),
    "FLOAT": (*_INTEGERS, "DECIMAL"),
    "DOUBLE": (*_INTEGERS, "FLOAT", "DECIMAL"),
    "DECIMAL": _NUMBERS,
    "VARCHAR": _TEXTS,
    "VARBINARY": _BYTES,
    "DATE": _TIMESTAMPS,
    "TIME": _TIMESTAMPS,
    "TIMESTAMP": _TIMESTAMPS,
    "TIMESTAMP_LTZ": _TIMESTAMPS,
}
_EXPLICIT: dict[str, tuple[str, ...]] = {
    "BOOLEAN": (*_TEXTS, *_INTEGERS),
    "BINARY": (*_TEXTS, *_BYTES),
    "VARBINARY": (*_TEXTS, *_BYTES),
    "DECIMAL": (*_TEXTS, "BOOLEAN"),
    "TINYINT": (*_NUMBERS, *_TEXTS, "BOOLEAN"),
    "SMALLINT": (*_NUMBERS, *_TEXTS, "BOOLEAN"),
    "INT": (*_NUMBERS, *_TEXTS, "BOOLEAN", *_TIMESTAMPS),
    "BIGINT": (*_NUMBERS, *_TEXTS, "BOOLEAN", *_TIMESTAMPS),
    "FLOAT": (*_NUMBERS, *_TEXTS, "BOOLEAN"),
    "DOUBLE": (*_NUMBERS, *_TEXTS, "BOOLEAN"),
    "DATE": _TEXTS,
    "TIME": _TEXTS,
    "TIMESTAMP": ("DATE", "TIME", *_TEXTS, "INT", "BIGINT"),
    "TIMESTAMP_LTZ": ("DATE", "TIME", *_TEXTS, "INT", "BIGINT"),
}


def can_cast(old: DataType, new: DataType, *, explicit: bool = True) -> bool:
    """Tell whether a column may change from one type to another; nullability is not looked at.

    Without ``explicit`` (option ``disable-explicit-type-casting``) only casts that every engine does by itself count.
    """
    if old.with_nullable(True) == new.with_nullable(True):
        return True
    if not isinstance(new, AtomicType):
        return False  # fields of a row, elements and values change one by one
    if explicit and new.name in _TEXTS:
        # Java reads days and times as STRING alone, and fails at texts of a limited length.
        timed = isinstance(old, AtomicType) and old.name in _DATETIME_TYPES
        return not timed or (new.name == "VARCHAR" and new.params == (MAX_LENGTH,))
    if not isinstance(old, AtomicType):
        return False
    return (
        old.name == new.name
        or old.name in _IMPLICIT.get(new.name, ())
        or (explicit and old.name in _EXPLICIT.get(new.name, ()))
    )
