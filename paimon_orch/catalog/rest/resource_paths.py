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


def databases() -> str:
    """Return the path that lists and creates databases."""
    return "databases"


def database(name: str) -> str:
    """Return the path of a database."""
    return build_path("databases", name)


def tables(database_name: str) -> str:
    """Return the path that lists and creates the tables of a database."""
    return f"{database(database_name)}/tables"


def rename() -> str:
    """Return the path that renames a table."""
    return "tables/rename"


def table(database_name: str, name: str) -> str:
    """Return the path that loads, alters and drops a table."""
    return f"{tables(database_name)}/{build_path(name)}"


def commit(database_name: str, name: str) -> str:
    """Return the path that commits a snapshot."""
    return f"{table(database_name, name)}/commit"


def snapshot(database_name: str, name: str) -> str:
    """Return the path of the newest snapshot."""
    return f"{table(database_name, name)}/snapshot"


def rollback(database_name: str, name: str) -> str:
    """Return the path that rolls a table back to a snapshot or tag."""
    return f"{table(database_name, name)}/rollback"


def token(database_name: str, name: str) -> str:
    """Return the path of the credentials for a table's files."""
    return f"{table(database_name, name)}/token"


def partitions(database_name: str, name: str) -> str:
    """Return the path that lists partitions."""
    return f"{table(database_name, name)}/partitions"


def mark_done(database_name: str, name: str) -> str:
    """Return the path that marks partitions as done."""
    return f"{partitions(database_name, name)}/mark"


def branches(database_name: str, name: str) -> str:
    """Return the path that lists and creates branches."""
    return f"{table(database_name, name)}/branches"


def branch(database_name: str, name: str, branch_name: str) -> str:
    """Return the path that deletes a branch."""
    return f"{branches(database_name, name)}/{build_path(branch_name)}"


def forward(database_name: str, name: str, branch_name: str) -> str:
    """Return the path that fast-forwards the main branch to a branch."""
    return f"{branch(database_name, name, branch_name)}/forward"
