"""Typed access to table options, with the defaults of docs/format/options.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from paimon_orch.format.options.core_options import (
    AVRO_SETTING,
    BUCKET,
    CHANGELOG_PRODUCER,
    CLUSTERING_COLUMNS,
    DELETION_VECTORS_BITMAP64,
    DELETION_VECTORS_ENABLED,
    FILE_COMPRESSION,
    FILE_COMPRESSION_PER_LEVEL,
    FILE_COMPRESSION_ZSTD_LEVEL,
    FILE_FORMAT,
    FILE_FORMAT_PER_LEVEL,
    FILE_SUFFIX_INCLUDE_COMPRESSION,
    FORCE_LOOKUP,
    IGNORE_DELETE,
    MANIFEST_COMPRESSION,
    MERGE_ENGINE,
    NUM_LEVELS,
    NUM_SORTED_RUN_COMPACTION_TRIGGER,
    PARTITION_DEFAULT_NAME,
    PK_CLUSTERING_OVERRIDE,
    SEQUENCE_SNAPSHOT_ORDERING,
    TARGET_FILE_ROW_NUM,
    TARGET_FILE_SIZE,
)
from paimon_orch.format.options.engine_options import (
    DEDUPLICATE_IGNORE_DELETE,
    FIRST_ROW_IGNORE_DELETE,
    PARTIAL_UPDATE_IGNORE_DELETE,
    SINK_CLUSTERING_BY_COLUMNS,
)
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.options.table_option import AnyOption, TableOption

T = TypeVar("T")

IGNORE_DELETE_OPTIONS = (
    IGNORE_DELETE,
    FIRST_ROW_IGNORE_DELETE,
    DEDUPLICATE_IGNORE_DELETE,
    PARTIAL_UPDATE_IGNORE_DELETE,
)
"""The names of one option; the first one that is set counts."""
_MIN_ZSTD_LEVEL, _MAX_ZSTD_LEVEL = -131_072, 22
_CODEC_EXTENSIONS = {"gzip": "gz", "bzip2": "bz2", "zstd": "zst"}


@dataclass(frozen=True, slots=True)
class Options:
    """Typed view of a table's options; unknown keys are ignored, but preserved."""

    values: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the options without credentials."""
        return f"Options({hide_secrets(self.values)!r})"

    @overload
    def get(self, option: TableOption[T]) -> T: ...
    @overload
    def get(self, option: TableOption[T | None], default: T) -> T: ...
    def get(self, option: AnyOption, default: Any = None) -> Any:
        """Return the typed value of an option, or its default if the table does not set it.

        ``default`` replaces the registered default if that depends on the table. Raises
        :class:`InputError` for a value of another type.
        """
        text = self.values.get(option.key)
        if text is not None and (text.strip() or option.default is not None):
            return option.parse(text)
        return option.default_value if default is None else default

    def has(self, option: AnyOption) -> bool:
        """Return whether the table sets an option."""
        return option.key in self.values

    @property
    def bucket(self) -> int:
        """Return the bucket count, -1 (dynamic or unaware) or -2 (postpone)."""
        return self.get(BUCKET)

    @property
    def merge_engine(self) -> str:
        """Return ``deduplicate``, ``partial-update``, ``aggregation`` or ``first-row``."""
        return self.get(MERGE_ENGINE)

    @property
    def combines_rows(self) -> bool:
        """Return whether a merged row may have values of several rows of its key."""
        return self.merge_engine not in ("deduplicate", "first-row")

    @property
    def changelog_producer(self) -> str:
        """Return ``none``, ``input``, ``full-compaction`` or ``lookup``."""
        return self.get(CHANGELOG_PRODUCER)

    @property
    def has_deletion_vectors(self) -> bool:
        """Return whether deletion vectors are enabled."""
        return self.get(DELETION_VECTORS_ENABLED)

    @property
    def bitmap64(self) -> bool:
        """Return whether new deletion vectors use the 64-bit layout."""
        return self.get(DELETION_VECTORS_BITMAP64)

    @property
    def ignores_delete(self) -> bool:
        """Return whether -D and -U rows are ignored, also by an older name of the option."""
        option = next((option for option in IGNORE_DELETE_OPTIONS if self.has(option)), None)
        return option is not None and self.get(option)

    @property
    def needs_lookup(self) -> bool:
        """Return whether compaction looks up the older version of every level-0 row.

        See docs/format/universal-compaction.md#lookup-strategies.
        """
        return (
            self.changelog_producer == "lookup"
            or self.has_deletion_vectors
            or self.merge_engine == "first-row"
            or self.get(FORCE_LOOKUP)
        )

    @property
    def is_pk_clustering_override(self) -> bool:
        """Return whether files above level 0 are sorted by ``clustering.columns``, not by key."""
        return self.get(PK_CLUSTERING_OVERRIDE)

    @property
    def clustering_columns(self) -> tuple[str, ...]:
        """Return the columns of ``clustering.columns`` or its old key."""
        return self.get(CLUSTERING_COLUMNS) or self.get(SINK_CLUSTERING_BY_COLUMNS)

    @property
    def has_snapshot_ordering(self) -> bool:
        """Return whether rows of later snapshots win, regardless of sequence numbers."""
        return self.get(SEQUENCE_SNAPSHOT_ORDERING)

    @property
    def compaction_trigger(self) -> int:
        """Return the number of sorted runs that triggers compaction."""
        return self.get(NUM_SORTED_RUN_COMPACTION_TRIGGER)

    @property
    def num_levels(self) -> int:
        """Return the number of levels, level 0 included."""
        return self.get(NUM_LEVELS, self.compaction_trigger + 1)

    @property
    def default_partition_name(self) -> str:
        """Return the directory name of null and blank partition values."""
        return self.get(PARTITION_DEFAULT_NAME)

    def target_file_size(self, *, primary_key: bool) -> int:
        """Return the rolling size of data files in bytes."""
        return self.get(TARGET_FILE_SIZE, 128 << 20 if primary_key else 256 << 20)

    @property
    def target_file_rows(self) -> int:
        """Return the number of rows at which a writer starts a new data file.

        Compaction does not use this limit.
        """
        return max(1, self.get(TARGET_FILE_ROW_NUM))

    def file_format(self, level: int = 0) -> str:
        """Return the format of new data files of a level."""
        per_level = self.get(FILE_FORMAT_PER_LEVEL)
        return per_level.get(level, self.get(FILE_FORMAT)).lower()

    def file_compression(self, level: int = 0) -> str:
        """Return the codec of new data files of a level."""
        per_level = self.get(FILE_COMPRESSION_PER_LEVEL)
        return per_level.get(level, self.get(FILE_COMPRESSION)).lower()

    def file_extension(self, file_format: str) -> str:
        """Return the suffix of new data files, with the same codec for all levels, as in Java."""
        codec = self.get(FILE_COMPRESSION)
        if not self.get(FILE_SUFFIX_INCLUDE_COMPRESSION) or codec in ("", "none"):
            return f".{file_format}"
        return f".{_CODEC_EXTENSIONS.get(codec, codec)}.{file_format}"

    @property
    def zstd_level(self) -> int:
        """Return the zstd level of data files and manifests; zstd takes others for the nearest one."""
        return max(_MIN_ZSTD_LEVEL, min(self.get(FILE_COMPRESSION_ZSTD_LEVEL), _MAX_ZSTD_LEVEL))

    @property
    def manifest_codec(self) -> str:
        """Return the Avro codec name of manifests.

        See docs/format/manifest.md#container.
        """
        name = (self.get(AVRO_SETTING.named("codec")) or self.get(MANIFEST_COMPRESSION)).lower()
        return {"zstd": "zstandard", "none": "null"}.get(name, name)
