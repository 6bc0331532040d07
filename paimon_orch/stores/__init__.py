"""The stores: each module declares one, as ``STORE``; a module with an underscore declares none.

Code that needs a property of a store asks its declaration, and names no scheme. So a new store is one
file here, and its code in :mod:`paimon_orch.storage` if no other store opens it. Importing a
declaration imports no package of a store.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from paimon_orch.stores._declaration import ExclusiveCreation, Store, StoreCapabilities

__all__ = [
    "ExclusiveCreation",
    "Store",
    "StoreCapabilities",
    "find_store",
    "list_schemes",
    "list_stores",
    "normalize_scheme",
]


@cache
def list_stores() -> tuple[Store, ...]:
    """Return the declarations of all stores except local file systems."""
    names = sorted(module.name for module in iter_modules(__path__))
    return tuple(import_module(f"{__name__}.{name}").STORE for name in names if name[0] != "_")


def find_store(scheme: str) -> Store | None:
    """Return the store of a scheme, or None for a local file system and for an unknown store."""
    lowered = scheme.lower()
    return next((store for store in list_stores() if lowered in store.schemes), None)


def list_schemes() -> list[str]:
    """Return the schemes of the stores that several processes can use."""
    return [scheme for store in list_stores() if store.is_shared for scheme in store.schemes]


def normalize_scheme(scheme: str) -> str:
    """Return the first scheme of those that name the same store, in lower case."""
    lowered = scheme.lower()
    store = find_store(lowered)
    return lowered if store is None or store.has_different_schemes else store.schemes[0]
