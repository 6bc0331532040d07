"""What a filter lets a scan leave out: manifests, partitions, buckets and files (format sections 6.5 and 11).

Everything here only ever says that no row *can* match; what stays is filtered row by row. Where rows of a key are
merged, a file is left out by the key alone, or together with all files that its keys may be in.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import pyarrow as pa

from paimon_orch.errors import CorruptFileError, InputError
from paimon_orch.files.evolution import source_of
from paimon_orch.files.file_indexes import IndexedFiles
from paimon_orch.files.skipping import (
    UNKNOWN,
    StatsOf,
    constant_stats,
    evolved,
    matcher,
    usable,
)
from paimon_orch.format.arrow import arrow_type
from paimon_orch.format.binary_row import deserialize_row, read_field, row_arity
from paimon_orch.format.bucket import buckets
from paimon_orch.format.manifest import DataFileMeta, ManifestEntry
from paimon_orch.format.manifest_list import ManifestFileMeta
from paimon_orch.format.paths import file_format
from paimon_orch.format.predicate import And, Leaf, Or, Predicate, restrict
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.statistics import ColumnStats, SimpleStats
from paimon_orch.format.types import AtomicType, DataType
from paimon_orch.merge.levels import sections

SchemaOf = Callable[[int], TableSchema]
_MAX_BUCKET_KEYS = 1_000  # beyond that hashing all combinations costs more than it saves


def reads_raw(files: Sequence[DataFileMeta], schema: TableSchema) -> bool:
    """Tell whether no key of a bucket is in two of its files and no row is a retract (11.5)."""
    if any(file.level == 0 or file.delete_row_count for file in files):
        return len(files) == 1 and files[0].delete_row_count == 0
    options = schema.typed_options
    one_level = len({file.level for file in files}) == 1
    return one_level or options.deletion_vectors or options.merge_engine == "first-row"


@dataclass(frozen=True)
class Pruner:
    """Judges manifests, entries and files of one table by a bound predicate."""

    schema: TableSchema
    predicate: Predicate
    schema_of: SchemaOf
    asks_indexes: bool = True

    def manifest(self, manifest: ManifestFileMeta) -> bool:
        """Tell whether a manifest may name files with matching rows."""
        fields, stats = self.schema.partition_fields, manifest.partition_stats
        columns = {
            field.name: _column(stats, index, len(fields), field.type, manifest.file_name)
            for index, field in enumerate(fields)
        }
        rows = manifest.num_added_files + manifest.num_deleted_files
        return self._may_match(lambda name: columns.get(name, UNKNOWN), rows)

    def partitions(self, partitions: Iterable[bytes]) -> set[bytes]:
        """Return the partitions that may have matching rows."""
        return {
            partition
            for partition in set(partitions)
            if self._may_match(self._stats.constants(partition).__getitem__, 1)
        }

    def entry(self, entry: ManifestEntry) -> bool:
        """Tell whether a file may have rows whose keys match: by its bucket, and by its key statistics."""
        if not self._buckets.may_hold(entry):
            return False
        if self._key_may_match is None:
            return True
        stats = self._stats.of(entry.partition, entry.file)
        return self._key_may_match(stats, entry.file.row_count)

    def change(self, entry: ManifestEntry) -> bool:
        """Tell whether a file whose rows are read unmerged may have matching ones."""
        return self._file(entry.partition, entry.file)

    def _file(self, partition: bytes, file: DataFileMeta) -> bool:
        """Judge a file by all statistics, and by the index that the manifest holds."""
        if not self._may_match(self._stats.of(partition, file), file.row_count):
            return False
        if file.embedded_index is None or not self.asks_indexes:
            return True
        rows = self._indexed.evaluate(file, file.file_name).rows
        return rows is None or bool(rows)

    def files(self, partition: bytes, files: Sequence[DataFileMeta]) -> tuple[DataFileMeta, ...]:
        """Return the files of a bucket to read, by all that is known; ``files`` are all that the scan would merge."""

        def may(file: DataFileMeta) -> bool:
            return self._file(partition, file)

        schema = self.schema
        if not schema.primary_keys or reads_raw(files, schema):
            return tuple(file for file in files if may(file))
        return tuple(self._unmerged_or_whole(files, may))

    def _unmerged_or_whole(
        self, files: Sequence[DataFileMeta], may: Callable[[DataFileMeta], bool]
    ) -> Iterator[DataFileMeta]:
        """Yield the files of sections to merge: one run is judged file by file, several only as a whole.

        An engine that mixes the rows of a key makes values that are in none of its files, so that it keeps all.
        """
        mixes = self.schema.typed_options.merge_engine not in ("deduplicate", "first-row")
        for section in sections(files, self.schema.key_fields):
            merged = [file for run in section for file in run]
            if len(section) == 1:
                yield from filter(may, merged)
            elif mixes or any(map(may, merged)):
                yield from merged

    @cached_property
    def _may_match(self) -> Callable[[StatsOf, int], bool]:
        return matcher(self.predicate)

    @cached_property
    def _key_may_match(self) -> Callable[[StatsOf, int], bool] | None:
        """Judge by the part of the predicate that any file may be judged by; None if there is none."""
        if not self.schema.primary_keys:
            return None
        keys = {*self.schema.primary_keys, *self.schema.partition_keys}
        on_keys = restrict(self.predicate, keys)
        return None if on_keys is None else matcher(on_keys)

    @cached_property
    def _indexed(self) -> IndexedFiles:
        return IndexedFiles(self.schema, self.schema_of, self.predicate)

    @cached_property
    def _stats(self) -> "FileStats":
        return FileStats(self.schema, self.schema_of)

    @cached_property
    def _buckets(self) -> "_Buckets":
        return _Buckets(self.schema, self.predicate, self.schema_of)


def _column(
    stats: SimpleStats, index: int, arity: int, data_type: DataType, path: str
) -> ColumnStats:
    """Decode the statistics of one column; rows that have another arity tell nothing."""
    try:
        if row_arity(stats.min_values) != arity or row_arity(stats.max_values) != arity:
            return UNKNOWN
        low = read_field(stats.min_values, index, data_type)
        high = read_field(stats.max_values, index, data_type)
    except Exception as error:
        raise CorruptFileError(path, f"its statistics cannot be decoded: {error}") from error
    counts = stats.null_counts
    nulls = counts[index] if counts is not None and index < len(counts) else None
    is_char = isinstance(data_type, AtomicType) and data_type.name == "CHAR"
    is_orc = is_char and file_format(path) == "orc"  # asked for where it matters
    return usable(ColumnStats(low, high, nulls), is_orc=is_orc, data_type=data_type)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the statistics of a read column lie in those of a file."""

    index: int
    arity: int
    stored_type: DataType
    read_type: DataType
    is_key: bool

    @property
    def is_cast(self) -> bool:
        return self.stored_type is not self.read_type and self.stored_type != self.read_type


class _Constants(dict[str, ColumnStats]):
    def __missing__(self, name: str) -> ColumnStats:
        return UNKNOWN


class FileStats:
    """Statistics of data files by the column names of a read schema."""

    def __init__(self, schema: TableSchema, schema_of: SchemaOf) -> None:
        self._schema, self._schema_of = schema, schema_of
        self._sources: dict[tuple[int, tuple[str, ...] | None], dict[str, _Source | None]] = {}
        self._partitions: dict[bytes, _Constants] = {}

    def constants(self, partition: bytes) -> _Constants:
        """Return the statistics of partition columns, which have one value in all rows."""
        if partition not in self._partitions:
            fields = self._schema.partition_fields
            values = deserialize_row(partition, [field.type for field in fields])
            self._partitions[partition] = _Constants(
                (field.name, constant_stats(value, field.type))
                for field, value in zip(fields, values, strict=True)
            )
        return self._partitions[partition]

    def of(self, partition: bytes, file: DataFileMeta) -> StatsOf:
        """Return the statistics of one file."""
        constants = self.constants(partition)
        dense = file.write_cols if file.value_stats_cols is None else file.value_stats_cols
        at = file.schema_id, dense
        if at not in self._sources:
            self._sources[at] = self._map(*at)
        sources = self._sources[at]

        def stats_of(name: str) -> ColumnStats:
            if name in constants or name not in sources:
                return constants[name]
            source = sources[name]
            if source is None:
                return ColumnStats(None, None, file.row_count)
            stats = file.key_stats if source.is_key else file.value_stats
            found = _column(stats, source.index, source.arity, source.stored_type, file.file_name)
            if not source.is_cast:
                return found
            return evolved(found, source.stored_type, source.read_type)

        return stats_of

    def _map(self, schema_id: int, dense: tuple[str, ...] | None) -> dict[str, _Source | None]:
        """Find each read column by its id: None stands for a column that the file's schema lacks."""
        stored = self._schema_of(schema_id)
        covered = stored.names if dense is None else list(dense)
        keys = stored.trimmed_primary_keys
        found: dict[str, _Source | None] = {}
        for field in self._schema.fields:
            source = source_of(field, stored.fields)
            if source is None:
                found[field.name] = None
            elif source.name in keys or source.name in covered:
                names = keys if source.name in keys else covered
                found[field.name] = _Source(
                    names.index(source.name), len(names), source.type, field.type, names is keys
                )
        return found


class _Buckets:
    """The buckets that the rows of some equalities lie in (11.7)."""

    def __init__(self, schema: TableSchema, predicate: Predicate, schema_of: SchemaOf) -> None:
        self._schema, self._schema_of = schema, schema_of
        self._fields = schema.bucket_key_fields if _is_fixed(schema) else []
        self._keys = self._wanted(predicate)
        self._chosen: dict[int, set[int] | None] = {}
        self._hashed_alike: dict[int, bool] = {}

    def _wanted(self, predicate: Predicate) -> list[tuple["pa.Scalar[pa.DataType]", ...]] | None:
        if not self._fields or not all(_hashes_surely(field.type) for field in self._fields):
            return None
        per_column = [values_of(predicate, field.name) for field in self._fields]
        total, known = 1, []
        for values in per_column:
            if values is None:
                return None
            known.append(values)
            total *= len(values)
        return list(product(*known)) if total <= _MAX_BUCKET_KEYS else None

    def may_hold(self, entry: ManifestEntry) -> bool:
        """Tell whether a file's bucket is one of them, of as many buckets as there were when it was written."""
        count = entry.total_buckets
        if self._keys is None or count <= 0 or not self._alike(entry.file.schema_id):
            return True
        if count not in self._chosen:
            self._chosen[count] = self._hash(self._keys, count)
        chosen = self._chosen[count]
        return chosen is None or entry.bucket in chosen

    def _hash(
        self, keys: Sequence[tuple["pa.Scalar[pa.DataType]", ...]], count: int
    ) -> set[int] | None:
        types = [field.type for field in self._fields]
        columns = [
            pa.array([key[index] for key in keys], arrow_type(kind))
            for index, kind in enumerate(types)
        ]
        function = self._schema.options.get("bucket-function.type", "default").lower()
        try:
            return set(buckets(columns, types, count, function).tolist())
        except InputError:  # a bucket function that is not known here
            return None

    def _alike(self, schema_id: int) -> bool:
        """Tell whether a file's writer hashed the same columns as the same types."""
        if schema_id not in self._hashed_alike:
            stored = self._schema_of(schema_id)
            pairs = [(f.id, _hashed_type(f.type)) for f in self._fields]
            fields = stored.bucket_key_fields
            self._hashed_alike[schema_id] = pairs == [(f.id, _hashed_type(f.type)) for f in fields]
        return self._hashed_alike[schema_id]


def _is_fixed(schema: TableSchema) -> bool:
    return bool(schema.primary_keys or schema.options.get("bucket-key"))


def _hashes_surely(data_type: DataType) -> bool:
    """Tell whether equal values have one hash, whoever wrote them.

    Zero has two signs, CHAR is padded or not, and not all writers agree on the bytes of long decimals and nanoseconds.
    """
    if not isinstance(data_type, AtomicType) or data_type.name in ("FLOAT", "DOUBLE", "CHAR"):
        return False
    limit = {"DECIMAL": 18, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}.get(data_type.name)
    return limit is None or data_type.params[0] <= limit


def _hashed_type(data_type: DataType) -> object:
    if isinstance(data_type, AtomicType) and data_type.name in ("VARCHAR", "VARBINARY"):
        return data_type.name
    return data_type.with_nullable(True)


def values_of(predicate: Predicate, column: str) -> "list[pa.Scalar[pa.DataType]] | None":
    """Return all values that a column may have where the predicate holds, None if they are not listed."""
    match predicate:
        case Leaf(column=name, op="=" | "in", values=values) if name == column:
            return list(values)
        case And(children=children):
            listed = [values_of(child, column) for child in children]
            return min((values for values in listed if values is not None), key=len, default=None)
        case Or(children=children):
            united: list[pa.Scalar[pa.DataType]] = []
            for child in children:
                values_of_child = values_of(child, column)
                if values_of_child is None:
                    return None
                united += values_of_child
            return united
    return None
