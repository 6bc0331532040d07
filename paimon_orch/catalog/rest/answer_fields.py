"""Readers of the fields of an answer; they raise :class:`RestAnswerError` for a wrong type."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from paimon_orch.catalog.rest.rest_errors import RestAnswerError

T = TypeVar("T")


def read_text(answer: Mapping[str, Any], field: str, where: str) -> str:
    """Return a required text; ``where`` names the answer in messages."""
    return _read(answer, field, where, str)


def read_optional_text(answer: Mapping[str, Any], field: str, where: str) -> str | None:
    """Return a text, or None if it is missing or null."""
    return None if answer.get(field) is None else read_text(answer, field, where)


def read_number(answer: Mapping[str, Any], field: str, where: str) -> int:
    """Return a required integer."""
    return _read(answer, field, where, int)


def read_flag(answer: Mapping[str, Any], field: str, where: str) -> bool:
    """Return a required boolean."""
    return _read(answer, field, where, bool)


def read_object(answer: Mapping[str, Any], field: str, where: str) -> dict[str, Any]:
    """Return a required object."""
    return _read(answer, field, where, dict)


def read_list(answer: Mapping[str, Any], field: str, where: str) -> list[Any]:
    """Return a list; it is empty if it is missing or null."""
    return [] if answer.get(field) is None else _read(answer, field, where, list)


def read_options(answer: Mapping[str, Any], field: str, where: str) -> dict[str, str]:
    """Return an object of texts without its nulls; it is empty if it is missing or null."""
    if answer.get(field) is None:
        return {}
    options = dict[str, str]()
    for key, value in read_object(answer, field, where).items():
        if isinstance(value, (bool, int, float)):
            options[key] = json.dumps(value)
        elif isinstance(value, str):
            options[key] = value
        elif value is not None:
            raise RestAnswerError(
                where, f"field {field!r}: the value of {key[:100]!r} must be a text"
            )
    return options


def _read(answer: Mapping[str, Any], field: str, where: str, kind: type[T]) -> T:
    value = answer.get(field)
    if type(value) is not kind:
        actual = "is missing" if value is None else f"is of the type {type(value).__name__}"
        raise RestAnswerError(where, f"field {field!r} {actual}, it must be {kind.__name__}")
    return value
