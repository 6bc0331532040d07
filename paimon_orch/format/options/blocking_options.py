"""Checks which steps a table's options allow, using the registry of options.

A step is refused before it changes anything if an option is not implemented, if another system
would not be notified, or if an option is unknown and may belong to a newer release.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.options.option_lookup import (
    find_nearest_option,
    find_option,
    may_be_newer_option,
)
from paimon_orch.format.options.secret_options import show_option
from paimon_orch.format.options.table_option import EVERY_CHANGE, AnyOption, OptionClass, StepKind
from paimon_orch.format.options.validation import is_immutable


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """The refusals that the user overrides for one run."""

    stale_external: bool = False
    """Change the table even if Iceberg metadata, a metastore or a callback becomes stale."""
    unknown_options: bool = False
    """Change the table even if an option is unknown and may belong to a newer release."""

    def __or__(self, other: "Allowances") -> "Allowances":
        """Return what one of the two allows."""
        return Allowances(
            stale_external=self.stale_external or other.stale_external,
            unknown_options=self.unknown_options or other.unknown_options,
        )


NO_ALLOWANCES = Allowances()


@dataclass(frozen=True, slots=True)
class BlockingOption:
    """An option of a table that blocks a step; ``option`` is None if its key is unknown."""

    key: str
    value: str
    option: AnyOption | None

    @property
    def is_external(self) -> bool:
        """Return whether the step is correct but leaves another system stale."""
        return self.option is not None and self.option.option_class is OptionClass.EXTERNAL

    def is_allowed(self, allowances: Allowances) -> bool:
        """Return whether the user allows the step despite this option."""
        if self.option is None:
            return allowances.unknown_options
        return self.is_external and allowances.stale_external

    def describe(self) -> str:
        """Describe the option, its value and why it blocks the step."""
        if self.option is None:
            nearest = find_nearest_option(self.key)
            hint = f" (did you mean {nearest!r}?)" if nearest else ""
            return (
                f"option {show_option(self.key, self.value)} is unknown{hint}; "
                "it may belong to a newer release of Paimon"
            )
        implemented = ""
        if self.option.option_class is OptionClass.HONOURED and self.option.choices:
            implemented = f" (implemented: {', '.join(self.option.choices)})"
        return f"option {show_option(self.key, self.value)}: {self.option.consequence}{implemented}"

    def advise(self, step: StepKind) -> str:
        """Return advice for a step that is refused."""
        if self.option is None:
            return (
                "Correct the option if it is misspelt, or allow unknown options for this run: "
                "--allow-unknown-options, in Python Table.allow(unknown_options=True), in Dagster "
                "allow_unknown_options: true."
            )
        if self.is_external and not step & (StepKind.READ | StepKind.DEFAULT_READ):
            return (
                "Use Java Paimon for this step, or accept that the other system is stale until you "
                "update it: --allow-stale-external, in Python Table.allow(stale_external=True), in "
                "Dagster allow_stale_external: true."
            )
        if step & StepKind.DEFAULT_READ and self.option.steps is StepKind.DEFAULT_READ:
            return (
                "Name a snapshot, tag or time to read, or read the table with Java Paimon. Other "
                "readers may need the option."
            )
        if self.key == "type":
            return "Use an engine that supports this type of table."
        if is_immutable(self.key) or self.option.option_class is OptionClass.CHANGES_FORMAT:
            return "Use Java Paimon for this step; files or other writers depend on the option."
        return (
            "Use Java Paimon for this step, or remove the option if no other reader or writer of "
            "the table needs it."
        )


def find_blocking_options(
    options: Mapping[str, str], step: StepKind, *, has_service: bool = False
) -> Iterator[BlockingOption]:
    """Yield the options that block a step; unknown options block changes, not reads.

    ``has_service`` is true if a catalog service loaded the table; see
    :attr:`TableOption.by_catalog`.
    """
    for key, value in sorted(options.items()):
        option = find_option(key)
        if option is None:
            if step & EVERY_CHANGE and may_be_newer_option(key):
                yield BlockingOption(key, value, None)
        elif not (has_service and option.by_catalog) and option.blocks(value, step):
            yield BlockingOption(key, value, option)


def check_step(
    table: str,
    options: Mapping[str, str],
    step: StepKind,
    allowances: Allowances = NO_ALLOWANCES,
    *,
    has_service: bool = False,
) -> tuple[BlockingOption, ...]:
    """Refuse a step that the table's options block; return the blocking options that are allowed.

    Raises :class:`UnsupportedError` with every option, its value, the consequence and advice. For
    reads, no blocking option can be allowed (``query-auth.enabled``).
    """
    obstacles = list(find_blocking_options(options, step, has_service=has_service))
    reads = bool(step & (StepKind.READ | StepKind.DEFAULT_READ))
    refused = [o for o in obstacles if reads or not o.is_allowed(allowances)]
    if refused:
        raise_step_refused(table, refused, step)
    return tuple(obstacles)


def raise_step_refused(table: str, obstacles: Sequence[BlockingOption], step: StepKind) -> NoReturn:
    """Raise the error that names the blocking options."""
    reasons = "; ".join(obstacle.describe() for obstacle in obstacles)
    advice = " ".join(dict.fromkeys(obstacle.advise(step) for obstacle in obstacles))
    verb = "read" if step & (StepKind.READ | StepKind.DEFAULT_READ) else "change"
    raise UnsupportedError(f"cannot {verb} {table}: {reasons}. {advice} Nothing was changed.")


def describe_options(options: Mapping[str, str], *, has_service: bool = False) -> list[str]:
    """Return a message for each option that blocks some step or looks misspelled."""
    every = EVERY_CHANGE | StepKind.READ | StepKind.DEFAULT_READ | StepKind.ALTER
    obstacles = [
        f"some steps will be refused: {obstacle.describe()}"
        for obstacle in find_blocking_options(options, every, has_service=has_service)
    ]
    misspelled = [
        f"option {key!r} is not an option of Paimon (did you mean {find_nearest_option(key)!r}?)"
        for key in options
        if find_option(key) is None and not may_be_newer_option(key) and find_nearest_option(key)
    ]
    return obstacles + misspelled


def describe_unknown_options(options: Mapping[str, str]) -> list[str]:
    """Return a message for each unknown key that may belong to a newer release."""
    return [
        BlockingOption(key, value, None).describe()
        for key, value in sorted(options.items())
        if may_be_newer_option(key)
    ]
