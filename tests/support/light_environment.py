"""Environments with the packages of an installation without extras: no PySpark and no Dagster.

The packages are links into the environment of the tests, so an environment takes a second and no
download.
"""

from __future__ import annotations

import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("paimon_orch", "pyspark_paimon")


def read_requirements(*extras: str) -> list[str]:
    """Return the requirements of the package, with those that extras add."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements: list[str] = [*project["dependencies"]]
    for extra in extras:
        requirements += project["optional-dependencies"][extra]
    return requirements


def find_distributions(requirements: Iterable[str]) -> dict[str, Distribution]:
    """Return the installed distributions that requirements need, with their own requirements."""
    found: dict[str, Distribution] = {}
    pending, seen = [Requirement(text) for text in requirements], set[str]()
    for requirement in pending:
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        installed = distribution(requirement.name)
        found[canonicalize_name(requirement.name)] = installed
        pending += _list_requirements(installed, requirement.extras)
    return found


def _list_requirements(installed: Distribution, extras: set[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, installed.requires or ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def link_packages(site: Path, requirements: Iterable[str]) -> None:
    """Link the packages of requirements into the site directory of another environment."""
    for installed in find_distributions(requirements).values():
        names = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
        for name in names:
            if not (site / name).exists():
                (site / name).symlink_to(str(installed.locate_file(name)))


def make_light_environment(root: Path) -> Path:
    """Create an environment with this package and its requirements; return its Python."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(root)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = root / "lib" / version / "site-packages"
    link_packages(site, read_requirements())
    for name in PACKAGES:
        (site / name).symlink_to(ROOT / name)
    return root / "bin" / "python"
