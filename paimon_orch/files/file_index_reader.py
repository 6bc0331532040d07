"""Reads the indexes of data files, which are embedded in manifests or in separate files.

A damaged or missing index, or one of an unknown version, is ignored with a warning: the file is
read as if it had no index. With ``file-index.strict`` it is an error.

See docs/format/file-index.md.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from pyroaring import BitMap

from paimon_orch.errors import CorruptFileError, PaimonError, UnsupportedError
from paimon_orch.files.schema_evolution.evolve import find_source_field
from paimon_orch.format.arrays import Mask
from paimon_orch.format.file_index.batch_evaluation import evaluate_batch
from paimon_orch.format.file_index.container import ByteSource, ContainerDecoder, FileIndexes
from paimon_orch.format.file_index.evaluation import (
    IndexEvaluation,
    TopN,
    evaluate_rows,
    select_rows,
)
from paimon_orch.format.file_index.index_keys import BITMAP, RANGE_BITMAP
from paimon_orch.format.file_index.index_query import (
    IndexFilter,
    StoredColumn,
    StoredColumnLookup,
    find_stored_column,
    is_same_type,
)
from paimon_orch.format.manifest.file_fields import FileFields
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import DATA_EVOLUTION_ENABLED, FILE_INDEX_READ_ENABLED
from paimon_orch.format.options.engine_options import FILE_INDEX_STRICT
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field, MapType, TypeRoot
from paimon_orch.format.types.predicate import Predicate, iterate_leaves
from paimon_orch.safe_text import get_logger
from paimon_orch.storage import FileIO

INDEX_SUFFIX = ".index"
_NOT_EVALUATED = IndexEvaluation(None)

TopRowsOrLimit = TopN | int
"""A request for the first rows in an order, or for a number of arbitrary rows."""

logger = get_logger(__name__)


def index_file_name(file: DataFileMeta) -> str | None:
    """Return the name of the separate index file of a data file, or None if it has none."""
    names = [name for name in file.extra_files if name.endswith(INDEX_SUFFIX)]
    if file.embedded_index is not None or not names:
        return None
    if len(names) > 1 or "/" in names[0]:
        raise CorruptFileError(
            file.file_name,
            f"has the index files {', '.join(names)}: one file in the same directory is expected",
        )
    return names[0]


def sibling_path(path: str, name: str) -> str:
    """Return the path of a file in the directory of another file."""
    return f"{path.rsplit('/', 1)[0]}/{name}"


def read_bitmap_version(io: FileIO, path: str, file: DataFileMeta) -> int | None:
    """Return the version of a data file's bitmap indexes, or None if no index is readable."""
    with suppress(CorruptFileError), open_indexes(io, path, file) as indexes:
        for kinds in (indexes or {}).values():
            blob = kinds.get(BITMAP)
            if blob is not None:
                return blob.bytes(0, 1)[0]
    return None


@contextmanager
def open_indexes(
    io: FileIO | None, path: str, file: DataFileMeta, decoder: ContainerDecoder | None = None
) -> Iterator[FileIndexes | None]:
    """Yield the indexes of the data file at ``path``, or None if there are none.

    Without ``io`` only embedded indexes are read. Damage raises :class:`CorruptFileError`, also
    while the indexes are used.
    """
    index_path, decode = path, (decoder or ContainerDecoder()).decode
    try:
        if file.embedded_index is not None:
            yield decode(ByteSource.of(file.embedded_index))
            return
        name = None if io is None else index_file_name(file)
        if io is None or name is None:
            yield None
            return
        index_path = sibling_path(path, name)
        with io.open_input(index_path) as source:

            def read(position: int, size: int) -> bytes:
                source.seek(position)
                return source.read(size)

            yield decode(ByteSource(read, source.seek(0, os.SEEK_END)))
    except Exception as error:
        if not _is_index_damage(error):
            raise
        raise _corrupt_index_error(error, index_path) from error


def _is_index_damage(error: Exception) -> bool:
    """Return whether an error means that an index cannot be used.

    Other errors are raised unchanged.
    """
    if isinstance(error, UnsupportedError | FileNotFoundError):
        return True
    return not isinstance(error, PaimonError | OSError)


def _corrupt_index_error(error: Exception, path: str) -> CorruptFileError:
    if isinstance(error, UnsupportedError | FileNotFoundError):
        return CorruptFileError(path, f"the file index cannot be used: {error}")
    return CorruptFileError(path, f"the file index is damaged: {type(error).__name__}: {error}")


def _sorts_as(column: StoredColumn, field: Field, rows: TopN) -> bool:
    """Return whether an index of a stored column has the order of a column of the read schema."""
    if column.name != field.name or not is_same_type(column.type, field.type):
        return False
    # -0.0 and 0.0 are equal in a sort, so the next sort key decides, but the index distinguishes
    # them
    return rows.sort_keys == 1 or column.type.name not in (TypeRoot.FLOAT, TypeRoot.DOUBLE)


@dataclass(frozen=True)
class FileIndexEvaluator:
    """Evaluates a bound predicate, or a selection of first rows, on the indexes of data files."""

    schema: TableSchema
    """The read schema."""

    schema_of: Callable[[int], TableSchema]
    """Returns a schema that files were written with, by id."""

    predicate: Predicate | None
    _columns: dict[tuple[int, bool], Mapping[str, StoredColumn]] = field(
        default_factory=dict, repr=False
    )

    def evaluate(self, file: DataFileMeta, path: str, io: FileIO | None = None) -> IndexEvaluation:
        """Return the rows that may match; without ``io`` only an embedded index is used."""
        if not self._is_enabled or file.write_cols is not None:
            return _NOT_EVALUATED
        column_of = self._stored_column_lookup(file.schema_id, ".orc" in file.file_name)
        if file.embedded_index is not None:
            return self._evaluate_embedded(column_of, file.row_count, file.embedded_index, path)
        if io is None or not file.extra_files:
            return _NOT_EVALUATED
        try:
            with open_indexes(io, path, file, self._decoder) as indexes:
                if indexes is None:
                    return _NOT_EVALUATED
                return evaluate_rows(self._filter, indexes, column_of, file.row_count)
        except CorruptFileError as error:
            if self._is_strict:
                raise
            _warn_damaged_index(str(error))
            return _NOT_EVALUATED

    def first(
        self,
        rows: TopRowsOrLimit,
        file: DataFileMeta,
        path: str,
        io: FileIO,
        deleted: BitMap | None,
    ) -> IndexEvaluation:
        """Return rows of a file, among them its first rows.

        ``deleted`` are the rows of its deletion vector.
        """
        if isinstance(rows, int):
            return IndexEvaluation(
                select_rows(
                    rows, None, column_of=lambda _: None, row_count=file.row_count, deleted=deleted
                )
            )
        if not self._is_enabled or file.write_cols is not None:
            return _NOT_EVALUATED
        stored_column_of = self._stored_column_lookup(file.schema_id, ".orc" in file.file_name)
        field = self.schema.field(rows.column)

        def column_of(name: str) -> StoredColumn | None:
            column = stored_column_of(name)
            return column if column is not None and _sorts_as(column, field, rows) else None

        try:
            with open_indexes(io, path, file, self._decoder) as indexes:
                selected = select_rows(
                    rows, indexes, column_of=column_of, row_count=file.row_count, deleted=deleted
                )
        except CorruptFileError as error:
            if self._is_strict:
                raise
            _warn_damaged_index(str(error))
            return _NOT_EVALUATED
        return (
            _NOT_EVALUATED
            if selected is None
            else IndexEvaluation(selected, (f"{RANGE_BITMAP}({field.name})",))
        )

    def find_excluded_files(self, files: FileFields) -> Mask:
        """Return which files have no row that may match, by their embedded indexes."""
        embedded, written = files.get("_EMBEDDED_FILE_INDEX"), files.get("_WRITE_COLS")
        excluded = np.zeros(len(embedded), bool)
        if not self._is_enabled:
            return excluded
        names, ids, rows = files.names, files.get("_SCHEMA_ID"), files.get("_ROW_COUNT")
        groups: dict[tuple[int, bool], list[int]] = {}
        for row, container in enumerate(embedded):
            if container is not None and written[row] is None:
                groups.setdefault((ids[row], ".orc" in names[row]), []).append(row)
        for key, rows_of_group in groups.items():
            containers, column_of = (
                [embedded[row] for row in rows_of_group],
                self._stored_column_lookup(*key),
            )
            counts = np.array([rows[row] for row in rows_of_group], np.int64)
            answer = evaluate_batch(self._filter, containers, column_of, counts)
            excluded[rows_of_group] = answer.excluded
            for index in np.flatnonzero(answer.undecided).tolist():
                row = rows_of_group[index]
                remaining = self._evaluate_embedded(
                    column_of, rows[row], containers[index], names[row]
                ).rows
                excluded[row] = remaining is not None and not remaining
        return excluded

    def _evaluate_embedded(
        self, column_of: StoredColumnLookup, row_count: int, container: bytes, path: str
    ) -> IndexEvaluation:
        """Evaluate an embedded index; a damaged one is ignored with a warning."""
        try:
            return self._decode_and_evaluate(column_of, row_count, container, path)
        except CorruptFileError as error:
            if self._is_strict:
                raise
            _warn_damaged_index(str(error))
            return _NOT_EVALUATED

    def _decode_and_evaluate(
        self, column_of: StoredColumnLookup, row_count: int, container: bytes, path: str
    ) -> IndexEvaluation:
        try:
            indexes = self._decoder.decode(ByteSource.of(container))
            return evaluate_rows(self._filter, indexes, column_of, row_count)
        except Exception as error:
            if not _is_index_damage(error):
                raise
            raise _corrupt_index_error(error, path) from error

    @cached_property
    def _is_enabled(self) -> bool:
        options = self.schema.typed_options
        evolving = options.get(DATA_EVOLUTION_ENABLED)
        return options.get(FILE_INDEX_READ_ENABLED) and not evolving

    @cached_property
    def _is_strict(self) -> bool:
        return self.schema.typed_options.get(FILE_INDEX_STRICT)

    @cached_property
    def _decoder(self) -> ContainerDecoder:
        return ContainerDecoder()

    @cached_property
    def _filter(self) -> IndexFilter:
        assert self.predicate is not None
        return IndexFilter(self.predicate)

    def _stored_column_lookup(self, schema_id: int, is_orc: bool) -> StoredColumnLookup:  # noqa: FBT001
        key = schema_id, is_orc
        if key not in self._columns:
            self._columns[key] = self._find_stored_columns(*key)
        return self._columns[key].get

    def _find_stored_columns(self, schema_id: int, is_orc: bool) -> Mapping[str, StoredColumn]:  # noqa: FBT001
        columns, schema = {}, self.schema
        fields = self.schema_of(schema_id).fields
        for column in schema.fields:
            stored_column = find_stored_column(column, find_source_field(column, fields))
            if stored_column is None or column.name in schema.keys_with_null_values:
                continue  # the index has the values of the value column
            if column.name in schema.partition_keys:
                continue  # the value of the partition is used, not the value in the file
            if stored_column.type.name == TypeRoot.CHAR and is_orc:
                continue  # the values in the file and in the index can differ in their padding
            columns[column.name] = stored_column
        if self.predicate is not None:
            columns |= _find_stored_map_keys(self.predicate, schema, fields)
        return columns


def _find_stored_map_keys(
    predicate: Predicate, schema: TableSchema, fields: Sequence[Field]
) -> dict[str, StoredColumn]:
    """Return the stored columns of the map keys that a predicate tests."""
    columns_by_key = {}
    for leaf in iterate_leaves(predicate):
        if leaf.key is None or leaf.name in schema.names:
            continue
        column = schema.field(leaf.column)
        source = find_source_field(column, fields)
        if (
            source is None
            or not isinstance(column.type, MapType)
            or not isinstance(source.type, MapType)
        ):
            continue
        value = find_stored_column(
            replace(column, type=column.type.value), replace(source, type=source.type.value)
        )
        if value is not None and value.type.name != TypeRoot.CHAR:
            columns_by_key[leaf.name] = StoredColumn(f"{source.name}[{leaf.key}]", value.type)
    return columns_by_key


@lru_cache(maxsize=4096)
def _warn_damaged_index(reason: str) -> None:
    """Log a warning about a damaged index, once per file."""
    logger.warning("%s; the data file is read as if it had no index", reason)
