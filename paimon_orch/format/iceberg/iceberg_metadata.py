"""The table metadata file of Iceberg, ``v<snapshot id>.metadata.json``.

See docs/format/iceberg-metadata.md#table-metadata.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.text import encode_json, parse_json_object

COMMIT_IDENTITY = "paimon-commit-identity"
"""The key of a snapshot summary that names the Paimon commit."""

FORMAT_VERSIONS = (2, 3)
_MAX_REF_AGE = 9223372036854775807
_TAG = "tag"
_FIRST_PARTITION_ID = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSnapshot:
    """One snapshot of the table metadata; its id is the id of the Paimon snapshot."""

    id: int
    parent_id: int | None
    time_millis: int
    manifest_list: str
    schema_id: int | None
    summary: Mapping[str, str]
    first_row_id: int | None = None
    added_rows: int | None = None
    additional: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as JSON values; keys without a value are omitted."""
        value = {
            "sequence-number": self.id,
            "snapshot-id": self.id,
            "parent-snapshot-id": self.parent_id,
            "timestamp-ms": self.time_millis,
            "summary": dict(self.summary),
            "manifest-list": self.manifest_list,
            "schema-id": self.schema_id,
            "first-row-id": self.first_row_id,
            "added-rows": self.added_rows,
        }
        return {k: v for k, v in value.items() if v is not None} | dict(self.additional)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "IcebergSnapshot":
        """Decode a snapshot of the table metadata. Raises ``ValueError`` or ``LookupError``."""
        known = {
            "sequence-number",
            "snapshot-id",
            "parent-snapshot-id",
            "timestamp-ms",
            "summary",
            "manifest-list",
            "schema-id",
            "first-row-id",
            "added-rows",
        }
        return cls(
            id=_get_integer(value, "snapshot-id"),
            parent_id=_get_optional_integer(value, "parent-snapshot-id"),
            time_millis=_get_integer(value, "timestamp-ms"),
            manifest_list=_get_text(value, "manifest-list"),
            schema_id=_get_optional_integer(value, "schema-id"),
            summary=_get_texts(value, "summary"),
            first_row_id=_get_optional_integer(value, "first-row-id"),
            added_rows=_get_optional_integer(value, "added-rows"),
            additional={key: item for key, item in value.items() if key not in known},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergMetadata:
    """The table metadata of one version."""

    format_version: int
    table_uuid: str
    location: str
    last_updated_millis: int
    last_column_id: int
    schemas: Sequence[Mapping[str, Any]]
    current_schema_id: int
    partition_spec: Sequence[Mapping[str, Any]]
    snapshots: Sequence[IcebergSnapshot]
    """The snapshots, oldest first; the last one is current."""
    next_row_id: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)
    """The snapshot ids of the refs of type ``tag``."""

    @property
    def current(self) -> IcebergSnapshot:
        """Return the current snapshot."""
        return self.snapshots[-1]

    @property
    def manifest_lists(self) -> set[str]:
        """Return the paths of the manifest lists of all snapshots."""
        return {snapshot.manifest_list for snapshot in self.snapshots}

    @property
    def identities(self) -> set[tuple[int, str]]:
        """Return the ids and commit identities of the snapshots that have one."""
        pairs = ((item.id, item.summary.get(COMMIT_IDENTITY)) for item in self.snapshots)
        return {(number, identity) for number, identity in pairs if identity is not None}

    def find_snapshot(self, snapshot_id: int) -> IcebergSnapshot | None:
        """Return the snapshot with an id, or None."""
        matches = (snapshot for snapshot in self.snapshots if snapshot.id == snapshot_id)
        return next(matches, None)

    def to_json(self) -> bytes:
        """Return the file, with the keys in the order of Java Paimon."""
        value: dict[str, Any] = {
            "format-version": self.format_version,
            "table-uuid": self.table_uuid,
            "location": self.location,
            "last-sequence-number": self.current.id,
            "last-updated-ms": self.last_updated_millis,
            "last-column-id": self.last_column_id,
            "schemas": list(self.schemas),
            "current-schema-id": self.current_schema_id,
            "partition-specs": [{"spec-id": 0, "fields": list(self.partition_spec)}],
            "default-spec-id": 0,
            "last-partition-id": _FIRST_PARTITION_ID - 1 + len(self.partition_spec),
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "snapshots": [snapshot.to_json() for snapshot in self.snapshots],
            "current-snapshot-id": self.current.id,
            "next-row-id": self.next_row_id,
            "properties": dict(self.properties),
            "refs": {
                name: {"snapshot-id": snapshot_id, "type": _TAG, "max-ref-age-ms": _MAX_REF_AGE}
                for name, snapshot_id in self.tags.items()
            },
        }
        return encode_json({key: item for key, item in value.items() if item is not None})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "IcebergMetadata":
        """Decode a table metadata file. Error messages contain ``path``."""
        with wrap_decode_errors(path):
            value = parse_json_object(data)
            version = _get_integer(value, "format-version")
            if version not in FORMAT_VERSIONS:
                raise ValueError(f"format version {version} is not one of {FORMAT_VERSIONS}")
            snapshots = sorted(
                map(IcebergSnapshot.from_json, _get_list(value, "snapshots")), key=lambda s: s.id
            )
            if not snapshots or snapshots[-1].id != _get_integer(value, "current-snapshot-id"):
                raise ValueError("the current snapshot is not the newest one")
            specs = _get_list(value, "partition-specs")
            return cls(
                format_version=version,
                table_uuid=_get_text(value, "table-uuid"),
                location=_get_text(value, "location"),
                last_updated_millis=_get_integer(value, "last-updated-ms"),
                last_column_id=_get_integer(value, "last-column-id"),
                schemas=_get_schemas(value),
                current_schema_id=_get_integer(value, "current-schema-id"),
                partition_spec=_get_list(specs[0], "fields"),
                snapshots=snapshots,
                next_row_id=_get_optional_integer(value, "next-row-id"),
                properties=_get_texts(value, "properties", optional=True),
                tags=_get_tags(value),
            )


def build_commit_identity(snapshot: Snapshot) -> str:
    """Return the text that identifies the commit of a Paimon snapshot.

    Two snapshots with the same id, before and after a rollback, differ in it.
    """
    uuid = snapshot.additional.get("uuid")
    if isinstance(uuid, str) and uuid:
        return uuid
    return f"{snapshot.commit_user}:{snapshot.commit_identifier}:{snapshot.time_millis}"


def _get_optional_integer(value: Mapping[str, Any], key: str) -> int | None:
    number = value.get(key)
    if number is None:
        return None
    if isinstance(number, int) and not isinstance(number, bool) and -(2**63) <= number < 2**63:
        return number
    raise ValueError(f"{key} is {number!r}, not an integer of 64 bits")


def _get_schemas(value: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the schemas, whose fields have ids, names and types."""
    schemas = _get_list(value, "schemas")
    for schema in schemas:
        _get_integer(schema, "schema-id")
        for column in _get_list(schema, "fields"):
            _get_integer(column, "id")
            _get_text(column, "name")
            if "type" not in column:
                raise ValueError(f"the column {column['name']!r} has no type")
    return schemas


def _get_integer(value: Mapping[str, Any], key: str) -> int:
    number = _get_optional_integer(value, key)
    if number is None:
        raise ValueError(f"{key} is missing")
    return number


def _get_text(value: Mapping[str, Any], key: str) -> str:
    text = value[key]
    if not isinstance(text, str):
        raise ValueError(f"{key} is {text!r}, not text")  # noqa: TRY004 - damage, not a bug
    return text


def _get_list(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    items = value[key]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError(f"{key} is not a list of JSON objects")
    return items


def _get_tags(value: Mapping[str, Any]) -> dict[str, int]:
    """Return the snapshots of the refs that are tags."""
    tags = dict[str, int]()
    for name, ref in _get_mapping(value, "refs", optional=True).items():
        if not isinstance(ref, dict):
            raise ValueError(f"the ref {name!r} is not a JSON object")  # noqa: TRY004 - damage
        if ref.get("type") == _TAG:
            tags[name] = _get_integer(ref, "snapshot-id")
    return tags


def _get_texts(value: Mapping[str, Any], key: str, *, optional: bool = False) -> dict[str, str]:
    items = _get_mapping(value, key, optional=optional)
    if not all(isinstance(item, str) for item in items.values()):
        raise ValueError(f"{key} has a value that is not text")
    return items


def _get_mapping(value: Mapping[str, Any], key: str, *, optional: bool = False) -> dict[str, Any]:
    items = value.get(key) if optional else value[key]
    if items is None and optional:
        return {}
    if not isinstance(items, dict):
        raise ValueError(f"{key} is not a JSON object")  # noqa: TRY004 - damage, not a bug
    return items
