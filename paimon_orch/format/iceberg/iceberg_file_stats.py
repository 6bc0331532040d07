"""Null counts and bounds of data files for Iceberg manifests.

See docs/format/iceberg-metadata.md#column-bounds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.iceberg.single_value import get_value_encoder
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.paths import parse_file_format
from paimon_orch.format.row.binary_row import deserialize_row, read_row_arity
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.row.trusted_bounds import drop_untrusted_bounds
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.text import is_utf8
from paimon_orch.format.types.data_types import AtomicType, DataType, RowType, TypeRoot


class FileBounds(NamedTuple):
    """Statistics of a data file by field id; a column without an entry has none.

    A column has either both bounds or none.
    """

    null_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]


class _Column(NamedTuple):
    field_id: int
    position: int
    """The position in the rows of statistics."""

    type: DataType
    encode: Callable[[Any], bytes] | None
    """The encoder of bounds, or None if the type has none."""


class _Layout(NamedTuple):
    types: list[DataType]
    columns: list[_Column]


class FileBoundsBuilder:
    """Converts the value statistics of files that were written with one schema."""

    def __init__(self, schema: TableSchema) -> None:
        self._fields = {field.name: field for field in schema.fields}
        self._all = tuple(schema.names)
        self._layouts: dict[tuple[str, ...], _Layout] = {}

    def build(self, file: DataFileMeta) -> FileBounds:
        """Return the null counts and bounds of a file.

        Raises :class:`CorruptFileError` for statistics that cannot be decoded.
        """
        names = file.write_cols if file.value_stats_cols is None else file.value_stats_cols
        if names is None:
            names = self._all
        if names not in self._layouts:
            self._layouts[names] = self._build_layout(names)
        layout = self._layouts[names]
        stats, arity = file.value_stats, len(layout.types)
        try:
            if {read_row_arity(stats.min_values), read_row_arity(stats.max_values)} != {arity}:
                return FileBounds({}, {}, {})
            lows = deserialize_row(stats.min_values, layout.types)
            highs = deserialize_row(stats.max_values, layout.types)
        except Exception as error:
            raise CorruptFileError(
                file.file_name, f"the statistics cannot be decoded: {error}"
            ) from error
        bounds = FileBounds({}, {}, {})
        is_orc = parse_file_format(file.file_name) == "orc"
        for column in layout.columns:
            position = column.position
            low, high = lows[position], highs[position]
            count = stats.find_null_count(position)
            if count is not None:
                bounds.null_value_counts[column.field_id] = count
            if column.encode is not None and low is not None and high is not None:
                known = ColumnStats(low, high, count)
                _add_bounds(bounds, column, known, is_orc=is_orc)
        return bounds

    def _build_layout(self, names: tuple[str, ...]) -> _Layout:
        types: list[DataType] = []
        columns = []
        for index, name in enumerate(names):
            field = self._fields.get(name)
            # a system column, such as _ROW_ID, is not in the schema; its values are not decoded
            types.append(RowType() if field is None else field.type)
            if field is not None:
                columns.append(_Column(field.id, index, field.type, _find_encoder(field.type)))
        return _Layout(types, columns)


def _find_encoder(data_type: DataType) -> Callable[[Any], bytes] | None:
    if not isinstance(data_type, AtomicType):
        return None
    is_timestamp = data_type.name in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
    return None if is_timestamp and data_type.params[0] > 6 else get_value_encoder(data_type)


def _add_bounds(bounds: FileBounds, column: _Column, stats: ColumnStats, *, is_orc: bool) -> None:
    stats = drop_untrusted_bounds(stats, is_orc=is_orc, data_type=column.type)
    low, high = stats.min, stats.max
    if low is None or high is None or column.encode is None:
        return
    if isinstance(low, float):
        # Iceberg orders -0.0 before 0.0, so the bounds must include both zeros
        low, high = low or -0.0, high or 0.0
    if isinstance(low, str) and not (is_utf8(low) and is_utf8(str(high))):
        return
    bounds.lower_bounds[column.field_id] = column.encode(low)
    bounds.upper_bounds[column.field_id] = column.encode(high)
