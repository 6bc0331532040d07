"""The table in an external Iceberg catalog that has to show the newest published metadata.

Tables that are opened by path have such an entry, too, because their own options name the catalog.
So the entries belong to this floor, and not to the catalogs of Paimon above it.
See docs/format/iceberg-metadata.md#external-catalogs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.iceberg.iceberg_settings import list_metadata_directories
from paimon_orch.table.iceberg.metadata_store import normalize_path


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedMetadata:
    """The newest published metadata of a table."""

    path: str
    """The metadata file, spelled as the paths in it."""
    metadata: IcebergMetadata
    schema: TableSchema
    """The newest schema of the table."""
    is_of_table: Callable[[str], bool]
    """Whether a metadata file in the store of the table shows this table, or does not exist."""

    @property
    def location(self) -> str:
        """The directory of the table as Iceberg spells it: it knows ``s3``, ``gs`` and ``abfss``."""
        location = self.metadata.location
        normalized = normalize_path(location)
        return location if normalized.startswith("abfs:") else normalized

    def is_in_store(self, path: str) -> bool:
        """Return whether a path is in the store of the table: the same scheme and bucket."""
        try:
            stores = [urlsplit(normalize_path(item))[:2] for item in (path, self.path)]
        except ValueError:  # a path that a catalog names may be any text
            return False
        return stores[0] == stores[1]

    def is_in_metadata_directory(self, path: str) -> bool:
        """Return whether a path is in a directory that this table has with some option."""
        directories = {
            self.path.rpartition("/")[0],
            *list_metadata_directories(self.metadata.location),
        }
        return normalize_path(path).rpartition("/")[0] in map(normalize_path, directories)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryState:
    """What readers of an external catalog see."""

    snapshot_id: int | None = None
    """None if they cannot read the table, or if this is not known."""
    problem: str | None = None
    """Why they do not see the newest metadata; None if they do."""


class IcebergCatalogEntry(Protocol):
    """One table in an external Iceberg catalog."""

    def read_state(self, published: PublishedMetadata) -> EntryState:
        """Compare the catalog with the published metadata; raises an error if it is unreachable."""
        ...

    def update(self, published: PublishedMetadata, is_latest: Callable[[], bool]) -> bool:
        """Make the catalog show the published metadata, unless it does already.

        ``is_latest`` returns whether the table has no later snapshot; it is called after the entry
        was read. Returns False if another process was faster. Raises an error if the catalog
        is unreachable or refuses; the next call tries again.
        """
        ...
