"""Looks up table options and option families by key, and detects misspelled and newer keys."""

import difflib
import re
from functools import cache

from paimon_orch.format.options.core_options import FAMILIES, HONOURED
from paimon_orch.format.options.engine_options import ENGINE_OPTIONS
from paimon_orch.format.options.harmless_options import HARMLESS, HARMLESS_OF_ENGINES
from paimon_orch.format.options.refused_options import REFUSED, REFUSED_OF_ENGINES
from paimon_orch.format.options.table_option import (
    PLACEHOLDER,
    AnyOption,
    compile_family_pattern,
    index_options_by_key,
)

OPTION_REGISTRY = index_options_by_key(
    HONOURED,
    REFUSED,
    HARMLESS,
    ENGINE_OPTIONS,
    REFUSED_OF_ENGINES,
    HARMLESS_OF_ENGINES,
)
"""All options with a fixed key."""

_FAMILIES = [(compile_family_pattern(option.key), option) for option in FAMILIES]
_TABLE_OPTIONS = (*HONOURED, *REFUSED, *HARMLESS)
_SEPARATOR = re.compile(r"[.-]")


def _first_segment(key: str) -> str:
    return _SEPARATOR.split(key, maxsplit=1)[0].lower()


_FIRST_SEGMENTS = {_first_segment(option.key) for option in _TABLE_OPTIONS} | {
    _first_segment(option.key) for option in FAMILIES
}


def find_option(key: str) -> AnyOption | None:
    """Return the option registered for a key, or None if no release documents the key."""
    option = OPTION_REGISTRY.get(key)
    if option is not None:
        return option
    return next((option for pattern, option in _FAMILIES if pattern.fullmatch(key)), None)


def may_be_newer_option(key: str) -> bool:
    """Return whether an unknown key begins like a table option, misspelled or of a newer release.

    Other unknown keys are user properties.
    """
    return find_option(key) is None and _first_segment(key) in _FIRST_SEGMENTS


@cache
def find_nearest_option(key: str) -> str | None:
    """Return the most similar known key, or None if no key is similar."""
    names = ".".join(key.split(".")[1:-1])
    families = [PLACEHOLDER.sub(lambda _: names, option.key) for option in FAMILIES]
    matches = difflib.get_close_matches(key, [*OPTION_REGISTRY, *families], n=1, cutoff=0.75)
    return matches[0] if matches else None
