"""The options whose values block steps: they notify another system, or change the format."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
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

_ARE_NOT_CALLED = (
    "are Java classes that this library cannot run, so other systems are not notified of the"
)

_Row = tuple[str, ValueType[Any]] | tuple[str, ValueType[Any], str]
_Refusals = Mapping[StepKind, Mapping[str, tuple[_Row, ...]]]
"""The options that block the same steps, by what would follow."""

_EXTERNAL: _Refusals = {
    WRITE_ROWS | COMPACT | METADATA | DELETE: {
        f"the callbacks {_ARE_NOT_CALLED} commit": (("commit.callbacks", TEXT),),
    },
    EVERY_CHANGE: {
        "the Iceberg metadata is not updated: Iceberg readers miss the commit, or try to read "
        "deleted files": (("metadata.iceberg-compatible", BOOLEAN, "false"),),
    },
    READ | EVERY_CHANGE: {
        "the catalog's rules for rows and columns are bypassed when files are read by path": (
            ("query-auth.enabled", BOOLEAN, "false"),
        ),
    },
    TAG: {
        f"the callbacks {_ARE_NOT_CALLED} tag": (("tag.callbacks", TEXT),),
        "the success file of a tag is neither written nor deleted": (
            ("tag.create-success-file", BOOLEAN, "false"),
        ),
    },
    WRITE_ROWS: {
        "the commit returns before its rows are visible to readers": (
            ("visibility-callback.enabled", BOOLEAN, "false"),
        ),
    },
}
_CHANGES_FORMAT: _Refusals = {
    READ | EVERY_CHANGE: {
        "BLOB descriptors are not implemented": (("blob-descriptor-field", TEXT),),
        "BLOB columns in external storage are not implemented": (
            ("blob-external-storage-field", TEXT),
            ("blob-external-storage-path", TEXT),
        ),
        "BLOB views are not implemented": (("blob-view-field", TEXT),),
        "the stored option makes Java Paimon read and write another branch": (
            ("branch", TEXT, "main"),
        ),
    },
    COMPACT: {
        "a compaction keeps row ids and deleted rows, as Java Paimon 2.1 does": (
            ("data-evolution.compaction.rewrite-row-ids", BOOLEAN, "false"),
        ),
        "a compaction drops the index files of its input, and searches skip files without an "
        "index": (
            ("pk-full-text.index.columns", TEXT),
            ("pk-multivalue.index.columns", TEXT),
            ("pk-vector.index.columns", TEXT),
        ),
    },
    WRITE_ROWS | COMPACT: {
        "row sidecar files are not written": (
            ("data-evolution.row-sidecar.enabled", BOOLEAN, "false"),
        ),
        "VECTOR columns are written to separate files, which is not implemented": (
            ("vector.file.format", TEXT),
        ),
    },
    DEFAULT_READ: {
        "the table's default read returns changes instead of the newest rows": (
            ("incremental-between", TEXT),
            ("incremental-between-timestamp", TEXT),
            ("incremental-to-auto-tag", TEXT),
        ),
        "the table's default read returns the rows of one bucket": (("scan.bucket", INTEGER),),
        "the table's default read returns an older snapshot": (
            ("scan.creation-time-millis", INTEGER),
            ("scan.snapshot-id", INTEGER),
            ("scan.timestamp", TEXT),
            ("scan.timestamp-millis", INTEGER),
            ("scan.watermark", INTEGER),
        ),
        "the table's default read returns the files that were created later": (
            ("scan.file-creation-time-millis", INTEGER),
        ),
        "the table's default read returns a tag": (("scan.tag-name", TEXT),),
    },
    WRITE_ROWS: {
        "partition values that do not match the timestamp format are written": (
            ("partition.timestamp-format.strict", BOOLEAN, "false"),
        ),
        "appended rows are added where Java Paimon replaces the rows with the same upsert key": (
            ("upsert-key", TEXT),
        ),
    },
    READ: {
        "rows of the primary branch are not read": (("scan.primary-branch", TEXT),),
    },
}
_EXTERNAL_OF_ENGINES: _Refusals = {
    WRITE_ROWS: {
        f"the listeners {_ARE_NOT_CALLED} commit": (("commit.custom-listeners", TEXT),),
        "partitions are not marked as done when a writer ends or a partition gets no more rows": (
            ("partition.idle-time-to-done", DURATION),
        ),
        "the rows are not written to the log system that streaming readers read (Paimon up to "
        "1.3)": (("log.system", TEXT, "none"),),
    },
}
_CHANGES_FORMAT_OF_ENGINES: _Refusals = {
    READ | EVERY_CHANGE: {
        "BLOB descriptors are not implemented": (("blob.stored-descriptor-fields", TEXT),),
    },
    DEFAULT_READ: {
        "the table's default read returns an older snapshot": (
            ("log.scan.timestamp-millis", INTEGER),
        ),
        "the table's default read returns an older snapshot or a tag": (("scan.version", TEXT),),
    },
    READ: {
        "reads also return rows that are not compacted yet, which this library omits": (
            ("batch-scan-mode", TEXT, "none"),
        ),
    },
}


def _build_options(build: Callable[..., AnyOption], refusals: _Refusals) -> Iterator[AnyOption]:
    for steps, consequences in refusals.items():
        for consequence, rows in consequences.items():
            for row in rows:
                yield build(*row, steps=steps, consequence=consequence)


_build_scan_mode = partial(
    changes_format,
    type=TEXT,
    default="default",
    steps=DEFAULT_READ,
    consequence="the table's default read does not start at the newest snapshot",
    choices=NON_LATEST_SCAN_MODES,
)

REFUSED = (
    *_build_options(external, _EXTERNAL),
    *_build_options(changes_format, _CHANGES_FORMAT),
    _build_scan_mode("scan.mode"),
)
"""Options of tables."""
REFUSED_OF_ENGINES = (
    *_build_options(external, _EXTERNAL_OF_ENGINES),
    *_build_options(changes_format, _CHANGES_FORMAT_OF_ENGINES),
    _build_scan_mode("log.scan"),
)
"""Options of Flink and Spark, older names, and options that Java Paimon does not document."""
