"""Maps the statistics of data files to the columns of a read schema.

See docs/format/statistics.md#use-on-read and docs/format/schema-evolution.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paimon_orch.errors import CorruptFileError
from paimon_orch.files.schema_evolution.evolve import find_source_field
from paimon_orch.files.stats.column_bounds import build_constant_stats
from paimon_orch.files.stats.stats_evolution import evolve_stats
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.paths import parse_file_format
from paimon_orch.format.row.binary_row import read_field, read_row_arity
from paimon_orch.format.row.simple_stats import UNKNOWN_STATS, ColumnStats, SimpleStats
from paimon_orch.format.row.trusted_bounds import drop_untrusted_bounds
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot

SchemaLookup = Callable[[int], TableSchema]
StatsOf = Callable[[str], ColumnStats]


def decode_column_stats(
    stats: SimpleStats, index: int, arity: int, data_type: DataType, path: str
) -> ColumnStats:
    """Decode the statistics of one column; they are unknown if the rows have a different arity."""
    try:
        if read_row_arity(stats.min_values) != arity or read_row_arity(stats.max_values) != arity:
            return UNKNOWN_STATS
        low = read_field(stats.min_values, index, data_type)
        high = read_field(stats.max_values, index, data_type)
    except Exception as error:
        raise CorruptFileError(path, f"the statistics cannot be decoded: {error}") from error
    nulls = stats.find_null_count(index)
    is_char = isinstance(data_type, AtomicType) and data_type.name == TypeRoot.CHAR
    # only the bounds of CHAR depend on the format
    is_orc = is_char and parse_file_format(path) == "orc"
    return drop_untrusted_bounds(ColumnStats(low, high, nulls), is_orc=is_orc, data_type=data_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsSource:
    """The position of a read column in the statistics of a file."""

    index: int
    arity: int
    """The number of columns with statistics."""

    stored_type: DataType
    read_type: DataType
    is_key: bool
    """Whether the statistics are key statistics, rather than value statistics."""

    @property
    def is_cast(self) -> bool:
        """Return whether the read type differs from the stored type."""
        return self.stored_type is not self.read_type and self.stored_type != self.read_type

    def decode_stats(self, stats: SimpleStats, path: str) -> ColumnStats:
        """Return the statistics of the read column in a file."""
        column = decode_column_stats(
            stats, self.index, arity=self.arity, data_type=self.stored_type, path=path
        )
        return evolve_stats(column, self.stored_type, self.read_type) if self.is_cast else column


class _ConstantStats(dict[str, ColumnStats]):
    def __missing__(self, name: str) -> ColumnStats:
        return UNKNOWN_STATS


class FileStats:
    """Statistics of data files by the column names of a read schema."""

    def __init__(self, schema: TableSchema, schema_of: SchemaLookup) -> None:
        self._schema, self._schema_of = schema, schema_of
        self._sources: dict[tuple[int, tuple[str, ...] | None], dict[str, StatsSource | None]] = {}
        self._partitions: dict[bytes, _ConstantStats] = {}

    def get_constant_stats(self, partition: bytes) -> _ConstantStats:
        """Return the statistics of partition columns, which have the same value in all rows."""
        if partition not in self._partitions:
            fields = self._schema.partition_fields
            values = self._schema.decode_partition(partition)
            self._partitions[partition] = _ConstantStats(
                (field.name, build_constant_stats(value, field.type))
                for field, value in zip(fields, values, strict=True)
            )
        return self._partitions[partition]

    def of(self, partition: bytes, file: DataFileMeta) -> StatsOf:
        """Return the statistics of one file."""
        constants = self.get_constant_stats(partition)
        dense = file.write_cols if file.value_stats_cols is None else file.value_stats_cols
        sources = self.find_stats_sources(file.schema_id, dense)

        def stats_of(name: str) -> ColumnStats:
            if name in constants or name not in sources:
                return constants[name]
            source = sources[name]
            if source is None:
                return ColumnStats(None, None, file.row_count)
            stats = file.key_stats if source.is_key else file.value_stats
            return source.decode_stats(stats, file.file_name)

        return stats_of

    def find_stats_sources(
        self, schema_id: int, dense: tuple[str, ...] | None
    ) -> Mapping[str, StatsSource | None]:
        """Return the source of each column's statistics; ``dense`` names columns with statistics.

        The source is None for a column that the file's schema lacks. The result has no entry for a
        column without statistics.
        """
        layout = schema_id, dense
        if layout not in self._sources:
            self._sources[layout] = self._map_columns(*layout)
        return self._sources[layout]

    @property
    def partition_keys(self) -> Sequence[str]:
        """Return the partition columns, which have the same value in all rows of a file."""
        return self._schema.partition_keys

    def _map_columns(
        self, schema_id: int, dense: tuple[str, ...] | None
    ) -> dict[str, StatsSource | None]:
        file_schema = self._schema_of(schema_id)
        covered = file_schema.names if dense is None else list(dense)
        keys = file_schema.trimmed_primary_keys
        sources: dict[str, StatsSource | None] = {}
        for field in self._schema.fields:
            source = find_source_field(field, file_schema.fields)
            if source is None:
                sources[field.name] = None
            elif source.name in keys or source.name in covered:
                names = keys if source.name in keys else covered
                sources[field.name] = StatsSource(
                    index=names.index(source.name),
                    arity=len(names),
                    stored_type=source.type,
                    read_type=field.type,
                    is_key=names is keys,
                )
        return sources
