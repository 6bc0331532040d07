"""Snapshot files.

See docs/format/snapshot.md#snapshot-file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paimon_orch.errors import UnsupportedError, wrap_decode_errors
from paimon_orch.format.manifest.manifest_entry import check_file_name
from paimon_orch.format.text import encode_json, parse_json_object, replace_surrogates

SNAPSHOT_VERSION = 3
MAX_LONG = 2**63 - 1
"""The largest number of Java's type for ids and counts."""
_MIN_MILLIS, _MAX_MILLIS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: Python has no other dates."""
BATCH_COMMIT_IDENTIFIER = MAX_LONG
FIRST_SNAPSHOT_ID = 1
_MIN_INT64 = -(2**63)
_KNOWN_KEYS = frozenset(
    (
        *(
            "version",
            "id",
            "schemaId",
            "commitUser",
            "commitIdentifier",
            "commitKind",
            "timeMillis",
        ),
        *("baseManifestList", "baseManifestListSize", "deltaManifestList", "deltaManifestListSize"),
        *("changelogManifestList", "changelogManifestListSize", "indexManifest", "statistics"),
        *("totalRecordCount", "deltaRecordCount", "changelogRecordCount"),
        *("watermark", "properties", "nextRowId"),
    )
)
# Later releases write these keys. They describe the commit, so the next snapshot does not inherit
# them.
_COMMIT_KEYS = frozenset(("uuid", "operation", "writerVersion"))


class CommitKind(StrEnum):
    """The kind of change that a commit made."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One version of a table. Lists and manifests are file names; times are epoch milliseconds."""

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_millis: int
    total_record_count: int
    delta_record_count: int
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    changelog_record_count: int | None = None
    index_manifest: str | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    next_row_id: int | None = None
    version: int = SNAPSHOT_VERSION
    additional: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Unknown keys of the snapshot file."""

    @property
    def inherited(self) -> dict[str, Any]:
        """Return the unknown keys that describe the table; the next snapshot inherits them."""
        return {key: item for key, item in self.additional.items() if key not in _COMMIT_KEYS}

    def to_json(self) -> bytes:
        """Encode as a snapshot file; optional keys without a value are omitted.

        Raises :class:`UnsupportedError` for numbers that Java cannot read.
        """
        value: dict[str, Any] = {
            "version": self.version,
            "id": self.id,
            "schemaId": self.schema_id,
            "baseManifestList": self.base_manifest_list,
            "baseManifestListSize": self.base_manifest_list_size,
            "deltaManifestList": self.delta_manifest_list,
            "deltaManifestListSize": self.delta_manifest_list_size,
            "changelogManifestList": self.changelog_manifest_list,
            "changelogManifestListSize": self.changelog_manifest_list_size,
            "indexManifest": self.index_manifest,
            "commitUser": self.commit_user,
            "commitIdentifier": self.commit_identifier,
            "commitKind": self.commit_kind.value,
            "timeMillis": self.time_millis,
            "totalRecordCount": self.total_record_count,
            "deltaRecordCount": self.delta_record_count,
            "changelogRecordCount": self.changelog_record_count,
            "watermark": self.watermark,
            "statistics": self.statistics,
            "properties": dict(self.properties) or None,
            "nextRowId": self.next_row_id,
        }
        non_null = {key: item for key, item in value.items() if item is not None}
        for key, item in non_null.items():
            if isinstance(item, int) and not _MIN_INT64 <= item <= MAX_LONG:
                raise UnsupportedError(
                    f"snapshot {self.id} cannot be written: Java cannot read the number {item} of "
                    f"{key!r}, which follows from the numbers of the table. Nothing was committed"
                )
        return encode_json({**non_null, **self.additional})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "Snapshot":
        """Decode a snapshot file. Error messages contain ``path``. Unknown keys are preserved."""
        with wrap_decode_errors(path):
            value = parse_json_object(data)
            version = _parse_integer(value, "version", 1, default=1)
            if version > SNAPSHOT_VERSION:
                raise UnsupportedError(
                    f"{path}: snapshot version {version} is newer than {SNAPSHOT_VERSION}, the "
                    "newest supported version; upgrade paimon-orch"
                )
            return cls(
                id=_parse_integer(value, "id", FIRST_SNAPSHOT_ID),
                schema_id=_parse_integer(value, "schemaId", 0),
                base_manifest_list=check_file_name(value["baseManifestList"], path),
                delta_manifest_list=check_file_name(value["deltaManifestList"], path),
                commit_user=replace_surrogates(str(value["commitUser"])),
                commit_identifier=_parse_integer(value, "commitIdentifier"),
                commit_kind=CommitKind(value["commitKind"]),
                time_millis=_parse_time(value, "timeMillis"),
                total_record_count=_parse_integer(value, "totalRecordCount", default=0),
                delta_record_count=_parse_integer(value, "deltaRecordCount", default=0),
                base_manifest_list_size=_parse_optional_integer(value, "baseManifestListSize", 0),
                delta_manifest_list_size=_parse_optional_integer(value, "deltaManifestListSize", 0),
                changelog_manifest_list=_check_optional_file_name(
                    value.get("changelogManifestList"), path
                ),
                changelog_manifest_list_size=_parse_optional_integer(
                    value, "changelogManifestListSize", 0
                ),
                changelog_record_count=_parse_optional_integer(value, "changelogRecordCount", 0),
                index_manifest=_check_optional_file_name(value.get("indexManifest"), path),
                watermark=_parse_optional_integer(value, "watermark"),
                statistics=_check_optional_file_name(value.get("statistics"), path),
                properties=value.get("properties") or {},
                next_row_id=_parse_optional_integer(value, "nextRowId", 0),
                version=version,
                additional={key: item for key, item in value.items() if key not in _KNOWN_KEYS},
            )


def _parse_optional_integer(
    value: Mapping[str, Any], key: str, least: int = _MIN_INT64
) -> int | None:
    """Return an integer, or None if it is absent. Raises ``ValueError`` for other values."""
    number = value.get(key)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{key} is {number!r}, not an integer")  # noqa: TRY004 - damage, not a bug
    if not least <= number <= MAX_LONG:
        raise ValueError(f"{key} is {number}, which is out of range")
    return number


def _parse_integer(
    value: Mapping[str, Any], key: str, least: int = _MIN_INT64, *, default: int | None = None
) -> int:
    number = _parse_optional_integer(value, key, least)
    if number is not None:
        return number
    if default is None:
        raise ValueError(f"{key} is missing")
    return default


def _parse_time(value: Mapping[str, Any], key: str) -> int:
    number = _parse_integer(value, key)
    if not _MIN_MILLIS <= number <= _MAX_MILLIS:
        raise ValueError(f"{key} is {number}, which is not a time in the years 1 to 9999")
    return number


def _check_optional_file_name(value: str | None, path: str) -> str | None:
    return None if value is None else check_file_name(value, path)
