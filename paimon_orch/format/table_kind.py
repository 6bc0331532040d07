"""The kinds of tables. Each floor has a module for what differs between them.

See docs/format/buckets.md#bucket-modes and docs/format/row-tracking.md.
"""

from enum import Enum


class TableKind(Enum):
    """How a table stores its rows, and how rows change."""

    APPEND = "append"
    """Rows are stored as they were appended; deletion vectors or rewritten files change them."""
    ROW_TRACKING = "row tracking"
    """An append table whose rows keep their ids and sequence numbers in rewritten files."""
    DATA_EVOLUTION = "data evolution"
    """A table with row tracking whose columns may be in several files."""
    PRIMARY_KEY = "primary key"
    """Rows of a key are merged, in sorted runs of levels."""
