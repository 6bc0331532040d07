"""The definition of a table option: type, default, and the steps that its values block."""

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum, Flag, auto
from math import inf
from typing import Any, Generic, TypeVar, cast

from paimon_orch.errors import InputError
from paimon_orch.format.options.value_type import PER_LEVEL, CollectionType, ValueType

T_co = TypeVar("T_co", covariant=True)


class OptionClass(Enum):
    """How an option affects steps that maintain the table."""

    HONOURED = "honoured"
    """Works as in Java Paimon."""
    HARMLESS = "harmless"
    """Tunes an engine or an unimplemented read; rows and files are correct without it."""
    EXTERNAL = "external"
    """Makes Java Paimon notify another system: Iceberg metadata, a metastore, a callback."""
    CHANGES_FORMAT = "changes the format"
    """Changes the meaning of rows, keys, order or files, which is not implemented."""


class StepKind(Flag):
    """The effect of a step on a table."""

    NONE = 0
    READ = auto()
    """Returns rows."""
    DEFAULT_READ = auto()
    """Returns rows of the snapshot that the table's options select; the caller names none."""
    WRITE_ROWS = auto()
    """Adds, replaces or removes rows."""
    COMPACT = auto()
    """Rewrites data or index files and keeps the rows."""
    METADATA = auto()
    """Commits or replaces metadata: manifests, statistics, branches, rollback, rename."""
    TAG = auto()
    """Creates or deletes tags."""
    DELETE = auto()
    """Deletes files, snapshots or partitions."""
    ALTER = auto()
    """Changes the schema."""


EVERY_CHANGE = (
    StepKind.WRITE_ROWS | StepKind.COMPACT | StepKind.METADATA | StepKind.TAG | StepKind.DELETE
)
"""Every step except reads and schema changes; a schema change can remove the option."""


UNBOUNDED = (-inf, inf)
"""The bounds of options that accept any number."""


@dataclass(frozen=True, slots=True)
class TableOption(Generic[T_co]):
    """One option, or one family of options, of Paimon 0.9 to 2.1."""

    key: str
    """The key; in the key of a family, parts in angle brackets stand for any name."""
    type: ValueType[T_co]
    default: str | None = None
    _: KW_ONLY
    option_class: OptionClass
    steps: StepKind = StepKind.NONE
    """Steps that a value blocks.

    Values that block: for EXTERNAL and CHANGES_FORMAT any value except the default, for HONOURED
    values that are not in ``choices``.
    """
    consequence: str = ""
    """The consequence of running a blocked step, for messages."""
    choices: tuple[str, ...] = ()
    """Implemented values of a string option; empty if all are implemented."""
    bounds: tuple[float, float] = UNBOUNDED
    """The inclusive range of a number."""
    by_catalog: bool = False
    """Whether the option blocks no step on a table that a catalog service loaded.

    Such a catalog either gets the reports that the option asks for, or it lists no partitions.
    """

    @property
    def range(self) -> str:
        """Return a description of the accepted numbers, or "" if they are unbounded."""
        least, most = self.bounds
        if self.bounds == UNBOUNDED:
            return ""
        return f"at least {least:g}" if most == inf else f"from {least:g} to {most:g}"

    def check(self, text: str) -> None:
        """Refuse a value of another type or out of range. Raises :class:`InputError`."""
        value, (least, most) = self.parse(text), self.bounds
        if isinstance(value, int | float) and not least <= value <= most:
            raise InputError(f"option {self.key!r} = {text} must be {self.range}")

    def parse(self, text: str) -> T_co:
        """Return the typed value. Raises :class:`InputError` for a value of another type."""
        return self.type.parse(self.key, text)

    @property
    def default_value(self) -> T_co:
        """Return the value for tables that do not set the option."""
        if self.default is not None:
            return self.type.parse(self.key, self.default)
        if isinstance(self.type, CollectionType):
            return cast("T_co", self.type.empty)
        return cast("T_co", None)  # without a default, ``T_co`` includes None

    def named(self, *names: str) -> "TableOption[T_co]":
        """Return a member of a family, for example of ``fields.<column>.distinct``."""
        parts = iter(names)
        return replace(self, key=PLACEHOLDER.sub(lambda _: next(parts), self.key))

    def is_default(self, text: str) -> bool:
        """Return whether a value equals the default after parsing."""
        if not text.strip():
            return True
        if self.default is None:
            return False
        try:
            return self._comparable(text) == self._comparable(self.default)
        except InputError:
            return False

    def blocks(self, text: str, step: StepKind) -> bool:
        """Return whether this value blocks a step."""
        if not self.steps & step or self.is_default(text):
            return False
        match self.option_class:
            case OptionClass.HARMLESS:
                return False
            case OptionClass.HONOURED:
                return bool(self.choices) and not set(self._values(text)) <= set(self.choices)
            case OptionClass.EXTERNAL | OptionClass.CHANGES_FORMAT:
                return not self.choices or text.strip().lower() in self.choices

    def _values(self, text: str) -> list[str]:
        """Return the values to compare with ``choices``; an invalid value is returned unparsed."""
        if self.type is not PER_LEVEL:
            return [text.strip().lower()]
        try:
            per_level = PER_LEVEL.parse(self.key, text)
        except InputError:
            return [text]
        return [value.lower() for value in per_level.values()]

    def _comparable(self, text: str) -> object:
        value = self.parse(text)
        return value.strip().lower() if isinstance(value, str) else value


PLACEHOLDER = re.compile(r"<[^>]+>")
"""Matches a placeholder in the key of a family."""


AnyOption = TableOption[Any]
"""An option of any value type."""


def compile_family_pattern(key: str) -> re.Pattern[str]:
    """Return a pattern: ``fields.<column>.distinct`` matches ``fields.a.b.distinct``."""
    return re.compile(".+".join(re.escape(part) for part in PLACEHOLDER.split(key)))


def index_options_by_key(*groups: tuple[AnyOption, ...]) -> Mapping[str, AnyOption]:
    """Return options by key. Raises ``ValueError`` for duplicate keys."""
    result: dict[str, AnyOption] = {}
    for option in (option for group in groups for option in group):
        if option.key in result:
            raise ValueError(f"option {option.key!r} is registered twice")
        result[option.key] = option
    return result
