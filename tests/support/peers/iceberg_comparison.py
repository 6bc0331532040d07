"""Compares Iceberg metadata that this library published with that of Java Paimon 2.0.

Each difference that is allowed here is a row of docs/format/iceberg-metadata.md#differences-from-java-paimon.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

from support.peers.kinds import Record
from support.peers.published_iceberg import AvroFile, PublishedSnapshot, PublishedTable, plain_file

_OF_EACH_WRITER = {
    "table-uuid",
    "last-updated-ms",
    "location",
    "snapshots",
    "last-column-id",
    "refs",
}
_OWN_SUMMARY_KEYS = {"paimon-commit-identity", "paimon-visible-levels"}
_ROW_LINEAGE_FIELDS = {"first_row_id"}
_MANIFEST_HEADER = {
    "schema",
    "schema-id",
    "partition-spec",
    "partition-spec-id",
    "format-version",
    "content",
}
_LIST_HEADER = {"snapshot-id", "parent-snapshot-id", "sequence-number", "format-version"}
_ADDED = ("added-data-files", "added-records", "added-files-size")


def compare_table_metadata(java: Record, ours: Record) -> None:
    """Compare the keys of two versions except their snapshots."""
    is_numbered = ours["format-version"] == 3
    assert set(ours) - set(java) == ({"next-row-id"} if is_numbered else set())
    assert set(java) <= set(ours)
    for key in set(java) - _OF_EACH_WRITER:
        assert ours[key] == java[key], key
    assert ours["last-column-id"] >= java["last-column-id"]
    order = [key for key in ours if key in java]
    assert order == list(java), "the order of the keys"


def compare_snapshot(
    java: PublishedSnapshot,
    ours: PublishedSnapshot,
    floats: set[int],
    *,
    rebuilt: bool,
    has_key: bool,
) -> None:
    """Compare a snapshot that both published; a rebuilt one has no history."""
    added = {"first-row-id", "added-rows"} if "first-row-id" in ours.json else set()
    without_parent = {"parent-snapshot-id"} if rebuilt else set()
    assert set(ours.json) - without_parent == (set(java.json) | added) - without_parent
    if not rebuilt:
        assert ours.json.get("parent-snapshot-id") == java.json.get("parent-snapshot-id")
    assert ours.json["sequence-number"] == java.json["sequence-number"]
    # Java 2.0 writes the newest schema and the time of writing, which are not older.
    assert ours.json["schema-id"] <= java.json["schema-id"]
    assert ours.json["timestamp-ms"] <= java.json["timestamp-ms"]
    compare_summary(java, ours, rebuilt=rebuilt, has_key=has_key)
    compare_files(java, ours, floats, rebuilt=rebuilt)
    compare_avro(java, ours)


def compare_summary(
    java: PublishedSnapshot, ours: PublishedSnapshot, *, rebuilt: bool, has_key: bool
) -> None:
    """Compare the summaries of a snapshot, and the totals with the live files.

    Java also counts removed files that it never published, so its totals of tables with a primary
    key drift.
    """
    theirs, mine = java.json["summary"], ours.json["summary"]
    assert set(mine) == set(theirs) | _OWN_SUMMARY_KEYS
    if not rebuilt:
        compared = ("operation", *_ADDED) if has_key else tuple(theirs)
        assert {key: mine[key] for key in compared} == {key: theirs[key] for key in compared}
    files = [entry["data_file"] for entry in ours.data_files.values()]
    vectors = [entry["data_file"] for entry in ours.vectors.values()]
    totals = {
        "total-data-files": len(files),
        "total-records": sum(file["record_count"] for file in files),
        "total-files-size": sum(file["file_size_in_bytes"] for file in files),
        "total-delete-files": len(vectors),
        "total-position-deletes": sum(file["record_count"] for file in vectors),
        "total-equality-deletes": 0,
    }
    assert {key: mine[key] for key in totals} == {k: str(v) for k, v in totals.items()}


def compare_files(
    java: PublishedSnapshot, ours: PublishedSnapshot, floats: set[int], *, rebuilt: bool
) -> None:
    """Compare the live entries; those of a rebuild have the sequence number of its snapshot."""
    for theirs, mine in ((java.data_files, ours.data_files), (java.vectors, ours.vectors)):
        assert set(mine) == set(theirs), ours.id
        for path, entry in mine.items():
            other = theirs[path]
            assert plain_file(entry, ours) == expect_file(plain_file(other, java), floats), path
            if entry["data_file"]["content"] == 0 and not rebuilt:
                numbers = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
                assert [entry[key] for key in numbers] == [other[key] for key in numbers], path


def expect_file(java: Record, floats: set[int]) -> Record:
    """Return what this library writes in place of a file entry of Java.

    NaN is no bound, and bounds that are zero include both zeros. `floats` are the ids of the
    columns with floating-point numbers.
    """
    if java["lower_bounds"] is None:
        return java
    lower, upper = dict(java["lower_bounds"]), dict(java["upper_bounds"])
    for number in floats & set(lower):
        low, high = lower[number], upper[number]
        is_float = len(low) == 4
        if math.isnan(_decode(low)) or math.isnan(_decode(high)):
            del lower[number], upper[number]
            continue
        if _decode(low) == 0:
            lower[number] = struct.pack("<f" if is_float else "<d", -0.0)
        if _decode(high) == 0:
            upper[number] = struct.pack("<f" if is_float else "<d", 0.0)
    return {**java, "lower_bounds": lower, "upper_bounds": upper}


def _decode(bound: bytes) -> float:
    return float(struct.unpack("<f" if len(bound) == 4 else "<d", bound)[0])


def find_floats(metadata: Record) -> set[int]:
    """Return the ids of the columns that have or had a floating-point type."""
    fields = (field for schema in metadata["schemas"] for field in schema["fields"])
    return {field["id"] for field in fields if field["type"] in ("float", "double")}


def compare_avro(java: PublishedSnapshot, ours: PublishedSnapshot) -> None:
    """Compare the Avro schemas and the keys of the headers."""
    compare_avro_files(java.list_file, ours.list_file, _LIST_HEADER)
    theirs = {listed["content"]: manifest for listed, manifest in java.manifests}
    for listed, manifest in ours.manifests:
        is_new = not (java.directory / Path(listed["manifest_path"]).name).exists()
        if is_new and listed["content"] in theirs:
            compare_avro_files(theirs[listed["content"]], manifest, _MANIFEST_HEADER)


def compare_avro_files(java: AvroFile, ours: AvroFile, header: set[str]) -> None:
    """Compare the schemas of two files; ours has more keys in the header, and row lineage."""
    assert _without_additions(ours.schema) == _without_additions(java.schema)
    assert ours.header["avro.codec"] == java.header["avro.codec"]
    assert set(ours.header) == set(java.header) | header


def _without_additions(schema: Any) -> Any:
    if schema == "timestamp-millis":
        return "timestamp-micros"  # the only unit that Iceberg defines
    if isinstance(schema, list):
        return [_without_additions(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    values = {key: _without_additions(v) for key, v in schema.items() if key != "adjust-to-utc"}
    if isinstance(values.get("fields"), list):
        values["fields"] = [f for f in values["fields"] if f["name"] not in _ROW_LINEAGE_FIELDS]
    return values


def compare_published(
    java: PublishedTable, ours: PublishedTable, *, first: int, has_key: bool, rebuilt: bool = False
) -> None:
    """Compare the newest versions, and their snapshots from `first` on."""
    theirs, mine = java.load(), ours.load()
    compare_table_metadata(theirs, mine)
    listed = java.snapshots(theirs), ours.snapshots(mine)
    assert set(listed[1]) <= set(listed[0])
    compared = [number for number in listed[1] if number >= first]
    assert compared
    if not rebuilt:
        assert list(listed[1]) == list(listed[0])
        # Java lists only one tag of each snapshot.
        assert {name: mine["refs"].get(name) for name in theirs["refs"]} == theirs["refs"]
    for number in compared:
        compare_snapshot(
            listed[0][number],
            listed[1][number],
            find_floats(theirs),
            rebuilt=rebuilt,
            has_key=has_key,
        )
