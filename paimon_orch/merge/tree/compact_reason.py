"""The reasons for compactions."""

from enum import StrEnum


class CompactReason(StrEnum):
    """The reason for a compaction; the value is the phrase that users see."""

    OPTIMIZATION_INTERVAL = "optimization interval"
    SIZE_THRESHOLD = "size threshold"
    SIZE_AMPLIFICATION = "size amplification"
    SIZE_RATIO = "size ratio"
    NUMBER_OF_RUNS = "number of runs"
    LEVEL_0 = "level 0"
    LEVELS = "levels up to a limit"
    FULL = "full compaction"
    DELETED_ROWS = "deleted rows"
    DELETED_OR_EXPIRED_ROWS = "deleted or expired rows"
    OVERLAPPING_FILES = "overlapping files"
    SMALL_FILES = "small files"
    SORT = "sort"
    IDLE = "no new files for long"
