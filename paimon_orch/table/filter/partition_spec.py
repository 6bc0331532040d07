"""Partition specs as people give them: ``dt=2026-01-01/region=eu``, or a mapping."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.files.schema_evolution.evolve import stored_as
from paimon_orch.files.stats.collector import internal_value
from paimon_orch.format.options import Options
from paimon_orch.format.partition_path import partition_names, partition_path, unescape
from paimon_orch.format.row.binary_row import deserialize_row
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import arrow_type
from paimon_orch.format.types.data_types import Field, type_to_sql

Spec = Mapping[str, object]

# A comma may be part of a value; it parts two of them only where a name and an equals sign follow.
_SEPARATOR = re.compile(r"/|,(?=[^,/=]+=)")


def parse_spec(text: str, schema: TableSchema) -> dict[str, object]:
    """Parse ``k1=v1/k2=v2`` (or with commas) in the escaping of directory names."""
    spec: dict[str, object] = {}
    for part in _SEPARATOR.split(text.strip("/")):
        key, separator, value = part.partition("=")
        if not separator:
            raise InputError(
                f"partition {text!r} must look like 'dt=2026-01-01' or 'dt=2026-01-01/region=eu'"
            )
        name = unescape(key.strip())
        _check_key(name, schema)
        spec[name] = unescape(value)
    return spec


def parse_specs(specs: Iterable[str | Spec], schema: TableSchema) -> list[Spec]:
    """Return specs as mappings; texts are parsed by :func:`parse_spec`."""
    return [parse_spec(spec, schema) if isinstance(spec, str) else spec for spec in specs]


def _check_key(name: str, schema: TableSchema) -> None:
    if name not in schema.partition_keys:
        known = ", ".join(schema.partition_keys) or "none"
        raise NotFoundError(
            f"{name!r} is not a partition column; the table's partition columns: {known}"
        )


def partition_matcher(spec: Spec, schema: TableSchema) -> Callable[[bytes], bool]:
    """Return a test of serialized partitions against a full or partial spec.

    A text value matches a partition by the name of its directory, so that ``2024-05-14`` and the day number that old
    writers used are both understood; None and the default partition name mean null.
    """
    for name in spec:
        _check_key(name, schema)
    fields, options = schema.partition_fields, schema.typed_options
    types = [field.type for field in fields]
    typed = {
        field.name: _typed(spec[field.name], arrow_type(field.type))
        for field in fields
        if field.name in spec
    }

    def matches(partition: bytes) -> bool:
        values = deserialize_row(partition, types)
        names = partition_names(values, fields, options)
        return all(
            spec[field.name] == names[field.name]
            or (spec[field.name] is None and value is None)
            or (value is not None and value == typed[field.name])
            for field, value in zip(fields, values, strict=True)
            if field.name in spec
        )

    return matches


def _typed(value: object, target: pa.DataType) -> object:
    """Return a value in the internal form of the column's type, None if it has none."""
    try:
        scalar = pa.scalar(value)
        return internal_value(stored_as(pa.array([scalar.as_py()]), target)[0])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None


def directory_names(
    spec: Mapping[str, str], fields: Iterable[Field], options: Options
) -> dict[str, str]:
    """Return values as directories are named by them, so ``5`` for an INT given as ``05``.

    Values of ``fields`` that are none of the type, nor the default partition name, are refused.
    """
    names = dict(spec)
    for field in fields:
        text, value = spec[field.name], _typed(spec[field.name], arrow_type(field.type))
        if value is not None:
            names |= partition_names([value], [field], options)
        elif text != options.default_partition_name:
            raise InputError(
                f"{text!r} is no value of the partition column {field.name!r}, which is {type_to_sql(field.type)}"
            )
    return names


def any_of(specs: Iterable[Spec], schema: TableSchema) -> Callable[[bytes], bool]:
    """Return a test that holds if one of the specs matches."""
    matchers = [partition_matcher(spec, schema) for spec in specs]
    return lambda partition: any(matches(partition) for matches in matchers)


def replaced_partitions(
    written: Iterable[bytes], spec: Spec | Sequence[Spec] | None, schema: TableSchema
) -> Callable[[bytes], bool] | None:
    """Return which partitions an overwrite replaces (section 10.6); None for none at all.

    ``written`` are the partitions of the new files, which must all lie in ``spec``, or one of several, if there is one.
    """
    dynamic = schema.typed_options.boolean("dynamic-partition-overwrite", default=True)
    if not schema.partition_keys or (spec is None and not dynamic) or spec == {}:
        return lambda _: True
    partitions = set(written)
    if spec is None:
        return partitions.__contains__ if partitions else None
    specs = [spec] if isinstance(spec, Mapping) else spec
    matches = any_of(specs, schema)
    if not all(map(matches, partitions)):
        named = " or ".join(str(dict(one)) for one in specs)
        raise InputError(f"the rows do not all lie in the partition {named} to overwrite")
    return matches


def partition_text(partition: bytes, schema: TableSchema) -> str:
    """Return ``k1=v1/k2=v2`` of a serialized partition, an empty text without partition columns."""
    fields = schema.partition_fields
    values = deserialize_row(partition, [field.type for field in fields])
    return partition_path(values, fields, schema.typed_options).rstrip("/")
