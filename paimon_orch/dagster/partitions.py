"""Conversion between Paimon partitions and Dagster partition keys, and groups of keys.

A partition *spec* maps all partition columns to their values as written in directory names. The
*path* of a partition is ``dt=2026-01-01/region=eu``, escaped as in directory names. Its *key* is
the string that Dagster shows: the value of a single column, the path of several columns, or, for a
multi-dimensional definition, ``2026-01-01|eu`` in the order of the dimensions' names. Keys contain
ISO dates, even if directory names contain day numbers.

See docs/format/table-layout.md#partition-directories.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import product

import dagster as dg

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import PARTITION_LEGACY_NAME
from paimon_orch.format.partition_path import escape_path_name, unescape_path_name
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType, DataType, Field, TypeRoot
from paimon_orch.table.filter.partition_spec import build_directory_names

_EPOCH = date(1970, 1, 1)
DIMENSION_SEPARATOR = "|"
_CANONICAL_TEXT_TYPES = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.DATE, TypeRoot.TIME)
_FORBIDDEN_IN_DIMENSIONS = "|[],"
"""Characters that Dagster does not allow in the keys of a dimension."""


def parse_partition_path(path: str) -> dict[str, str]:
    """Return the spec of a partition path; raises :class:`InputError` for any other text."""
    spec: dict[str, str] = {}
    for part in path.split("/"):
        column, separator, value = part.partition("=")
        if not (column and separator and value) or unescape_path_name(column) in spec:
            raise InputError(f"partition {path!r} must look like 'dt=2026-01-01/region=eu'")
        spec[unescape_path_name(column)] = unescape_path_name(value)
    return spec


def format_partition_path(spec: Mapping[str, str]) -> str:
    """Return the path of a spec, with the columns in the order of the spec."""
    return "/".join(
        f"{escape_path_name(column)}={escape_path_name(value)}" for column, value in spec.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionKeys:
    """Converts between partition specs, paths and keys of a partitioned table."""

    columns: tuple[str, ...]
    """The partition columns, at least one."""
    days: frozenset[str] = frozenset()
    """Columns whose directory names contain day numbers."""
    dimensions: tuple[str, ...] = ()
    """The columns in the order of multi-dimensional keys. It is empty for other definitions."""
    multi_spelling_fields: tuple[Field, ...] = ()
    """Columns whose values can be written in several ways, such as ``05`` and ``5``.

    Directory names contain only one of them.
    """
    options: Options = field(default_factory=lambda: Options({}))

    @classmethod
    def of(
        cls, schema: TableSchema, partitions_def: dg.PartitionsDefinition[str] | None = None
    ) -> "PartitionKeys":
        """Return the converter for a table and the partitions definition of its assets.

        Raises :class:`InputError` if the table is not partitioned, or if the dimensions of the
        definition are not its partition columns.
        """
        if not schema.partition_keys:
            raise InputError(
                "the table has no partition columns, so its assets cannot be partitioned; "
                "remove partitions_def"
            )
        multi_spelling_fields = [
            field for field in schema.partition_fields if not _has_canonical_text(field.type)
        ]
        return cls(
            columns=tuple(schema.partition_keys),
            days=frozenset(_find_day_number_columns(schema)),
            dimensions=_get_dimensions(schema, partitions_def),
            multi_spelling_fields=tuple(multi_spelling_fields),
            options=schema.typed_options,
        )

    def render(self, spec: Mapping[str, str]) -> str:
        """Return the Dagster key of a spec, whose columns may be in any order."""
        if set(spec) != set(self.columns) or not all(spec.values()):
            raise InputError(
                f"partition {dict(spec)} must have a value for each of {', '.join(self.columns)}"
            )
        values = {
            name: _format_day_number(spec[name]) if name in self.days else spec[name]
            for name in self.columns
        }
        if self.dimensions:
            return DIMENSION_SEPARATOR.join(
                _check_dimension_value(values[name]) for name in self.dimensions
            )
        return values[self.columns[0]] if len(self.columns) == 1 else format_partition_path(values)

    def parse(self, key: str) -> dict[str, str]:
        """Return the spec of a Dagster key; raises :class:`InputError` for an invalid key."""
        if self.dimensions:
            values = key.split(DIMENSION_SEPARATOR)
            by_dimension = dict(zip(self.dimensions, values, strict=False))
            is_complete = len(values) == len(self.dimensions)
            spec = {name: by_dimension[name] for name in self.columns} if is_complete else {}
        else:
            spec = {self.columns[0]: key} if len(self.columns) == 1 else parse_partition_path(key)
        if tuple(spec) != self.columns or not all(spec.values()):
            raise InputError(
                f"partition key {key!r} does not match the partition columns "
                f"{', '.join(self.columns)}"
            )
        spec = {
            name: _parse_day_number(text) if name in self.days else text
            for name, text in spec.items()
        }
        return build_directory_names(spec, self.multi_spelling_fields, self.options)

    def key_of(self, path: str) -> str:
        """Return the Dagster key of a partition path."""
        return self.render(parse_partition_path(path))

    def path_of(self, key: str) -> str:
        """Return the partition path of a Dagster key."""
        return format_partition_path(self.parse(key))


def _get_dimensions(
    schema: TableSchema, partitions_def: dg.PartitionsDefinition[str] | None
) -> tuple[str, ...]:
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return ()
    dimensions = tuple(partitions_def.partition_dimension_names)
    if set(dimensions) != set(schema.partition_keys):
        raise InputError(
            f"the dimensions {', '.join(dimensions)} must be the partition columns "
            f"{', '.join(schema.partition_keys)}"
        )
    return dimensions


def _find_day_number_columns(schema: TableSchema) -> Iterator[str]:
    if schema.typed_options.get(PARTITION_LEGACY_NAME):
        for column in schema.partition_fields:
            if isinstance(column.type, AtomicType) and column.type.name == TypeRoot.DATE:
                yield column.name


def _has_canonical_text(data_type: DataType) -> bool:
    return isinstance(data_type, AtomicType) and data_type.name in _CANONICAL_TEXT_TYPES


def _check_dimension_value(text: str) -> str:
    if set(text) & set(_FORBIDDEN_IN_DIMENSIONS):
        raise InputError(
            f"the partition value {text!r} cannot be part of a multi-dimensional key, in which "
            f"Dagster does not allow the characters {' '.join(_FORBIDDEN_IN_DIMENSIONS)}"
        )
    return text


def _format_day_number(text: str) -> str:
    """Return the ISO date of a day number; returns other text, such as the name of null, as is."""
    try:
        return (_EPOCH + timedelta(days=int(text))).isoformat()
    except (ValueError, OverflowError):
        return text


def _parse_day_number(text: str) -> str:
    """Undo :func:`_format_day_number`."""
    try:
        return str((date.fromisoformat(text) - _EPOCH).days) if "-" in text[1:] else text
    except ValueError:
        return text


def group_partition_keys(
    keys: Collection[str], dimensions: Sequence[Sequence[str]], limit: int
) -> list[tuple[str, ...]]:
    """Return groups of at most ``limit`` keys that one Dagster run can process.

    A run of several partitions names the first and the last one. Dagster adds all keys between them
    in the order of the definition; for two dimensions, it adds the combinations of the values
    between them in each dimension.

    ``dimensions`` are all values of one or two dimensions in the order of the definition. Groups
    and their keys have this order. Keys that the definition does not have are omitted.
    """
    # A single dimension is one row.
    rows, columns = dimensions if len(dimensions) > 1 else ([""], dimensions[0])
    row_positions = {value: position for position, value in enumerate(rows)}
    column_positions = {value: position for position, value in enumerate(columns)}
    columns_by_row = defaultdict[int, list[int]](list)
    for key in set(keys):
        row, _, column = (
            key.rpartition(DIMENSION_SEPARATOR) if len(dimensions) > 1 else ("", "", key)
        )
        if row in row_positions and column in column_positions:
            columns_by_row[row_positions[row]].append(column_positions[column])
    return [
        tuple(
            DIMENSION_SEPARATOR.join(values) if len(dimensions) > 1 else values[1]
            for values in product(
                rows[block.first_row : block.last_row + 1],
                columns[block.first_column : block.last_column + 1],
            )
        )
        for block in _find_blocks(columns_by_row, limit)
    ]


@dataclass(slots=True)
class _Block:
    """Neighboring rows with the same columns; both ends are included."""

    first_row: int
    last_row: int
    first_column: int
    last_column: int

    def can_add_row(self, row: int, limit: int) -> bool:
        """Return whether a row follows the last one and the block remains within the limit."""
        width = self.last_column - self.first_column + 1
        return row == self.last_row + 1 and (row - self.first_row + 1) * width <= limit


def _find_blocks(columns_by_row: dict[int, list[int]], limit: int) -> list[_Block]:
    blocks = list[_Block]()
    newest = dict[tuple[int, int], _Block]()
    for row in sorted(columns_by_row):
        for first, last in _find_runs(sorted(columns_by_row[row]), limit):
            block = newest.get((first, last))
            if block is not None and block.can_add_row(row, limit):
                block.last_row = row
            else:
                block = newest[first, last] = _Block(row, row, first, last)
                blocks.append(block)
    return blocks


def _find_runs(positions: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last of consecutive positions, at most ``limit`` of them."""
    first = previous = positions[0]
    for position in positions[1:]:
        if position != previous + 1 or position - first >= limit:
            yield first, previous
            first = position
        previous = position
    yield first, previous
