"""Reports the files and rows that a scan skips thanks to indexes.

See docs/format/file-index-evaluation.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from pyroaring import BitMap

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.file_format import open_reader
from paimon_orch.files.file_index_reader import FileIndexEvaluator, TopRowsOrLimit
from paimon_orch.files.row_selection import count_unread_bytes
from paimon_orch.format.arrays import Positions
from paimon_orch.format.display import Displayable
from paimon_orch.format.file_index.evaluation import IndexEvaluation, to_positions
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.predicate import Predicate, restrict_to_columns
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.merge.tree.levels import plan_merge_sections
from paimon_orch.table.scan.bucket_split import (
    BucketSplit,
    find_selected_rows,
    is_file_raw_convertible,
    is_raw_convertible,
)


@dataclass(slots=True)
class IndexUsage:
    """The effect of one index of one column, or of several indexes that were combined."""

    files_asked: int = 0
    files_skipped: int = 0
    rows_selected: int = 0


@dataclass(slots=True, kw_only=True)
class ScanReport(Displayable):
    """The amount of data that a scan reads, and that indexes and a limit let it skip.

    ``files``, ``rows`` and ``bytes`` are totals of the files that remain after statistics pruning;
    ``rows`` includes deleted rows. ``rows_selected`` counts the rows that remain after indexes, and
    after a limit without a filter. ``bytes_not_read`` counts files, row groups and pages of Parquet
    files, and stripes of ORC files that have no selected row. ``indexes`` has keys of index and
    column, such as ``bitmap(status)``.
    """

    files: int = 0
    files_skipped_in_planning: int = 0
    files_skipped_by_limit: int = 0
    files_skipped_in_reading: int = 0
    rows: int = 0
    rows_selected: int = 0
    bytes: int = 0
    bytes_not_read: int = 0
    indexes: dict[str, IndexUsage] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return asdict(self)


def explain_scan(
    reader: FileReader,
    splits: Iterable[BucketSplit],
    planned: Iterable[BucketSplit],
    predicate: Predicate | None,
    first: TopRowsOrLimit | None = None,
    column_indexes: Iterable[str] = (),
) -> ScanReport:
    """Report the effect of indexes: ``splits`` were planned without and ``planned`` with indexes.

    Without a predicate, only the ``first`` rows are needed, and ``planned`` may contain only the
    files with these rows. ``column_indexes`` are the indexes of many files that were used.
    """
    report = ScanReport()
    planned_splits = {file.file_name: split for split in planned for file in split.files}
    for split in splits:
        for file, applicable in _pair_files_with_predicates(split.files, reader.schema, predicate):
            bucket_file = BucketFile(split.partition, split.bucket, file)
            report.files += 1
            report.rows += file.row_count
            report.bytes += file.file_size
            if file.file_name in planned_splits:
                _add_read_file(
                    report,
                    reader,
                    bucket_file=bucket_file,
                    predicate=applicable,
                    split=planned_splits[file.file_name],
                    first=first,
                )
            elif first is not None:
                report.files_skipped_by_limit += 1
                report.bytes_not_read += file.file_size
            else:
                report.files_skipped_in_planning += 1
                report.bytes_not_read += file.file_size
                if predicate is not None:
                    result = _evaluate_indexes(reader, bucket_file, predicate, embedded=True)
                    _count_index_usage(report.indexes, result, skipped=True)
    for name in column_indexes:
        report.indexes[name] = IndexUsage(
            files_asked=report.files,
            files_skipped=report.files_skipped_in_planning,
            rows_selected=report.rows_selected,
        )
    return report


def _pair_files_with_predicates(
    files: Sequence[DataFileMeta], schema: TableSchema, predicate: Predicate | None
) -> Iterator[tuple[DataFileMeta, Predicate | None]]:
    """Yield each file with the part of the predicate that can be tested before the merge."""
    if is_raw_convertible(files, schema):
        yield from ((file, predicate) for file in files)
        return
    on_keys = (
        None if predicate is None else restrict_to_columns(predicate, schema.identifying_names)
    )
    for section in plan_merge_sections(files, schema):
        applicable = predicate if len(section) == 1 else on_keys
        yield from ((file, applicable) for run in section for file in run)


def _evaluate_indexes(
    reader: FileReader, bucket_file: BucketFile, predicate: Predicate, *, embedded: bool = False
) -> IndexEvaluation:
    indexed = FileIndexEvaluator(reader.schema, reader.schemas.__getitem__, predicate)
    return indexed.evaluate(
        bucket_file.file, reader.path(bucket_file), None if embedded else reader.io
    )


def _add_read_file(
    report: ScanReport,
    reader: FileReader,
    bucket_file: BucketFile,
    predicate: Predicate | None,
    split: BucketSplit,
    first: TopRowsOrLimit | None,
) -> None:
    result = IndexEvaluation(None)
    if predicate is not None:
        result = _evaluate_indexes(reader, bucket_file, predicate)
    elif first is not None and is_file_raw_convertible(
        split.files, bucket_file.file, reader.schema
    ):
        vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, split.vectors)
        vector = vectors.get(bucket_file.file.file_name)
        deleted_rows = None if vector is None else vector.bitmaps.get(0)
        indexed = FileIndexEvaluator(reader.schema, reader.schemas.__getitem__, None)
        result = indexed.first(
            first,
            bucket_file.file,
            path=reader.path(bucket_file),
            io=reader.io,
            deleted=deleted_rows,
        )
    rows = result.rows
    selected = find_selected_rows(bucket_file.file, split)
    if selected is not None:
        rows = BitMap(selected) if rows is None else rows & BitMap(selected)
    if rows is None:
        report.rows_selected += bucket_file.file.row_count
        return
    report.rows_selected += len(rows)
    _count_index_usage(report.indexes, result, skipped=not rows)
    if rows:
        report.bytes_not_read += _count_unread_bytes(reader, bucket_file, to_positions(rows))
    else:
        report.files_skipped_in_reading += 1
        report.bytes_not_read += bucket_file.file.file_size


def _count_index_usage(
    indexes: dict[str, IndexUsage], result: IndexEvaluation, *, skipped: bool
) -> None:
    for name in result.used:
        use = indexes.setdefault(name, IndexUsage())
        use.files_asked += 1
        use.files_skipped += skipped
        use.rows_selected += len(result.rows or ())


def _count_unread_bytes(reader: FileReader, bucket_file: BucketFile, rows: Positions) -> int:
    path = reader.path(bucket_file)
    with wrap_decode_errors(path), reader.open_input(path, bucket_file.file) as source:
        opened = open_reader(
            source, path, reader.schema.fields, remote=reader.io.capabilities.has_slow_requests
        )
        return count_unread_bytes(opened, path, rows)
