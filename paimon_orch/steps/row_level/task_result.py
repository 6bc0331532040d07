"""Results of the tasks of a row-level change: new files, and the addresses of changed rows.

The address of a row is an integer that combines the number of its file in the plan and its position
in the file.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from paimon_orch.errors import InputError
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.format.arrays import Int64Array
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector, decode_deletion_vector_payload
from paimon_orch.table.write.commit_message import CommitMessage

RowAddresses = Int64Array

ADDRESS_COLUMN = "__paimon_row"  # name of the column of row addresses
KIND_COLUMN = "__paimon_kind"  # name of the column of row kinds: +I, +U, -D
OLD_VALUE_PREFIX = "__paimon_old_"  # name prefix of columns with old values
_POSITION_BITS = 40


def first_row_address(number: int) -> int:
    """Return the address of the first row of a file."""
    return number << _POSITION_BITS


def split_addresses(addresses: RowAddresses) -> tuple[Int64Array, Int64Array]:
    """Return the file numbers and the positions of rows."""
    return addresses >> _POSITION_BITS, addresses & ((1 << _POSITION_BITS) - 1)


@dataclass(frozen=True, slots=True)
class RowLevelTaskResult:
    """The result of a task."""

    message: CommitMessage = field(default_factory=CommitMessage)
    """The files that the task wrote."""
    rows: Mapping[int, DeletionVector] = field(default_factory=dict)
    """The rows that the task deleted or replaced, by file number."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """The numbers of deleted, updated and inserted rows."""

    def encode(self) -> bytes:
        """Return the changes as JSON."""
        rows = {
            number: b64encode(vector.encode_payload(bitmap64=True)).decode()
            for number, vector in self.rows.items()
        }
        message = b64encode(self.message.encode()).decode()
        return json.dumps({"message": message, "rows": rows, "counts": dict(self.counts)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "RowLevelTaskResult":
        """Decode the result of :meth:`encode`."""
        parts = json.loads(data)
        rows = {
            int(number): decode_deletion_vector_payload(b64decode(vector), "a task's result")
            for number, vector in parts["rows"].items()
        }
        return cls(CommitMessage.decode(b64decode(parts["message"])), rows, parts["counts"])


def group_rows_by_file(addresses: Iterable[RowAddresses]) -> dict[int, DeletionVector]:
    """Group rows by file number; raises :class:`InputError` for a duplicate address."""
    all_addresses = np.concatenate([np.empty(0, np.int64), *addresses])
    numbers, positions = split_addresses(all_addresses)
    rows = {
        int(number): DeletionVector.of(positions[numbers == number])
        for number in np.unique(numbers)
    }
    if sum(vector.cardinality for vector in rows.values()) < len(all_addresses):
        raise build_multiple_matches_error()
    return rows


def build_multiple_matches_error() -> InputError:
    """Return the error for a row that several changes match."""
    return InputError(
        "several rows of the source match the same row of the table, so its new values are "
        "ambiguous; make the source unique in the matched columns. Nothing was changed."
    )


def collect_changed_rows(
    files: Sequence[BucketFile], changes: Iterable[RowLevelTaskResult]
) -> dict[PartitionBucket, dict[str, DeletionVector]]:
    """Return all changed rows by bucket and file.

    Raises :class:`InputError` if two tasks changed the same row.
    """
    rows_by_number: dict[int, DeletionVector] = {}
    for change in changes:
        for number, rows in change.rows.items():
            previous = rows_by_number.get(number)
            merged = rows if previous is None else previous | rows
            total = rows.cardinality + (0 if previous is None else previous.cardinality)
            if merged.cardinality < total:
                raise build_multiple_matches_error()
            rows_by_number[number] = merged
    rows_by_bucket: dict[PartitionBucket, dict[str, DeletionVector]] = {}
    for number, rows in rows_by_number.items():
        file = files[number]
        rows_by_bucket.setdefault(file.partition_bucket, {})[file.file.file_name] = rows
    return rows_by_bucket
