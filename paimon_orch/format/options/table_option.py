"""The definition of one table option: type, default, and which steps its values make wrong."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, Flag, auto
from math import inf
from typing import Any, Generic, TypeVar, cast

from paimon_orch.errors import InputError
from paimon_orch.format.options.value_type import PER_LEVEL, CollectionType, ValueType

T_co = TypeVar("T_co", covariant=True)


class OptionClass(Enum):
    """How an option affects steps that maintain the table."""

    HONOURED = "honoured"
    """We do what Java Paimon does."""
    HARMLESS = "harmless"
    """It tunes an engine, or a read that is not implemented here; rows and files are correct without it."""
    EXTERNAL = "external"
    """Java Paimon also informs another system: Iceberg metadata, a metastore, a callback."""
    CHANGES_FORMAT = "changes the format"
    """Rows, keys, order or files mean something else with it, and that is not implemented."""


class StepKind(Flag):
    """What a step does to a table."""

    NONE = 0
    READ = auto()
    """Returns rows."""
    DEFAULT_READ = auto()
    """Returns rows of the snapshot that the table's options choose, because the caller names none."""
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
"""The bounds of options that take any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOption(Generic[T_co]):
    """One option, or one family of options, of Paimon 0.9 to 2.1.

    Numbers are within ``bounds``, both included. ``choices`` are the implemented values of an option of text,
    all if there are none. ``steps`` are the steps that a
    value makes wrong: any value but the default for the classes EXTERNAL and CHANGES_FORMAT, a value beyond ``choices``
    for HONOURED. ``consequence`` says what would go wrong. The parts of a family's key in angle brackets stand for names
    of columns or other names.
    """

    key: str
    type: ValueType[T_co]
    default: str | None
    option_class: OptionClass
    steps: StepKind = StepKind.NONE
    consequence: str = ""
    choices: tuple[str, ...] = ()
    bounds: tuple[float, float] = UNBOUNDED

    @property
    def range(self) -> str:
        """Return what numbers the option takes, in words; empty if any."""
        least, most = self.bounds
        if self.bounds == UNBOUNDED:
            return ""
        return f"at least {least:g}" if most == inf else f"from {least:g} to {most:g}"

    def check(self, text: str) -> None:
        """Refuse a value of another type or out of range; raises :class:`InputError` naming the option."""
        value, (least, most) = self.parse(text), self.bounds
        if isinstance(value, int | float) and not least <= value <= most:
            raise InputError(f"option {self.key!r} = {text} must be {self.range}")

    def parse(self, text: str) -> T_co:
        """Return the typed value; raises :class:`InputError` naming the option for text of another type."""
        return self.type.parse(self.key, text)

    @property
    def default_value(self) -> T_co:
        """Return the value where a table does not set the option."""
        if self.default is not None:
            return self.type.parse(self.key, self.default)
        if isinstance(self.type, CollectionType):
            return cast("T_co", self.type.empty)
        return cast("T_co", None)  # the type of an option without a default includes None

    def named(self, *names: str) -> "TableOption[T_co]":
        """Return the member of a family for names: ``fields.<column>.distinct`` for one column."""
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
        """Return whether a step would be wrong with this value."""
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
        """Return the values to compare with the choices; a value that cannot be parsed equals none of them."""
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
"""The name in a key of a family that stands for any name."""


AnyOption = TableOption[Any]
"""An option of any type of values."""


def compile_family_pattern(key: str) -> re.Pattern[str]:
    """Return what the keys of a family match: ``fields.<column>.distinct`` matches ``fields.a.b.distinct``."""
    return re.compile(".+".join(re.escape(part) for part in PLACEHOLDER.split(key)))


def index_options_by_key(*groups: tuple[AnyOption, ...]) -> Mapping[str, AnyOption]:
    """Return options by their keys; raises :class:`ValueError` for a key that is registered twice."""
    result: dict[str, AnyOption] = {}
    for option in (option for group in groups for option in group):
        if option.key in result:
            raise ValueError(f"option {option.key!r} is registered twice")
        result[option.key] = option
    return result
