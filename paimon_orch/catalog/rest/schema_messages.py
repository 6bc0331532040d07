"""Schemas and schema changes as messages to a REST server.

See docs/format/catalogs.md#schema-changes-of-a-rest-catalog.
"""

import json
from collections.abc import Sequence
from typing import Any

from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import DataType, parse_type, type_to_json
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    ColumnPath,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetOption,
    UpdateColumnComment,
    UpdateComment,
    UpdateDefault,
    UpdateNullability,
    UpdateType,
)

ColumnChange = (
    DropColumn | RenameColumn | UpdateType | UpdateNullability | UpdateColumnComment | UpdateDefault
)


def encode_schema(schema: TableSchema) -> dict[str, Any]:
    """Return the message of a new table's schema."""
    document = json.loads(schema.to_json())
    keys = ("fields", "partitionKeys", "primaryKeys", "options", "comment")
    return {key: document.get(key) for key in keys}


def encode_changes(changes: Sequence[SchemaChange]) -> list[dict[str, Any]]:
    """Return the messages of schema changes, in order."""
    return [message for change in changes for message in _encode_change(change)]


def _encode_change(change: SchemaChange) -> list[dict[str, Any]]:
    match change:
        case SetOption(key, value):
            return [{"action": "setOption", "key": key, "value": value}]
        case ResetOption(key):
            return [{"action": "removeOption", "key": key}]
        case UpdateComment(comment):
            return [{"action": "updateComment", "comment": comment}]
        case MoveColumn():
            move = _encode_move(change.column, change.where.upper(), change.to)
            return [{"action": "updateColumnPosition", "move": move}]
        case AddColumn():
            return _encode_new_column(change)
    return [{**_encode_column_change(change), "fieldNames": _split(change.column)}]


def _encode_new_column(change: AddColumn) -> list[dict[str, Any]]:
    """Return the message of a new column; its default value is a message of its own."""
    path = _split(change.column)
    move = None
    if change.first:
        move = _encode_move(path[-1], "FIRST", None)
    elif change.after is not None:
        move = _encode_move(path[-1], "AFTER", change.after)
    addition = {
        "action": "addColumn",
        "fieldNames": path,
        "dataType": _encode_type(change.type),
        "comment": change.comment,
        "move": move,
    }
    if change.default is None:
        return [addition]
    return [addition, *_encode_change(UpdateDefault(tuple(path), change.default))]


def _encode_column_change(change: ColumnChange) -> dict[str, Any]:
    match change:
        case DropColumn():
            return {"action": "dropColumn"}
        case RenameColumn(_, to):
            return {"action": "renameColumn", "newName": to}
        case UpdateType(_, new_type):
            message = {"action": "updateColumnType", "newDataType": _encode_type(new_type)}
            return {**message, "keepNullability": True}
        case UpdateNullability(_, nullable):
            return {"action": "updateColumnNullability", "newNullability": nullable}
        case UpdateColumnComment(_, comment):
            return {"action": "updateColumnComment", "newComment": comment}
        case UpdateDefault(_, default):
            return {"action": "updateColumnDefaultValue", "newDefaultValue": default}


def _encode_move(column: str, where: str, to: str | None) -> dict[str, Any]:
    return {"fieldName": column, "referenceFieldName": to, "type": where}


def _encode_type(data_type: str | DataType) -> Any:
    return type_to_json(parse_type(data_type) if isinstance(data_type, str) else data_type)


def _split(column: ColumnPath) -> list[str]:
    return [column] if isinstance(column, str) else list(column)
