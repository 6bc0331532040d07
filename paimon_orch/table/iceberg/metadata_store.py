"""Reads and writes the files of the Iceberg metadata of one table.

See docs/format/iceberg-metadata.md#location-and-file-names.
"""

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID, uuid4

from paimon_orch.errors import CorruptFileError, MissingFileError, PaimonError, UnsupportedError
from paimon_orch.format.iceberg.iceberg_manifest import Entry, decode_manifest, may_contain_file
from paimon_orch.format.iceberg.iceberg_manifest_list import (
    IcebergManifestFile,
    decode_manifest_list,
    has_legacy_counts,
)
from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata, IcebergSnapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.storage import FileIO
from paimon_orch.stores import normalize_scheme
from paimon_orch.table.metadata.metadata_io import list_metadata_directory, read_metadata_file
from paimon_orch.table.metadata.snapshot_store import read_hint

logger = get_logger(__name__)
VERSION_HINT = "version-hint.text"
UNREADABLE = (CorruptFileError, MissingFileError, FileNotFoundError, UnsupportedError)
"""Errors of a file that is missing, damaged, or written by a later release."""
_VERSION_FILE = re.compile(r"v(\d{1,18})\.metadata\.json")
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
    scheme, separator, rest = path.partition("://")
    return _FILE_SCHEME.sub("", f"{normalize_scheme(scheme)}://{rest}" if separator else path)


@dataclass(frozen=True, slots=True)
class IcebergMetadataStore:
    """The Iceberg metadata directory of one table.

    Names in its files are untrusted: only files in the directory itself are read or deleted.
    """

    io: FileIO
    directory: str
    _commit_id: UUID = field(default_factory=uuid4)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _written: list[str] = field(default_factory=list)

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

    def find_metadata(self, version: int) -> IcebergMetadata | None:
        """Read the table metadata of a version; return None if it is missing or damaged."""
        try:
            return self.read_metadata(version)
        except FileNotFoundError:
            return None
        except (CorruptFileError, UnsupportedError) as error:
            logger.warning("Iceberg metadata is ignored: %s", error)
            return None

    def write_metadata(self, metadata: IcebergMetadata, replaced: IcebergMetadata | None) -> bool:
        """Create the table metadata of the current snapshot, or replace ``replaced``.

        Returns False if another process has written other metadata. ``replaced`` is None if there
        was no readable metadata.
        """
        path, data = self.metadata_path(metadata.current.id), metadata.to_json()
        if self.io.create(path, data):
            return True
        if self.find_metadata(metadata.current.id) != replaced:
            return False
        self.io.write(path, data)
        return True

    def read_manifests(self, snapshot: IcebergSnapshot) -> list[IcebergManifestFile]:
        """Read the manifest list of a snapshot; raises ``FileNotFoundError``."""
        return self.read_manifest_list(snapshot.manifest_list)

    def read_manifest_list(self, path: str) -> list[IcebergManifestFile]:
        """Read a manifest list; raises ``FileNotFoundError``."""
        return decode_manifest_list(read_metadata_file(self.io, self.resolve(path)), path)

    def has_legacy_counts(self, snapshot: IcebergSnapshot) -> bool:
        """Return whether the manifest list of a snapshot has the old names of counts."""
        path = self.resolve(snapshot.manifest_list)
        return has_legacy_counts(read_metadata_file(self.io, path))

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
        self._written.append(name)
        with self.io.open_output(f"{self.directory}/{name}") as sink:
            sink.write(data)
        return name

    def delete_written_files(self) -> None:
        """Delete the manifests and manifest lists of a publication that did not succeed.

        Orphan file removal deletes those that storage failures leave.
        """
        while self._written:
            with suppress(PaimonError, OSError):
                self.io.delete(f"{self.directory}/{self._written.pop()}")

    def delete(self, path: str) -> None:
        """Delete a manifest or manifest list."""
        self.io.delete(self.resolve(path))

    def delete_metadata(self, version: int) -> None:
        """Delete the table metadata of a version."""
        self.io.delete(self.metadata_path(version))
