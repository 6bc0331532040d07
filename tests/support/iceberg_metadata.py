"""An independent reader of Iceberg metadata that checks all rules that readers rely on.

It uses fastavro, json, pyarrow and pyroaring, and no decoder of this library.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, DELETES = 0, 1
HINT = "version-hint.text"
MANIFEST_KEYS = {
    "schema", "schema-id", "partition-spec", "partition-spec-id", "format-version", "content"
}  # fmt: skip
LIST_KEYS = {"snapshot-id", "parent-snapshot-id", "sequence-number", "format-version"}
VECTOR_MAGIC = bytes.fromhex("d1d33964")
ARROW_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
}
Json = dict[str, Any]
Row = tuple[Any, ...]


def to_local_path(path: str) -> Path:
    """Return a path of the metadata as a local path."""
    return Path(path.removeprefix("file:"))


class BrokenMetadataError(AssertionError):
    """The metadata violates a rule."""


def require(condition: object, *values: object) -> None:
    """Raise an error with the values unless the condition holds."""
    if not condition:
        raise BrokenMetadataError(" ".join(map(str, values)))


@dataclass(frozen=True)
class AvroFile:
    """An Avro file with its header and records."""

    path: Path
    header: Mapping[str, str]
    records: list[Json]

    @classmethod
    def read(cls, path: str) -> AvroFile:
        """Read a file that must exist."""
        file = to_local_path(path)
        require(file.is_file(), path, "does not exist")
        with file.open("rb") as data:
            reader = fastavro.reader(data)
            records = [dict(record) for record in reader]  # type: ignore[arg-type]
            return cls(file, dict(reader.metadata), records)


@dataclass(frozen=True)
class Manifest:
    """A manifest list entry and the entries of its manifest, which inherit their row ids."""

    entry: Json
    file: AvroFile

    @property
    def content(self) -> int:
        return int(self.entry["content"])

    def files(self, *statuses: int) -> list[Json]:
        """Return the entries with one of the states."""
        return [entry for entry in self.file.records if entry["status"] in statuses]

    @property
    def live(self) -> list[Json]:
        return self.files(EXISTING, ADDED)

    def rows(self, *statuses: int) -> int:
        """Return the number of rows of the files in one of the states."""
        return sum(entry["data_file"]["record_count"] for entry in self.files(*statuses))

    def row_ids(self) -> Iterator[tuple[Json, int]]:
        """Yield the live entries with their first row ids."""
        inherited = self.entry["first_row_id"]
        for entry in self.live:
            own = entry["data_file"].get("first_row_id")  # absent if written for version 2
            if own is None:
                yield entry, inherited
                inherited += entry["data_file"]["record_count"]
            else:
                yield entry, own


@dataclass
class IcebergTable:
    """The Iceberg table of one metadata directory, by default as of the hint."""

    directory: Path
    version: int | None = None
    _avro: dict[str, AvroFile] = field(default_factory=dict)

    @cached_property
    def hint(self) -> int:
        """Return the version in the hint file."""
        path = self.directory / HINT
        require(path.is_file(), path, "does not exist")
        text = path.read_text()
        require(re.fullmatch("[0-9]+", text), "the hint is", repr(text))
        return int(text)

    @cached_property
    def metadata(self) -> Json:
        """Return the table metadata."""
        return self.read_version(self.hint if self.version is None else self.version)

    @property
    def head(self) -> int:
        """Return the version that readers find which look for later ones."""
        versions, head = self.versions(), self.hint
        while head + 1 in versions:
            head += 1
        return head

    def versions(self) -> list[int]:
        """Return all versions."""
        names = (path.name for path in self.directory.iterdir())
        matches = (re.fullmatch(r"v(\d+)\.metadata\.json", name) for name in names)
        return sorted(int(match.group(1)) for match in matches if match)

    def read_version(self, version: int) -> Json:
        """Return the table metadata of a version."""
        path = self.directory / f"v{version}.metadata.json"
        require(path.is_file(), path, "does not exist")
        return dict(json.loads(path.read_text()))

    @property
    def current(self) -> Json:
        """Return the current snapshot."""
        return self.snapshot(self.metadata["current-snapshot-id"])

    def snapshot(self, snapshot_id: int) -> Json:
        """Return a listed snapshot."""
        found = [s for s in self.metadata["snapshots"] if s["snapshot-id"] == snapshot_id]
        require(len(found) == 1, "snapshot", snapshot_id, "is listed", len(found), "times")
        return dict(found[0])

    @property
    def tags(self) -> dict[str, int]:
        """Return the refs and their snapshots."""
        return {name: ref["snapshot-id"] for name, ref in self.metadata["refs"].items()}

    def _read_avro(self, path: str) -> AvroFile:
        if path not in self._avro:
            self._avro[path] = AvroFile.read(path)
        return self._avro[path]

    def manifests(self, snapshot: Json) -> list[Manifest]:
        """Return the manifests of a snapshot."""
        entries = self._read_avro(snapshot["manifest-list"]).records
        return [Manifest(entry, self._read_avro(entry["manifest_path"])) for entry in entries]

    def check(self) -> None:
        """Check everything that the hint leads to, and that older versions are complete."""
        self.check_listed()
        for version in self.versions():
            require(version <= self.hint, "version", version, "is above the hint", self.hint)
            for snapshot in self.read_version(version)["snapshots"]:
                self.manifests(snapshot)

    def check_listed(self) -> None:
        """Check the table metadata and all snapshots that it lists."""
        self._check_table()
        for snapshot in self.metadata["snapshots"]:
            self._check_snapshot(snapshot)
        if self.metadata["format-version"] == 3:
            self._check_row_lineage()

    def check_current(self) -> None:
        """Check what readers of the current snapshot need."""
        self._check_table()
        self._check_snapshot(self.current)

    def unreferenced_files(self) -> set[str]:
        """Return the manifests and manifest lists that no version names."""
        named: set[str] = set()
        for version in self.versions():
            for snapshot in self.read_version(version)["snapshots"]:
                named.add(str(to_local_path(snapshot["manifest-list"])))
                named |= {str(m.file.path) for m in self.manifests(snapshot)}
        return {str(path) for path in self.directory.glob("*.avro")} - named

    def _check_table(self) -> None:
        table = self.metadata
        require(table["format-version"] in (2, 3), "format", table["format-version"])
        ids = [snapshot["snapshot-id"] for snapshot in table["snapshots"]]
        require(len(ids) == len(set(ids)), "snapshots are listed twice:", ids)
        require(ids == sorted(ids), "snapshots are not in order:", ids)
        version = self.hint if self.version is None else self.version
        require(table["current-snapshot-id"] == ids[-1] == version, ids, "version", version)
        require(table["last-sequence-number"] >= ids[-1], table["last-sequence-number"])
        for ref in table["refs"].values():
            require(ref["snapshot-id"] in ids, "ref of the missing snapshot", ref["snapshot-id"])
        schemas = {schema["schema-id"]: schema for schema in table["schemas"]}
        require(len(schemas) == len(table["schemas"]), "a schema id occurs twice")
        require(table["current-schema-id"] in schemas, "no current schema")
        for snapshot in table["snapshots"]:
            require(snapshot["schema-id"] in schemas, "no schema", snapshot["schema-id"])
            parent = snapshot.get("parent-snapshot-id")
            require(parent is None or parent < snapshot["snapshot-id"], "parent", parent)
        field_ids = [f["id"] for schema in schemas.values() for f in schema["fields"]]
        require(table["last-column-id"] >= max(field_ids), table["last-column-id"], field_ids)
        require([spec["spec-id"] for spec in table["partition-specs"]] == [0], "specs")
        for item in self.partition_fields:
            require(item["field-id"] <= table["last-partition-id"], item)

    @property
    def partition_fields(self) -> list[Json]:
        return list(self.metadata["partition-specs"][0]["fields"])

    def _partition_types(self) -> list[str]:
        fields = {f["id"]: f["type"] for f in self.read_schema()}
        return [fields[item["source-id"]] for item in self.partition_fields]

    def read_schema(self, schema_id: int | None = None) -> list[Json]:
        """Return the fields of a schema, by default the current one."""
        if schema_id is None:
            schema_id = self.metadata["current-schema-id"]
        return next(
            list(schema["fields"])
            for schema in self.metadata["schemas"]
            if schema["schema-id"] == schema_id
        )

    def _check_snapshot(self, snapshot: Json) -> None:
        number = snapshot["snapshot-id"]
        manifest_list = self._read_avro(snapshot["manifest-list"])
        require(manifest_list.header.keys() >= LIST_KEYS, "header", manifest_list.header.keys())
        require(manifest_list.header["snapshot-id"] == str(number), "header of", number)
        manifests = self.manifests(snapshot)
        for manifest in manifests:
            self._check_manifest(manifest, number)
        data = [entry for m in manifests if m.content == DATA for entry in m.live]
        files = {entry["data_file"]["file_path"]: entry for entry in data}
        require(len(files) == len(data), "snapshot", number, "lists a data file twice")
        for path, entry in files.items():
            require(
                to_local_path(path).is_file(), "snapshot", number, "names the missing file", path
            )
            size = entry["data_file"]["file_size_in_bytes"]
            require(to_local_path(path).stat().st_size == size, path, "has not the size", size)
        vectors = [entry for m in manifests if m.content == DELETES for entry in m.live]
        require(not vectors or self.metadata["format-version"] == 3, "vectors in version 2")
        for entry in vectors:
            self._check_vector(entry, files)
        targets = [entry["data_file"]["referenced_data_file"] for entry in vectors]
        require(len(targets) == len(set(targets)), "a file has two vectors:", targets)
        _check_summary(snapshot, manifests, data, vectors)

    def _check_manifest(self, manifest: Manifest, snapshot_id: int) -> None:
        entry, file = manifest.entry, manifest.file
        records = file.records
        require(entry["manifest_length"] == file.path.stat().st_size, file.path, "length")
        require(file.header.keys() >= MANIFEST_KEYS, file.path, "header", file.header.keys())
        content = "data" if manifest.content == DATA else "deletes"
        require(file.header["content"] == content, file.path, "content")
        require(records, file.path, "has no entries")
        for name, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
            count, rows = entry[f"{name}_files_count"], entry[f"{name}_rows_count"]
            require(count == len(manifest.files(status)), file.path, name, count)
            require(rows == manifest.rows(status), file.path, name, "rows", rows)
        smallest = min(record["sequence_number"] for record in records)
        require(entry["min_sequence_number"] <= smallest, file.path, "min_sequence_number")
        require(entry["sequence_number"] <= snapshot_id, file.path, "sequence_number")
        require(entry["added_snapshot_id"] == entry["sequence_number"], file.path, "snapshot")
        for record in records:
            self._check_entry(record, manifest)
        self._check_partitions(manifest)

    def _check_entry(self, record: Json, manifest: Manifest) -> None:
        writer, file = manifest.entry["added_snapshot_id"], record["data_file"]
        require(file["content"] == manifest.content, file["file_path"], "content")
        require(record["sequence_number"] <= writer, file["file_path"], "sequence number")
        require(record["file_sequence_number"] == record["sequence_number"], file["file_path"])
        if record["status"] == EXISTING:
            require(record["snapshot_id"] < writer, file["file_path"], "existing since", writer)
        else:
            require(record["snapshot_id"] == writer, file["file_path"], "status", record["status"])
        if record["status"] == ADDED:
            require(record["sequence_number"] == writer, file["file_path"], "sequence number")

    def _check_partitions(self, manifest: Manifest) -> None:
        summaries = manifest.entry["partitions"]
        require(len(summaries) == len(self.partition_fields), manifest.file.path, "partitions")
        for summary, item, kind in zip(
            summaries, self.partition_fields, self._partition_types(), strict=True
        ):
            values = [
                record["data_file"]["partition"][item["name"]] for record in manifest.file.records
            ]
            present = [value for value in values if value is not None]
            require(summary["contains_null"] or len(present) == len(values), "contains_null")
            if present:
                lower = decode_value(summary["lower_bound"], kind)
                upper = decode_value(summary["upper_bound"], kind)
                require(lower <= min(present), manifest.file.path, lower, ">", min(present))
                require(upper >= max(present), manifest.file.path, upper, "<", max(present))

    def _check_vector(self, entry: Json, files: Mapping[str, Json]) -> None:
        file = entry["data_file"]
        target = file["referenced_data_file"]
        require(file["file_format"] == "puffin", file["file_path"], file["file_format"])
        require(target in files, "a vector names", target, "which is not a live file")
        data = files[target]
        require(entry["sequence_number"] >= data["sequence_number"], "vector older than", target)
        require(file["partition"] == data["data_file"]["partition"], "partition of", target)
        path = to_local_path(file["file_path"])
        require(path.is_file(), "the missing index file", path, "is named")
        require(path.stat().st_size == file["file_size_in_bytes"], path, "size")
        positions = read_vector(file)
        require(len(positions) == file["record_count"] > 0, path, "cardinality")
        require(positions[-1] < data["data_file"]["record_count"], path, "position")

    def _check_row_lineage(self) -> None:
        next_row_id = self.metadata["next-row-id"]
        known: dict[str, int] = {}
        end = 0
        for snapshot in self.metadata["snapshots"]:
            if "first-row-id" not in snapshot:
                continue  # it was written for format version 2
            require(snapshot["first-row-id"] >= end, "row ids of snapshot", snapshot["snapshot-id"])
            end = snapshot["first-row-id"] + snapshot["added-rows"]
            ranges = []
            for manifest in self.manifests(snapshot):
                if manifest.content == DELETES:
                    require(manifest.entry["first_row_id"] is None, "row ids of deletes")
                    continue
                require(manifest.entry["first_row_id"] is not None, manifest.file.path, "row ids")
                for entry, first in manifest.row_ids():
                    file = entry["data_file"]
                    ranges.append((first, first + file["record_count"]))
                    if entry["status"] == EXISTING:
                        path = file["file_path"]
                        require(known.get(path, first) == first, path, "has other row ids")
                    known[file["file_path"]] = first
            ranges.sort()
            for (_, stop), (start, _) in pairwise(ranges):
                require(stop <= start, "row ids overlap in", snapshot["snapshot-id"], ranges)
            require(not ranges or ranges[-1][1] <= end, "row ids above the snapshot", ranges)
        require(end <= next_row_id, "next-row-id", next_row_id, "is below", end)

    def read_rows(self, snapshot_id: int | None = None, schema_id: int | None = None) -> list[Row]:
        """Return the rows of a snapshot (default: the current one) in a schema, sorted."""
        snapshot = self.current if snapshot_id is None else self.snapshot(snapshot_id)
        fields = self.read_schema(schema_id)
        manifests = self.manifests(snapshot)
        vectors = {
            entry["data_file"]["referenced_data_file"]: read_vector(entry["data_file"])
            for manifest in manifests
            if manifest.content == DELETES
            for entry in manifest.live
        }
        rows: list[Row] = []
        for manifest in manifests:
            for entry in manifest.live if manifest.content == DATA else ():
                deleted = vectors.get(entry["data_file"]["file_path"], BitMap64())
                rows += _read_data_file(entry["data_file"], fields, deleted)
        return sort_rows(rows)


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows in an order that has a place for null."""
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def decode_value(data: bytes, kind: str) -> Any:
    """Decode the single-value serialization of Iceberg. An int may be read as a long."""
    match kind:
        case "int" | "long" | "date":
            return int.from_bytes(data, "little", signed=True)
        case "string":
            return data.decode()
        case "boolean":
            return data != b"\0"
        case "double" | "float":
            return struct.unpack("<d" if len(data) == 8 else "<f", data)[0]
    raise TypeError(kind)


def read_vector(file: Json) -> BitMap64:
    """Read the 64-bit deletion vector in a range of a file."""
    with to_local_path(file["file_path"]).open("rb") as data:
        data.seek(file["content_offset"])
        blob = data.read(file["content_size_in_bytes"])
    length, checksum = int.from_bytes(blob[:4], "big"), int.from_bytes(blob[-4:], "big")
    body = blob[4:-4]
    require(len(blob) == file["content_size_in_bytes"], file["file_path"], "range")
    require(length == len(body), file["file_path"], "length", length)
    require(body[:4] == VECTOR_MAGIC, file["file_path"], "magic", body[:4])
    require(checksum == zlib.crc32(body), file["file_path"], "checksum")
    return BitMap64.deserialize(body[4:])


def _read_data_file(file: Json, fields: list[Json], deleted: BitMap64) -> list[Row]:
    require(file["file_format"] == "parquet", file["file_path"], file["file_format"])
    table = pq.ParquetFile(to_local_path(file["file_path"])).read()
    require(table.num_rows == file["record_count"], file["file_path"], "rows")
    by_id = {
        int((item.metadata or {})[b"PARQUET:field_id"]): column
        for item, column in zip(table.schema, table.columns, strict=True)
        if b"PARQUET:field_id" in (item.metadata or {})
    }
    columns = []
    for item in fields:
        values = [None] * table.num_rows
        if item["id"] in by_id:
            values = by_id[item["id"]].cast(ARROW_TYPES[item["type"]]).to_pylist()
            _check_bounds(file, item, values)
        columns.append(values)
    rows = list(zip(*columns, strict=True))
    return [row for position, row in enumerate(rows) if position not in deleted]


def _check_bounds(file: Json, item: Json, values: list[Any]) -> None:
    """Check that bounds and null counts of a column hold for its values."""
    lower, upper, nulls = (
        {pair["key"]: pair["value"] for pair in file[name] or ()}
        for name in ("lower_bounds", "upper_bounds", "null_value_counts")
    )
    number, kind = item["id"], item["type"]
    present = [value for value in values if value is not None]
    if number in nulls:
        require(nulls[number] == len(values) - len(present), file["file_path"], "nulls", item)
    if number in lower and present:
        require(decode_value(lower[number], kind) <= min(present), file["file_path"], item)
    if number in upper and present:
        require(decode_value(upper[number], kind) >= max(present), file["file_path"], item)


def _check_summary(
    snapshot: Json, manifests: list[Manifest], data: list[Json], vectors: list[Json]
) -> None:
    number, summary = snapshot["snapshot-id"], snapshot["summary"]
    changes = {
        status: [
            entry["data_file"]
            for manifest in manifests
            if manifest.content == DATA
            for entry in manifest.files(status)
            if entry["snapshot_id"] == number
        ]
        for status in (ADDED, DELETED)
    }
    partitions = {
        json.dumps(file["partition"], default=str) for files in changes.values() for file in files
    }
    expected = {
        "total-data-files": len(data),
        "total-records": _sum(data, "record_count"),
        "total-files-size": _sum(data, "file_size_in_bytes"),
        "total-delete-files": len(vectors),
        "total-position-deletes": _sum(vectors, "record_count"),
        "total-equality-deletes": 0,
        "added-data-files": len(changes[ADDED]),
        "added-records": sum(file["record_count"] for file in changes[ADDED]),
        "added-files-size": sum(file["file_size_in_bytes"] for file in changes[ADDED]),
        "deleted-data-files": len(changes[DELETED]),
        "deleted-records": sum(file["record_count"] for file in changes[DELETED]),
        "removed-files-size": sum(file["file_size_in_bytes"] for file in changes[DELETED]),
        "changed-partition-count": len(partitions),
    }
    for key, value in expected.items():
        require(summary[key] == str(value), f"snapshot {number}: {key}", summary[key], value)
    if changes[DELETED]:
        require(summary["operation"] in ("replace", "overwrite"), summary["operation"])
    else:
        require(summary["operation"] == "append", summary["operation"])


def _sum(entries: Iterable[Json], key: str) -> int:
    return sum(entry["data_file"][key] for entry in entries)
