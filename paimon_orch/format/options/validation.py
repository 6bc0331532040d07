"""Checks option values, combinations of options, and changes of options.

See docs/format/schema.md.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from paimon_orch.errors import InputError
from paimon_orch.format.options.core_options import (
    BUCKET_APPEND_ORDERED,
    BUCKET_FUNCTION_TYPE,
    CHAIN_TABLE_ENABLED,
    CHANGELOG_NUM_RETAINED_MAX,
    CHANGELOG_NUM_RETAINED_MIN,
    CLUSTERING_INCREMENTAL,
    DATA_EVOLUTION_ENABLED,
    DELETION_VECTORS_MODIFIABLE,
    MANIFEST_FORMAT,
    PARTITION_TIMESTAMP_FORMATTER,
    PARTITION_TIMESTAMP_PATTERN,
    PRIMARY_KEY_NULLABLE,
    ROW_TRACKING_ENABLED,
    SEQUENCE_FIELD,
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
)
from paimon_orch.format.options.option_lookup import find_option
from paimon_orch.format.options.typed_options import Options

_IMMUTABLE = {
    "blob-descriptor-field",
    "blob-field",
    "bucket-function.type",
    "bucket-key",
    "data-evolution.enabled",
    "data-file.path-directory",
    "dynamic-bucket.initial-buckets",
    "force-lookup",
    "index-file-in-data-file-dir",
    "manifest.format",
    "merge-engine",
    "partial-update.remove-record-on-sequence-group",
    "partition.default-name",
    "partition.legacy-name",
    "pk-clustering-override",
    "primary-key.nullable",
    "row-tracking.enabled",
    "rowkind.field",
    "sequence.snapshot-ordering",
    "type",
}
_NEVER_STORED = {
    "branch": "name the branch when reading, as in 'db.table$branch_name'",
    "partition": "the partition columns are given when the table is created",
    "path": "the location of a table follows from its name",
    "primary-key": "the primary key is given when the table is created",
}
# the values of these options are lists of columns
_COLUMN_LISTS = re.compile(
    r"bucket-key|changelog-producer\.row-deduplicate-ignore-fields|sequence\.field|rowkind\.field"
    r"|record-level\.time-field|clustering\.columns|sink\.clustering\.by-columns|upsert-key"
    r"|pk-[a-z-]+\.index\.columns|file-index\.[^.]+\.columns|fields\..+\.sequence-group"
    r"|vector-field|blob-(descriptor-|view-)?field"
)
# the keys of these options contain columns
_COLUMN_KEYS = re.compile(r"(fields\.)(.+)(\.[^.]+)|(file-index\.[^.]+\.)(.+)(\.[^.]+)")
# options that follow a renamed column; Java Paimon leaves the old name in those of the first line
_RENAMED = re.compile(
    r"changelog-producer\.row-deduplicate-ignore-fields|clustering\.columns|sink\.clustering\.by-columns"
    r"|bucket-key|sequence\.field|fields\..+\.(aggregate-function|ignore-retract|distinct"
    r"|list-agg-delimiter|sequence-group|nested-key)"
)
# options that lose a dropped column
_SHORTENED = re.compile(r"vector-field|blob-(descriptor-|view-)?field")


def check_storable(keys: Iterable[str]) -> None:
    """Refuse to set options that say where a table is or what its keys are.

    Java Paimon stores ``path`` in the schema of an external table, so schemas may have it.
    """
    for key in keys:
        if key in _NEVER_STORED:
            raise InputError(f"option {key!r} cannot be stored: {_NEVER_STORED[key]}")


def check_options(
    values: Mapping[str, str], names: Sequence[str], primary_keys: Sequence[str]
) -> None:
    """Refuse values of a wrong type and contradictory options; accept unknown options."""
    options = Options(values)
    for key in values:
        option = find_option(key)
        if option is not None:
            option.check(values[key])
    if options.get(PRIMARY_KEY_NULLABLE) and not primary_keys:
        raise InputError("option 'primary-key.nullable' = true needs a table with a primary key")
    _check_chain_table(options, primary_keys)
    _check_retention(options)
    _check_row_tracking(options, primary_keys)
    if options.get(CLUSTERING_INCREMENTAL):
        _check_incremental_clustering(options, primary_keys)
    _check_columns(values, names)
    function = options.get(BUCKET_FUNCTION_TYPE)
    if function not in ("default", "mod", "hive"):
        raise InputError(
            f"option 'bucket-function.type' = {function!r} must be default, mod or hive"
        )


def _check_chain_table(options: Options, primary_keys: Sequence[str]) -> None:
    """Check the options of chain tables. See docs/format/chain-tables.md#branches."""
    if not options.get(CHAIN_TABLE_ENABLED):
        return
    required = {
        "a primary key": bool(primary_keys),
        "fixed buckets ('bucket' above 0)": options.bucket > 0,
        "'sequence.field'": bool(options.get(SEQUENCE_FIELD)),
        "'changelog-producer' none or input": options.changelog_producer in ("none", "input"),
        "the merge engine deduplicate with deletion vectors": not options.has_deletion_vectors
        or options.merge_engine == "deduplicate",
        "'partition.timestamp-pattern'": bool(options.get(PARTITION_TIMESTAMP_PATTERN)),
        "'partition.timestamp-formatter'": bool(options.get(PARTITION_TIMESTAMP_FORMATTER)),
    }
    missing = [name for name, is_given in required.items() if not is_given]
    if missing:
        raise InputError(f"option 'chain-table.enabled' = true needs {', '.join(missing)}")


def _check_retention(options: Options) -> None:
    min_snapshots = options.get(SNAPSHOT_NUM_RETAINED_MIN)
    max_snapshots = options.get(SNAPSHOT_NUM_RETAINED_MAX)
    # an option of changelogs that is not set has the value of the option of snapshots
    min_changelogs = options.get(CHANGELOG_NUM_RETAINED_MIN, min_snapshots)
    max_changelogs = options.get(CHANGELOG_NUM_RETAINED_MAX, max_snapshots)
    for kind, least, most in (
        ("snapshot", min_snapshots, max_snapshots),
        ("changelog", min_changelogs, max_changelogs),
    ):
        if least > most:
            raise InputError(
                f"option '{kind}.num-retained.min' = {least} must not be above "
                f"'{kind}.num-retained.max' = {most}"
            )


def _check_row_tracking(options: Options, primary_keys: Sequence[str]) -> None:
    tracked = options.get(ROW_TRACKING_ENABLED)
    if tracked and (primary_keys or options.bucket != -1):
        raise InputError(
            "'row-tracking.enabled' needs a table without primary key and 'bucket' = -1"
        )
    if options.get(DATA_EVOLUTION_ENABLED) and not tracked:
        raise InputError("'data-evolution.enabled' needs 'row-tracking.enabled' = true")


def _check_incremental_clustering(options: Options, primary_keys: Sequence[str]) -> None:
    name = "'clustering.incremental'"
    if primary_keys:
        raise InputError(f"{name} needs a table without primary key")
    if options.get(DATA_EVOLUTION_ENABLED):
        raise InputError(f"{name} cannot be combined with 'data-evolution.enabled' = true")
    if options.bucket == -1:
        return
    if options.get(BUCKET_APPEND_ORDERED):
        raise InputError(f"{name} with buckets needs 'bucket-append-ordered' = false")
    if options.has_deletion_vectors:
        raise InputError(
            f"{name} with buckets cannot be combined with 'deletion-vectors.enabled' = true"
        )


def _check_columns(values: Mapping[str, str], names: Collection[str]) -> None:
    for key in values:
        for name in parse_option_columns(key, values[key]):
            if name not in names:
                raise InputError(
                    f"option {key!r} = {values[key]!r} names the column {name!r}, which the table "
                    "does not have; change the option first, or in the same ALTER"
                )


def parse_option_columns(key: str, value: str) -> list[str]:
    """Return the columns that an option names; a nested path counts as its top-level column."""
    names = split_names(value) if _COLUMN_LISTS.fullmatch(key) else []
    match = _parse_column_key(key)
    if match:
        names += split_names(match[1])
    return [name.split("[")[0] for name in names]


def _parse_column_key(key: str) -> tuple[str, str, str] | None:
    """Return the parts of a key like ``fields.<columns>.aggregate-function``."""
    match = _COLUMN_KEYS.fullmatch(key)
    if match is None:
        return None
    head, columns, tail = (part for part in match.groups() if part is not None)
    return head, columns, tail


def split_names(text: str) -> list[str]:
    """Return the names of a list that is separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def rename_option_columns(values: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """Return options with a column renamed in the keys and values where Java Paimon renames it."""

    def replace_column(text: str) -> str:
        names = split_names(text)
        return ",".join(new if name == old else name for name in names) if old in names else text

    result = {}
    for key, value in values.items():
        if not _RENAMED.fullmatch(key):
            result[key] = value
            continue
        match = _parse_column_key(key)
        renamed = key if match is None else match[0] + replace_column(match[1]) + match[2]
        result[renamed] = replace_column(value) if _COLUMN_LISTS.fullmatch(key) else value
    return result


def drop_option_column(values: Mapping[str, str], name: str) -> dict[str, str]:
    """Return options without a dropped column in the lists from which Java Paimon removes it."""
    result = dict(values)
    for key, value in values.items():
        names = split_names(value) if _SHORTENED.fullmatch(key) else []
        if name in names:
            del result[key]
            if len(names) > 1:
                result[key] = ",".join(each for each in names if each != name)
    return result


def is_immutable(key: str) -> bool:
    """Return whether existing files depend on an option, so that it cannot change or be removed."""
    return key in _IMMUTABLE or key.endswith(".remove-record-on-delete")


def check_option_change(values: Mapping[str, str], key: str, new: str | None) -> None:
    """Refuse to change an option that is immutable once a table has snapshots.

    A new value of None resets the option.
    """
    old = values.get(key)
    if old == new:
        return
    if key == MANIFEST_FORMAT.key and _manifest_format(old) == _manifest_format(new):
        return
    if is_immutable(key):
        raise InputError(
            f"option {key!r} cannot change once the table has snapshots (it is "
            f"{old or 'not set'}): existing files depend on it"
        )
    if key == "bucket":
        before, after = Options(values).bucket, Options({} if new is None else {key: new}).bucket
        if before < 1 or after < 1:
            raise InputError(
                f"option 'bucket' cannot change from {before} to {after}: once the table has "
                "snapshots, only a positive count can change to another positive count; it applies "
                "to partitions when they are overwritten"
            )
    options = Options(values)
    if key == "deletion-vectors.enabled" and not options.get(DELETION_VECTORS_MODIFIABLE):
        raise InputError(
            "option 'deletion-vectors.enabled' cannot change once the table has snapshots, unless "
            "'deletion-vectors.modifiable' = true was set first"
        )


def _manifest_format(value: str | None) -> str:
    """Return the format by which Java Paimon reads all manifests of a table."""
    return (value or MANIFEST_FORMAT.default or "").lower()
