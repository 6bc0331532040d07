"""The annotation of a request's field that users set."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paimon_orch.table.table import Table

CUTOFF_HELP = "Minimum age such as '3 d', or a time in ISO 8601 or epoch milliseconds."


@dataclass(frozen=True, slots=True)
class Argument:
    """What users see of a field of a request, and what it accepts."""

    help: str
    """One sentence."""
    parse: Callable[[str, str], object] | None = None
    """Parses the text that a user writes; called with the name of the argument and the text."""
    minimum: int | None = None
    """The smallest number."""
    check: "Callable[[Table, Any], None] | None" = None
    """Raises an error for a value that does not fit the table."""
