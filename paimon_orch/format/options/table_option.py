"""The definition of one table option: type, default, and which steps its values make wrong."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from math import inf

from paimon_orch.errors import InputError
from paimon_orch.format.options.typed_options import Options


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


class ValueType(Enum):
    """How the text of an option is parsed."""

    BOOLEAN = "true or false"
    INTEGER = "whole number"
    NUMBER = "number"
    MEMORY = "size"
    DURATION = "duration"
    TEXT = "text"
    PER_LEVEL = "level:value, ..."


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOption:
    """One option, or one family of options, of Paimon 0.9 to 2.1.

    Numbers are within ``bounds``, both included. ``choices`` are the implemented values of an option of text,
    all if there are none. ``steps`` are the steps that a
    value makes wrong: any value but the default for the classes EXTERNAL and CHANGES_FORMAT, a value beyond ``choices``
    for HONOURED. ``consequence`` says what would go wrong. The parts of a family's key in angle brackets stand for names
    of columns or other names.
    """

    key: str
    type: ValueType
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

    def parse(self, text: str) -> object:
        """Return the typed value; raises :class:`InputError` naming the option for text of another type."""
        options = Options({self.key: text})
        match self.type:
            case ValueType.BOOLEAN:
                return options.boolean(self.key)
            case ValueType.INTEGER:
                return options.integer(self.key, 0)
            case ValueType.NUMBER:
                return options.number(self.key, 0)
            case ValueType.MEMORY:
                return options.memory(self.key, "")
            case ValueType.DURATION:
                return options.duration(self.key, "")
            case ValueType.PER_LEVEL:
                return options.per_level(self.key)
            case ValueType.TEXT:
                return text.strip().lower()

    def is_default(self, text: str) -> bool:
        """Return whether a value equals the default after parsing."""
        if not text.strip():
            return True
        if self.default is None:
            return False
        try:
            return self.parse(text) == self.parse(self.default)
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
        if self.type is not ValueType.PER_LEVEL:
            return [text.strip().lower()]
        try:
            per_level = Options({self.key: text}).per_level(self.key)
        except InputError:
            return [text]
        return [value.lower() for value in per_level.values()]


PLACEHOLDER = re.compile(r"<[^>]+>")
"""The name in a key of a family that stands for any name."""


def compile_family_pattern(key: str) -> re.Pattern[str]:
    """Return what the keys of a family match: ``fields.<column>.distinct`` matches ``fields.a.b.distinct``."""
    return re.compile(".+".join(re.escape(part) for part in PLACEHOLDER.split(key)))


def index_options_by_key(*groups: tuple[TableOption, ...]) -> Mapping[str, TableOption]:
    """Return options by their keys; raises :class:`ValueError` for a key that is registered twice."""
    result: dict[str, TableOption] = {}
    for option in (option for group in groups for option in group):
        if option.key in result:
            raise ValueError(f"option {option.key!r} is registered twice")
        result[option.key] = option
    return result
