"""Names of databases and tables, and their rules."""

import re
from dataclasses import dataclass, replace

from paimon_orch.errors import InputError
from paimon_orch.format.argument_checks import check_text
from paimon_orch.format.paths import MAIN_BRANCH

BRANCH_SEPARATOR = "$branch_"
_NAME_PATTERN = re.compile(r"[^/\\.$\x00-\x1f]+")
_SYSTEM_DATABASE = "sys"


@dataclass(frozen=True, slots=True)
class TableIdentifier:
    """The name of a table or of one of its branches."""

    database: str
    table: str
    branch: str = MAIN_BRANCH

    @classmethod
    def parse(cls, text: str) -> "TableIdentifier":
        """Parse ``database.table`` or ``database.table$branch_name``.

        Raises :class:`InputError` for any other text.
        """
        check_text("a table name", text, "database.table")
        name, _, branch = text.partition(BRANCH_SEPARATOR)
        parts = name.split(".")
        if len(parts) != 2 or not all(_NAME_PATTERN.fullmatch(part) for part in parts):
            raise InputError(f"table name {name!r} must be 'database.table'")
        return cls(parts[0], parts[1], branch or MAIN_BRANCH)

    @property
    def main(self) -> "TableIdentifier":
        """Return the name of the table without a branch."""
        return replace(self, branch=MAIN_BRANCH)

    @property
    def object_name(self) -> str:
        """Return the table with its branch and without its database, as catalogs name it."""
        is_main = self.branch == MAIN_BRANCH
        return self.table if is_main else f"{self.table}{BRANCH_SEPARATOR}{self.branch}"

    def __str__(self) -> str:
        return f"{self.database}.{self.object_name}"


def check_database_name(database: str) -> str:
    """Return the name of a database; raises :class:`InputError` for a name that is not allowed."""
    check_text("a database name", database, "sales")
    if not _NAME_PATTERN.fullmatch(database):
        raise InputError(f"database name {database!r} must not be empty or contain '.', '$' or '/'")
    if database == _SYSTEM_DATABASE:
        raise InputError(f"database name {database!r} is reserved for system tables")
    return database
