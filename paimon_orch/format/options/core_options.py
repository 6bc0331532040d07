"""The table options of Paimon 0.9 to 2.1 that work as in Java Paimon, with type and default.

:mod:`refused_options` and :mod:`harmless_options` have the others. After implementing one of them,
move it here. ``docs/compatibility.md`` shows all options.
"""

from math import inf

from paimon_orch.format.options.option_builders import (
    COMPACT,
    DELETE,
    EVERY_STEP,
    METADATA,
    TAG,
    WRITE_ROWS,
    changes_format,
    external,
    harmless,
    honoured,
)
from paimon_orch.format.options.table_option import EVERY_CHANGE, AnyOption, TableOption
from paimon_orch.format.options.value_type import (
    BOOLEAN,
    DURATION,
    INTEGER,
    KEYWORD,
    MEMORY,
    NAMES,
    NUMBER,
    PER_LEVEL,
    TEXT,
)

ADD_COLUMN_BEFORE_PARTITION = honoured("add-column-before-partition", BOOLEAN, "false")
BLOB_AS_DESCRIPTOR = honoured("blob-as-descriptor", BOOLEAN, "false")
BLOB_FIELD = honoured("blob-field", NAMES)
BLOB_TARGET_FILE_SIZE = honoured("blob.target-file-size", MEMORY)
AGGREGATION_REMOVE_RECORD_ON_DELETE = honoured(
    "aggregation.remove-record-on-delete", BOOLEAN, "false"
)
ALTER_COLUMN_NULL_TO_NOT_NULL_DISABLED = honoured(
    "alter-column-null-to-not-null.disabled", BOOLEAN, "true"
)
BUCKET = honoured("bucket", INTEGER, "-1", bounds=(-2, inf))
BUCKET_FUNCTION_TYPE = honoured(
    "bucket-function.type", KEYWORD, "default", choices=("default", "mod", "hive")
)
BUCKET_KEY = honoured("bucket-key", TEXT)
CHAIN_TABLE_CHAIN_PARTITION_KEYS = honoured("chain-table.chain-partition-keys", NAMES)
CHAIN_TABLE_ENABLED = honoured("chain-table.enabled", BOOLEAN, "false")
CHANGELOG_FILE_COMPRESSION = honoured("changelog-file.compression", TEXT)
CHANGELOG_FILE_FORMAT = honoured(
    "changelog-file.format",
    KEYWORD,
    choices=("parquet", "orc", "avro"),
    steps=WRITE_ROWS | COMPACT,
)
CHANGELOG_FILE_PREFIX = honoured("changelog-file.prefix", TEXT, "changelog-")
CHANGELOG_FILE_STATS_MODE = honoured("changelog-file.stats-mode", TEXT)
CHANGELOG_PRODUCER = honoured(
    "changelog-producer", KEYWORD, "none", choices=("none", "input", "full-compaction", "lookup")
)
CHANGELOG_PRODUCER_IGNORE_DELETE = honoured("changelog-producer.ignore-delete", BOOLEAN, "false")
CHANGELOG_PRODUCER_IGNORE_UPDATE_BEFORE = honoured(
    "changelog-producer.ignore-update-before", BOOLEAN, "false"
)
CHANGELOG_PRODUCER_ROW_DEDUPLICATE = honoured(
    "changelog-producer.row-deduplicate", BOOLEAN, "false"
)
CHANGELOG_PRODUCER_ROW_DEDUPLICATE_IGNORE_FIELDS = honoured(
    "changelog-producer.row-deduplicate-ignore-fields", NAMES
)
CHANGELOG_NUM_RETAINED_MAX = honoured("changelog.num-retained.max", INTEGER)
CHANGELOG_NUM_RETAINED_MIN = honoured("changelog.num-retained.min", INTEGER, bounds=(1, inf))
CHANGELOG_TIME_RETAINED = honoured("changelog.time-retained", DURATION)
BUCKET_APPEND_ORDERED = honoured("bucket-append-ordered", BOOLEAN, "true")
CLUSTERING_COLUMNS = honoured("clustering.columns", NAMES)
CLUSTERING_HISTORY_PARTITION_IDLE_TIME = honoured(
    "clustering.history-partition.idle-to-full-sort", DURATION
)
CLUSTERING_HISTORY_PARTITION_LIMIT = honoured("clustering.history-partition.limit", INTEGER, "5")
CLUSTERING_INCREMENTAL = honoured("clustering.incremental", BOOLEAN, "false")
CLUSTERING_STRATEGY = honoured("clustering.strategy", TEXT, "auto")
COMMIT_FORCE_CREATE_SNAPSHOT = honoured("commit.force-create-snapshot", BOOLEAN, "false")
COMMIT_MAX_RETRIES = honoured("commit.max-retries", INTEGER, "10", bounds=(0, inf))
COMMIT_MAX_RETRY_WAIT = honoured("commit.max-retry-wait", DURATION, "10 s")
COMMIT_MIN_RETRY_WAIT = honoured("commit.min-retry-wait", DURATION, "10 ms")
COMMIT_TIMEOUT = honoured("commit.timeout", DURATION)
COMMIT_USER_PREFIX = honoured("commit.user-prefix", TEXT)
COMPACTION_DELETE_RATIO_THRESHOLD = honoured(
    "compaction.delete-ratio-threshold", NUMBER, "0.2", bounds=(0, 1)
)
COMPACTION_FORCE_REWRITE_ALL_FILES = honoured(
    "compaction.force-rewrite-all-files", BOOLEAN, "false"
)
COMPACTION_FORCE_UP_LEVEL_0 = honoured("compaction.force-up-level-0", BOOLEAN, "false")
COMPACTION_INCREMENTAL_SIZE_THRESHOLD = honoured("compaction.incremental-size-threshold", MEMORY)
COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT = honoured(
    "compaction.max-size-amplification-percent", INTEGER, "200"
)
COMPACTION_MIN_FILE_NUM = honoured("compaction.min.file-num", INTEGER, "5")
COMPACTION_OFFPEAK_RATIO = honoured("compaction.offpeak-ratio", INTEGER, "0")
COMPACTION_OFFPEAK_END_HOUR = honoured(
    "compaction.offpeak.end.hour", INTEGER, "-1", bounds=(-1, 23)
)
COMPACTION_OFFPEAK_START_HOUR = honoured(
    "compaction.offpeak.start.hour", INTEGER, "-1", bounds=(-1, 23)
)
COMPACTION_OPTIMIZATION_INTERVAL = honoured("compaction.optimization-interval", DURATION)
COMPACTION_SIZE_RATIO = honoured("compaction.size-ratio", INTEGER, "1")
COMPACTION_SKIP_EXPIRED_PARTITIONS = honoured(
    "compaction.skip-expired-partitions", BOOLEAN, "false"
)
COMPACTION_SMALL_FILE_RATIO = honoured("compaction.small-file-ratio", NUMBER, "0.7", bounds=(0, 1))
COMPACTION_TOTAL_SIZE_THRESHOLD = honoured("compaction.total-size-threshold", MEMORY)
CONSUMER_CHANGELOG_ONLY = honoured("consumer.changelog-only", BOOLEAN, "false")
CONSUMER_EXPIRATION_TIME = honoured("consumer.expiration-time", DURATION)
DATA_EVOLUTION_ENABLED = honoured("data-evolution.enabled", BOOLEAN, "false")
DATA_EVOLUTION_REASSIGN_SKIP_ROW_COUNT = honoured(
    "data-evolution.reassign.skip-contiguous-row-count", INTEGER, "1000000000"
)
DATA_FILE_EXTERNAL_PATHS = honoured("data-file.external-paths", NAMES)
DATA_FILE_EXTERNAL_PATHS_SPECIFIC_FS = honoured("data-file.external-paths.specific-fs", KEYWORD)
DATA_FILE_EXTERNAL_PATHS_STRATEGY = honoured("data-file.external-paths.strategy", KEYWORD, "none")
DATA_FILE_EXTERNAL_PATHS_WEIGHTS = honoured("data-file.external-paths.weights", NAMES)
DATA_FILE_PATH_DIRECTORY = honoured("data-file.path-directory", TEXT)
DATA_FILE_PREFIX = honoured("data-file.prefix", TEXT, "data-")
DATA_FILE_THIN_MODE = honoured("data-file.thin-mode", BOOLEAN, "false")
DELETION_VECTOR_INDEX_FILE_TARGET_SIZE = honoured(
    "deletion-vector.index-file.target-size", MEMORY, "2 mb"
)
DELETION_VECTORS_BITMAP64 = honoured("deletion-vectors.bitmap64", BOOLEAN, "false")
DELETION_VECTORS_ENABLED = honoured("deletion-vectors.enabled", BOOLEAN, "false")
DELETION_VECTORS_MERGE_ON_READ = honoured("deletion-vectors.merge-on-read", BOOLEAN, "false")
DELETION_VECTORS_MODIFIABLE = honoured("deletion-vectors.modifiable", BOOLEAN, "false")
DISABLE_EXPLICIT_TYPE_CASTING = honoured("disable-explicit-type-casting", BOOLEAN, "false")
DYNAMIC_BUCKET_INITIAL_BUCKETS = honoured("dynamic-bucket.initial-buckets", INTEGER)
DYNAMIC_BUCKET_MAX_BUCKETS = honoured("dynamic-bucket.max-buckets", INTEGER, "-1")
DYNAMIC_BUCKET_TARGET_ROW_NUM = honoured(
    "dynamic-bucket.target-row-num", INTEGER, "2000000", bounds=(1, inf)
)
DYNAMIC_PARTITION_OVERWRITE = honoured("dynamic-partition-overwrite", BOOLEAN, "true")
FIELDS_DEFAULT_AGGREGATE_FUNCTION = honoured("fields.default-aggregate-function", TEXT)
FILE_INDEX_IN_MANIFEST_THRESHOLD = honoured("file-index.in-manifest-threshold", MEMORY, "500 bytes")
FILE_INDEX_READ_ENABLED = honoured("file-index.read.enabled", BOOLEAN, "true")
FILE_BLOCK_SIZE = honoured("file.block-size", MEMORY)
FILE_COMPRESSION = honoured("file.compression", KEYWORD, "zstd")
FILE_COMPRESSION_PER_LEVEL = honoured("file.compression.per.level", PER_LEVEL)
FILE_COMPRESSION_ZSTD_LEVEL = honoured("file.compression.zstd-level", INTEGER, "1", bounds=(1, 22))
FILE_FORMAT = honoured(
    "file.format",
    KEYWORD,
    "parquet",
    choices=("parquet", "orc", "avro"),
    steps=WRITE_ROWS | COMPACT,
    consequence="data files of this format cannot be written",
)
FILE_FORMAT_PER_LEVEL = honoured(
    "file.format.per.level",
    PER_LEVEL,
    choices=("parquet", "orc", "avro"),
    steps=WRITE_ROWS | COMPACT,
    consequence="data files of this format cannot be written",
)
FILE_SUFFIX_INCLUDE_COMPRESSION = honoured("file.suffix.include.compression", BOOLEAN, "false")
FORCE_LOOKUP = honoured("force-lookup", BOOLEAN, "false")
FULL_COMPACTION_DELTA_COMMITS = honoured("full-compaction.delta-commits", INTEGER)
GLOBAL_INDEX_ENABLED = honoured("global-index.enabled", BOOLEAN, "true")
GLOBAL_INDEX_EXTERNAL_PATH = honoured("global-index.external-path", TEXT)
GLOBAL_INDEX_COLUMN_UPDATE_ACTION = honoured(
    "global-index.column-update-action", TEXT, "THROW_ERROR"
)
ICEBERG_COMPACTION_MAX_FILE_NUM = honoured(
    "metadata.iceberg.compaction.max.file-num", INTEGER, "50"
)
ICEBERG_COMPACTION_MIN_FILE_NUM = honoured(
    "metadata.iceberg.compaction.min.file-num", INTEGER, "10"
)
ICEBERG_DATABASE = honoured("metadata.iceberg.database", TEXT)
ICEBERG_DELETE_AFTER_COMMIT = honoured(
    "metadata.iceberg.delete-after-commit.enabled", BOOLEAN, "true"
)
ICEBERG_FORMAT_VERSION = honoured("metadata.iceberg.format-version", INTEGER, "2", bounds=(2, 3))
ICEBERG_GLUE_SKIP_ARCHIVE = honoured("metadata.iceberg.glue.skip-archive", BOOLEAN, "false")
ICEBERG_HIVE_CLIENT_CLASS = honoured(
    "metadata.iceberg.hive-client-class",
    TEXT,
    "org.apache.hadoop.hive.metastore.HiveMetaStoreClient",
)
ICEBERG_HIVE_CONF_DIR = honoured("metadata.iceberg.hive-conf-dir", TEXT)
ICEBERG_HIVE_SKIP_UPDATE_STATS = honoured(
    "metadata.iceberg.hive-skip-update-stats", BOOLEAN, "false"
)
ICEBERG_MANIFEST_COMPRESSION = honoured(
    "metadata.iceberg.manifest-compression",
    KEYWORD,
    "snappy",
    choices=("null", "deflate", "snappy", "bzip2", "xz", "zstandard", "zstd"),
    steps=EVERY_CHANGE,
    consequence="the Iceberg metadata cannot be written with this compression",
)
ICEBERG_MANIFEST_LEGACY_VERSION = honoured(
    "metadata.iceberg.manifest-legacy-version", BOOLEAN, "false"
)
ICEBERG_PREVIOUS_VERSIONS_MAX = honoured(
    "metadata.iceberg.previous-versions-max", INTEGER, "0", bounds=(0, inf)
)
ICEBERG_STORAGE = honoured(
    "metadata.iceberg.storage",
    KEYWORD,
    "disabled",
    choices=("disabled", "table-location", "hadoop-catalog", "hive-catalog", "rest-catalog"),
    steps=EVERY_CHANGE,
    consequence="the Iceberg metadata cannot be published in this way",
)
ICEBERG_STORAGE_LOCATION = honoured(
    "metadata.iceberg.storage-location", KEYWORD, choices=("table-location", "catalog-location")
)
ICEBERG_TABLE = honoured("metadata.iceberg.table", TEXT)
ICEBERG_URI = honoured("metadata.iceberg.uri", TEXT)
IGNORE_DELETE = honoured("ignore-delete", BOOLEAN, "false")
IGNORE_UPDATE_BEFORE = honoured("ignore-update-before", BOOLEAN, "false")
INCREMENTAL_BETWEEN_SCAN_MODE = honoured("incremental-between-scan-mode", KEYWORD, "auto")
INCREMENTAL_BETWEEN_TAG_TO_SNAPSHOT = honoured(
    "incremental-between-tag-to-snapshot", BOOLEAN, "false"
)
INDEX_FILE_IN_DATA_FILE_DIR = honoured("index-file-in-data-file-dir", BOOLEAN, "false")
LOCAL_SORT_MAX_FILES = honoured("local-sort.max-num-file-handles", INTEGER, "128", bounds=(1, inf))
LOOKUP_COMPACT = honoured("lookup-compact", KEYWORD, "RADICAL", choices=("radical", "gentle"))
LOOKUP_COMPACT_MAX_INTERVAL = honoured("lookup-compact.max-interval", INTEGER)
MANIFEST_COMPRESSION = honoured("manifest.compression", TEXT, "zstd")
MANIFEST_FORMAT = honoured(
    "manifest.format",
    KEYWORD,
    "avro",
    choices=("avro", "orc", "parquet"),
    steps=EVERY_CHANGE,
    consequence="manifests are written in Avro, ORC or Parquet only",
)
MANIFEST_FULL_COMPACTION_THRESHOLD_SIZE = honoured(
    "manifest.full-compaction-threshold-size", MEMORY, "16 mb"
)
MANIFEST_MERGE_MIN_COUNT = honoured("manifest.merge-min-count", INTEGER, "30")
MANIFEST_TARGET_FILE_SIZE = honoured("manifest.target-file-size", MEMORY, "8 mb")
MERGE_ENGINE = honoured(
    "merge-engine",
    KEYWORD,
    "deduplicate",
    choices=("deduplicate", "partial-update", "aggregation", "first-row"),
)
METADATA_STATS_DENSE_STORE = honoured("metadata.stats-dense-store", BOOLEAN, "true")
METADATA_STATS_KEEP_FIRST_N_COLUMNS = honoured("metadata.stats-keep-first-n-columns", INTEGER, "-1")
METADATA_STATS_MODE = honoured("metadata.stats-mode", TEXT, "truncate(16)")
METADATA_STATS_MODE_PER_LEVEL = honoured("metadata.stats-mode.per.level", PER_LEVEL)
METASTORE_PARTITIONED_TABLE = external(
    "metastore.partitioned-table",
    BOOLEAN,
    "false",
    steps=WRITE_ROWS | COMPACT | METADATA | DELETE,
    consequence=(
        "the table was opened by its directory, so a metastore does not get added, changed and "
        "dropped partitions"
    ),
    by_catalog=True,
)
METASTORE_TAG_TO_PARTITION = external(
    "metastore.tag-to-partition",
    TEXT,
    steps=TAG,
    consequence=(
        "the table was opened by its directory, so a metastore does not get tags, which it shows "
        "as partitions"
    ),
    by_catalog=True,
)
METASTORE_TAG_TO_PARTITION_PREVIEW = external(
    "metastore.tag-to-partition.preview",
    KEYWORD,
    "none",
    steps=WRITE_ROWS | TAG,
    consequence=(
        "the table was opened by its directory, so a metastore does not get the preview of the "
        "next tag"
    ),
    by_catalog=True,
)
NUM_LEVELS = honoured("num-levels", INTEGER, bounds=(2, inf))
NUM_SORTED_RUN_COMPACTION_TRIGGER = honoured(
    "num-sorted-run.compaction-trigger", INTEGER, "5", bounds=(1, inf)
)
NUM_SORTED_RUN_STOP_TRIGGER = honoured("num-sorted-run.stop-trigger", INTEGER)
OVERWRITE_UPGRADE = honoured("overwrite-upgrade", BOOLEAN, "true")
PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE = honoured(
    "partial-update.remove-record-on-delete", BOOLEAN, "false"
)
PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP = honoured(
    "partial-update.remove-record-on-sequence-group", NAMES
)
PARTITION_DEFAULT_NAME = honoured("partition.default-name", TEXT, "__DEFAULT_PARTITION__")
PARTITION_END_INPUT_TO_DONE = honoured("partition.end-input-to-done", BOOLEAN, "false")
PARTITION_EXPIRATION_BATCH_SIZE = honoured("partition.expiration-batch-size", INTEGER)
PARTITION_EXPIRATION_MAX_NUM = honoured("partition.expiration-max-num", INTEGER, "100")
PARTITION_EXPIRATION_STRATEGY = honoured(
    "partition.expiration-strategy",
    KEYWORD,
    "values-time",
    choices=("values-time", "update-time"),
    steps=DELETE,
)
PARTITION_EXPIRATION_TIME = honoured("partition.expiration-time", DURATION)
PARTITION_IDLE_TIME_TO_REPORT_STATISTIC = honoured(
    "partition.idle-time-to-report-statistic", DURATION, "0 ms"
)
ORC_LEGACY_INSTANTS = honoured("orc.timestamp-ltz.legacy.type", BOOLEAN, "true")
PARTITION_LEGACY_NAME = honoured("partition.legacy-name", BOOLEAN, "true")
PARTITION_MARK_DONE_ACTION = honoured("partition.mark-done-action", KEYWORD, "success-file")
PARTITION_MARK_DONE_HTTP_PARAMS = honoured("partition.mark-done-action.http.params", TEXT)
PARTITION_MARK_DONE_HTTP_TIMEOUT = honoured(
    "partition.mark-done-action.http.timeout", DURATION, "5 s"
)
PARTITION_MARK_DONE_HTTP_URL = honoured("partition.mark-done-action.http.url", TEXT)
PARTITION_TIMESTAMP_FORMATTER = honoured("partition.timestamp-formatter", TEXT)
PARTITION_TIMESTAMP_PATTERN = honoured("partition.timestamp-pattern", TEXT)
PK_BITMAP_INDEX_COLUMNS = honoured("pk-bitmap.index.columns", NAMES)
PK_BTREE_INDEX_COLUMNS = honoured("pk-btree.index.columns", NAMES)
PK_CLUSTERING_OVERRIDE = honoured("pk-clustering-override", BOOLEAN, "false")
POSTPONE_BATCH_WRITE_FIXED_BUCKET = honoured("postpone.batch-write-fixed-bucket", BOOLEAN, "true")
POSTPONE_MERGE_ON_READ = honoured("postpone.merge-on-read", BOOLEAN, "false")
POSTPONE_TARGET_ROW_NUM_PER_BUCKET = honoured("postpone.target-row-num-per-bucket", INTEGER)
PRIMARY_KEY_NULLABLE = honoured("primary-key.nullable", BOOLEAN, "false")
RECORD_LEVEL_EXPIRE_TIME = honoured("record-level.expire-time", DURATION)
RECORD_LEVEL_TIME_FIELD = honoured("record-level.time-field", TEXT)
ROW_TRACKING_ENABLED = honoured("row-tracking.enabled", BOOLEAN, "false")
ROWKIND_FIELD = honoured("rowkind.field", TEXT)
SCAN_FALLBACK_BRANCH = honoured("scan.fallback-branch", TEXT)
SCAN_FALLBACK_DELTA_BRANCH = honoured("scan.fallback-delta-branch", TEXT)
SCAN_FALLBACK_SNAPSHOT_BRANCH = honoured("scan.fallback-snapshot-branch", TEXT)
SEQUENCE_FIELD = honoured("sequence.field", NAMES)
SEQUENCE_FIELD_SORT_ORDER = honoured(
    "sequence.field.sort-order", KEYWORD, "ascending", choices=("ascending", "descending")
)
SEQUENCE_SNAPSHOT_ORDERING = honoured("sequence.snapshot-ordering", BOOLEAN, "false")
SINK_PROCESS_TIME_ZONE = honoured("sink.process-time-zone", TEXT)
SINK_WATERMARK_TIME_ZONE = honoured("sink.watermark-time-zone", TEXT, "UTC")
SNAPSHOT_CLEAN_EMPTY_DIRECTORIES = honoured("snapshot.clean-empty-directories", BOOLEAN, "false")
SNAPSHOT_EXPIRE_LIMIT = honoured("snapshot.expire.limit", INTEGER, "50")
SNAPSHOT_NUM_RETAINED_MAX = honoured("snapshot.num-retained.max", INTEGER, "2147483647")
SNAPSHOT_NUM_RETAINED_MIN = honoured("snapshot.num-retained.min", INTEGER, "10", bounds=(1, inf))
SNAPSHOT_TIME_RETAINED = honoured("snapshot.time-retained", DURATION, "1 h")
SORTED_INDEX_RECORDS_PER_RANGE = honoured(
    "sorted-index.records-per-range", INTEGER, "10000000", bounds=(1, inf)
)
SOURCE_SPLIT_OPEN_FILE_COST = honoured("source.split.open-file-cost", MEMORY, "4 mb")
SOURCE_SPLIT_TARGET_SIZE = honoured("source.split.target-size", MEMORY, "128 mb")
STREAMING_READ_APPEND_OVERWRITE = honoured("streaming-read-append-overwrite", BOOLEAN, "false")
STREAMING_READ_OVERWRITE = honoured("streaming-read-overwrite", BOOLEAN, "false")
TAG_AUTOMATIC_COMPLETION = honoured("tag.automatic-completion", BOOLEAN, "false")
TAG_AUTOMATIC_CREATION = honoured(
    "tag.automatic-creation",
    KEYWORD,
    "none",
    choices=("none", "process-time", "watermark"),
    steps=WRITE_ROWS | TAG,
    consequence="no tag is created after a write of rows",
)
TAG_CREATION_DELAY = honoured("tag.creation-delay", DURATION, "0 ms")
TAG_CREATION_PERIOD = honoured(
    "tag.creation-period", KEYWORD, "daily", choices=("daily", "hourly", "two-hours"), steps=TAG
)
TAG_CREATION_PERIOD_DURATION = honoured("tag.creation-period-duration", DURATION)
TAG_DEFAULT_TIME_RETAINED = honoured("tag.default-time-retained", DURATION)
TAG_NUM_RETAINED_MAX = honoured("tag.num-retained-max", INTEGER)
TAG_PERIOD_FORMATTER = honoured(
    "tag.period-formatter",
    KEYWORD,
    "with_dashes",
    choices=("with_dashes", "without_dashes", "without_dashes_and_spaces"),
    steps=TAG,
)
TAG_TIME_EXPIRE_ENABLED = honoured("tag.time-expire-enabled", BOOLEAN, "true")
TARGET_FILE_ROW_NUM = honoured(
    "target-file-row-num", INTEGER, "9223372036854775807", bounds=(1, inf)
)
TARGET_FILE_SIZE = honoured("target-file-size", MEMORY)
TYPE = honoured(
    "type",
    KEYWORD,
    "table",
    choices=("table",),
    consequence="the table is not an ordinary Paimon table",
)
WRITE_BUFFER_SIZE = honoured("write-buffer-size", MEMORY, "256 mb")
WRITE_ONLY = honoured("write-only", BOOLEAN, "false")
WRITE_SEQUENCE_NUMBER_INIT_MODE = honoured(
    "write.sequence-number-init-mode", KEYWORD, "scan", choices=("scan", "snapshot")
)
ZORDER_VAR_LENGTH_CONTRIBUTION = honoured("zorder.var-length-contribution", INTEGER, "8")

HONOURED: tuple[AnyOption, ...] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, TableOption)
)
"""All options above: they work as in Java Paimon."""

FIELD_AGGREGATE_FUNCTION = honoured("fields.<column>.aggregate-function", TEXT)
FIELD_COUNT_LIMIT = honoured("fields.<column>.count-limit", INTEGER)
FIELD_DISTINCT = honoured("fields.<column>.distinct", BOOLEAN, "false")
FIELD_IGNORE_RETRACT = honoured("fields.<column>.ignore-retract", BOOLEAN, "false")
FIELD_LIST_AGG_DELIMITER = honoured("fields.<column>.list-agg-delimiter", TEXT, ",")
FIELD_NESTED_KEY = honoured("fields.<column>.nested-key", NAMES)
FIELD_NESTED_KEY_NULL_STRATEGY = honoured(
    "fields.<column>.nested-key-null-strategy", KEYWORD, "merge"
)
FIELD_NESTED_SEQUENCE_FIELD = honoured("fields.<column>.nested-sequence-field", NAMES)
FIELD_STATS_MODE = honoured("fields.<column>.stats-mode", TEXT)
FIELD_TS_FIELD = honoured("fields.<column>.ts-field", TEXT)
AVRO_SETTING = harmless("avro.<setting>", TEXT)
ICEBERG_REST_SETTING = honoured("metadata.iceberg.rest.<setting>", TEXT)
ICEBERG_TABLE_PROPERTY = honoured("metadata.iceberg.table-properties.<setting>", TEXT)

FAMILIES: tuple[AnyOption, ...] = (
    honoured("fields.<columns>.sequence-group", TEXT),
    FIELD_AGGREGATE_FUNCTION,
    FIELD_COUNT_LIMIT,
    FIELD_DISTINCT,
    FIELD_IGNORE_RETRACT,
    FIELD_LIST_AGG_DELIMITER,
    FIELD_NESTED_KEY,
    FIELD_NESTED_KEY_NULL_STRATEGY,
    FIELD_NESTED_SEQUENCE_FIELD,
    FIELD_STATS_MODE,
    FIELD_TS_FIELD,
    # Reads of Paimon up to 1.2 use this option. Newer releases store the default in the column and
    # apply it in writes.
    harmless("fields.<column>.default-value", TEXT),
    changes_format(
        "fields.<column>.map.storage-layout",
        TEXT,
        "default",
        steps=EVERY_STEP,
        consequence=(
            "the maps of this column are stored in a shredded layout that is not implemented"
        ),
    ),
    harmless("fields.<column>.map.shared-shredding.column-placement-policy", TEXT),
    harmless("fields.<column>.map.shared-shredding.max-columns", INTEGER),
    honoured("file-index.<type>.columns", TEXT),
    honoured("file-index.<type>.<column>.<setting>", TEXT),
    harmless("file-index.bitmap.version", INTEGER),  # paimon-cpp writes it; Java ignores it
    harmless("blob-descriptor.<setting>", TEXT),
    harmless("commit.callback.<class>.param", TEXT),
    ICEBERG_REST_SETTING,
    ICEBERG_TABLE_PROPERTY,
    harmless("tag.callback.<class>.param", TEXT),
    changes_format(
        "parquet.encryption.<setting>",
        TEXT,
        steps=WRITE_ROWS | COMPACT,
        consequence="data files are written without encryption",
    ),
    # the following options configure file format writers and index builders of Java Paimon
    AVRO_SETTING,
    harmless("csv.<setting>", TEXT),
    harmless("json.<setting>", TEXT),
    harmless("lumina.<setting>", TEXT),
    harmless("mosaic.<setting>", TEXT),
    harmless("orc.<setting>", TEXT),
    harmless("parquet.<setting>", TEXT),
    harmless("text.<setting>", TEXT),
    harmless("bitmap-index.<setting>", TEXT),
    harmless("btree-index.<setting>", TEXT),
    harmless("multivalue-index.<setting>", TEXT),
    harmless("sorted-index.<setting>", TEXT),
    harmless("materialized-table.<setting>", TEXT),
)
"""Options whose keys contain names of columns, classes or settings; the first match counts."""
