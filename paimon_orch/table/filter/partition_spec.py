"""Parses and matches partition specs: ``dt=2026-01-01/region=eu``, or a mapping."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.files.arrow_conversion import convert_to_arrow_type
from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.format.options import Options
from paimon_orch.format.partition_path import (
    build_partition_path,
    format_partition_values,
    unescape_path_name,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import Field, type_to_sql
from paimon_orch.format.types.literals import cast_exactly, to_exact_scalar
from paimon_orch.table.table_label import TableLabel

PartitionSpec = Mapping[str, object]

# A comma may be part of a value; it is a separator only before a name and an equals sign.
_SPEC_SEPARATOR = re.compile(r"/|,(?=[^,/=]+=)")


def parse_partition_spec(text: str, schema: TableSchema) -> dict[str, object]:
    """Parse ``k1=v1/k2=v2`` or ``k1=v1,k2=v2``, escaped as in directory names."""
    spec: dict[str, object] = {}
    for part in _SPEC_SEPARATOR.split(text.strip("/")):
        key, separator, value = part.partition("=")
        if not separator:
            raise InputError(
                f"partition {text!r} must look like 'dt=2026-01-01' or 'dt=2026-01-01/region=eu'"
            )
        name = unescape_path_name(key.strip())
        _check_partition_column(name, schema)
        if name in spec:
            raise InputError(
                f"partition {text!r} has two values of {name!r}; a semicolon separates partitions"
            )
        spec[name] = unescape_path_name(value)
    return spec


def parse_shown_partition(text: str, schema: TableSchema) -> dict[str, str] | None:
    """Parse the name of a partition in the system table ``$partitions``, which is not escaped.

    Returns None for a text that does not have all partition columns in their order.
    """
    pattern = "/".join(f"{re.escape(key)}=(.*)" for key in schema.partition_keys)
    match = re.fullmatch(pattern, text, re.DOTALL)
    return None if match is None else dict(zip(schema.partition_keys, match.groups(), strict=True))


def convert_partition_specs(
    specs: str | PartitionSpec | Iterable[str | PartitionSpec], schema: TableSchema
) -> list[PartitionSpec]:
    """Return specs as mappings; parses strings with :func:`parse_partition_spec`.

    A single string or mapping is one spec. Raises :class:`InputError` for other types.
    """
    listed: object = [specs] if isinstance(specs, str | Mapping) else specs
    if isinstance(listed, bytes) or not isinstance(listed, Iterable):
        raise _build_type_error(specs)
    converted = list[PartitionSpec]()
    for spec in listed:
        if not isinstance(spec, str | Mapping):
            raise _build_type_error(spec)
        converted.append(parse_partition_spec(spec, schema) if isinstance(spec, str) else spec)
    return converted


def _build_type_error(value: object) -> InputError:
    return InputError(
        f"{value!r} of type {type(value).__name__} does not select partitions; write a list of "
        "texts such as 'dt=2026-01-31', or of mappings such as {'dt': date(2026, 1, 31)}"
    )


def parse_partition_specs(
    specs: str | PartitionSpec | Iterable[str | PartitionSpec], schema: TableSchema
) -> list[PartitionSpec]:
    """Return specs as :func:`convert_partition_specs`.

    Raises :class:`InputError` for a list that names no partition, and for a spec without values,
    which would select all partitions.
    """
    parsed = convert_partition_specs(specs, schema)
    if not parsed or not all(parsed):
        raise InputError(
            f"the partitions {parsed} must name at least one partition, and each at least one "
            "partition column, such as dt=2026-01-31"
        )
    return parsed


def missing_partition_error(spec: PartitionSpec, label: TableLabel) -> NotFoundError:
    """Return the error for a requested partition that the table does not have."""
    name = "/".join(f"{column}={value}" for column, value in spec.items())
    listed = replace(label, identifier=f"{label.identifier}$partitions")
    return NotFoundError(
        f"{label.identifier} has no partition {name}; to list its partitions, run "
        f"{listed.format_command('read')}"
    )


def _check_partition_column(name: str, schema: TableSchema) -> None:
    if name not in schema.partition_keys:
        existing = ", ".join(schema.partition_keys) or "none"
        raise NotFoundError(
            f"{name!r} is not a partition column; the partition columns of the table: {existing}"
        )


def build_partition_matcher(spec: PartitionSpec, schema: TableSchema) -> Callable[[bytes], bool]:
    """Return a function that tests serialized partitions against a full or partial spec.

    A string matches the value in the partition's directory name as well as the value itself: a date
    may be ``2024-05-14`` or the day number of old writers. None and the default partition name
    match null.
    """
    for name in spec:
        _check_partition_column(name, schema)
    fields, options = schema.partition_fields, schema.typed_options
    typed = {
        field.name: _convert_to_internal(spec[field.name], to_arrow_type(field.type))
        for field in fields
        if field.name in spec
    }

    def matches(partition: bytes) -> bool:
        values = schema.decode_partition(partition)
        names = format_partition_values(values, fields, options)
        return all(
            spec[field.name] == names[field.name]
            or (spec[field.name] is None and value is None)
            or (value is not None and _is_same(value, typed[field.name]))
            for field, value in zip(fields, values, strict=True)
            if field.name in spec
        )

    return matches


def _is_same(value: object, other: object) -> bool:
    """Return whether values are those of one partition: 0.0 and -0.0 are two, NaN is one."""
    if isinstance(value, float) and isinstance(other, float):
        return repr(value) == repr(other)
    return value == other


def _convert_to_internal(value: object, target: pa.DataType) -> object:
    """Convert a value to the internal form of a type; return None if that is not possible."""
    try:
        literal = to_exact_scalar(value)
        if pa.types.is_string(target):  # a number may name the partition of its text
            return to_internal_value(convert_to_arrow_type(pa.array([literal]), target)[0])
        return to_internal_value(cast_exactly(literal, target))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None


def build_directory_names(
    spec: Mapping[str, str], fields: Iterable[Field], options: Options
) -> dict[str, str]:
    """Convert values to the form of directory names, such as ``05`` to ``5``.

    Raises :class:`InputError` for a value that does not have the type of its column.
    """
    names = dict(spec)
    for field in fields:
        text = spec[field.name]
        value = _convert_to_internal(text, to_arrow_type(field.type))
        if value is not None:
            names |= format_partition_values([value], [field], options)
        elif text != options.default_partition_name:
            raise InputError(
                f"{text!r} is not a value of the partition column {field.name!r}, whose type "
                f"is {type_to_sql(field.type)}"
            )
    return names


def format_partition_spec(spec: PartitionSpec, schema: TableSchema) -> dict[str, str]:
    """Return the values of a full or partial spec as in directory names, but not escaped."""
    for name in spec:
        _check_partition_column(name, schema)
    options, names = schema.typed_options, dict[str, str]()
    for field in schema.partition_fields:
        if field.name not in spec:
            continue
        value = spec[field.name]
        typed = _convert_to_internal(value, to_arrow_type(field.type))
        is_null = value is None or value == options.default_partition_name
        if typed is None and not is_null:
            names[field.name] = str(value)
        else:
            names |= format_partition_values([None if is_null else typed], [field], options)
    return names


def build_any_partition_matcher(
    specs: Iterable[PartitionSpec], schema: TableSchema
) -> Callable[[bytes], bool]:
    """Return a function that tests whether a serialized partition matches any of the specs."""
    matchers = [build_partition_matcher(spec, schema) for spec in specs]
    return lambda partition: any(matches(partition) for matches in matchers)


def format_partition(partition: bytes, schema: TableSchema) -> str:
    """Format a serialized partition as ``k1=v1/k2=v2``, or "" if there are no partition columns."""
    values = schema.decode_partition(partition)
    return build_partition_path(values, schema.partition_fields, schema.typed_options).rstrip("/")
