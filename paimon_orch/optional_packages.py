"""Packages that an installation may lack: those of the extras, and clients of object stores.

The library, the command line and the local executor need only the packages of an installation
without extras. Code that needs another package checks for it here first, so that the error names
the package and the command that installs it.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec

from paimon_orch.errors import MissingPackageError


def is_installed(module: str) -> bool:
    """Return whether a module can be imported; imports neither it nor its package."""
    package, _, _ = module.rpartition(".")
    if not package:
        return find_spec(module) is not None
    parent = find_spec(package)
    return parent is not None and bool(
        PathFinder.find_spec(module, parent.submodule_search_locations)
    )


def require_package(module: str, purpose: str, *, install: str, package: str | None = None) -> None:
    """Raise :class:`MissingPackageError` if a module is not installed; does not import it.

    :param purpose: what needs the module, the subject of the message
    :param install: the requirement that installs it: this package with an extra, or the package
    :param package: the name of the package, if it differs from that of the module
    """
    if not is_installed(module):
        raise MissingPackageError(
            f"{purpose} needs the package {package or module}, which is not installed; "
            f"run: pip install '{install}'"
        )
