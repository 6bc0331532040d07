"""Table options: text in schema files, typed here, with the defaults of docs/format/options.md."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from paimon_orch.errors import InputError

_MEMORY_UNITS = {
    "": 1,
    "b": 1,
    "bytes": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "kibibytes": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "mebibytes": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
    "gibibytes": 1 << 30,
    "t": 1 << 40,
    "tb": 1 << 40,
    "tebibytes": 1 << 40,
}
_DURATION_UNITS = {
    "ms": 1,
    "milli": 1,
    "millis": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "": 1,
    "s": 1000,
    "sec": 1000,
    "secs": 1000,
    "second": 1000,
    "seconds": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}
_DEPRECATED_IGNORE_DELETE_KEYS = (
    "first-row.ignore-delete",
    "deduplicate.ignore-delete",
    "partial-update.ignore-delete",
)
_CODEC_EXTENSIONS = {"gzip": "gz", "bzip2": "bz2", "zstd": "zst"}
_QUANTITY = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*")


def _parse_quantity(key: str, text: str, units: Mapping[str, int], example: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None or match.group(2).lower() not in units:
        raise InputError(
            f"option {key!r} = {text!r} is not understood; write for example {example!r}"
        )
    return int(match.group(1)) * units[match.group(2).lower()]


@dataclass(frozen=True, slots=True)
class Options:
    """Typed view of a table's options; unknown keys are kept and ignored."""

    values: Mapping[str, str]

    def text(self, key: str, default: str = "") -> str:
        """Return an option as it is written."""
        return self.values.get(key, default)

    def boolean(self, key: str, *, default: bool = False) -> bool:
        """Return a true/false option."""
        text = self.values.get(key)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise InputError(f"option {key!r} = {text!r} must be true or false")
        return text.strip().lower() == "true"

    def integer(self, key: str, default: int) -> int:
        """Return a whole number."""
        text = self.values.get(key)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError as error:
            raise InputError(f"option {key!r} = {text!r} must be a whole number") from error

    def number(self, key: str, default: float) -> float:
        """Return a number."""
        text = self.values.get(key)
        try:
            return default if text is None else float(text)
        except ValueError as error:
            raise InputError(f"option {key!r} = {text!r} must be a number") from error

    def memory(self, key: str, default: str) -> int:
        """Return a size in bytes; ``128 mb``, ``64 kb`` or plain bytes."""
        return _parse_quantity(key, self.values.get(key, default), _MEMORY_UNITS, "128 mb")

    def duration(self, key: str, default: str) -> timedelta:
        """Return a duration; ``1 h``, ``10 s``, ``500 ms``, ``1 d``."""
        text = self.values.get(key, default)
        return timedelta(milliseconds=_parse_quantity(key, text, _DURATION_UNITS, "1 h"))

    def names(self, key: str) -> list[str]:
        """Return a comma separated list of names."""
        return [name.strip() for name in self.values.get(key, "").split(",") if name.strip()]

    def per_level(self, key: str) -> dict[int, str]:
        """Return a ``level:value,...`` option."""
        pairs = (item.split(":", 1) for item in self.names(key))
        try:
            return {int(level): value.strip() for level, value in pairs}
        except ValueError as error:
            raise InputError(f"option {key!r} must look like '0:avro,5:parquet'") from error

    @property
    def bucket(self) -> int:
        """Return the bucket count, -1 (dynamic or unaware) or -2 (postpone)."""
        return self.integer("bucket", -1)

    @property
    def merge_engine(self) -> str:
        """Return ``deduplicate``, ``partial-update``, ``aggregation`` or ``first-row``."""
        return self.text("merge-engine", "deduplicate").lower()

    @property
    def changelog_producer(self) -> str:
        """Return ``none``, ``input``, ``full-compaction`` or ``lookup``."""
        return self.text("changelog-producer", "none").lower()

    @property
    def has_deletion_vectors(self) -> bool:
        """Tell whether the table keeps deletion vectors."""
        return self.boolean("deletion-vectors.enabled")

    @property
    def bitmap64(self) -> bool:
        """Tell whether new deletion vectors use the 64-bit layout."""
        return self.boolean("deletion-vectors.bitmap64")

    @property
    def ignores_delete(self) -> bool:
        """Tell whether -D and -U rows have no effect; an option of one engine's name is an older name (3.2)."""
        for key in ("ignore-delete", *_DEPRECATED_IGNORE_DELETE_KEYS):
            if key in self.values:
                return self.boolean(key)
        return False

    @property
    def needs_lookup(self) -> bool:
        """Tell whether every level-0 row must meet its older version.

        See docs/format/universal-compaction.md#lookup-strategies.
        """
        return (
            self.changelog_producer == "lookup"
            or self.has_deletion_vectors
            or self.merge_engine == "first-row"
            or self.boolean("force-lookup")
        )

    @property
    def is_pk_clustering_override(self) -> bool:
        """Return whether files above level 0 are sorted by ``clustering.columns`` instead of the primary key."""
        return self.boolean("pk-clustering-override")

    @property
    def clustering_columns(self) -> list[str]:
        """Return the columns that ``clustering.columns`` names, under its old key too."""
        return self.names("clustering.columns") or self.names("sink.clustering.by-columns")

    @property
    def has_snapshot_ordering(self) -> bool:
        """Return whether rows of later snapshots replace earlier ones, whatever their sequence numbers are."""
        return self.boolean("sequence.snapshot-ordering")

    @property
    def should_skip_level0(self) -> bool:
        """Tell whether batch readers leave out level 0.

        See docs/format/merge-tree-reads.md#visibility-of-level-0.
        """
        merges = self.has_deletion_vectors and self.boolean("deletion-vectors.merge-on-read")
        return self.shows_compacted_rows and not merges

    @property
    def shows_compacted_rows(self) -> bool:
        """Return whether batch readers see level 0 only on request: ``first-row``, or deletion vectors."""
        return self.has_deletion_vectors or self.merge_engine == "first-row"

    @property
    def compaction_trigger(self) -> int:
        """Return the number of sorted runs that calls for compaction."""
        return self.integer("num-sorted-run.compaction-trigger", 5)

    @property
    def num_levels(self) -> int:
        """Return the number of levels, level 0 included."""
        return self.integer("num-levels", self.compaction_trigger + 1)

    @property
    def default_partition_name(self) -> str:
        """Return the directory name of null and blank partition values."""
        return self.text("partition.default-name", "__DEFAULT_PARTITION__")

    def target_file_size(self, *, primary_key: bool) -> int:
        """Return the rolling size of data files in bytes."""
        return self.memory("target-file-size", "128 mb" if primary_key else "256 mb")

    @property
    def target_file_rows(self) -> int:
        """Return the rows at which a writer starts another data file; compaction has no such limit."""
        return max(1, self.integer("target-file-row-num", sys.maxsize))

    def file_format(self, level: int = 0) -> str:
        """Return the format of new data files of a level."""
        per_level = self.per_level("file.format.per.level")
        return per_level.get(level, self.text("file.format", "parquet")).lower()

    def file_compression(self, level: int = 0) -> str:
        """Return the codec of new data files of a level."""
        per_level = self.per_level("file.compression.per.level")
        return per_level.get(level, self.text("file.compression", "zstd")).lower()

    def file_extension(self, file_format: str) -> str:
        """Return the suffix of new data file names; it names one codec for all levels, as in Java Paimon."""
        codec = self.text("file.compression", "zstd").lower()
        if not self.boolean("file.suffix.include.compression") or codec in ("", "none"):
            return f".{file_format}"
        return f".{_CODEC_EXTENSIONS.get(codec, codec)}.{file_format}"

    @property
    def zstd_level(self) -> int:
        """Return the zstd level of data files and manifests."""
        return self.integer("file.compression.zstd-level", 1)

    @property
    def manifest_codec(self) -> str:
        """Return the Avro codec name of manifests.

        See docs/format/manifest.md#container.
        """
        name = self.text("avro.codec", self.text("manifest.compression", "zstd")).lower()
        return {"zstd": "zstandard", "none": "null"}.get(name, name)
