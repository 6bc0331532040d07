"""Conversion between Paimon partitions and the partition keys of an orchestrator.

A partition *spec* maps all partition columns to their values as written in directory names. The
*path* of a partition is ``dt=2026-01-01/region=eu``, escaped as in directory names. Its *key* is
the string that the orchestrator shows: the value of a single column, the path of several columns,
or, for several dimensions, ``2026-01-01|eu`` in their order. Keys contain ISO dates, even if
directory names contain day numbers.

See docs/format/table-layout.md#partition-directories.
"""

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import product

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import PARTITION_LEGACY_NAME
from paimon_orch.format.partition_path import escape_path_name, unescape_path_name
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot
from paimon_orch.table.filter.partition_spec import build_directory_names

_EPOCH = date(1970, 1, 1)
DIMENSION_SEPARATOR = "|"
_CANONICAL_TEXT_TYPES = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.DATE, TypeRoot.TIME)
_FORBIDDEN_IN_DIMENSIONS = "|[],"
"""Characters that separate values or ranges in the keys of several dimensions."""


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
    def of(cls, schema: TableSchema, dimensions: Sequence[str] = ()) -> "PartitionKeys":
        """Return the converter for a table; ``dimensions`` order the values of its keys.

        Raises :class:`InputError` if the table is not partitioned, or if the dimensions are not its
        partition columns.
        """
        if not schema.partition_keys:
            raise InputError("the table has no partition columns, so it has no partition keys")
        if dimensions and set(dimensions) != set(schema.partition_keys):
            raise InputError(
                f"the dimensions {', '.join(dimensions)} must be the partition columns "
                f"{', '.join(schema.partition_keys)}"
            )
        multi_spelling_fields = [
            field
            for field in schema.partition_fields
            if not isinstance(field.type, AtomicType)
            or field.type.name not in _CANONICAL_TEXT_TYPES
        ]
        return cls(
            columns=tuple(schema.partition_keys),
            days=frozenset(_find_day_number_columns(schema)),
            dimensions=tuple(dimensions),
            multi_spelling_fields=tuple(multi_spelling_fields),
            options=schema.typed_options,
        )

    def render(self, spec: Mapping[str, str]) -> str:
        """Return the key of a spec, whose columns may be in any order."""
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
        """Return the spec of a key; raises :class:`InputError` for an invalid key."""
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
        """Return the key of a partition path."""
        return self.render(parse_partition_path(path))

    def path_of(self, key: str) -> str:
        """Return the partition path of a key."""
        return format_partition_path(self.parse(key))

    def keys_of(self, paths: Iterable[str]) -> set[str]:
        """Return the keys of the paths that can have one."""
        keys = (_try(self.key_of, path) for path in paths)
        return {key for key in keys if key is not None}

    def find_keys(
        self, paths: Collection[str], dimensions: Sequence[Sequence[str]]
    ) -> dict[str, str]:
        """Return the key of each path that has one among the values of the dimensions."""
        values = [set(dimension) for dimension in dimensions]
        candidates = {path: _try(self.key_of, path) for path in paths}
        keys = {
            path: key
            for path, key in candidates.items()
            if key is not None and _has_key(values, key)
        }
        if self.multi_spelling_fields and len(keys) < len(paths):
            all_keys = (DIMENSION_SEPARATOR.join(parts) for parts in product(*dimensions))
            keys_by_path = {_try(self.path_of, key): key for key in all_keys}
            keys |= {path: keys_by_path[path] for path in paths if path in keys_by_path}
        return keys


def _try(convert: Callable[[str], str], text: str) -> str | None:
    """Return the path of a key or the key of a path, or None if there cannot be one."""
    try:
        return convert(text)
    except InputError:
        return None


def _has_key(values: Sequence[Collection[str]], key: str) -> bool:
    parts = key.split(DIMENSION_SEPARATOR) if len(values) > 1 else [key]
    return len(parts) == len(values) and all(map(operator.contains, values, parts))


def _find_day_number_columns(schema: TableSchema) -> Iterator[str]:
    if schema.typed_options.get(PARTITION_LEGACY_NAME):
        for column in schema.partition_fields:
            if isinstance(column.type, AtomicType) and column.type.name == TypeRoot.DATE:
                yield column.name


def _check_dimension_value(text: str) -> str:
    if set(text) & set(_FORBIDDEN_IN_DIMENSIONS):
        raise InputError(
            f"the partition value {text!r} cannot be part of a multi-dimensional key, which must "
            f"not contain the characters {' '.join(_FORBIDDEN_IN_DIMENSIONS)}"
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
