"""Reads buckets: one class for each kind of table, which ``open_bucket`` selects.

See docs/format/scan.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.file_index_reader import TopRowsOrLimit
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.types.data_types import Field
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.storage.recent_inputs import iterate_ahead
from paimon_orch.table.scan.bucket_split import BucketSplit, find_selected_rows


class BucketReader(ABC):
    """Reads the visible rows of one bucket as record batches of ``fields``.

    To save work, the reader may leave out rows that do not match ``predicate``, or, without a
    predicate, rows that are not among the ``first`` rows. The caller must still filter and limit
    the result. If it ``may_stop`` before the last row, files are not opened ahead.
    """

    def __init__(
        self,
        reader: FileReader,
        split: BucketSplit,
        fields: Sequence[Field],
        predicate: Predicate | None = None,
        first: TopRowsOrLimit | None = None,
        *,
        may_stop: bool = False,
    ) -> None:
        self._reader, self._split, self._fields = reader, split, list(fields)
        self._predicate, self._first, self._may_stop = predicate, first, may_stop
        self._vectors = read_deletion_vectors(
            reader.io, reader.paths, reader.schema, split.vectors, inputs=reader.inputs
        )

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the live rows."""

    @abstractmethod
    def read_audit_log(self) -> Iterator[pa.RecordBatch]:
        """Yield rows and the last changes of deleted keys; the first column is ``rowkind``."""

    def read_changes(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files without merging them; the first column is ``rowkind``.

        Keeps the order of the manifest: -U may be the last row of a file, and its +U the first row
        of the next file.
        """
        for file in iterate_ahead(self._split.files, self._open_ahead):
            yield from self._read_changes_of_file(file)

    @abstractmethod
    def _read_changes_of_file(self, file: DataFileMeta) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file; the first column is ``rowkind``."""

    def _read(
        self,
        file: DataFileMeta,
        fields: Sequence[Field],
        predicate: Predicate | None,
        first: TopRowsOrLimit | None = None,
    ) -> Iterator[pa.RecordBatch]:
        vector = self._vectors.get(file.file_name)
        selected = replace(self._to_bucket_file(file), rows=find_selected_rows(file, self._split))
        return self._reader.read(selected, fields, vector, predicate=predicate, first=first)

    def _open_ahead(self, file: DataFileMeta) -> bool:
        """Start to open a file that will be read; return False if no other should be started."""
        return not self._may_stop and self._start_opening(file)

    def _start_opening(self, file: DataFileMeta) -> bool:
        if self._predicate is not None and file.extra_files:
            return True  # its index may exclude it
        return self._reader.open_ahead(self._to_bucket_file(file))

    def _to_bucket_file(self, file: DataFileMeta) -> BucketFile:
        return BucketFile(self._split.partition, self._split.bucket, file)
