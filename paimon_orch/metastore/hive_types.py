"""The Hive type of a Paimon column, for engines that show the columns of a metastore."""

from collections.abc import Iterable

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.types.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    VariantType,
    VectorType,
    has_atom,
    type_to_sql,
)
from paimon_orch.metastore.hive_client import HiveClient

TIMESTAMP = "timestamp"
LOCAL_TIMESTAMP = "timestamp with local time zone"
"""The type of Hive 3 and newer; in older metastores a column of it cannot be altered."""

_NAMES = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "tinyint",
    TypeRoot.SMALLINT: "smallint",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "bigint",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.BINARY: "binary",
    TypeRoot.VARBINARY: "binary",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "string",
    TypeRoot.TIMESTAMP: TIMESTAMP,
}
_MAX_CHAR, _MAX_VARCHAR = 255, 65535


def to_hive_type(data_type: DataType, local_timestamp: str) -> str:
    """Return the name of the Hive type; ``local_timestamp`` is the one of TIMESTAMP_LTZ.

    Raises :class:`UnsupportedError` for types that Hive does not have.
    """
    match data_type:
        case ArrayType() | VectorType():
            return f"array<{to_hive_type(data_type.element, local_timestamp)}>"
        case VariantType():
            return "struct<value:binary,metadata:binary>"
        case MultisetType():
            return f"map<{to_hive_type(data_type.element, local_timestamp)},int>"
        case MapType():
            key = to_hive_type(data_type.key, local_timestamp)
            return f"map<{key},{to_hive_type(data_type.value, local_timestamp)}>"
        case RowType():
            fields = (
                f"{field.name}:{to_hive_type(field.type, local_timestamp)}"
                for field in data_type.fields
            )
            return f"struct<{','.join(fields)}>"
        case AtomicType():
            return _to_atomic_type(data_type, local_timestamp)
    raise UnsupportedError(f"Hive has no type for {type_to_sql(data_type)}")


def _to_atomic_type(data_type: AtomicType, local_timestamp: str) -> str:
    match data_type.name:
        case TypeRoot.TIMESTAMP_LTZ:
            return local_timestamp
        case TypeRoot.DECIMAL:
            precision, scale = data_type.params
            return f"decimal({precision},{scale})"
        case TypeRoot.CHAR:
            return _to_text_type("char", data_type.params[0], _MAX_CHAR)
        case TypeRoot.VARCHAR:
            return _to_text_type("varchar", data_type.params[0], _MAX_VARCHAR)
    return _NAMES[data_type.name]


def _to_text_type(name: str, length: int, longest: int) -> str:
    return f"{name}({length})" if length <= longest else "string"


def choose_local_timestamp(
    client: HiveClient, types: Iterable[DataType], existing: Iterable[str]
) -> str:
    """Return the Hive type of TIMESTAMP_LTZ: that of existing columns, or of the release.

    Java writes one or the other, depending on its version of Hive. Metastores refuse to alter
    columns from one to the other.
    """
    if not any(has_atom(data_type, TypeRoot.TIMESTAMP_LTZ) for data_type in types):
        return TIMESTAMP
    names = list(existing)
    if any(LOCAL_TIMESTAMP in name for name in names):
        return LOCAL_TIMESTAMP
    if any(TIMESTAMP in name for name in names):
        return TIMESTAMP
    try:
        client.read("get_catalogs")  # a method of Hive 3 and newer
    except UnsupportedError:
        return TIMESTAMP
    return LOCAL_TIMESTAMP
