"""The options whose values block steps: they notify another system, or change the format."""

from collections.abc import Callable, Iterator
from typing import Any

from paimon_orch.format.options.option_builders import (
    COMPACT,
    DEFAULT_READ,
    DELETE,
    METADATA,
    READ,
    TAG,
    WRITE_ROWS,
    changes_format,
    external,
)
from paimon_orch.format.options.table_option import EVERY_CHANGE, AnyOption, StepKind
from paimon_orch.format.options.value_type import BOOLEAN, DURATION, INTEGER, TEXT, ValueType

NON_LATEST_SCAN_MODES = (
    "compacted-full",
    "from-timestamp",
    "from-creation-timestamp",
    "from-file-creation-time",
    "from-snapshot",
    "from-snapshot-full",
    "incremental",
)
"""Scan modes that do not start with all rows of the newest snapshot."""

_Row = tuple[str, ValueType[Any]] | tuple[str, ValueType[Any], str]


def _refuse(
    build: Callable[..., AnyOption],
    steps: StepKind,
    consequence: str,
    *rows: _Row,
    choices: tuple[str, ...] = (),
) -> Iterator[AnyOption]:
    """Yield options that block the same steps for the same reason."""
    return (build(*row, steps=steps, consequence=consequence, choices=choices) for row in rows)


REFUSED: tuple[AnyOption, ...] = (
    *_refuse(
        external,
        WRITE_ROWS | COMPACT | METADATA | DELETE,
        "the callbacks are Java classes that this library cannot run, so other systems are "
        "not notified of the commit",
        ("commit.callbacks", TEXT),
    ),
    *_refuse(
        external,
        EVERY_CHANGE,
        "the Iceberg metadata is not updated: Iceberg readers miss the commit, or try to read "
        "deleted files",
        ("metadata.iceberg-compatible", BOOLEAN, "false"),
    ),
    *_refuse(
        external,
        READ | EVERY_CHANGE,
        "the catalog's rules for rows and columns are bypassed when files are read by path",
        ("query-auth.enabled", BOOLEAN, "false"),
    ),
    *_refuse(
        external,
        TAG,
        "the callbacks are Java classes that this library cannot run, so other systems are "
        "not notified of the tag",
        ("tag.callbacks", TEXT),
    ),
    *_refuse(
        external,
        TAG,
        "the success file of a tag is neither written nor deleted",
        ("tag.create-success-file", BOOLEAN, "false"),
    ),
    *_refuse(
        external,
        WRITE_ROWS,
        "the commit returns before its rows are visible to readers",
        ("visibility-callback.enabled", BOOLEAN, "false"),
    ),
    *_refuse(
        changes_format,
        READ | EVERY_CHANGE,
        "BLOB descriptors are not implemented",
        ("blob-descriptor-field", TEXT),
    ),
    *_refuse(
        changes_format,
        READ | EVERY_CHANGE,
        "BLOB columns in external storage are not implemented",
        ("blob-external-storage-field", TEXT),
        ("blob-external-storage-path", TEXT),
    ),
    *_refuse(
        changes_format,
        READ | EVERY_CHANGE,
        "BLOB views are not implemented",
        ("blob-view-field", TEXT),
    ),
    *_refuse(
        changes_format,
        READ | EVERY_CHANGE,
        "the stored option makes Java Paimon read and write another branch",
        ("branch", TEXT, "main"),
    ),
    *_refuse(
        changes_format,
        COMPACT,
        "a compaction keeps row ids and deleted rows, as Java Paimon 2.1 does",
        ("data-evolution.compaction.rewrite-row-ids", BOOLEAN, "false"),
    ),
    *_refuse(
        changes_format,
        WRITE_ROWS | COMPACT,
        "row sidecar files are not written",
        ("data-evolution.row-sidecar.enabled", BOOLEAN, "false"),
    ),
    *_refuse(
        changes_format,
        DEFAULT_READ,
        "the table's default read returns changes instead of the newest rows",
        ("incremental-between", TEXT),
        ("incremental-between-timestamp", TEXT),
        ("incremental-to-auto-tag", TEXT),
    ),
    *_refuse(
        changes_format,
        WRITE_ROWS,
        "partition values that do not match the timestamp format are written",
        ("partition.timestamp-format.strict", BOOLEAN, "false"),
    ),
    *_refuse(
        changes_format,
        COMPACT,
        "a compaction drops the index files of its input, and searches skip files without an index",
        ("pk-full-text.index.columns", TEXT),
        ("pk-multivalue.index.columns", TEXT),
        ("pk-vector.index.columns", TEXT),
    ),
    *_refuse(
        changes_format,
        DEFAULT_READ,
        "the table's default read returns the rows of one bucket",
        ("scan.bucket", INTEGER),
    ),
    *_refuse(
        changes_format,
        DEFAULT_READ,
        "the table's default read returns an older snapshot",
        ("scan.creation-time-millis", INTEGER),
        ("scan.snapshot-id", INTEGER),
        ("scan.timestamp", TEXT),
        ("scan.timestamp-millis", INTEGER),
        ("scan.watermark", INTEGER),
    ),
    *_refuse(
        changes_format,
        DEFAULT_READ,
        "the table's default read returns the files that were created later",
        ("scan.file-creation-time-millis", INTEGER),
    ),
    *_refuse(
        changes_format,
        DEFAULT_READ,
        "the table's default read does not start at the newest snapshot",
        ("scan.mode", TEXT, "default"),
        choices=NON_LATEST_SCAN_MODES,
    ),
    *_refuse(
        changes_format,
        READ,
        "rows of the primary branch are not read",
        ("scan.primary-branch", TEXT),
    ),
    *_refuse(
        changes_format,
        DEFAULT_READ,
        "the table's default read returns a tag",
        ("scan.tag-name", TEXT),
    ),
    *_refuse(
        changes_format,
        WRITE_ROWS,
        "appended rows are added where Java Paimon replaces the rows with the same upsert key",
        ("upsert-key", TEXT),
    ),
    *_refuse(
        changes_format,
        WRITE_ROWS | COMPACT,
        "VECTOR columns are written to separate files, which is not implemented",
        ("vector.file.format", TEXT),
    ),
)
"""Options of tables."""

REFUSED_OF_ENGINES: tuple[AnyOption, ...] = (
    *_refuse(
        external,
        WRITE_ROWS,
        "the listeners are Java classes that this library cannot run, so other systems are "
        "not notified of the commit",
        ("commit.custom-listeners", TEXT),
    ),
    *_refuse(
        external,
        WRITE_ROWS,
        "partitions are not marked as done when a writer ends or a partition gets no more rows",
        ("partition.idle-time-to-done", DURATION),
    ),
    *_refuse(
        changes_format,
        READ | EVERY_CHANGE,
        "BLOB descriptors are not implemented",
        ("blob.stored-descriptor-fields", TEXT),
    ),
    *_refuse(
        changes_format,
        DEFAULT_READ,
        "the table's default read does not start at the newest snapshot",
        ("log.scan", TEXT, "default"),
        choices=NON_LATEST_SCAN_MODES,
    ),
    *_refuse(
        changes_format,
        DEFAULT_READ,
        "the table's default read returns an older snapshot",
        ("log.scan.timestamp-millis", INTEGER),
    ),
    *_refuse(
        changes_format,
        READ,
        "reads also return rows that are not compacted yet, which this library omits",
        ("batch-scan-mode", TEXT, "none"),
    ),
    *_refuse(
        external,
        WRITE_ROWS,
        "the rows are not written to the log system that streaming readers read (Paimon up to 1.3)",
        ("log.system", TEXT, "none"),
    ),
    *_refuse(
        changes_format,
        DEFAULT_READ,
        "the table's default read returns an older snapshot or a tag",
        ("scan.version", TEXT),
    ),
)
"""Options of Flink and Spark, older names, and options that Java Paimon does not document."""
