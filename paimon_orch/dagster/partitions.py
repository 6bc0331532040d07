"""Paimon partitions and Dagster partition keys: the same partition in two spellings.

A spec is a mapping of all partition columns to their values as text, the way directories are named. Its *path* is
``dt=2026-01-01/region=eu`` in the escaping of directory names. Its *key* is what Dagster shows:
the bare value for one column, the path for several, and for a multi-dimensional definition ``2026-01-01|eu``, in the
order of the columns' names. A date is written as one in keys, also where its directory has the number of the day.

See docs/format/table-layout.md#partition-directories.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

import dagster as dg

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import PARTITION_LEGACY_NAME
from paimon_orch.format.partition_path import escape_path_name, unescape_path_name
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType, DataType, Field, TypeRoot
from paimon_orch.table.filter.partition_spec import build_directory_names

_EPOCH = date(1970, 1, 1)
_DIMENSION_SEPARATOR = "|"
_CANONICAL_TEXT_TYPES = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.DATE, TypeRoot.TIME)
_FORBIDDEN_IN_DIMENSIONS = "|[],"
"""What Dagster refuses in the keys of a dimension."""


def parse_partition_path(path: str) -> dict[str, str]:
    """Return the spec of a partition path; raises :class:`InputError` if it is none."""
    spec: dict[str, str] = {}
    for part in path.split("/"):
        column, separator, value = part.partition("=")
        if not (column and separator and value) or unescape_path_name(column) in spec:
            raise InputError(f"partition {path!r} must look like 'dt=2026-01-01/region=eu'")
        spec[unescape_path_name(column)] = unescape_path_name(value)
    return spec


def format_partition_path(spec: Mapping[str, str]) -> str:
    """Return the path of a spec, in its order of columns."""
    return "/".join(
        f"{escape_path_name(column)}={escape_path_name(value)}" for column, value in spec.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionKeys:
    """Translates for a table with these partition columns, of which there is at least one.

    :ivar days: columns whose directories are named by the number of the day
    :ivar typed: columns whose values have several spellings, such as ``05`` and ``5``, one of which names the directory
    :ivar dimensions: the columns in the order of the keys of a multi-dimensional definition; none for any other
    """

    columns: tuple[str, ...]
    days: frozenset[str] = frozenset()
    dimensions: tuple[str, ...] = ()
    multi_spelling_fields: tuple[Field, ...] = ()
    options: Options = field(default_factory=lambda: Options({}))

    @classmethod
    def of(
        cls, schema: TableSchema, partitions_def: dg.PartitionsDefinition[str] | None = None
    ) -> "PartitionKeys":
        """Return the translation for a table and the definition of its assets.

        Raises :class:`InputError` if the table is not partitioned, or by other columns than the definition's.
        """
        if not schema.partition_keys:
            raise InputError(
                "the table has no partition columns, so its assets must not be partitioned: "
                "leave partitions_def out"
            )
        columns, dimensions = tuple(schema.partition_keys), tuple[str, ...]()
        if isinstance(partitions_def, dg.MultiPartitionsDefinition):
            dimensions = tuple(partitions_def.partition_dimension_names)
            if set(dimensions) != set(columns):
                raise InputError(
                    f"the dimensions {', '.join(dimensions)} must be the partition columns {', '.join(columns)}"
                )
        typed = (field for field in schema.partition_fields if not _has_canonical_text(field.type))
        by_number = schema.typed_options.get(PARTITION_LEGACY_NAME)
        dates = (
            field.name
            for field in schema.partition_fields
            if by_number and isinstance(field.type, AtomicType) and field.type.name == TypeRoot.DATE
        )
        return cls(
            columns=columns,
            days=frozenset(dates),
            dimensions=dimensions,
            multi_spelling_fields=(*typed,),
            options=schema.typed_options,
        )

    def render(self, spec: Mapping[str, str]) -> str:
        """Return the Dagster key of a partition; the spec's order does not matter."""
        if set(spec) != set(self.columns) or not all(spec.values()):
            raise InputError(
                f"partition {dict(spec)} must give a value to each of {', '.join(self.columns)}"
            )
        shown = {
            name: _format_day_number(spec[name]) if name in self.days else spec[name]
            for name in self.columns
        }
        if self.dimensions:
            return _DIMENSION_SEPARATOR.join(
                _check_dimension_value(shown[name]) for name in self.dimensions
            )
        return shown[self.columns[0]] if len(self.columns) == 1 else format_partition_path(shown)

    def parse(self, key: str) -> dict[str, str]:
        """Return the partition of a Dagster key; raises :class:`InputError` if it is none of this table."""
        if self.dimensions:
            given = dict(zip(self.dimensions, key.split(_DIMENSION_SEPARATOR), strict=False))
            fits = key.count(_DIMENSION_SEPARATOR) + 1 == len(self.dimensions)
            spec = {name: given[name] for name in self.columns} if fits else {}
        else:
            spec = {self.columns[0]: key} if len(self.columns) == 1 else parse_partition_path(key)
        if tuple(spec) != self.columns or not all(spec.values()):
            raise InputError(
                f"partition key {key!r} does not fit the partition columns {', '.join(self.columns)}"
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


def _has_canonical_text(kind: DataType) -> bool:
    return isinstance(kind, AtomicType) and kind.name in _CANONICAL_TEXT_TYPES


def _check_dimension_value(text: str) -> str:
    if set(text) & set(_FORBIDDEN_IN_DIMENSIONS):
        raise InputError(
            f"the partition value {text!r} cannot be part of a multi-dimensional key: Dagster takes none of "
            f"{' '.join(_FORBIDDEN_IN_DIMENSIONS)} in it"
        )
    return text


def _format_day_number(text: str) -> str:
    """Return the date of a day's number; what is none, such as the name of null, stays as it is."""
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
