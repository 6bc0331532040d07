"""What file indexes save a scan: files that are not opened, and rows that are not looked at (file-index section 9)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from paimon_orch.files.file_indexes import IndexedFiles
from paimon_orch.files.formats import open_reader
from paimon_orch.files.parquet import ParquetFileReader
from paimon_orch.files.reader import BucketFile, FileReader
from paimon_orch.format.file_index.evaluation import Evaluation, positions
from paimon_orch.format.manifest import DataFileMeta
from paimon_orch.format.predicate import Predicate, restrict
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.levels import sections
from paimon_orch.table.plan import BucketSplit
from paimon_orch.table.pruning import reads_raw


@dataclass(slots=True)
class IndexUse:
    """What one index of one column did, alone or together with others of the same file."""

    files_asked: int = 0
    files_skipped: int = 0
    rows_selected: int = 0


@dataclass(slots=True)
class ScanReport:
    """What a scan reads, and what file indexes save of it.

    ``files``, ``rows`` and ``bytes`` are what statistics leave, ``rows`` with those that vectors hide. ``rows_selected``
    are the rows that indexes leave of them. ``bytes_not_read`` counts whole files, and row groups of Parquet files
    without a selected row. ``indexes`` is by index and column, as in ``bitmap(status)``.
    """

    files: int = 0
    files_skipped_in_planning: int = 0
    files_skipped_in_reading: int = 0
    rows: int = 0
    rows_selected: int = 0
    bytes: int = 0
    bytes_not_read: int = 0
    indexes: dict[str, IndexUse] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return the report for people and machines."""
        return asdict(self)


def explain(
    reader: FileReader,
    splits: Iterable[BucketSplit],
    planned: Iterable[BucketSplit],
    predicate: Predicate | None,
) -> ScanReport:
    """Say what indexes do for a scan: ``splits`` are planned without them, ``planned`` with those of the manifests."""
    report = ScanReport()
    kept = {file.file_name for split in planned for file in split.files}
    for split in splits:
        for file, judged in _judged(split.files, reader.schema, predicate):
            at = BucketFile(split.partition, split.bucket, file)
            report.files += 1
            report.rows += file.row_count
            report.bytes += file.file_size
            if file.file_name in kept:
                _read_one(report, reader, at, judged)
            else:
                report.files_skipped_in_planning += 1
                report.bytes_not_read += file.file_size
                if predicate is not None:
                    found = _evaluated(reader, at, predicate, embedded=True)
                    _count(report.indexes, found, skipped=True)
    return report


def _judged(
    files: Sequence[DataFileMeta], schema: TableSchema, predicate: Predicate | None
) -> Iterator[tuple[DataFileMeta, Predicate | None]]:
    """Yield files with the part of the predicate that their rows are judged by before they are merged."""
    if not schema.primary_keys or reads_raw(files, schema):
        yield from ((file, predicate) for file in files)
        return
    keys = {*schema.primary_keys, *schema.partition_keys}
    on_keys = None if predicate is None else restrict(predicate, keys)
    for section in sections(files, schema.key_fields):
        judged = predicate if len(section) == 1 else on_keys
        yield from ((file, judged) for run in section for file in run)


def _evaluated(
    reader: FileReader, at: BucketFile, predicate: Predicate, *, embedded: bool = False
) -> Evaluation:
    indexed = IndexedFiles(reader.schema, reader.schemas.__getitem__, predicate)
    return indexed.evaluate(at.file, reader.path(at), None if embedded else reader.io)


def _read_one(
    report: ScanReport, reader: FileReader, at: BucketFile, predicate: Predicate | None
) -> None:
    found = Evaluation(None) if predicate is None else _evaluated(reader, at, predicate)
    rows = found.rows
    if rows is None:
        report.rows_selected += at.file.row_count
        return
    report.rows_selected += len(rows)
    _count(report.indexes, found, skipped=not rows)
    if rows:
        report.bytes_not_read += _unread_bytes(reader, at, positions(rows))
    else:
        report.files_skipped_in_reading += 1
        report.bytes_not_read += at.file.file_size


def _count(indexes: dict[str, IndexUse], found: Evaluation, *, skipped: bool) -> None:
    for name in found.used:
        use = indexes.setdefault(name, IndexUse())
        use.files_asked += 1
        use.files_skipped += skipped
        use.rows_selected += len(found.rows or ())


def _unread_bytes(
    reader: FileReader, at: BucketFile, chosen: "np.ndarray[tuple[int], np.dtype[np.int64]]"
) -> int:
    path = reader.path(at)
    with reader.io.open_input(path) as source:
        opened = open_reader(source, path, reader.schema.fields, remote=reader.io.remote)
        if not isinstance(opened, ParquetFileReader):
            return 0
        unread, begin = 0, 0
        for group in range(opened.num_row_groups):
            end = begin + opened.row_group_rows(group)
            low, high = np.searchsorted(chosen, (begin, end))
            unread += opened.row_group_bytes(group) if low == high else 0
            begin = end
        return unread
