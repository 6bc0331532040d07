"""Checks the types of arguments of the public API, with one sentence that says what to pass."""

import operator
from collections.abc import Mapping
from typing import Any

from paimon_orch.errors import InputError


def check_text(name: str, value: Any, example: str) -> None:
    """Raise :class:`InputError` unless a value is text."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, such as {example!r}, not {value!r}")


def check_names(name: str, values: Any) -> None:
    """Raise :class:`InputError` unless a value is a collection of names; one text is none."""
    if isinstance(values, str):
        raise InputError(f"{name} must be a list of names: write [{values!r}], not {values!r}")
    if not hasattr(values, "__iter__") or not all(isinstance(item, str) for item in values):
        raise InputError(f"{name} must be a list of names, such as ['id'], not {values!r}")


def check_flag(name: str, value: Any) -> None:
    """Raise :class:`InputError` unless a value is True, False or None; texts are all true."""
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {value!r}")


def to_whole_number(name: str, value: Any, *, minimum: int | None = None) -> int | None:
    """Return a whole number, such as one of NumPy, as an ``int``; None remains None."""
    if value is None:
        return None
    if isinstance(value, bool | str) or not hasattr(value, "__index__"):
        raise InputError(f"{name} must be a whole number, such as 5, not {value!r}")
    number = operator.index(value)
    if minimum is not None and number < minimum:
        raise InputError(f"{name} must be at least {minimum}, not {number}")
    return number


def format_option_value(value: object) -> str:
    """Return the text of an option's value: True is ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def to_option_texts(options: Any) -> dict[str, str]:
    """Return options as text: 2 as ``"2"`` and True as ``"true"``."""
    if not isinstance(options, Mapping):
        raise InputError(f"options must be a mapping, such as {{'bucket': '2'}}, not {options!r}")
    return {key: _to_option_text(key, value) for key, value in options.items()}


def _to_option_text(key: Any, value: Any) -> str:
    check_text("the name of an option", key, "bucket")
    if not isinstance(value, str | int | float):
        raise InputError(f"option {key!r} must be text or a number, not {value!r}")
    return format_option_value(value)
