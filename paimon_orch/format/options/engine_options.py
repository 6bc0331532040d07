"""Options of engines and older names of table options that work as in Java Paimon."""

from paimon_orch.format.options.option_builders import honoured
from paimon_orch.format.options.table_option import AnyOption, TableOption
from paimon_orch.format.options.value_type import BOOLEAN, INTEGER, NAMES, TEXT

POSTPONE_DEFAULT_BUCKET_NUM = honoured("postpone.default-bucket-num", INTEGER)
SINK_CLUSTERING_BY_COLUMNS = honoured("sink.clustering.by-columns", NAMES)
SINK_CLUSTERING_STRATEGY = honoured("sink.clustering.strategy", TEXT, "auto")
DEDUPLICATE_IGNORE_DELETE = honoured("deduplicate.ignore-delete", BOOLEAN, "false")
FIRST_ROW_IGNORE_DELETE = honoured("first-row.ignore-delete", BOOLEAN, "false")
PARTIAL_UPDATE_IGNORE_DELETE = honoured("partial-update.ignore-delete", BOOLEAN, "false")
SNAPSHOT_EXPIRE_CLEAN_EMPTY_DIRECTORIES = honoured(
    "snapshot.expire.clean-empty-directories", BOOLEAN, "false"
)
FILE_INDEX_STRICT = honoured("file-index.strict", BOOLEAN, "false")

ENGINE_OPTIONS: tuple[AnyOption, ...] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, TableOption)
)
"""All options above, and our own ``file-index.strict``."""
