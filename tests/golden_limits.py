"""Golden tables that we do not read as their writer did: each exception is listed by table, and tried in every run.

An entry of `MISREAD` is a defect: its tests are expected to fail, and fail when they pass. Remove it with the fix.
"""

from __future__ import annotations

from typing import Any

import pytest

UNREADABLE = {
    "java-2.0/blob": "BLOB",
    "java-2.0/text_formats/db.t_csv": "csv",
    "java-2.0/text_formats/db.t_json": "json",
    "java-2.0/variant": "VARIANT",
    "java-2.0/vector": "VECTOR",
}
"""Tables, or folders of tables, that a reader refuses, and the word that names what it lacks."""

MISREAD: dict[str, tuple[str, set[int]]] = {
    "java-2.0/agg_bitmaps/db.t": ("rbm64 of Java has a form of its own", {2, 3}),
    "java-2.0/agg_sketches/db.t": ("rbm64 of Java has a form of its own", {2, 3}),
    "java-2.0/fallback_branch/db.t": ("scan.fallback-branch is ignored", {1}),
    "java-2.0/map_shared_shredding/db.t": ("no shared-shredding layout", {1, 2}),
    "java-2.0/map_shared_shredding/db.t_pk": ("no shared-shredding layout", {1, 2}),
    "java-2.0/partial_update_more_avro/db.t_agg": ("late first_non_null_value", {3, 4}),
    "java-2.0/pk_clustering/db.t_dv": ("pk-clustering-override is ignored", {4, 5}),
    "java-2.0/pk_clustering_overlap/db.t_dv": ("pk-clustering-override is ignored", {6, 7}),
}
"""Tables whose rows we read wrongly, and in which snapshots."""

UNCOMBINED = {
    "java-2.0/chain_table/db.t": "chain-table.enabled is ignored",
    "java-2.0/fallback_branch/db.t": "scan.fallback-branch is ignored",
}
"""Tables of several branches whose plain read lacks rows."""

_UNSOUND = {
    "java-2.0/map_shared_shredding": "no shared-shredding layout",
    "java-2.0/pk_clustering": "pk-clustering-override is ignored",
    "java-2.0/pk_clustering_overlap": "pk-clustering-override is ignored",
}


def refusal(name: str) -> str | None:
    """Return the word that names what we lack to read a table, if we refuse to."""
    return UNREADABLE.get(name) or UNREADABLE.get(name.rpartition("/")[0])


def is_read(name: str) -> bool:
    """Return whether we read all of a table as its writer did."""
    return refusal(name) is None and name not in MISREAD


def marks_of_read(name: str, snapshot: int | None) -> list[Any]:
    """Return the marks of a test that reads a snapshot."""
    reason, snapshots = MISREAD.get(name, ("", set()))
    return [pytest.mark.xfail(strict=True, reason=reason)] if snapshot in snapshots else []


def marks_of_check(name: str) -> list[Any]:
    """Return the marks of a test that checks a table."""
    reason = _UNSOUND.get(name.rpartition("/")[0])
    return [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
