"""Compares what a manifest list states about a manifest with the entries of the manifest.

Readers skip a manifest by its ranges and bounds, so rows would be missing without an error. Wider
ranges than those of the entries skip nothing. See docs/format/manifest.md#manifest-list-record.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain

from paimon_orch.errors import PaimonError, wrap_decode_errors
from paimon_orch.files.stats.file_stats import decode_column_stats
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.live_files import UNKNOWN
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.row.binary_row import deserialize_row
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.text import is_utf8
from paimon_orch.format.types.data_types import DataType


def build_summary_check(
    partition_types: Sequence[DataType],
) -> Callable[[ManifestFileMeta, Manifest], str | None]:
    """Return a function that returns how a list contradicts the entries of a manifest, or None."""

    @cache
    def decode(partition: bytes) -> tuple[object, ...]:
        return tuple(deserialize_row(partition, partition_types))

    def find_contradiction(meta: ManifestFileMeta, manifest: Manifest) -> str | None:
        try:
            with wrap_decode_errors(meta.file_name):
                partitions = [decode(data) for data in manifest.encode_partitions()[0]]
                texts = chain(
                    _compare_ranges(meta, manifest),
                    _compare_partitions(meta, len(manifest), partitions, partition_types),
                )
                return next(texts, None)
        except PaimonError as error:
            return str(error)

    return find_contradiction


def _compare_ranges(meta: ManifestFileMeta, manifest: Manifest) -> Iterator[str]:
    first_ids = manifest.read_file_numbers("_FIRST_ROW_ID", UNKNOWN)
    last_ids = first_ids + manifest.read_file_numbers("_ROW_COUNT") - 1
    has_ids = first_ids != UNKNOWN
    for name, lows, highs, low, high in (
        ("buckets", manifest.buckets, manifest.buckets, meta.min_bucket, meta.max_bucket),
        ("levels", manifest.levels, manifest.levels, meta.min_level, meta.max_level),
        ("row ids", first_ids[has_ids], last_ids[has_ids], meta.min_row_id, meta.max_row_id),
    ):
        if not len(lows):
            continue
        first, last = int(lows.min()), int(highs.max())
        if (low is not None and first < low) or (high is not None and last > high):
            yield f"it states the {name} {low} to {high}, but the entries have {first} to {last}"


def _compare_partitions(
    meta: ManifestFileMeta,
    num_entries: int,
    partitions: Sequence[tuple[object, ...]],
    types: Sequence[DataType],
) -> Iterator[str]:
    for index, data_type in enumerate(types):
        stats = decode_column_stats(
            meta.partition_stats, index, len(types), data_type, meta.file_name
        )
        column = [values[index] for values in partitions]
        values = [value for value in column if value is not None]
        excluded = [value for value in values if _is_outside(value, stats)]
        if excluded:
            yield (
                f"its partition column {index} has values from {stats.min!r} to {stats.max!r} "
                f"according to the list, but an entry has {excluded[0]!r}"
            )
        has_nulls = len(values) < len(column)
        if (has_nulls and stats.null_count == 0) or (
            values and stats.null_count is not None and stats.null_count >= num_entries
        ):
            yield (
                f"its partition column {index} is null in {stats.null_count} of {num_entries} "
                "entries according to the list, which the entries contradict"
            )


def _is_outside(value: object, stats: ColumnStats) -> bool:
    """Return whether a value is outside of its bounds; texts are in the order of their UTF-8."""
    bounds = (stats.min, stats.max)
    if any(isinstance(item, str) and not is_utf8(item) for item in (value, *bounds)):
        return False
    low, high = bounds
    return (low is not None and value < low) or (high is not None and value > high)  # type: ignore[operator]
