"""Schema files of a table.

See docs/format/schema.md#schema-changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from paimon_orch.errors import CorruptFileError, NotFoundError
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.metadata.metadata_cache import read_unchanging_file
from paimon_orch.table.metadata.metadata_io import (
    list_metadata_directory,
    read_metadata_file,
    wrap_read_errors,
)
from paimon_orch.table.metadata.snapshot_store import number_files

SCHEMA_PREFIX = "schema-"


@dataclass(frozen=True, slots=True)
class SchemaStore(Mapping[int, TableSchema]):
    """The schema versions of one table or branch by id; each version is read on first use."""

    io: FileIO
    paths: TablePaths
    _read: dict[int, tuple[str, TableSchema]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """The schemas that were read, and the versions of their files, by id."""
    _versions: dict[int, str] = field(default_factory=dict, repr=False, compare=False)
    """The versions of the files in the last listing, by id."""

    def path(self, schema_id: int) -> str:
        """Return the path of a schema file."""
        return f"{self.paths.schema_dir}/{SCHEMA_PREFIX}{schema_id}"

    def ids(self, entries: Iterable[FileInfo] | None = None) -> list[int]:
        """List all schema ids, ascending; ``entries`` is the folder if it was just listed."""
        if entries is None:
            entries = list_metadata_directory(self.io, self.paths.schema_dir)
        files = number_files(entries, SCHEMA_PREFIX)
        self._versions.clear()
        self._versions.update({number: info.version for number, info in files.items()})
        return sorted(files)

    def __iter__(self) -> Iterator[int]:
        """List the ids."""
        return iter(self.ids())

    def __len__(self) -> int:
        """List and count the ids."""
        return len(self.ids())

    def __getitem__(self, schema_id: int) -> TableSchema:
        """Read one schema version."""
        return self.get(schema_id)

    def get(self, schema_id: int) -> TableSchema:  # type: ignore[override]  # without a default
        """Read one schema version."""
        version = self._versions.get(schema_id, "")
        known_version, known = self._read.get(schema_id, ("", None))
        if known is not None and known_version == version:
            return known
        path = self.path(schema_id)
        try:
            # without a listing, a table that was created again can have another schema
            data = (
                read_unchanging_file(self.io, path, version)
                if version
                else read_metadata_file(self.io, path)
            )
        except FileNotFoundError:
            raise CorruptFileError(
                path, "is missing, but a snapshot or data file needs it"
            ) from None
        schema = _decode_schema(data, path)
        self._read[schema_id] = version, schema
        return schema

    def get_all(self, schema_ids: Iterable[int]) -> dict[int, TableSchema]:
        """Read several schema versions, some at the same time."""
        ids = sorted(set(schema_ids))
        return dict(zip(ids, map_concurrently(self.io, self.get, ids), strict=True))

    def latest(self, entries: Iterable[FileInfo] | None = None) -> TableSchema:
        """Read the schema with the greatest id; raises :class:`NotFoundError` if there is none.

        ``entries`` is the folder if it was just listed.
        """
        ids = self.ids(entries)
        if not ids:
            raise NotFoundError(f"{self.paths.root} has no schema: it is not a Paimon table")
        return self.get(ids[-1])

    def latest_after(self, schema_id: int) -> TableSchema | None:
        """Read the newest schema, or return None if no schema follows one whose id is known.

        In most cases, this is one request for a missing file instead of a listing. The ids of
        schemas have no gaps.
        """
        path = self.path(schema_id + 1)
        with wrap_read_errors(path):
            has_later = self.io.file_exists(path)
        return self.latest() if has_later else None

    def earliest(self) -> TableSchema:
        """Read the schema with the smallest id; lists them only if they were not listed yet."""
        return self.get(min(self._versions or self.ids()))

    def create(self, schema: TableSchema) -> bool:
        """Write a new schema version; return False if its id exists already.

        Raises :class:`InputError` if the merge engine does not support the schema.
        """
        from paimon_orch.merge.engine.merge_engine import check_merge_engine

        check_merge_engine(schema)
        return self.io.create(self.path(schema.id), schema.to_json())


# Steps open the same table repeatedly, and decoding a schema takes longer than reading its file.
@lru_cache(maxsize=256)
def _decode_schema(data: bytes, path: str) -> TableSchema:
    return TableSchema.from_json(data, path)
