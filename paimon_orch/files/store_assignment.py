"""Which kinds of values a column stores, by the rules of Spark's ANSI store assignment.

Arrow casts more: a date to the number of its days, a timestamp to a number that depends on its unit.

See docs/format/data-types.md#values-that-columns-store.
"""

import pyarrow as pa

_TIMES = ("date", "time", "timestamp", "instant")
_STORED: dict[str, tuple[str, ...]] = {
    "boolean": ("boolean", "text"),
    "integer": ("integer", "number", "text"),
    "number": ("integer", "number"),
    "text": ("text", "bytes", "boolean", "integer", "number", *_TIMES),
    "bytes": ("bytes", "text"),
    "date": ("date", "timestamp", "instant", "text"),
    "time": ("time",),
    "timestamp": ("timestamp", "instant", "date"),
    "instant": ("instant", "timestamp", "date"),
}
"""Kinds of values, and the kinds of columns that store them."""

_NAMES = {
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "text": "text",
    "bytes": "bytes",
    "date": "a date",
    "time": "a time of day",
    "timestamp": "a timestamp",
    "instant": "a timestamp",
}


def check_store_assignment(
    source: pa.DataType, target: pa.DataType, *, has_text_form: bool = False
) -> None:
    """Raise ``pyarrow.ArrowInvalid`` if a column of a simple type does not store values of a type.

    Integers, booleans and dates have one form as text; other numbers and times have several, of
    which Spark and Arrow write different ones. So these are refused, unless ``has_text_form``.
    """
    given, column = find_kind(source), find_kind(target)
    if pa.types.is_null(source) or column in _STORED.get(given, ()):
        return
    if has_text_form and column == "text" and given in _STORED:
        return
    what, wanted = _NAMES.get(given, str(source)), _NAMES.get(column, str(target))
    raise pa.ArrowInvalid(f"{what} is not stored as {wanted}, {_explain(given, column, target)}")


def _explain(given: str, column: str, target: pa.DataType) -> str:
    if column == "time" and given in ("timestamp", "instant"):
        return "because a time of day has no date; extract the time first"
    if column == "text" and given in ("number", *_TIMES):
        return "because it has several forms as text; cast the column to text in the wanted form"
    if column in ("integer", "number") and given != "boolean":
        return f"because the number would depend on a unit; cast the column to {target} yourself"
    if given in ("integer", "number") and column in _TIMES:
        return f"because the number has no unit; cast the column to {target} yourself"
    return f"as in Spark; cast the column to {target} yourself"


def find_kind(kind: pa.DataType) -> str:
    """Return the kind of a simple type, which is the name of the type if columns do not store it."""
    if isinstance(kind, pa.BaseExtensionType):
        return find_kind(kind.storage_type)
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "instant"
    return next((name for name, tests in _TESTS.items() if any(t(kind) for t in tests)), str(kind))


_TESTS = {
    "boolean": (pa.types.is_boolean,),
    "integer": (pa.types.is_integer,),
    "number": (pa.types.is_floating, pa.types.is_decimal),
    "text": (pa.types.is_string, pa.types.is_large_string),
    "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
    "date": (pa.types.is_date,),
    "time": (pa.types.is_time,),
}
