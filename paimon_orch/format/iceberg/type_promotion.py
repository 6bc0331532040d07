"""Which data files of older schemas Iceberg reads with the newest schema.

Iceberg converts few types on read. Any other change of a type makes it fail, or return values that
differ from Paimon's. See docs/format/iceberg-metadata.md#types.
"""

from collections.abc import Sequence

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    type_to_sql,
)

_WIDER_TYPES = {
    # Iceberg's Java library fails to read files with TINYINT or SMALLINT as long.
    TypeRoot.TINYINT: (TypeRoot.SMALLINT, TypeRoot.INT),
    TypeRoot.SMALLINT: (TypeRoot.INT,),
    TypeRoot.INT: (TypeRoot.BIGINT,),
    TypeRoot.FLOAT: (TypeRoot.DOUBLE,),
    TypeRoot.CHAR: (TypeRoot.VARCHAR,),
    TypeRoot.BINARY: (TypeRoot.VARBINARY,),
}
_PADDED_TYPES = (TypeRoot.CHAR, TypeRoot.BINARY)


def check_promotable(old: TableSchema, new: TableSchema) -> None:
    """Raise :class:`UnsupportedError` if Iceberg cannot read files of one schema with another.

    Columns that only one of the schemas has are allowed, unless a new one is NOT NULL.
    """
    problem = _find_in_fields(old.fields, new.fields, "")
    if problem is not None:
        raise UnsupportedError(
            f"{problem} (schema {old.id} of data files, schema {new.id} of the table); rewrite "
            "these files by a full compaction with 'compaction.force-rewrite-all-files' = true"
        )


def _find_in_fields(old: Sequence[Field], new: Sequence[Field], prefix: str) -> str | None:
    old_fields = {field.id: field for field in old}
    for field in new:
        name = prefix + field.name
        source = old_fields.get(field.id)
        if source is not None:
            problem = _find_problem(source.type, field.type, name)
        elif field.type.nullable:
            problem = None
        else:
            problem = (
                f"column {name!r} of type {type_to_sql(field.type)} is missing in older data files"
            )
        if problem is not None:
            return problem
    return None


def _find_problem(old: DataType, new: DataType, name: str) -> str | None:
    if old.nullable and not new.nullable:
        return (
            f"column {name!r} changed from {type_to_sql(old)} to {type_to_sql(new)}, and older "
            "data files may contain nulls"
        )
    match old, new:
        case AtomicType(), AtomicType():
            return None if _is_promotable(old, new) else _describe_change(old, new, name)
        case RowType(fields=old_fields), RowType(fields=new_fields):
            return _find_in_fields(old_fields, new_fields, f"{name}.")
        case ArrayType(element=source), ArrayType(element=target):
            return _find_problem(source, target, f"{name}.element")
        case MultisetType(element=source), MultisetType(element=target):
            return _find_in_key(source, target, name)
        case MapType(), MapType():
            return _find_in_key(old.key, new.key, name) or _find_problem(
                old.value, new.value, f"{name}.value"
            )
    return _describe_change(old, new, name)


def _find_in_key(old: DataType, new: DataType, name: str) -> str | None:
    # keys are required in Iceberg, and files store them so, whatever the nullability
    return _find_problem(old.with_nullable(False), new.with_nullable(False), f"{name}.key")


def _describe_change(old: DataType, new: DataType, name: str) -> str:
    return (
        f"column {name!r} changed from {type_to_sql(old)} to {type_to_sql(new)}, which Iceberg "
        "does not convert when it reads older data files"
    )


def _is_promotable(old: AtomicType, new: AtomicType) -> bool:
    """Return whether Iceberg reads values of the old type as Paimon casts them to the new one."""
    if old.name == new.name and old.params == new.params:
        return True
    if old.name == TypeRoot.DECIMAL == new.name:
        return old.params[1] == new.params[1] and old.params[0] <= new.params[0]
    if old.name != new.name and new.name not in _WIDER_TYPES.get(old.name, ()):
        return False
    if new.name in _PADDED_TYPES:
        return False  # Paimon pads the values to the new length, Iceberg does not
    # Paimon truncates values that are too long or too precise, Iceberg does not
    return old.params <= new.params
