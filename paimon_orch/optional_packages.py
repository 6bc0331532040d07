"""Packages that an installation may lack: extras, and those that the library works without.

The library, the command line and the local executor need only the packages of
``requirements-core.txt``. Code that needs another package checks for it here first, so that the
error names the package and the command that installs it.
"""

from importlib.util import find_spec

from paimon_orch.errors import MissingPackageError


def is_installed(module: str) -> bool:
    """Return whether a module can be imported; does not import it."""
    return find_spec(module) is not None


def require_package(
    module: str, purpose: str, *, install: str = "paimon-orch", package: str | None = None
) -> None:
    """Raise :class:`MissingPackageError` if a module is not installed; does not import it.

    :param purpose: what needs the module, the subject of the message
    :param install: the requirement that installs it: this package, or one of its extras
    :param package: the name of the package, if it differs from that of the module
    """
    if not is_installed(module):
        raise MissingPackageError(
            f"{purpose} needs the package {package or module}, which is not installed; "
            f"run: pip install '{install}'"
        )
