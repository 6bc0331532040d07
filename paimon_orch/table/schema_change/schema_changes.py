"""Schema changes: one class for each kind of change.

See docs/format/schema.md#schema-changes.
"""

from dataclasses import dataclass
from typing import Literal

from paimon_orch.format.argument_checks import to_option_texts
from paimon_orch.format.types.data_types import DataType

ColumnPath = str | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn:
    """Add a nullable column: at the end, or ``first``, or ``after`` another column.

    ``column`` is a name, or the path of a new field of a nested row, as ``("address", "city")``.
    In a path, ``element`` stands for the elements of an array and ``value`` for the values of a
    map.
    """

    column: ColumnPath
    type: str | DataType
    comment: str | None = None
    default: str | None = None
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Drop a column; its id is never reused, so the values in old files are lost."""

    column: ColumnPath


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Rename a column, also in the primary key and in options."""

    column: ColumnPath
    to: str


@dataclass(frozen=True, slots=True)
class UpdateType:
    """Change the type of a column; reads cast old files. Nullability does not change."""

    column: ColumnPath
    type: str | DataType


@dataclass(frozen=True, slots=True)
class UpdateNullability:
    """Allow null values or forbid them."""

    column: ColumnPath
    nullable: bool


@dataclass(frozen=True, slots=True)
class UpdateColumnComment:
    """Set or remove the comment of a column."""

    column: ColumnPath
    comment: str | None


@dataclass(frozen=True, slots=True)
class UpdateDefault:
    """Set or remove the default that writers store in place of null."""

    column: ColumnPath
    default: str | None


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Move a column ``first``, ``last``, or ``before`` or ``after`` column ``to``."""

    column: str
    where: Literal["first", "last", "before", "after"]
    to: str | None = None


@dataclass(frozen=True, slots=True)
class SetOption:
    """Set an option."""

    key: str
    value: str

    def __post_init__(self) -> None:
        """Write numbers and booleans as text."""
        object.__setattr__(self, "value", to_option_texts({self.key: self.value})[self.key])


@dataclass(frozen=True, slots=True)
class ResetOption:
    """Remove an option, so that its default applies."""

    key: str


@dataclass(frozen=True, slots=True)
class UpdateComment:
    """Set or remove the comment of the table."""

    comment: str | None


SchemaChange = (
    AddColumn
    | DropColumn
    | RenameColumn
    | UpdateType
    | UpdateNullability
    | UpdateColumnComment
    | UpdateDefault
    | MoveColumn
    | SetOption
    | ResetOption
    | UpdateComment
)
