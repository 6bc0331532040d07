"""Assigns row ids and sequence numbers to the new rows of a commit.

See docs/format/row-tracking.md and docs/format/commit.md#conflicts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from paimon_orch.errors import CommitConflictError, UnsupportedError
from paimon_orch.files.row_tracking import ROW_ID, row_tracking_fields
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    FileSource,
    ManifestEntry,
)
from paimon_orch.format.paths import is_blob_file
from paimon_orch.format.row_range_set import MAX_ROW_ID
from paimon_orch.format.schema import TableSchema


def assign_row_ids(
    schema: TableSchema, entries: Iterable[ManifestEntry], snapshot_id: int, next_row_id: int
) -> tuple[list[ManifestEntry], int]:
    """Assign ids to the rows of new files; return the entries and the next free id.

    Appended rows get ids, and the snapshot id as their sequence number. Rewritten files already
    have row ids, so only the sequence numbers of changed rows are assigned. Entries of tables
    without row tracking are not changed.
    """
    if not row_tracking_fields(schema):
        return list(entries), next_row_id
    numbered, first = [], next_row_id
    blob_row_ids = BlobRowIds(next_row_id)
    for entry in entries:
        file = entry.file
        if entry.kind is FileKind.ADD and _needs_row_ids(entry) and is_blob_file(file.file_name):
            file = replace(
                file,
                first_row_id=blob_row_ids.assign(file, next_row_id),
                min_sequence_number=snapshot_id,
                max_sequence_number=snapshot_id,
            )
        elif entry.kind is FileKind.ADD and _needs_row_ids(entry):
            file = replace(
                file,
                first_row_id=next_row_id,
                min_sequence_number=snapshot_id,
                max_sequence_number=snapshot_id,
            )
            blob_row_ids = BlobRowIds(next_row_id)
            next_row_id += file.row_count
        elif entry.kind is FileKind.ADD and not file.min_sequence_number:
            file = replace(file, min_sequence_number=snapshot_id, max_sequence_number=snapshot_id)
        elif entry.kind is FileKind.ADD and not file.max_sequence_number:
            file = replace(file, max_sequence_number=snapshot_id)
        numbered.append(replace(entry, file=file))
    if next_row_id > max(first, MAX_ROW_ID):
        raise UnsupportedError(
            f"the rows would have ids up to {next_row_id - 1}, which is above {MAX_ROW_ID - 1}. Nothing "
            "was changed; append the rows of the table to a new one"
        )
    return numbered, next_row_id


@dataclass(frozen=True, slots=True)
class BlobRowIds:
    """Assigns the ids of a data file to the BLOB files that follow it."""

    first_row_id: int
    """The id of the first row of the data file."""
    next_row_ids: dict[tuple[str, ...], int] = field(default_factory=dict)
    """The first id without a value by column."""

    def assign(self, file: DataFileMeta, end: int) -> int:
        """Return the first id of a BLOB file; ``end`` is the id after those of the data file."""
        columns = file.write_cols or ()
        first = self.next_row_ids.get(columns, self.first_row_id)
        self.next_row_ids[columns] = first + file.row_count
        if first + file.row_count > end:
            raise CommitConflictError(
                f"BLOB file {file.file_name} has more rows than the data file before it"
            )
        return first


def _needs_row_ids(entry: ManifestEntry) -> bool:
    file = entry.file
    return (
        file.first_row_id is None
        and file.file_source != FileSource.COMPACT
        and ROW_ID.name not in (file.write_cols or ())
    )


def assign_snapshot_sequence(
    schema: TableSchema, entries: Sequence[ManifestEntry], snapshot_id: int
) -> list[ManifestEntry]:
    """Set the sequence numbers of appended files to the id, for ``sequence.snapshot-ordering``."""
    if not schema.typed_options.has_snapshot_ordering:
        return list(entries)
    moved = {entry.file.file_name for entry in entries if entry.kind is FileKind.DELETE}
    return [
        replace(
            entry,
            file=replace(
                entry.file, min_sequence_number=snapshot_id, max_sequence_number=snapshot_id
            ),
        )
        if entry.kind is FileKind.ADD
        and entry.file.file_source != FileSource.COMPACT
        and entry.file.file_name not in moved
        else entry
        for entry in entries
    ]


def refuse_unassigned_row_ids(last_ids: Iterable[tuple[str, int | None]], next_row_id: int) -> None:
    """Raise :class:`UnsupportedError` if files have row ids that their snapshot has not assigned.

    Other programs have written such snapshots. New rows would get the ids of existing ones, so no
    attempt can commit.

    :param last_ids: files or manifests of the table, with the last row id of each
    :param next_row_id: the next free row id
    """
    for name, last in last_ids:
        if last is not None and last >= next_row_id:
            raise UnsupportedError(
                f"{name} has row ids up to {last}, but the newest snapshot has assigned only ids "
                f"below {next_row_id}, so new rows would get the ids of others. Nothing was "
                "changed; scan the table, and append its rows to a new one"
            )


def check_row_ids(
    schema: TableSchema,
    base: Iterable[ManifestEntry],
    live: Iterable[ManifestEntry],
    next_row_id: int,
) -> None:
    """Raise :class:`CommitConflictError` if two live files share a row id, or an id is too high.

    ``base`` are the entries before the commit. If they share a row id, raises
    :class:`UnsupportedError`, because no attempt can commit.
    """
    if not row_tracking_fields(schema):
        return
    claims = _sort_claims(live)
    if (shared := _find_shared_ids(claims)) is not None:
        if (old := _find_shared_ids(_sort_claims(base))) is not None:
            raise build_shared_row_ids_error(*old[:2])
        name, other_name, start, end = shared
        raise CommitConflictError(
            f"files {name} and {other_name} both have rows with the ids {start} to {end - 1}. "
            "Nothing was changed; plan and run the step again."
        )
    if claims and claims[-1][1] > next_row_id:
        _, end, name = claims[-1]
        raise CommitConflictError(
            f"file {name} has row ids up to {end - 1}, but the table has assigned only ids below "
            f"{next_row_id}"
        )


def build_shared_row_ids_error(name: str, other_name: str) -> UnsupportedError:
    """Return the error for two files of the table, which other programs gave the same row ids."""
    return UnsupportedError(
        f"files {name} and {other_name} of the table have different rows with the same ids. "
        "Nothing was changed; scan the table, and append its rows to a new one"
    )


def _sort_claims(entries: Iterable[ManifestEntry]) -> list[tuple[int, int, str]]:
    """Return the first id, the end of the ids and the name of each file with row ids."""
    return sorted(
        (file.first_row_id, file.first_row_id + file.row_count, file.file_name)
        for file in (entry.file for entry in entries)
        if file.first_row_id is not None
    )


def _find_shared_ids(claims: Sequence[tuple[int, int, str]]) -> tuple[str, str, int, int] | None:
    """Return the names of two files with the same row ids, and a range that has these."""
    for (_, end, name), (start, _, other_name) in pairwise(claims):
        if start < end:
            return name, other_name, start, end
    return None
