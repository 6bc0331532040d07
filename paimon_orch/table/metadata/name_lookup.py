"""Finds tags, branches and consumers by the names that lists show, which may be escaped."""

from collections.abc import Callable, Iterable

from paimon_orch.errors import InputError
from paimon_orch.format.argument_checks import check_text
from paimon_orch.safe_text import escape_name


def resolve_name(kind: str, text: str, list_names: Callable[[], Iterable[str]]) -> str:
    """Return the existing name that a text means: itself, or as :func:`escape_name` shows it.

    Returns the text if there is no such name. Names are listed only for texts with a backslash, as
    others mean only themselves. Raises :class:`InputError` if the text means two names.
    """
    if "\\" not in text:
        return text
    names = [name for name in list_names() if text in (name, escape_name(name))]
    if len(names) > 1:
        raise InputError(
            f"{kind} {text} means two names: lists show them as "
            f"{' and '.join(map(escape_name, names))}. Rename or delete the {kind} "
            f"{escape_name(text)} first"
        )
    return names[0] if names else text


def check_path_component(kind: str, name: str) -> str:
    """Return a name; raises :class:`InputError` if no file or directory can have it.

    The name may be empty: an object store can have the object ``tag-``.
    """
    check_text(f"a {kind} name", name, "2026-01-31")
    if "/" in name or "\0" in name:
        raise InputError(f"{kind} name {name!r} must not contain a slash")
    return name
