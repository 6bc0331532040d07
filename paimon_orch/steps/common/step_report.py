"""What a plan would do, as text for the users of any front end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paimon_orch.format.display import format_count
from paimon_orch.safe_text import format_names

CANNOT_BE_UNDONE = "This cannot be undone."
KEPT_ROWS = "Older snapshots keep the rows until they expire."
_PLURALS = {"branch": "branches"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """A plan as text; a front end adds the table's name."""

    action: str
    """What a run does, as a verb phrase before ``of TABLE``: ``drop 2 partitions``."""
    link: str = " of "
    """Joins the action and the table's name."""
    details: str = ""
    """What follows the table's name: `` from snapshot 2 to 1``."""
    consequence: str = ""
    """What follows from it."""
    lines: Sequence[str] = ()
    """What the action applies to, such as the paths of files; a dry run shows it."""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    """The work units as a table; a dry run shows it."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The types of the columns of ``items`` by name: ``string`` or ``int``."""
    items: Iterable[Mapping[str, object]] = ()
    """What the action applies to, for orchestrators, which show the first items as a table."""
    nothing: str = ""
    """What to say instead if there is nothing to do."""
    remarks: Sequence[str] = ()
    """What a dry run shows at the end."""
    asks: bool = False
    """Whether a user has to agree."""
    undo: str = CANNOT_BE_UNDONE
    """Whether the action can be undone."""
    is_incomplete: bool = False
    """Whether damage remains after the action; the exit status of the command is then 1."""

    @property
    def short_action(self) -> str:
        """The action without the table's name: ``roll back from snapshot 2 to 1``."""
        return self.action + self.details

    def describe_action(self, table: str) -> str:
        """Return the action on a table: ``drop 2 partitions of db.t; ...``."""
        text = f"{self.action}{self.link}{table}{self.details}"
        return f"{text}; {self.consequence}" if self.consequence else text


def describe_loss(losses: Mapping[str, int | Sequence[str]]) -> str:
    """Return the sizes of losses, such as ``2 snapshots and 1 tag (late)``.

    ``losses`` has numbers or names by unit; empty ones are left out.
    """
    parts = []
    for unit, loss in losses.items():
        count = loss if isinstance(loss, int) else len(loss)
        names = "" if isinstance(loss, int) else f" ({format_names(loss)})"
        if count:
            parts.append(format_count(count, unit, _PLURALS.get(unit)) + names)
    return join_words(parts or ["nothing"])


def join_words(words: Sequence[str]) -> str:
    """Return words as text: ``a, b and c``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def format_figures(values: Mapping[str, object]) -> str:
    """Return the numbers that are not 0: ``snapshot id 3; files 1,200``."""
    return "; ".join(
        f"{key.replace('_', ' ')} {value:,}"
        for key, value in values.items()
        if isinstance(value, int | float) and value
    )


def describe_refused_paths(refused: Sequence[str]) -> list[str]:
    """Return a line for each path that was not deleted."""
    return [f"not deleted, because it is outside of the table: {path}" for path in refused]
