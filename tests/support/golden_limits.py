"""Golden tables that we refuse to read: each is listed by name, and tried in every run."""

from __future__ import annotations

UNREADABLE_FILES = {
    "java-2.0/blob": "BLOB",
    "java-2.0/map_shared_shredding": "map.storage-layout",
    "java-2.0/text_formats/db.t_csv": "csv",
    "java-2.0/text_formats/db.t_json": "json",
    "java-2.0/variant": "VARIANT",
    "java-2.0/vector": "VECTOR",
}
"""Tables, or folders of tables, with types or formats that we do not have, and the word that names what is missing."""

UNREADABLE = UNREADABLE_FILES | {
    "java-2.0/chain_table": "chain-table.enabled",
}
"""Those, and tables with options that we do not have, and the option."""

MERGED_BY_ENGINES = {"java-2.0/postpone_merge_on_read/db.t"}
"""Tables whose waiting rows Spark and Flink merge, as we do; the core library, which their rows are from, does not."""


def refusal_pattern(name: str) -> str | None:
    """Return a pattern of what we lack to read a table, if we refuse to."""
    return UNREADABLE.get(name) or UNREADABLE.get(name.rpartition("/")[0])


def missing_type(name: str) -> str | None:
    """Return the type or format of a table's files that we do not have, if there is one."""
    return UNREADABLE_FILES.get(name) or UNREADABLE_FILES.get(name.rpartition("/")[0])
