"""The oldest versions that ``pyproject.toml`` allows, as constraints for pip.

pip always resolves to the newest versions. ``python -m support.lower_bounds`` prints constraints
that lead it to the oldest: the lower bound of each direct dependency, and for every other package at
most the version of ``constraints.txt``, so that a new release of it does not change the result.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
OF_DEVELOPMENT = {"benchmarks", "dev", "docs", "mutation", "sbom"}


def read_requirements(*, development: bool = True) -> Iterator[Requirement]:
    """Yield the direct dependencies, with those of the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = extras.keys() if development else extras.keys() - OF_DEVELOPMENT
    texts = [*project["dependencies"], *(text for name in names for text in extras[name])]
    yield from (each for each in map(Requirement, texts) if each.name != project["name"])


def lower_bound(requirement: Requirement) -> str:
    """Return the version after ``>=``."""
    [bound] = [each.version for each in requirement.specifier if each.operator == ">="]
    return bound


def read_constraints() -> list[str]:
    """Return the constraints, sorted by the names of the packages."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = {name: f"{name}<={pin}" for name, pin in (line.split("==") for line in lines)}
    for requirement in read_requirements(development=False):
        name = canonicalize_name(requirement.name)
        constraints[name] = f"{name}=={lower_bound(requirement)}"
    return sorted(constraints.values())


if __name__ == "__main__":
    sys.stdout.write("\n".join([*read_constraints(), ""]))
