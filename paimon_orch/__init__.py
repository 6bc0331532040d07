"""Apache Paimon tables: catalogs, scans, writes and errors, without a Paimon jar.

This package, :mod:`paimon_orch.steps`, :mod:`paimon_orch.spark`, :mod:`paimon_orch.dagster` and
:mod:`paimon_orch.airflow` are the public API. All other modules are internal and may change between releases. Names are imported
on first use, because commands, Dagster and workers need different parts of the library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paimon_orch.catalog.catalog import Catalog
    from paimon_orch.catalog.scan_paimon import scan_paimon
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
        MissingPackageError,
        NotAllowedError,
        NotFoundError,
        PaimonError,
        StorageError,
        TransientError,
        UnsupportedError,
    )
    from paimon_orch.files.variant_access import variant_get
    from paimon_orch.table.commit.commit import CommitId
    from paimon_orch.table.filter.expression import col
    from paimon_orch.table.schema_change.schema_changes import (
        AddColumn,
        DropColumn,
        MoveColumn,
        RenameColumn,
        ResetOption,
        SetOption,
        UpdateColumnComment,
        UpdateComment,
        UpdateDefault,
        UpdateNullability,
        UpdateType,
    )
    from paimon_orch.table.table import Table

__version__ = "0.3.0"
__all__ = [
    "AccessDeniedError",
    "AddColumn",
    "AlreadyExistsError",
    "CancelledError",
    "Catalog",
    "CatalogUnavailableError",
    "CommitConflictError",
    "CommitId",
    "CommitOutcomeUnknownError",
    "CorruptFileError",
    "DropColumn",
    "InputError",
    "LockTimeoutError",
    "MissingFileError",
    "MissingPackageError",
    "MoveColumn",
    "NotAllowedError",
    "NotFoundError",
    "PaimonError",
    "RenameColumn",
    "ResetOption",
    "SetOption",
    "StorageError",
    "Table",
    "TransientError",
    "UnsupportedError",
    "UpdateColumnComment",
    "UpdateComment",
    "UpdateDefault",
    "UpdateNullability",
    "UpdateType",
    "col",
    "scan_paimon",
    "variant_get",
]

_MODULES = {
    "Catalog": "catalog.catalog",
    "CommitId": "table.commit.commit",
    "Table": "table.table",
    "col": "table.filter.expression",
    "scan_paimon": "catalog.scan_paimon",
    "variant_get": "files.variant_access",
    **dict.fromkeys(
        (
            "AddColumn",
            "DropColumn",
            "MoveColumn",
            "RenameColumn",
            "ResetOption",
            "SetOption",
            "UpdateColumnComment",
            "UpdateComment",
            "UpdateDefault",
            "UpdateNullability",
            "UpdateType",
        ),
        "table.schema_change.schema_changes",
    ),
}  # the other names are errors


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
