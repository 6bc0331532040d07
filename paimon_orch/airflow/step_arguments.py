"""The arguments of steps as templates render them."""

import json
from collections.abc import Mapping
from typing import Any, get_args

from paimon_orch.steps.common.argument import DeclaredField


def convert_rendered(
    values: Mapping[str, Any], declared: Mapping[str, DeclaredField]
) -> dict[str, Any]:
    """Return the arguments that are set as the JSON values that a declaration accepts.

    A template renders numbers and truths as texts, and one partition may be given as a text.
    """
    return {
        name: _convert(value, declared.get(name))
        for name, value in values.items()
        if value is not None
    }


def _convert(value: object, field: DeclaredField | None) -> object:
    if field is None or not isinstance(value, str) or field.argument.parse is not None:
        return value
    if field.name == "partitions":
        return [value]
    if str in (get_args(field.hint) or (field.hint,)):
        return value
    try:
        return json.loads(value.lower())
    except ValueError:  # the declaration refuses a text, or is a choice of texts
        return value
