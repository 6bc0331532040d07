"""Deletes rows of append tables with deletion vectors, or by rewriting files.

See docs/format/deletion-vectors-in-compaction.md#append-tables and
docs/format/append-table-compaction.md#row-level-operations-without-deletion-vectors.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import EMPTY_DELETION_VECTOR, DeletionVector
from paimon_orch.format.manifest.manifest_entry import (
    FileKind,
    FileSource,
    ManifestEntry,
    build_entries,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.compact.append_deletion_vectors import DeletionVectorRewrite
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.steps.common.copy_rows import copy_rows
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.write.commit_message import CommitMessage

DeletedRowsByFile = Mapping[str, DeletionVector]


@dataclass(frozen=True, slots=True)
class DeleteRowsUnit:
    """The rows to delete from some files of a bucket."""

    split: BucketSplit
    """The files of the bucket. Without deletion vectors, this is only the file to rewrite."""
    deleted_by_file: DeletedRowsByFile
    """The rows to delete, by file name."""


def plan_delete_units(
    schema: TableSchema,
    splits: Iterable[BucketSplit],
    deleted_rows: Mapping[PartitionBucket, DeletedRowsByFile],
) -> list[DeleteRowsUnit]:
    """Return one unit per bucket; in tables without deletion vectors, one unit per file."""
    units = []
    for split in splits:
        in_bucket = deleted_rows.get(split.partition_bucket)
        if not in_bucket:
            continue
        if schema.typed_options.has_deletion_vectors or split.vectors:
            units.append(DeleteRowsUnit(split, in_bucket))
        else:
            files = {file.file_name: file for file in split.files}
            units += [
                DeleteRowsUnit(replace(split, files=(files[name],)), {name: vector})
                for name, vector in in_bucket.items()
            ]
    return units


def run_delete_unit(reader: FileReader, unit: DeleteRowsUnit) -> bytes:
    """Delete the rows and return an encoded :class:`CommitMessage`; may run repeatedly."""
    split = unit.split
    live = {file.file_name for file in split.files}
    index = DeletionVectorRewrite(
        reader=reader,
        partition=split.partition,
        bucket=split.bucket,
        index_files=split.vectors,
        live=live,
    )
    with index, ExitStack() as written:
        if reader.schema.typed_options.has_deletion_vectors:
            return CommitMessage(index=tuple(index.run(add=unit.deleted_by_file))).encode()
        entries = tuple(_rewrite_files(reader, unit, written))
        index_entries = tuple(index.run(drop=set(unit.deleted_by_file)))
        return CommitMessage(entries=entries, index=index_entries).encode()


def _rewrite_files(
    reader: FileReader, unit: DeleteRowsUnit, written: ExitStack
) -> Iterator[ManifestEntry]:
    """Rewrite each file with deleted rows; new files keep the position in the row order."""
    split = unit.split
    vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, split.vectors)
    # With row tracking, rewritten rows keep their ids only in files with the source COMPACT.
    source = FileSource.COMPACT if row_tracking_fields(reader.schema) else FileSource.APPEND
    bucket_id, total_buckets = split.partition_bucket, split.total_buckets
    for file in split.files:
        name = file.file_name
        if name in unit.deleted_by_file:
            deletions = {
                name: unit.deleted_by_file[name] | vectors.get(name, EMPTY_DELETION_VECTOR)
            }
            new_files = copy_rows(
                reader, bucket_id, (file,), deletions=deletions, source=source, written=written
            )
            yield from build_entries(FileKind.DELETE, bucket_id, total_buckets, [file])
            yield from build_entries(FileKind.ADD, bucket_id, total_buckets, new_files)
