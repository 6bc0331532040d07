"""Apache Paimon tables: catalogs, scans, writes and errors, without a Paimon jar.

This package, :mod:`paimon_orch.steps`, :mod:`paimon_orch.spark` and :mod:`paimon_orch.dagster` are
the public API. All other modules are internal and may change between releases.
"""

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CancelledError,
    CatalogUnavailableError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptFileError,
    InputError,
    LockTimeoutError,
    MissingFileError,
    NotFoundError,
    PaimonError,
    StorageError,
    TransientError,
    UnsupportedError,
)
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.filter.expression import col
from paimon_orch.table.table import Table

__version__ = "0.1.0"
__all__ = [
    "AccessDeniedError",
    "AlreadyExistsError",
    "CancelledError",
    "Catalog",
    "CatalogUnavailableError",
    "CommitConflictError",
    "CommitId",
    "CommitOutcomeUnknownError",
    "CorruptFileError",
    "InputError",
    "LockTimeoutError",
    "MissingFileError",
    "NotFoundError",
    "PaimonError",
    "StorageError",
    "Table",
    "TransientError",
    "UnsupportedError",
    "col",
]
