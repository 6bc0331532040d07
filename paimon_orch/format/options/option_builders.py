"""Builds table options of each class."""

from functools import partial
from typing import Any, TypeVar, overload

from paimon_orch.format.options.table_option import (
    EVERY_CHANGE,
    UNBOUNDED,
    AnyOption,
    OptionClass,
    StepKind,
    TableOption,
)
from paimon_orch.format.options.value_type import CollectionType, ValueType

T = TypeVar("T")

READ, DEFAULT_READ, WRITE_ROWS = StepKind.READ, StepKind.DEFAULT_READ, StepKind.WRITE_ROWS
COMPACT, METADATA, TAG = StepKind.COMPACT, StepKind.METADATA, StepKind.TAG
DELETE, ALTER = StepKind.DELETE, StepKind.ALTER
EVERY_STEP = READ | EVERY_CHANGE


@overload
def honoured(
    key: str,
    type: ValueType[T],
    default: str,
    *,
    choices: tuple[str, ...] = (),
    steps: StepKind = EVERY_STEP,
    consequence: str = ...,
    bounds: tuple[float, float] = UNBOUNDED,
) -> TableOption[T]: ...
@overload
def honoured(
    key: str,
    type: CollectionType[T],
    *,
    choices: tuple[str, ...] = (),
    steps: StepKind = EVERY_STEP,
    consequence: str = ...,
) -> TableOption[T]: ...
@overload
def honoured(
    key: str,
    type: ValueType[T],
    *,
    choices: tuple[str, ...] = (),
    steps: StepKind = EVERY_STEP,
    consequence: str = ...,
    bounds: tuple[float, float] = UNBOUNDED,
) -> TableOption[T | None]: ...
def honoured(
    key: str,
    type: ValueType[Any],
    default: str | None = None,
    *,
    steps: StepKind = EVERY_STEP,
    consequence: str = "this value is not implemented",
    **settings: Any,
) -> AnyOption:
    """Register an option that works as in Java Paimon, at least for the values in ``choices``."""
    return TableOption(
        key,
        type,
        default,
        option_class=OptionClass.HONOURED,
        steps=steps,
        consequence=consequence,
        **settings,
    )


harmless = partial(TableOption, option_class=OptionClass.HARMLESS)
"""Registers an option that is ignored without effect on rows and files."""
external = partial(TableOption, option_class=OptionClass.EXTERNAL)
"""Registers an option that makes Java Paimon notify another system, for ``choices`` if given."""
changes_format = partial(TableOption, option_class=OptionClass.CHANGES_FORMAT)
"""Registers an option that changes the meaning of rows or files, for ``choices`` if given."""
