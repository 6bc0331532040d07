"""Finds the steps by the names of their commands; only a step that runs is imported.

A step is a module in a folder of ``paimon_orch/steps`` that has a ``DECLARATION``. Its file name
with hyphens is the step's name, and the first line of its docstring says what the step does.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from paimon_orch.errors import NotFoundError
from paimon_orch.safe_text import clean_line

if TYPE_CHECKING:
    from paimon_orch.steps.common.step_declaration import StepDeclaration

_STEPS = Path(__file__).parents[1]
_DECLARES = "\nDECLARATION = "
_COMMAND = re.compile(r'^    command="([a-z -]+)",$', re.MULTILINE)


class StepEntry(NamedTuple):
    """Where a step is, and what it does."""

    folder: str
    """The folder in ``paimon_orch/steps``."""
    module: str
    summary: str
    """One sentence."""
    command: str
    """The command, which has the name of the step unless the declaration has another one."""

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.module.replace("_", "-")


@cache
def find_steps() -> Mapping[str, StepEntry]:
    """Return the declared steps by name."""
    steps = {}
    for file in sorted(_STEPS.glob("*/*.py"), key=attrgetter("stem")):
        source = file.read_text(encoding="utf-8")
        if _DECLARES in source:
            summary, name = source.split("\n", 1)[0].strip('"'), file.stem.replace("_", "-")
            command = _COMMAND.search(source)
            steps[name] = StepEntry(
                file.parent.name, file.stem, summary, name if command is None else command[1]
            )
    return MappingProxyType(steps)


def load_declaration(name: str) -> "StepDeclaration[Any, Any, Any]":
    """Return the declaration of a step. Raises :class:`NotFoundError` for an unknown name."""
    entry = find_steps().get(name)
    if entry is None:
        raise NotFoundError(
            f"there is no step {clean_line(name)}; the steps are {', '.join(find_steps())}"
        )
    module = import_module(f"paimon_orch.steps.{entry.folder}.{entry.module}")
    declaration: StepDeclaration[Any, Any, Any] = module.DECLARATION
    return declaration
