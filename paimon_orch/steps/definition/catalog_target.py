"""An entry of a catalog, which may be damaged or missing, and what dropping a table deletes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from paimon_orch.catalog.backend import LostTableError
from paimon_orch.catalog.catalog import Catalog
from paimon_orch.format.display import format_count
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.steps.common.step_report import describe_loss


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A table or a database by its name in a catalog."""

    catalog: Catalog
    identifier: str

    @property
    def allowances(self) -> Allowances:
        """What the caller allows."""
        return self.catalog.allowances


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLoss:
    """What dropping a table deletes."""

    table: str
    snapshots: int = 0
    tags: Sequence[str] = ()
    branches: Sequence[str] = ()
    files: int = 0
    bytes: int = 0

    @classmethod
    def measure(cls, catalog: Catalog, identifier: str) -> "TableLoss":
        """Count the snapshots, tags, branches and files of a table, which may lack its schema."""
        files, size = catalog.count_files(identifier)
        contents: dict[str, Any] = {}
        with suppress(LostTableError):
            table = catalog.table(identifier)
            contents = {
                "snapshots": len(table.stores.snapshots.ids()),
                "tags": table.stores.snapshots.tags(),
                "branches": table.branches.names(),
            }
        return cls(table=identifier, files=files, bytes=size, **contents)

    def to_dict(self) -> dict[str, object]:
        """Return the loss as JSON values."""
        return {
            "table": self.table,
            "snapshots": self.snapshots,
            "tags": list(self.tags),
            "branches": list(self.branches),
            "files": self.files,
            "bytes": self.bytes,
        }

    def describe(self) -> str:
        """Return what is deleted with the table: ``1 snapshot and 2 files of 3 bytes``."""
        counts: dict[str, int | Sequence[str]] = {
            "snapshot": self.snapshots,
            "tag": self.tags,
            "branch": self.branches,
            "file": self.files,
        }
        return f"{describe_loss(counts)} of {format_count(self.bytes, 'byte')}"
