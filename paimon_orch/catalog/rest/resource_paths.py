"""The paths of the REST API below ``/v1/{prefix}``, encoded; a client adds the prefix.

A table's name is an object name: ``orders`` or ``orders$branch_dev``.
"""

from collections.abc import Mapping
from urllib.parse import quote_plus

from paimon_orch.errors import InputError


def encode_component(text: str) -> str:
    """Return the text as Java's URLEncoder writes it, for the value of a query."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def build_query(params: Mapping[str, str | int]) -> str:
    """Return an encoded query without the question mark, in the order of ``params``."""
    return "&".join(f"{encode_component(k)}={encode_component(str(v))}" for k, v in params.items())


def build_path(*names: str) -> str:
    """Return the names, encoded, as one path."""
    return "/".join(map(_encode_name, names))


def _encode_name(name: str) -> str:
    # HTTP clients and servers remove the segments "." and "..", so that the path names a parent
    if name.strip() in ("", ".", ".."):
        raise InputError(f"{name!r} cannot be a name in a REST catalog")
    # Java writes "+" for a space, which only some servers decode in a path
    return encode_component(name).replace("+", "%20")


DATABASES, RENAME = "databases", "tables/rename"


def database(name: str) -> str:
    """Return the path of a database."""
    return build_path(DATABASES, name)


def tables(database_name: str) -> str:
    """Return the path of the tables of a database."""
    return f"{database(database_name)}/tables"


def table(database_name: str, name: str, *parts: str) -> str:
    """Return the path of a table or, with ``parts``, of what belongs to it, such as a branch."""
    return f"{tables(database_name)}/{build_path(name, *parts)}"
