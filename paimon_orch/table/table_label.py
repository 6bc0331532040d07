"""How messages name a table, and commands that users can run on it."""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableLabel:
    """The names of a table and its catalog, as the user writes them."""

    identifier: str
    catalog: str
    """The first argument of commands: a warehouse, the name of a catalog, or a placeholder."""

    def format_command(self, command: str) -> str:
        """Return a command line for this table."""
        return f"paimon-orch {command} {shlex.quote(self.catalog)} {shlex.quote(self.identifier)}"
