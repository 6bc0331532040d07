"""Reads and writes the files of the Iceberg metadata of one table.

See docs/format/iceberg-metadata.md#location-and-file-names.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID, uuid4

from paimon_orch.format.iceberg.iceberg_manifest import Entry, decode_manifest, may_contain_file
from paimon_orch.format.iceberg.iceberg_manifest_list import (
    IcebergManifestFile,
    decode_manifest_list,
)
from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata, IcebergSnapshot
from paimon_orch.storage import FileIO
from paimon_orch.table.metadata.metadata_io import list_metadata_directory, read_metadata_file
from paimon_orch.table.metadata.snapshot_store import read_hint

VERSION_HINT = "version-hint.text"
_VERSION_FILE = re.compile(r"v(\d{1,18})\.metadata\.json")
_SCHEME_ALIAS = re.compile(r"^(?:s3a|s3n)://")
_FILE_SCHEME = re.compile(r"^file:(?://)?(?=/)")


def find_versions(names: Iterable[str]) -> list[int]:
    """Return the versions of the table metadata files among names, ascending."""
    matches = filter(None, map(_VERSION_FILE.fullmatch, names))
    return sorted(int(match.group(1)) for match in matches)


def get_file_name(path: str) -> str:
    """Return the last component of a path."""
    return path.rpartition("/")[2]


def normalize_path(path: str) -> str:
    """Return a path without differences of spelling: ``s3a://`` is ``s3://``, ``file:`` is none."""
    return _FILE_SCHEME.sub("", _SCHEME_ALIAS.sub("s3://", path))


@dataclass(frozen=True, slots=True)
class IcebergMetadataStore:
    """The Iceberg metadata directory of one table.

    Names in its files are untrusted: only files in the directory itself are read or deleted.
    """

    io: FileIO
    directory: str
    _commit_id: UUID = field(default_factory=uuid4)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def metadata_path(self, version: int) -> str:
        """Return the path of the table metadata of a version."""
        return f"{self.directory}/v{version}.metadata.json"

    def list_files(self) -> dict[str, int]:
        """Return the sizes of the files in the directory by name."""
        return {info.name: info.size for info in list_metadata_directory(self.io, self.directory)}

    def read_hint(self) -> int | None:
        """Return the version in the hint file, or None if it is missing or not a number."""
        return read_hint(self.io, f"{self.directory}/{VERSION_HINT}")

    def write_hint(self, version: int) -> None:
        """Overwrite the hint file."""
        self.io.write(f"{self.directory}/{VERSION_HINT}", str(version).encode())

    def read_metadata(self, version: int) -> IcebergMetadata:
        """Read the table metadata of a version; raises ``FileNotFoundError``."""
        path = self.metadata_path(version)
        return IcebergMetadata.from_json(read_metadata_file(self.io, path), path)

    def write_metadata(self, metadata: IcebergMetadata) -> None:
        """Create or replace the table metadata of the current snapshot."""
        path, data = self.metadata_path(metadata.current.id), metadata.to_json()
        if not self.io.create(path, data):
            self.io.write(path, data)

    def read_manifests(self, snapshot: IcebergSnapshot) -> list[IcebergManifestFile]:
        """Read the manifest list of a snapshot; raises ``FileNotFoundError``."""
        return self.read_manifest_list(snapshot.manifest_list)

    def read_manifest_list(self, path: str) -> list[IcebergManifestFile]:
        """Read a manifest list; raises ``FileNotFoundError``."""
        return decode_manifest_list(read_metadata_file(self.io, self.resolve(path)), path)

    def read_entries(
        self, manifest: IcebergManifestFile, names: Collection[str] | None = None
    ) -> list[Entry]:
        """Read a manifest; raises ``FileNotFoundError``.

        Returns no entries if the manifest has no file with one of ``names``, if given.
        """
        path = self.resolve(manifest.path)
        data = read_metadata_file(self.io, path)
        if names is not None and not may_contain_file(data, path, names):
            return []
        return decode_manifest(data, path)

    def resolve(self, path: str) -> str:
        """Return where a manifest or manifest list is: always in the directory of this store.

        Metadata names files by absolute paths, which are outdated after a table was moved.
        """
        return f"{self.directory}/{get_file_name(path)}"

    def write_manifest(self, data: bytes) -> str:
        """Write a new manifest; return its name."""
        return self._write(f"{self._commit_id}-m{next(self._numbers)}.avro", data)

    def write_manifest_list(self, data: bytes) -> str:
        """Write a new manifest list; return its name."""
        return self._write(f"snap-{next(self._numbers)}-{self._commit_id}.avro", data)

    def _write(self, name: str, data: bytes) -> str:
        with self.io.open_output(f"{self.directory}/{name}") as sink:
            sink.write(data)
        return name

    def delete(self, path: str) -> None:
        """Delete a manifest or manifest list."""
        self.io.delete(self.resolve(path))

    def delete_metadata(self, version: int) -> None:
        """Delete the table metadata of a version."""
        self.io.delete(self.metadata_path(version))
