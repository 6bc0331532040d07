"""Compares the sizes of stored files with their metadata; lists each directory once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paimon_orch.errors import MissingFileError, PaimonError, raise_if_temporary
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.paths import TablePaths, bucket_dir_name
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage import FileIO
from paimon_orch.storage.concurrency import map_concurrently

FileProblem = tuple[str, str]
"""A rule and a text."""
DirectoryListing = tuple[Mapping[str, int], list[FileProblem]]
"""The sizes of the files of a directory by name, and why it cannot be listed."""


@dataclass(slots=True)
class StoredFiles:
    """Finds files that are missing or have another size than in their metadata."""

    io: FileIO
    _listed: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def list_directory(self, directory: str) -> DirectoryListing:
        """List a directory for :meth:`has_files`; may be called by several threads."""
        problems: list[FileProblem] = []
        return self._list(directory, problems), problems

    def read_ahead(self, directories: Iterable[str]) -> None:
        """List directories for :meth:`check_file`, several at the same time."""
        if not self.io.capabilities.has_slow_requests:
            return  # they are listed when they are needed
        unlisted = [each for each in dict.fromkeys(directories) if each not in self._listed]
        listings = map_concurrently(self.io, self.list_directory, unlisted)
        for directory, (listed, problems) in zip(unlisted, listings, strict=True):
            if not problems:  # else the listing is repeated, and its problem reported
                self._listed[directory] = listed

    def has_files(
        self, directory: str, listing: DirectoryListing, sizes: Mapping[str, int]
    ) -> bool:
        """Return whether the listing of a directory has files of these names and sizes."""
        listed, problems = listing
        is_complete = sizes.items() <= listed.items()
        if not is_complete and not problems:
            self._listed[directory] = listed
        return is_complete

    def forget(self, directory: str) -> None:
        """Release the listing of a directory."""
        self._listed.pop(directory, None)

    def check_file(self, path: str, size: int | None) -> list[FileProblem]:
        """Return the problems of one file; keeps the listing of its directory."""
        directory, _, name = path.rpartition("/")
        problems: list[FileProblem] = []
        if directory not in self._listed:
            self._listed[directory] = self._list(directory, problems)
        return [*problems, *self._check_size(path, self._listed[directory].get(name), size)]

    def _list(self, directory: str, problems: list[FileProblem]) -> Mapping[str, int]:
        try:
            return {info.name: info.size for info in self.io.list_dir(directory)}
        except PaimonError as error:
            raise_if_temporary(error)
            problems.append(("path", str(error)))
            return {}

    def _check_size(self, path: str, actual: int | None, size: int | None) -> list[FileProblem]:
        if actual is None:  # the file may have been written after the listing
            try:
                actual = self.io.size(path)
            except (FileNotFoundError, MissingFileError):
                actual = None
            except PaimonError as error:  # not known to be missing
                raise_if_temporary(error)
                return [("path", str(error))]
            except OSError as error:
                raise_if_temporary(error)
                return [("path", f"{path} cannot be read ({error.strerror or error})")]
        if actual is None:
            return [("missing-file", f"{path} does not exist")]
        if size is not None and actual != size:
            return [("file-size", f"{path} has {actual} bytes, but its metadata has {size}")]
        return []


@dataclass(slots=True)
class BucketDirectories:
    """The directories of buckets; formats each partition once."""

    paths: TablePaths
    schema: TableSchema
    _partitions: dict[bytes, str | PaimonError] = field(default_factory=dict)

    def get(self, partition: bytes, bucket: int) -> str:
        """Return the directory of a bucket."""
        if partition not in self._partitions:
            try:
                first = self.paths.bucket_dir(self.schema, partition, 0)
                self._partitions[partition] = first.rpartition("/")[0]
            except PaimonError as error:
                self._partitions[partition] = error
        directory = self._partitions[partition]
        if isinstance(directory, PaimonError):
            raise directory
        return f"{directory}/{bucket_dir_name(bucket)}"

    def find_file(self, partition: bytes, bucket: int, file: DataFileMeta) -> str:
        """Return the path of a data file."""
        if file.external_path is not None:
            return self.paths.data_file(self.schema, partition, bucket, file)
        return f"{self.get(partition, bucket)}/{file.file_name}"
