"""What tasks of a row-level write hand back: files they wrote, and which rows of the table they changed.

A row of the table has an address, one number: that of its file in the plan, and its position in the
file.
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

ADDRESS_COLUMN = "__paimon_row"  # the column of addresses
KIND_COLUMN = "__paimon_kind"  # and the one of row kinds: +I, +U, -D
OLD_VALUE_PREFIX = "__paimon_old_"  # before the name of a column: what it held
_POSITION_BITS = 40


def first_row_address(number: int) -> int:
    """Return the address of the first row of a file."""
    return number << _POSITION_BITS


@dataclass(frozen=True, slots=True)
class RowLevelTaskResult:
    """What a task did: what it wrote, and (by file number) the rows that it deleted or wrote anew."""

    message: CommitMessage = field(default_factory=CommitMessage)
    rows: Mapping[int, DeletionVector] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

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
        """Undo :meth:`encode`."""
        parts = json.loads(data)
        rows = {
            int(number): decode_deletion_vector_payload(b64decode(vector), "a task's result")
            for number, vector in parts["rows"].items()
        }
        return cls(CommitMessage.decode(b64decode(parts["message"])), rows, parts["counts"])


def group_rows_by_file(addresses: Iterable[RowAddresses]) -> dict[int, DeletionVector]:
    """Return rows by the number of their file; an address that comes twice is an error."""
    found = np.concatenate([np.empty(0, np.int64), *addresses])
    numbers = found >> _POSITION_BITS
    rows = {
        int(number): DeletionVector.of(found[numbers == number] & ((1 << _POSITION_BITS) - 1))
        for number in np.unique(numbers)
    }
    if sum(vector.cardinality for vector in rows.values()) < len(found):
        raise build_multiple_matches_error()
    return rows


def build_multiple_matches_error() -> InputError:
    """Return the error of a row that is to be changed in two ways."""
    return InputError(
        "several rows of the source match one row of the table, so it is not clear which of them it should become; "
        "make the source unique over the columns that it is matched by. Nothing was changed."
    )


def collect_changed_rows(
    files: Sequence[BucketFile], changes: Iterable[RowLevelTaskResult]
) -> dict[PartitionBucket, dict[str, DeletionVector]]:
    """Return all changed rows by bucket and file; a row that two tasks changed is an error."""
    found: dict[int, DeletionVector] = {}
    for change in changes:
        for number, rows in change.rows.items():
            known = found.get(number)
            found[number] = rows if known is None else known | rows
            if (
                known is not None
                and found[number].cardinality < known.cardinality + rows.cardinality
            ):
                raise build_multiple_matches_error()
    marked: dict[PartitionBucket, dict[str, DeletionVector]] = {}
    for number, rows in found.items():
        at = files[number]
        marked.setdefault(at.partition_bucket, {})[at.file.file_name] = rows
    return marked
