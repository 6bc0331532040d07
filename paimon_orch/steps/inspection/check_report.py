"""What a check needs to know of versions, and what a part of the check reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import cloudpickle
import numpy as np

from paimon_orch.format.arrays import AnyArray, Indices, UInt64Array
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage import FileIO


class CheckStep(IntEnum):
    """The order of the findings of a version."""

    READ = 0
    CHANGELOG = 1
    CHANGELOG_FILES = 2
    DELTA = 3
    NAMES = 4
    RECORD_COUNTS = 5
    FILES = 6
    BUCKETS = 7
    BUCKET_COUNTS = 8
    INDEX_FILES = 9
    DELETION_VECTORS = 10
    STATISTICS = 11
    SUCCESSOR = 12
    MANIFEST_FORMATS = 13
    MANIFEST_LISTS = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A violation in one version; ``place`` follows the name of the version in the finding."""

    step: CheckStep
    order: tuple[int, ...] = ()
    rule: str
    place: str = ""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedVersion:
    """What the judgment of entries needs to know about a version.

    ``base``, ``delta`` and ``changelog`` are the numbers of its manifests.
    """

    label: str
    schema: int
    """The index of the schema in the context."""
    layout: int
    """The index of a schema with the same directories."""
    base: Indices
    delta: Indices
    changelog: Indices
    index_manifest: int | None = None
    previous: int | None = None
    """The index of the preceding snapshot, if it was not skipped."""
    is_changelog: bool = False
    keeps_changelog: bool = False
    next_row_id: int = 0
    """The row ids that the snapshot has assigned are below this."""

    @property
    def state(self) -> Indices:
        """The manifests of the version's files."""
        return np.concatenate([self.base, self.delta])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """What all parts of a check share."""

    io: FileIO
    root: str
    schemas: tuple[TableSchema, ...]
    versions: tuple[CheckedVersion | None, ...]
    """None for versions whose manifest lists or other metadata cannot be read."""


@dataclass(slots=True, kw_only=True)
class RowCounts:
    """Numbers of rows of a version's files in one part or all of them."""

    total: int = 0
    added: int = 0
    deleted: int = 0
    changelog: int = 0
    changelog_entries: int = 0

    def add(self, other: "RowCounts") -> None:
        """Add the numbers of another part."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True, kw_only=True)
class PartReport:
    """The judgment of one part."""

    counts: dict[int, RowCounts] = field(default_factory=dict)
    problems: dict[int, list[Problem]] = field(default_factory=dict)
    different_bases: list[int] = field(default_factory=list)
    """The versions whose base does not have the files of the previous snapshot."""
    bucket_counts: dict[tuple[bytes, int], AnyArray] = field(default_factory=dict)
    """Which versions have files of a partition with a number of buckets, as packed bits."""
    repeated_names: list[str] = field(default_factory=list)
    """The names of files that are live several times in a version."""
    name_hashes: UInt64Array = field(default_factory=lambda: np.zeros(0, np.uint64))
    """The hashes of the distinct names of live files."""
    failures: dict[int, tuple[bool, str]] = field(default_factory=dict)
    formats: dict[int, str] = field(default_factory=dict)
    """The file formats of manifests, in the first part."""
    contradictions: dict[int, str] = field(default_factory=dict)
    """How lists contradict the entries of manifests, in the first part."""

    def encode(self) -> bytes:
        """Serialize the report, which a process of the same job reads."""
        data: bytes = cloudpickle.dumps(self)
        return data

    @classmethod
    def decode(cls, data: bytes) -> "PartReport":
        """Return a serialized report."""
        report: PartReport = cloudpickle.loads(data)
        return report


def find_unreadable_manifest(
    version: CheckedVersion, failures: Mapping[int, tuple[bool, str]]
) -> str | None:
    """Return the error of the first manifest of a version that cannot be read, or None.

    The changelog of a version may have expired.
    """
    if not failures:
        return None
    for number in (*version.base.tolist(), *version.delta.tolist()):
        if number in failures:
            return failures[number][1]
    for number in version.changelog.tolist():
        if number in failures:
            is_missing, text = failures[number]
            return None if is_missing and not version.keeps_changelog else text
    return None
