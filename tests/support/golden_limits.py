"""The names of golden tables that paimon_orch refuses to read. The tests verify this."""

from __future__ import annotations

UNREADABLE = {
    "java-2.0/map_shared_shredding": "map.storage-layout",
    "java-2.0/text_formats/db.t_csv": "csv",
    "java-2.0/text_formats/db.t_json": "json",
}
"""Tables or folders with an unsupported type or file format, and the name of it."""

MERGED_BY_ENGINES = {"java-2.0/postpone_merge_on_read/db.t"}
"""Tables whose postponed rows are merged by Spark, Flink and us, but not by Java Paimon's core."""


def refusal_pattern(name: str) -> str | None:
    """Return the pattern of the error of reading a table, or None if the table can be read."""
    return UNREADABLE.get(name) or UNREADABLE.get(name.rpartition("/")[0])


def missing_type(name: str) -> str | None:
    """Return the unsupported type or file format of a table, or None."""
    return UNREADABLE.get(name) or UNREADABLE.get(name.rpartition("/")[0])
