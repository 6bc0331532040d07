"""What a filter lets a scan leave out: manifests, partitions, buckets and files.

Everything here only ever says that no row *can* match; what stays is filtered row by row. Where rows of a key are
merged, a file is left out by the key alone, or together with all files that its keys may be in.

See docs/format/statistics.md#use-on-read and docs/format/scan.md.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, product

import pyarrow as pa

from paimon_orch.errors import CorruptFileError, InputError
from paimon_orch.files.file_index_reader import FileIndexEvaluator
from paimon_orch.files.stats.evaluator import UNKNOWN_STATS, StatsOf, build_matcher
from paimon_orch.format.arrays import Indices
from paimon_orch.format.bucket.bucket_function import build_bucket_key_signature, compute_buckets
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.file_fields import ObjectFileFields, build_file_fields
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options.core_options import (
    BUCKET_FUNCTION_TYPE,
    BUCKET_KEY,
    DATA_EVOLUTION_ENABLED,
)
from paimon_orch.format.row.binary_row import deserialize_row
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.text import is_utf8
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot
from paimon_orch.format.types.predicate import (
    And,
    Leaf,
    Operator,
    Or,
    Predicate,
    restrict_to_columns,
)
from paimon_orch.merge.tree.levels import plan_merge_sections
from paimon_orch.table.metadata.manifest_io import ManifestFilter
from paimon_orch.table.scan.file_stats import FileStats, SchemaLookup, decode_column_stats
from paimon_orch.table.scan.multi_file_pruner import FileBatchPruner

_BATCH_THRESHOLD = 16  # files of a bucket that are judged together
_MAX_PARTITIONS = 1_000  # to look for in each manifest's statistics
_INTEGER_BITS = {TypeRoot.TINYINT: 7, TypeRoot.SMALLINT: 15, TypeRoot.INT: 31, TypeRoot.BIGINT: 63}
_MAX_BUCKET_KEYS = 1_000  # beyond that hashing all combinations costs more than it saves


def is_raw_convertible(files: Sequence[DataFileMeta], schema: TableSchema) -> bool:
    """Tell whether no key of a bucket is in two of its files and no row is a retract (11.5)."""
    if any(file.level == 0 or file.delete_row_count for file in files):
        return len(files) == 1 and files[0].delete_row_count == 0
    options = schema.typed_options
    one_level = len({file.level for file in files}) == 1
    return one_level or options.has_deletion_vectors or options.merge_engine == "first-row"


def is_file_raw_convertible(
    files: Sequence[DataFileMeta], file: DataFileMeta, schema: TableSchema
) -> bool:
    """Tell whether the rows of a bucket's file, less those that a vector hides, are rows of the table (9.7)."""
    if schema.typed_options.get(DATA_EVOLUTION_ENABLED):
        return False
    return not schema.primary_keys or (
        is_raw_convertible(files, schema) and file.delete_row_count is not None
    )


@dataclass(frozen=True)
class FilePruner:
    """Judges manifests, entries and files of one table by a bound predicate."""

    schema: TableSchema
    predicate: Predicate
    schema_of: SchemaLookup
    asks_indexes: bool = True

    def may_match_manifest(self, manifest: ManifestFileMeta) -> bool:
        """Tell whether a manifest may name files with matching rows."""
        fields, stats = self.schema.partition_fields, manifest.partition_stats
        columns = {
            field.name: decode_column_stats(
                stats, index, arity=len(fields), data_type=field.type, path=manifest.file_name
            )
            for index, field in enumerate(fields)
        }
        rows = manifest.num_added_files + manifest.num_deleted_files
        return self._may_match(lambda name: columns.get(name, UNKNOWN_STATS), rows)

    def partitions(self, partitions: Iterable[bytes]) -> set[bytes]:
        """Return the partitions that may have matching rows."""
        return {
            partition
            for partition in set(partitions)
            if self._may_match(self._stats.get_constant_stats(partition).__getitem__, 1)
        }

    def may_match_entry(self, entry: ManifestEntry) -> bool:
        """Tell whether a file may have rows whose keys match: by its bucket, and by its key statistics."""
        if not self._buckets.may_match_entry(entry):
            return False
        if self._key_may_match is None:
            return True
        stats = self._stats.of(entry.partition, entry.file)
        return self._key_may_match(stats, entry.file.row_count)

    def choose(self, manifest: Manifest, rows: Indices) -> Indices:
        """Return those of a manifest's files that may have matching rows, each judged alone."""
        if not len(rows):
            return rows
        chosen = [b""] * len(rows)
        if self.schema.partition_keys:
            parts = manifest.partitions()
            chosen = [parts[row] for row in rows.tolist()]
        return rows[self._batch_pruner.may_match(build_file_fields(manifest, rows), chosen)]

    def evaluate_entries(self, entries: Sequence[ManifestEntry]) -> None:
        """Judge many files at once, each alone; the judgements are used when :meth:`files` or :meth:`may_match_change` is asked."""
        self._evaluate_files(
            [entry.partition for entry in entries], [entry.file for entry in entries]
        )

    def _evaluate_files(self, partitions: Sequence[bytes], files: Sequence[DataFileMeta]) -> None:
        may = self._batch_pruner.may_match(ObjectFileFields(files), partitions)
        for file, verdict in zip(files, may.tolist(), strict=True):
            self._judged[id(file)] = file, verdict

    def may_match_change(self, entry: ManifestEntry) -> bool:
        """Tell whether a file whose rows are read unmerged may have matching ones."""
        return self._file(entry.partition, entry.file)

    def _file(self, partition: bytes, file: DataFileMeta) -> bool:
        """Judge a file by all statistics, and by the index that the manifest holds."""
        known = self._judged.get(id(file))
        if known is not None:
            return known[1]
        if not self._may_match(self._stats.of(partition, file), file.row_count):
            return False
        if file.embedded_index is None or not self.asks_indexes:
            return True
        rows = self._indexed.evaluate(file, file.file_name).rows
        return rows is None or bool(rows)

    def files(self, partition: bytes, files: Sequence[DataFileMeta]) -> tuple[DataFileMeta, ...]:
        """Return the files of a bucket to read, by all that is known; ``files`` are all that the scan would merge."""
        if len(files) >= _BATCH_THRESHOLD and id(files[0]) not in self._judged:
            self._evaluate_files([partition] * len(files), files)

        def may(file: DataFileMeta) -> bool:
            return self._file(partition, file)

        schema = self.schema
        if not schema.primary_keys or is_raw_convertible(files, schema):
            return tuple(file for file in files if may(file))
        return tuple(self._filter_sections(files, may))

    def _filter_sections(
        self, files: Sequence[DataFileMeta], may: Callable[[DataFileMeta], bool]
    ) -> Iterator[DataFileMeta]:
        """Yield the files of sections to merge: one run is judged file by file, several only as a whole.

        An engine that mixes the rows of a key makes values that are in none of its files, so that it keeps all.
        """
        mixes = self.schema.typed_options.merge_engine not in ("deduplicate", "first-row")
        for section in plan_merge_sections(files, self.schema):
            merged = [file for run in section for file in run]
            if len(section) == 1:
                yield from filter(may, merged)
            elif mixes or any(map(may, merged)):
                yield from merged

    @cached_property
    def _may_match(self) -> Callable[[StatsOf, int], bool]:
        return build_matcher(self.predicate)

    @cached_property
    def _key_may_match(self) -> Callable[[StatsOf, int], bool] | None:
        """Judge by the part of the predicate that any file may be judged by; None if there is none."""
        if not self.schema.primary_keys:
            return None
        keys = {*self.schema.primary_keys, *self.schema.partition_keys}
        on_keys = restrict_to_columns(self.predicate, keys)
        return None if on_keys is None else build_matcher(on_keys)

    @cached_property
    def _judged(self) -> dict[int, tuple[DataFileMeta, bool]]:
        """By the id of a file, which is held, so that no other one gets its id."""
        return {}

    @cached_property
    def _batch_pruner(self) -> FileBatchPruner:
        return FileBatchPruner(
            self.predicate, self._stats, self._indexed if self.asks_indexes else None
        )

    @cached_property
    def _indexed(self) -> FileIndexEvaluator:
        return FileIndexEvaluator(self.schema, self.schema_of, self.predicate)

    @cached_property
    def _stats(self) -> "FileStats":
        return FileStats(self.schema, self.schema_of)

    @cached_property
    def _buckets(self) -> "_BucketPruner":
        return _BucketPruner(self.schema, self.predicate, self.schema_of)


def build_spec_manifest_filter(
    specs: Iterable[Mapping[str, object]], schema: TableSchema
) -> ManifestFilter | None:
    """Return a test of which manifests may name files of partitions; None where nothing can be told.

    Judged are columns whose values are surely those of the spec: text and whole numbers.
    """
    types = {field.name: field.type for field in schema.partition_fields}
    null = schema.typed_options.default_partition_name
    values = (
        {name: _parse_exact_value(text, types[name]) for name, text in spec.items() if text != null}
        for spec in specs
    )
    return _build_manifest_filter(values, schema)


def build_partition_manifest_filter(
    partitions: Collection[bytes], schema: TableSchema
) -> ManifestFilter | None:
    """Return a test of which manifests may name files of serialized partitions, as :func:`build_spec_manifest_filter` does."""
    if len(partitions) > _MAX_PARTITIONS:
        return None
    fields = schema.partition_fields
    names, types = [field.name for field in fields], [field.type for field in fields]
    exact = [
        _atomic_type_name(kind) in {TypeRoot.VARCHAR, TypeRoot.DATE, *_INTEGER_BITS}
        for kind in types
    ]
    values = (
        dict(compress(zip(names, deserialize_row(partition, types), strict=True), exact))
        for partition in partitions
    )
    return _build_manifest_filter(values, schema)


def _build_manifest_filter(
    partitions: Iterable[Mapping[str, object]], schema: TableSchema
) -> ManifestFilter | None:
    """Return a test whether a manifest may name one of the partitions.

    Not judged are None as a value, and text that is not UTF-8, which a predicate has no literal for.
    """
    types = {field.name: to_arrow_type(field.type) for field in schema.partition_fields}
    chosen = list[Predicate]()
    for values in partitions:
        tests = [
            Leaf(name, Operator.EQUAL, (pa.scalar(value, types[name]),))
            for name, value in values.items()
            if value is not None and not (isinstance(value, str) and not is_utf8(value))
        ]
        if not tests:
            return None
        chosen.append(And(tuple(tests)))
    return (
        FilePruner(schema, Or(tuple(chosen)), lambda _: schema).may_match_manifest
        if chosen
        else None
    )


def _atomic_type_name(data_type: DataType) -> TypeRoot | None:
    return data_type.name if isinstance(data_type, AtomicType) else None


def _parse_exact_value(text: object, data_type: DataType) -> str | int | None:
    if not isinstance(text, str):
        return None
    if _atomic_type_name(data_type) == TypeRoot.VARCHAR:
        return text
    root = _atomic_type_name(data_type)
    bits = None if root is None else _INTEGER_BITS.get(root)
    digits = text.removeprefix("-")
    if bits is None or not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return None
    return int(text) if -(2**bits) <= int(text) < 2**bits else None


class _BucketPruner:
    """The buckets that the rows of some equalities lie in (11.7)."""

    def __init__(self, schema: TableSchema, predicate: Predicate, schema_of: SchemaLookup) -> None:
        self._schema, self._schema_of = schema, schema_of
        self._fields = schema.bucket_key_fields if _has_bucket_key(schema) else []
        self._keys = self._list_bucket_keys(predicate)
        self._chosen: dict[int, set[int] | None] = {}
        self._hashed_alike: dict[int, bool] = {}

    def _list_bucket_keys(
        self, predicate: Predicate
    ) -> list[tuple["pa.Scalar[pa.DataType]", ...]] | None:
        if not self._fields or not all(_has_stable_hash(field.type) for field in self._fields):
            return None
        per_column = [find_equality_values(predicate, field.name) for field in self._fields]
        total, known = 1, []
        for values in per_column:
            if values is None:
                return None
            known.append(values)
            total *= len(values)
        return list(product(*known)) if total <= _MAX_BUCKET_KEYS else None

    def may_match_entry(self, entry: ManifestEntry) -> bool:
        """Tell whether a file's bucket is one of them, of as many buckets as there were when it was written."""
        count = entry.total_buckets
        if self._keys is None or count <= 0 or not self._is_hashed_alike(entry.file.schema_id):
            return True
        if count not in self._chosen:
            self._chosen[count] = self._compute_buckets(self._keys, count)
        chosen = self._chosen[count]
        return chosen is None or entry.bucket in chosen

    def _compute_buckets(
        self, keys: Sequence[tuple["pa.Scalar[pa.DataType]", ...]], count: int
    ) -> set[int] | None:
        types = [field.type for field in self._fields]
        columns = [
            pa.array([key[index] for key in keys], to_arrow_type(kind))
            for index, kind in enumerate(types)
        ]
        function = self._schema.typed_options.get(BUCKET_FUNCTION_TYPE)
        try:
            return set(compute_buckets(columns, types, count, function).tolist())
        except InputError:  # a bucket function that is not known here
            return None

    def _is_hashed_alike(self, schema_id: int) -> bool:
        """Tell whether the writers of a file's rows hashed the same columns as the same types.

        Compaction writes rows that are older than the file. Only in a primary key types never change.
        """
        if schema_id not in self._hashed_alike:
            first = schema_id if self._schema.primary_keys else 0
            writers = range(schema_id, first - 1, -1)
            self._hashed_alike[schema_id] = all(map(self._has_same_bucket_key, writers))
        return self._hashed_alike[schema_id]

    def _has_same_bucket_key(self, schema_id: int) -> bool:
        try:
            stored = self._schema_of(schema_id)
        except CorruptFileError:  # gone, and with it what it said
            return False
        return build_bucket_key_signature(stored.bucket_key_fields) == build_bucket_key_signature(
            self._fields
        )


def _has_bucket_key(schema: TableSchema) -> bool:
    return bool(schema.primary_keys or schema.typed_options.get(BUCKET_KEY))


def _has_stable_hash(data_type: DataType) -> bool:
    """Tell whether equal values have one hash, whoever wrote them.

    Zero has two signs, CHAR is padded or not, and not all writers agree on the bytes of long decimals and nanoseconds.
    """
    if not isinstance(data_type, AtomicType) or data_type.name in (
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.CHAR,
    ):
        return False
    limit = {TypeRoot.DECIMAL: 18, TypeRoot.TIMESTAMP: 6, TypeRoot.TIMESTAMP_LTZ: 6}.get(
        data_type.name
    )
    return limit is None or data_type.params[0] <= limit


def find_equality_values(
    predicate: Predicate, column: str
) -> "list[pa.Scalar[pa.DataType]] | None":
    """Return all values that a column may have where the predicate holds, None if they are not listed."""
    match predicate:
        case Leaf(column=name, op=Operator.EQUAL | Operator.IN, values=values, key=None) if (
            name == column
        ):
            return list(values)
        case And(children=children):
            listed = [find_equality_values(child, column) for child in children]
            return min((values for values in listed if values is not None), key=len, default=None)
        case Or(children=children):
            united: list[pa.Scalar[pa.DataType]] = []
            for child in children:
                values_of_child = find_equality_values(child, column)
                if values_of_child is None:
                    return None
                united += values_of_child
            return united
    return None
