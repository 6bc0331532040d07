"""Finds the columns, values of maps and values of variants that filters test."""

from dataclasses import replace

from paimon_orch.errors import InputError
from paimon_orch.files.variant_access import parse_path
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import (
    AtomicType,
    Field,
    MapType,
    TypeRoot,
    VariantType,
    is_blob,
    parse_type,
)
from paimon_orch.format.types.predicate import VariantValue


def resolve_filter_field(
    schema: TableSchema, name: str, *, key: str | None, variant: VariantValue | None
) -> Field:
    """Return the field that a filter tests.

    With ``key``, the values of that key of a map; with ``variant``, the values at its path.
    """
    field = schema.field(name)
    data_type = field.type
    if variant is not None:
        return _resolve_variant_value(field, variant)
    if key is not None:
        match data_type:
            case MapType(key=AtomicType(name=TypeRoot.CHAR | TypeRoot.VARCHAR), value=value):
                data_type, name = value, f"{name}[{key}]"
            case _:
                raise InputError(
                    f"filter on {name}[{key!r}]: {name!r} is not a map with keys of a text type"
                )
    if is_blob(data_type):
        raise InputError(f"filter: column {name!r} is a BLOB; filters do not support BLOB columns")
    if not isinstance(data_type, AtomicType):
        raise InputError(
            f"filter: column {name!r} is nested; filters do not support nested columns"
        )
    return replace(field, name=name, type=data_type)


def _resolve_variant_value(field: Field, variant: VariantValue) -> Field:
    request = f"variant_get({field.name}, {variant.path!r}, {variant.type!r})"
    if not isinstance(field.type, VariantType):
        raise InputError(f"filter: {request}: column {field.name!r} is not a VARIANT")
    parse_path(variant.path)
    data_type = parse_type(variant.type)
    if not isinstance(data_type, AtomicType) or is_blob(data_type):
        raise InputError(f"filter: {request}: filters do not support this type")
    return replace(field, name=request, type=data_type)
