"""Checks combinations of options of primary-key tables.

The merge engines check rules that depend on column types.
"""

from collections.abc import Sequence

from paimon_orch.errors import InputError
from paimon_orch.format.options.core_options import (
    CHANGELOG_PRODUCER,
    FIELD_AGGREGATE_FUNCTION,
    FULL_COMPACTION_DELTA_COMMITS,
    LOOKUP_COMPACT,
    MERGE_ENGINE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP,
    PK_BITMAP_INDEX_COLUMNS,
    PK_BTREE_INDEX_COLUMNS,
    PK_CLUSTERING_OVERRIDE,
    RECORD_LEVEL_EXPIRE_TIME,
    RECORD_LEVEL_TIME_FIELD,
    SEQUENCE_FIELD,
    SEQUENCE_FIELD_SORT_ORDER,
    STREAMING_READ_OVERWRITE,
    WRITE_ONLY,
)
from paimon_orch.format.options.typed_options import Options

MERGE_ENGINES = ("deduplicate", "partial-update", "aggregation", "first-row")
CHANGELOG_PRODUCERS = ("none", "input", "full-compaction", "lookup")
_CHOICES = (
    (MERGE_ENGINE, "merge engine", MERGE_ENGINES),
    (CHANGELOG_PRODUCER, "changelog producer", CHANGELOG_PRODUCERS),
    (SEQUENCE_FIELD_SORT_ORDER, "sort order", ("ascending", "descending")),
    (LOOKUP_COMPACT, "lookup compaction mode", ("radical", "gentle")),
)


def check_primary_key_options(
    options: Options, primary_keys: Sequence[str], *, cross_partition: bool
) -> None:
    """Refuse contradictory options. Raises :class:`InputError` naming the rule."""
    for option, noun, choices in _CHOICES:
        value = options.get(option)
        if value not in choices:
            raise InputError(
                f"option {option.key!r} = {value!r} is not a {noun}; use one of: "
                f"{', '.join(choices)}"
            )
    _check_changelog_producer(options, primary_keys)
    _check_sequence_fields(options, primary_keys, cross_partition=cross_partition)
    _check_ignore_delete(options)
    if options.has_deletion_vectors and primary_keys:
        _check_deletion_vectors(options)
    if options.get(PK_CLUSTERING_OVERRIDE):
        _check_clustering_override(options)
    _check_indexes(options, primary_keys)
    if options.has(RECORD_LEVEL_EXPIRE_TIME) and not options.get(RECORD_LEVEL_TIME_FIELD):
        raise InputError("'record-level.expire-time' needs 'record-level.time-field'")


def _check_changelog_producer(options: Options, primary_keys: Sequence[str]) -> None:
    engine, producer = options.merge_engine, options.changelog_producer
    if not primary_keys and producer != "none":
        raise InputError(
            "'changelog-producer' needs a primary key: append tables have no changelog"
        )
    if engine == "first-row" and producer not in ("none", "lookup"):
        raise InputError(
            "'merge-engine' = 'first-row' allows only 'changelog-producer' = none or lookup"
        )
    if options.get(STREAMING_READ_OVERWRITE):
        if not primary_keys:
            raise InputError(
                "'streaming-read-overwrite' needs a primary key; set "
                "'streaming-read-append-overwrite' for append tables"
            )
        if producer in ("full-compaction", "lookup"):
            raise InputError(
                "'streaming-read-overwrite' cannot be combined with 'changelog-producer' = "
                f"{producer!r}: changes would be read twice"
            )
    if options.has(FULL_COMPACTION_DELTA_COMMITS):
        if producer == "lookup":
            raise InputError(
                "'full-compaction.delta-commits' cannot be combined with 'changelog-producer' = "
                "'lookup'; use 'full-compaction' to get changes from regular full compactions"
            )
        if not primary_keys and options.bucket == -1:
            raise InputError(
                "'full-compaction.delta-commits' needs a primary key or a fixed 'bucket' count"
            )


def _check_sequence_fields(
    options: Options, primary_keys: Sequence[str], *, cross_partition: bool
) -> None:
    sequence = options.get(SEQUENCE_FIELD)
    if sequence and (options.merge_engine == "first-row" or cross_partition):
        raise InputError(
            "'sequence.field' cannot be combined with first-row or cross-partition tables"
        )
    if len(set(sequence)) < len(sequence):
        raise InputError("'sequence.field' names a column twice")
    for name in sequence:
        if options.has(FIELD_AGGREGATE_FUNCTION.named(name)):
            raise InputError(
                f"'sequence.field' names {name!r}, which cannot have "
                f"'fields.{name}.aggregate-function'"
            )
    if options.has_snapshot_ordering:
        if sequence:
            raise InputError(
                "'sequence.snapshot-ordering' cannot be combined with 'sequence.field'"
            )
        if not primary_keys or not options.get(WRITE_ONLY):
            raise InputError(
                "'sequence.snapshot-ordering' needs a primary key and 'write-only' = 'true'"
            )


def _check_ignore_delete(options: Options) -> None:
    if options.merge_engine != "partial-update" or not options.ignores_delete:
        return
    removes = options.get(PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE)
    groups = set(options.get(PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP)) - {"false"}
    for option, is_set in (
        (PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE, removes),
        (PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP, bool(groups)),
    ):
        if is_set:
            raise InputError(
                f"{option.key!r} cannot be combined with 'ignore-delete', which drops all deletes"
            )


def _check_deletion_vectors(options: Options) -> None:
    if options.changelog_producer == "full-compaction":
        raise InputError(
            "deletion vectors cannot be combined with 'changelog-producer' = 'full-compaction'"
        )
    if options.merge_engine == "first-row" and not options.get(PK_CLUSTERING_OVERRIDE):
        raise InputError("deletion vectors cannot be combined with 'merge-engine' = 'first-row'")


def _check_clustering_override(options: Options) -> None:
    name = "'pk-clustering-override'"
    if not options.clustering_columns:
        raise InputError(f"{name} needs 'clustering.columns'")
    if options.combines_rows:
        raise InputError(
            f"{name} cannot be combined with 'merge-engine' = {options.merge_engine!r}"
        )
    if not options.has_deletion_vectors and options.merge_engine != "first-row":
        raise InputError(f"{name} needs 'deletion-vectors.enabled'")
    if options.changelog_producer not in ("none", "input"):
        raise InputError(
            f"{name} cannot be combined with 'changelog-producer' = {options.changelog_producer!r}"
        )
    for key in ("sequence.field", "record-level.expire-time"):
        if key in options.values:
            raise InputError(f"{name} cannot be combined with {key!r}")


def _check_indexes(options: Options, primary_keys: Sequence[str]) -> None:
    """Check the rules for btree and bitmap indexes of primary-key tables."""
    keys = [
        option.key
        for option in (PK_BTREE_INDEX_COLUMNS, PK_BITMAP_INDEX_COLUMNS)
        if options.get(option)
    ]
    if not keys:
        return
    if not primary_keys:
        raise InputError(f"{keys[0]!r} needs a primary key")
    if not options.has_deletion_vectors:
        raise InputError(f"{keys[0]!r} needs 'deletion-vectors.enabled'")
    if options.get(PK_CLUSTERING_OVERRIDE):
        raise InputError(f"{keys[0]!r} cannot be combined with 'pk-clustering-override'")
    names = [*options.get(PK_BTREE_INDEX_COLUMNS), *options.get(PK_BITMAP_INDEX_COLUMNS)]
    if len(set(names)) < len(names):
        raise InputError(f"a column can have one index only, got {', '.join(names)}")
