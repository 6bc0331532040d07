"""Statistics files: results of ANALYZE.

See docs/format/statistics.md#statistics-file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.format.text import encode_json, parse_integer, parse_json_object


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """Statistics of one column: bounds as cast to text, lengths in characters or bytes."""

    column_id: int
    distinct_count: int | None = None
    min: str | None = None
    max: str | None = None
    null_count: int | None = None
    average_length: int | None = None
    max_length: int | None = None


_COLUMN_KEYS = {
    "colId": "column_id",
    "distinctCount": "distinct_count",
    "min": "min",
    "max": "max",
    "nullCount": "null_count",
    "avgLen": "average_length",
    "maxLen": "max_length",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics:
    """Statistics of one snapshot: the rows that a reader sees, and their share of the bytes."""

    snapshot_id: int
    schema_id: int
    row_count: int | None = None
    size: int | None = None
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Encode as a statistics file; unknown values are omitted."""
        columns = {
            name: {
                key: item
                for key, attribute in _COLUMN_KEYS.items()
                if (item := getattr(column, attribute)) is not None
            }
            for name, column in self.columns.items()
        }
        value = {
            "snapshotId": self.snapshot_id,
            "schemaId": self.schema_id,
            "mergedRecordCount": self.row_count,
            "mergedRecordSize": self.size,
            "colStats": columns,
        }
        return encode_json({key: item for key, item in value.items() if item is not None})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "TableStatistics":
        """Decode a statistics file. Error messages contain ``path``. Unknown keys are ignored."""
        with wrap_decode_errors(path):
            value = parse_json_object(data)
            columns = value.get("colStats") or {}
            if not isinstance(columns, dict) or not all(
                isinstance(item, dict) for item in columns.values()
            ):
                raise ValueError("colStats must be a JSON object whose values are objects")
            return cls(
                snapshot_id=parse_integer(value["snapshotId"], "snapshotId"),
                schema_id=parse_integer(value["schemaId"], "schemaId"),
                row_count=_parse_count(value, "mergedRecordCount"),
                size=_parse_count(value, "mergedRecordSize"),
                columns={name: _parse_column(item) for name, item in columns.items()},
            )


def _parse_count(value: Mapping[str, Any], key: str) -> int | None:
    number = value.get(key)
    if number is not None and (not isinstance(number, int) or not 0 <= number < 2**63):
        raise ValueError(f"{key} must be a non-negative integer, got {number!r}")
    return number


def _parse_column(value: Mapping[str, Any]) -> ColumnStatistics:
    return ColumnStatistics(
        **{name: value.get(key) for key, name in _COLUMN_KEYS.items() if key != "colId"},
        column_id=parse_integer(value["colId"], "colId"),
    )
