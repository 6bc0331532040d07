"""Schema files.

See docs/format/schema.md.
"""

from collections.abc import Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

from paimon_orch.errors import (
    CorruptFileError,
    InputError,
    NotFoundError,
    UnsupportedError,
    wrap_decode_errors,
)
from paimon_orch.format.argument_checks import format_option_value
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    BUCKET_KEY,
    CLUSTERING_INCREMENTAL,
    DATA_EVOLUTION_ENABLED,
    DELETION_VECTORS_MERGE_ON_READ,
    ROW_TRACKING_ENABLED,
)
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.row.binary_row import deserialize_row, read_row_arity
from paimon_orch.format.table_kind import TableKind
from paimon_orch.format.text import encode_json, parse_integer, parse_json_object
from paimon_orch.format.types.data_types import (
    AtomicType,
    Field,
    TypeRoot,
    check_distinct_fields,
    field_from_json,
    field_to_json,
    parse_field_id,
)

SCHEMA_VERSION = 3
SYSTEM_FIELD_ID = 1073741823
SEQUENCE_NUMBER = Field(
    id=2147483646, name="_SEQUENCE_NUMBER", type=AtomicType(False, TypeRoot.BIGINT)
)
VALUE_KIND = Field(id=2147483645, name="_VALUE_KIND", type=AtomicType(False, TypeRoot.TINYINT))
KEY_PREFIX = "_KEY_"
_KNOWN_KEYS = frozenset(
    (
        *("version", "id", "fields", "highestFieldId", "partitionKeys", "primaryKeys"),
        *("options", "comment", "timeMillis"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One version of a table's schema. ``fields`` is the logical column order."""

    id: int
    fields: tuple[Field, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...]
    primary_keys: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None = None
    time_millis: int = 0
    additional: Mapping[str, Any] = dataclass_field(default_factory=dict, repr=False)
    """Unknown keys of the schema file."""
    path: str = dataclass_field(default="", repr=False, compare=False)
    """The schema file, for errors; empty for a schema that was not read from a file."""

    def __repr__(self) -> str:
        """Return the columns, keys and options, without credentials."""
        return (
            f"TableSchema(id={self.id}, fields={self.fields!r}, primary_keys={self.primary_keys!r}, "
            f"partition_keys={self.partition_keys!r}, options={hide_secrets(self.options)!r}, "
            f"comment={self.comment!r})"
        )

    @classmethod
    def of_columns(cls, fields: Iterable[Field]) -> "TableSchema":
        """Return a schema to bind filters, orders and expressions to, without keys and options."""
        return cls(
            id=0,
            fields=tuple(fields),
            highest_field_id=0,
            partition_keys=(),
            primary_keys=(),
            options={},
        )

    @property
    def typed_options(self) -> Options:
        """Return the options with types and defaults."""
        return Options(self.options)

    @property
    def kind(self) -> TableKind:
        """Return how the table stores its rows."""
        if self.primary_keys:
            return TableKind.PRIMARY_KEY
        options = self.typed_options
        if options.get(DATA_EVOLUTION_ENABLED):
            return TableKind.DATA_EVOLUTION
        return TableKind.ROW_TRACKING if options.get(ROW_TRACKING_ENABLED) else TableKind.APPEND

    @property
    def names(self) -> list[str]:
        """Return the column names in table order."""
        return [field.name for field in self.fields]

    def field(self, name: str) -> Field:
        """Return a column by name."""
        for field in self.fields:
            if field.name == name:
                return field
        raise NotFoundError(f"there is no column {name!r}; the columns are {', '.join(self.names)}")

    def select(self, names: Iterable[str]) -> list[Field]:
        """Return columns by name, in the order of the names."""
        return [self.field(name) for name in names]

    @property
    def identifying_names(self) -> KeysView[str]:
        """Return the columns of the primary key, then the partition; all versions of a row agree."""
        return dict.fromkeys((*self.primary_keys, *self.partition_keys)).keys()

    @property
    def trimmed_primary_keys(self) -> list[str]:
        """Return the primary key without the partition columns, in the same order."""
        return [name for name in self.primary_keys if name not in self.partition_keys]

    @property
    def value_names(self) -> list[str]:
        """Return the columns that are merged: all except the key."""
        return [name for name in self.names if name not in self.primary_keys]

    @property
    def system_fields(self) -> tuple[Field, ...]:
        """Return the columns of data files that order and delete the rows of a key."""
        return (SEQUENCE_NUMBER, VALUE_KIND) if self.primary_keys else ()

    @property
    def key_fields(self) -> list[Field]:
        """Return the columns of the trimmed primary key."""
        return self.select(self.trimmed_primary_keys)

    def order_fields(self, level: int) -> list[Field]:
        """Return the sort columns of files of a level; their key bounds have these columns.

        Raises :class:`InputError` if stored options name none.
        """
        options = self.typed_options
        if level and options.is_pk_clustering_override:
            if not options.clustering_columns:
                raise InputError("'pk-clustering-override' = true needs 'clustering.columns'")
            return self.select(options.clustering_columns)
        return self.key_fields

    @property
    def is_clustered(self) -> bool:
        """Return whether compactions sort the rows of an append table."""
        return not self.primary_keys and self.typed_options.get(CLUSTERING_INCREMENTAL)

    @property
    def has_levels(self) -> bool:
        """Return whether compactions move rows to levels: by key, or sorted by other columns."""
        return bool(self.primary_keys) or self.is_clustered

    @property
    def has_runs_sorted_by_key(self) -> bool:
        """Return whether rows of a key are merged, and files of all levels are sorted by key."""
        return bool(self.primary_keys) and not self.typed_options.is_pk_clustering_override

    @property
    def has_unmerged_levels(self) -> bool:
        """Return whether readers do not merge the rows of a key above level 0."""
        options = self.typed_options
        is_unmerged = options.has_deletion_vectors or options.is_pk_clustering_override
        return bool(self.primary_keys) and is_unmerged

    @property
    def top_level(self) -> int:
        """Return the level of fully compacted files."""
        return self.typed_options.num_levels - 1 if self.primary_keys else 0

    @property
    def keys_with_null_values(self) -> Sequence[str]:
        """Return the key columns whose value columns in data files may be null.

        In Java Paimon, a delete of a sequence group can write null, and release 0.9 always did.
        """
        return self.primary_keys if self.typed_options.merge_engine == "partial-update" else ()

    @property
    def partition_fields(self) -> list[Field]:
        """Return the partition columns."""
        return self.select(self.partition_keys)

    def decode_partition(self, partition: bytes) -> tuple[object, ...]:
        """Return the values of a serialized partition of a manifest.

        Raises :class:`CorruptFileError` with the table if they are not those of the partition
        columns.
        """
        fields = self.partition_fields
        table = self.path.rpartition("/schema/")[0] or "a table"
        with wrap_decode_errors(f"{table}: partition {partition[:32].hex()} in a manifest"):
            values = deserialize_row(partition, [field.type for field in fields])
            if read_row_arity(partition) != len(fields):
                columns = ", ".join(field.name for field in fields) or "no columns"
                raise ValueError(
                    f"it has {read_row_arity(partition)} values, but the table is partitioned by "
                    f"{columns}"
                )
            return values

    @property
    def bucket_key_fields(self) -> list[Field]:
        """Return the columns that are hashed to a bucket.

        See docs/format/buckets.md#bucket-modes.
        """
        text = self.typed_options.get(BUCKET_KEY)
        return self.select(text.split(",") if text else self.trimmed_primary_keys)

    @property
    def is_bucket_unaware(self) -> bool:
        """Return whether the table has neither a primary key nor fixed buckets.

        See docs/format/buckets.md#bucket-modes.
        """
        return not self.primary_keys and self.typed_options.bucket == -1

    @property
    def has_hashed_buckets(self) -> bool:
        """Return whether a key determines the bucket of a row, if the table has fixed buckets."""
        return bool(self.primary_keys) or self.typed_options.get(BUCKET_KEY) is not None

    @property
    def is_bucket_dynamic(self) -> bool:
        """Return whether an index states the bucket of each key.

        See docs/format/buckets.md#bucket-modes.
        """
        return bool(self.primary_keys) and self.typed_options.bucket == -1

    @property
    def cross_partition(self) -> bool:
        """Return whether the primary key does not contain all partition columns.

        See docs/format/schema.md#validation.
        """
        return bool(self.primary_keys) and not set(self.partition_keys) <= set(self.primary_keys)

    @property
    def skips_level_0(self) -> bool:
        """Return whether batch readers see rows only after a compaction.

        See docs/format/merge-tree-reads.md#visibility-of-level-0.
        """
        options = self.typed_options
        merges = options.has_deletion_vectors and options.get(DELETION_VECTORS_MERGE_ON_READ)
        return self.shows_compacted_rows and not merges

    @property
    def shows_compacted_rows(self) -> bool:
        """Return whether batch readers see level 0 only on request."""
        options = self.typed_options
        is_unmerged = options.has_deletion_vectors or options.merge_engine == "first-row"
        return bool(self.primary_keys) and is_unmerged

    @property
    def target_file_size(self) -> int:
        """Return the rolling size of data files in bytes."""
        return self.typed_options.target_file_size(primary_key=bool(self.primary_keys))

    def list_properties(self) -> dict[str, str]:
        """Return the options, with the keys as further options, as Java copies them to metastores."""
        bucket_key = ",".join(field.name for field in self.bucket_key_fields)
        keys = {
            "primary-key": ",".join(self.primary_keys),
            "partition": ",".join(self.partition_keys),
            BUCKET_KEY.key: bucket_key,
        }
        return {**self.options, **{key: value for key, value in keys.items() if value}}

    def to_json(self) -> bytes:
        """Encode as a schema file; the key ``comment`` is omitted if there is no comment."""
        value: dict[str, Any] = {
            "version": SCHEMA_VERSION,
            "id": self.id,
            "fields": [field_to_json(field) for field in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": list(self.partition_keys),
            "primaryKeys": list(self.primary_keys),
            "options": dict(self.options),
        }
        if self.comment is not None:
            value["comment"] = self.comment
        value["timeMillis"] = self.time_millis
        return encode_json({**value, **self.additional})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "TableSchema":
        """Decode a schema file. Error messages contain ``path``. Unknown keys are preserved."""
        with wrap_decode_errors(path):
            value = parse_json_object(data)
            version = parse_integer(value.get("version", 1), "version")
            if version > SCHEMA_VERSION:
                raise UnsupportedError(
                    f"{path}: schema version {version} is newer than {SCHEMA_VERSION}, the newest "
                    "supported version; upgrade paimon-orch"
                )
            options = {
                key: format_option_value(text) for key, text in _parse_options(value).items()
            }
            if version <= 1:
                options.setdefault("bucket", "1")
            if version <= 2:
                options.setdefault("file.format", "orc")
            fields = _parse_fields(value, path)
            return cls(
                id=parse_integer(value["id"], "id"),
                fields=fields,
                highest_field_id=parse_field_id(value["highestFieldId"], "highestFieldId"),
                partition_keys=_parse_key_columns(value, "partitionKeys", fields),
                primary_keys=_parse_key_columns(value, "primaryKeys", fields),
                options=options,
                comment=value.get("comment"),
                time_millis=parse_integer(value.get("timeMillis") or 0, "timeMillis"),
                additional={key: item for key, item in value.items() if key not in _KNOWN_KEYS},
                path=path,
            )


def _parse_key_columns(value: Any, key: str, fields: Sequence[Field]) -> tuple[str, ...]:
    """Return a list of existing columns. Raises ``ValueError`` for other values."""
    names, existing = value[key], {field.name for field in fields}
    if not isinstance(names, list) or not all(
        isinstance(name, str) and name in existing for name in names
    ):
        raise ValueError(f"{key} is {names!r}, not a list of columns of the table")
    return tuple(names)


def _parse_options(value: dict[str, Any]) -> dict[str, Any]:
    options = value["options"]
    if not isinstance(options, dict):
        raise ValueError(f"options must be a JSON object, got {options!r}")  # noqa: TRY004 - damage
    return options


def _parse_fields(value: dict[str, Any], path: str) -> tuple[Field, ...]:
    fields = value["fields"]
    if not isinstance(fields, list):
        raise ValueError(f"fields must be a JSON list, got {fields!r}")  # noqa: TRY004 - damage
    parsed = tuple(_parse_field(field, path) for field in fields)
    check_distinct_fields(parsed)
    return parsed


def _parse_field(value: Any, path: str) -> Field:
    try:
        return field_from_json(value)
    except InputError as error:  # the type comes from the file, not from an argument
        raise CorruptFileError(path, str(error)) from error
    except UnsupportedError as error:
        name = value.get("name")
        raise UnsupportedError(
            f"{path}: column {name!r}: {error}. Use Java Paimon for this table; nothing was "
            "changed."
        ) from error
