"""Table schemas and partition specs as Iceberg metadata contains them.

See docs/format/iceberg-metadata.md#schemas.
"""

from typing import Any

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import compute_nested_field_id
from paimon_orch.format.types.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    iterate_fields,
    type_to_sql,
)

FIRST_PARTITION_FIELD_ID = 1000

_MULTISET_COUNT_TYPE = AtomicType(False, TypeRoot.INT)
_TYPE_NAMES = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "time",
    TypeRoot.TIMESTAMP: "timestamp",
    TypeRoot.TIMESTAMP_LTZ: "timestamptz",
    TypeRoot.CHAR: "string",
    TypeRoot.VARCHAR: "string",
    TypeRoot.BINARY: "binary",
    TypeRoot.VARBINARY: "binary",
}
_TIMESTAMP_AVRO = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False}
_AVRO_TYPES: dict[TypeRoot, Any] = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.DATE: {"type": "int", "logicalType": "date"},
    TypeRoot.TIMESTAMP: _TIMESTAMP_AVRO,
    TypeRoot.CHAR: "string",
    TypeRoot.VARCHAR: "string",
}


def build_iceberg_schema(schema: TableSchema, format_version: int) -> dict[str, Any]:
    """Return the JSON value of a schema; its id and its field ids are those of Paimon.

    Raises :class:`UnsupportedError` for a column whose type has no equivalent in Iceberg. See
    docs/format/iceberg-metadata.md#types.
    """
    writer = _SchemaWriter(format_version)
    fields = [writer.field(field, field.name) for field in schema.fields]
    return {"type": "struct", "schema-id": schema.id, "fields": fields}


def compute_last_column_id(schema: TableSchema) -> int:
    """Return the highest id of the columns and the fields of ROWs.

    Elements, keys and values have larger ids, which do not count. See docs/format/iceberg-metadata.md#schemas.
    """
    return max((field.id for field in iterate_fields(schema.fields)), default=0)


def build_partition_spec(schema: TableSchema) -> list[dict[str, Any]]:
    """Return the fields of the partition spec: every partition column as it is.

    See docs/format/iceberg-metadata.md#partition-spec.
    """
    return [
        {
            "name": field.name,
            "transform": "identity",
            "source-id": field.id,
            "field-id": FIRST_PARTITION_FIELD_ID + index,
        }
        for index, field in enumerate(schema.partition_fields)
    ]


def build_partition_avro_fields(schema: TableSchema) -> list[dict[str, Any]]:
    """Return the fields of the Avro record ``r102``, which holds the partition of a file.

    Raises :class:`UnsupportedError` for a partition column of a type that readers of Iceberg cannot
    decode in manifests. See docs/format/iceberg-metadata.md#partition-spec.
    """
    return [
        _build_partition_avro_field(field, FIRST_PARTITION_FIELD_ID + index)
        for index, field in enumerate(schema.partition_fields)
    ]


def _build_partition_avro_field(field: Field, field_id: int) -> dict[str, Any]:
    avro_type = _find_partition_avro_type(field.type)
    if avro_type is None:
        raise UnsupportedError(
            f"partition column {field.name!r} has type {type_to_sql(field.type)}, which readers of "
            "Iceberg cannot decode in manifests; partition the table by a column of another type"
        )
    if not field.type.nullable:
        return {"name": field.name, "type": avro_type, "field-id": field_id}
    return {
        "name": field.name,
        "type": ["null", avro_type],
        "default": None,
        "field-id": field_id,
    }


def _find_partition_avro_type(data_type: DataType) -> Any:
    match data_type:
        case AtomicType(name=TypeRoot.TIMESTAMP, params=(precision,)) if precision > 6:
            return None
        case AtomicType(name=name):
            return _AVRO_TYPES.get(name)
    return None


class _SchemaWriter:
    """Converts types; ``column`` is the name of a column or the path of a nested field."""

    def __init__(self, format_version: int) -> None:
        self.format_version = format_version

    def field(self, field: Field, column: str) -> dict[str, Any]:
        value: dict[str, Any] = {
            "id": field.id,
            "name": field.name,
            "required": not field.type.nullable,
            "type": self.type(field.type, column, field.id),
        }
        if field.description is not None:
            value["doc"] = field.description
        return value

    def type(self, data_type: DataType, column: str, field_id: int, depth: int = 0) -> Any:
        match data_type:
            case AtomicType():
                return self.atomic_type(data_type, column)
            case ArrayType(element=element):
                depth += 1
                return {
                    "type": "list",
                    "element-id": _nested_id(column, field_id, depth=depth, sign=1),
                    "element-required": not element.nullable,
                    "element": self.type(element, f"{column}.element", field_id, depth),
                }
            case MapType(key=key, value=value):
                return self.map_type(key, value, column=column, field_id=field_id, depth=depth + 1)
            case MultisetType(element=key):
                value = _MULTISET_COUNT_TYPE
                return self.map_type(key, value, column=column, field_id=field_id, depth=depth + 1)
            case RowType(fields=fields):
                # nested ids in a ROW are relative to its fields, so the depth starts again
                children = [self.field(child, f"{column}.{child.name}") for child in fields]
                return {"type": "struct", "fields": children}
        raise _unsupported(column, data_type, "Iceberg has no such type")

    def map_type(
        self, key: DataType, value: DataType, *, column: str, field_id: int, depth: int
    ) -> dict[str, Any]:
        return {
            "type": "map",
            "key-id": _nested_id(column, field_id, depth=depth, sign=-1),
            "key": self.type(key, f"{column}.key", field_id, depth),
            "value-id": _nested_id(column, field_id, depth=depth, sign=1),
            "value-required": not value.nullable,
            "value": self.type(value, f"{column}.value", field_id, depth),
        }

    def atomic_type(self, data_type: AtomicType, column: str) -> str:
        name, params = data_type.name, data_type.params
        if name == TypeRoot.DECIMAL:
            return f"decimal({params[0]}, {params[1]})"
        if name in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
            self.check_timestamp_precision(data_type, column)
        if name == TypeRoot.TIME and params[0] > 3:
            raise _unsupported(
                column, data_type, "data files hold TIME in milliseconds, use a precision up to 3"
            )
        return _TYPE_NAMES[name]

    def check_timestamp_precision(self, data_type: AtomicType, column: str) -> None:
        (precision,) = data_type.params
        if precision < 3:
            raise _unsupported(
                column, data_type, "Iceberg has no timestamps of less than millisecond precision"
            )
        if precision > 6 and self.format_version < 3:
            raise _unsupported(
                column,
                data_type,
                f"Iceberg format version {self.format_version} has no nanosecond timestamps",
            )
        if precision > 6:
            raise _unsupported(
                column,
                data_type,
                "readers of Iceberg lose the nanoseconds of INT96, the type of such columns in "
                "Parquet files",
            )


def _nested_id(column: str, field_id: int, *, depth: int, sign: int) -> int:
    nested_id = compute_nested_field_id(field_id, depth, sign)
    if not 0 <= nested_id < 2**31:
        raise UnsupportedError(
            f"column {column!r} has the field id {field_id}, which is too large for ids of its "
            "elements, keys or values in Iceberg; create the table again with a smaller id"
        )
    return nested_id


def _unsupported(column: str, data_type: DataType, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"column {column!r} has type {type_to_sql(data_type)}, which cannot be published as "
        f"Iceberg: {reason}; publish the table without the column, or with one of another type"
    )
