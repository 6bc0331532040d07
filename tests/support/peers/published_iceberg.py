"""The Iceberg metadata of a table and its rows, read without the code under test.

Paths are compared relative to the table: golden tables were written in another directory.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from support.golden import canonical_rows
from support.peers.kinds import Record

EXISTING, ADDED, DELETED = 0, 1, 2
_VECTOR_MAGIC = bytes.fromhex("d1d33964")
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")
_ARROW_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time32("ms"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_MAPS = ("null_value_counts", "lower_bounds", "upper_bounds")


@dataclass(frozen=True)
class AvroFile:
    """An Avro file: its schema, the keys of its header, and its records."""

    schema: Record
    header: Record
    records: list[Record]

    @classmethod
    def read(cls, path: Path) -> AvroFile:
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            records = [record for record in reader if isinstance(record, dict)]
            header = dict(reader.metadata)
        return cls(json.loads(header["avro.schema"]), header, records)


@dataclass(frozen=True)
class PublishedSnapshot:
    """One snapshot of the metadata with its manifests and live files."""

    directory: Path
    location: str
    json: Record

    @property
    def id(self) -> int:
        return int(self.json["snapshot-id"])

    def _read(self, path: str) -> AvroFile:
        return AvroFile.read(self.directory / Path(path).name)

    @cached_property
    def list_file(self) -> AvroFile:
        return self._read(self.json["manifest-list"])

    @cached_property
    def manifests(self) -> list[tuple[Record, AvroFile]]:
        """Return the records of the manifest list, each with its manifest."""
        return [(r, self._read(r["manifest_path"])) for r in self.list_file.records]

    def live_entries(self) -> Iterator[Record]:
        """Yield the live entries of all manifests; checks the counts of the manifest list."""
        for listed, manifest in self.manifests:
            path = self.directory / Path(listed["manifest_path"]).name
            assert listed["manifest_length"] == path.stat().st_size, path
            for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
                files = [e["data_file"] for e in manifest.records if e["status"] == status]
                counts = (f"{name}_files_count", f"{name}_data_files_count")
                assert [listed[key] for key in counts if key in listed] == [len(files)], path
                assert listed[f"{name}_rows_count"] == sum(f["record_count"] for f in files), path
            for entry in manifest.records:
                assert entry["data_file"]["content"] == listed["content"], path
                if entry["status"] != DELETED:
                    yield entry

    def relative(self, path: str) -> str:
        """Return a path relative to the table."""
        assert path.startswith(f"{self.location}/"), (path, self.location)
        return path.removeprefix(f"{self.location}/")

    @cached_property
    def data_files(self) -> dict[str, Record]:
        """Return the live entries of data files by their relative paths."""
        return self._index(0, "file_path")

    @cached_property
    def vectors(self) -> dict[str, Record]:
        """Return the live entries of deletion vectors by the paths of their data files."""
        return self._index(1, "referenced_data_file")

    def _index(self, content: int, key: str) -> dict[str, Record]:
        entries: dict[str, Record] = {}
        for entry in self.live_entries():
            if entry["data_file"]["content"] == content:
                path = self.relative(entry["data_file"][key])
                assert path not in entries, f"{path} is listed twice"
                entries[path] = entry
        return entries


def plain_file(entry: Record, snapshot: PublishedSnapshot) -> Record:
    """Return the fields of a live entry with relative paths and maps in place of arrays."""
    file = dict(entry["data_file"])
    for key in ("file_path", "referenced_data_file"):
        if file[key] is not None:
            file[key] = snapshot.relative(file[key])
    for key in _MAPS:
        if file[key] is not None:
            file[key] = {item["key"]: item["value"] for item in file[key]}
    file.pop("first_row_id", None)
    return file


@dataclass(frozen=True)
class PublishedTable:
    """The directory with the Iceberg metadata of a table."""

    directory: Path

    def versions(self) -> list[int]:
        """Return the versions with metadata, ascending."""
        return sorted(int(p.name[1:].split(".")[0]) for p in self.directory.glob("v*.json"))

    def hint(self) -> int:
        """Return the version that readers begin with; the file has nothing but its digits."""
        text = (self.directory / "version-hint.text").read_text(encoding="utf-8")
        assert text == str(int(text))
        return int(text)

    def path(self, version: int) -> Path:
        return self.directory / f"v{version}.metadata.json"

    def load(self, version: int | None = None) -> Record:
        """Return the metadata of a version; by default as a reader of Hadoop tables finds it."""
        if version is None:
            version = self.hint()
            while self.path(version + 1).exists():
                version += 1
        metadata = json.loads(self.path(version).read_text(encoding="utf-8"))
        assert isinstance(metadata, dict)
        return metadata

    def snapshots(self, metadata: Record | None = None) -> dict[int, PublishedSnapshot]:
        """Return the snapshots of a version by their ids."""
        metadata = self.load() if metadata is None else metadata
        snapshots = (
            PublishedSnapshot(self.directory, metadata["location"], item)
            for item in metadata["snapshots"]
        )
        return {snapshot.id: snapshot for snapshot in snapshots}

    def current(self) -> PublishedSnapshot:
        """Return the current snapshot."""
        metadata = self.load()
        return self.snapshots(metadata)[metadata["current-snapshot-id"]]

    def find_missing_lists(self) -> list[str]:
        """Return the manifest lists and manifests that some version names and that are missing.

        Java 2.0 reads all of them when it rebuilds the metadata, and fails on a missing list.
        """
        missing = []
        for version in self.versions():
            for number, snapshot in self.snapshots(self.load(version)).items():
                path = self.directory / Path(snapshot.json["manifest-list"]).name
                names = [path.name]
                if path.exists():
                    names += [Path(r["manifest_path"]).name for r in snapshot.list_file.records]
                missing += [
                    f"v{version}, snapshot {number}: {name}"
                    for name in names
                    if not (self.directory / name).exists()
                ]
        return missing

    def read_rows(self, snapshot_id: int | None = None) -> list[Record]:
        """Return the rows that Iceberg readers see in the newest schema, as JSON records.

        Columns are found by field id, and partition values come from the metadata.
        """
        metadata = self.load()
        number = metadata["current-snapshot-id"] if snapshot_id is None else snapshot_id
        snapshot = self.snapshots(metadata)[number]
        [schema] = (
            item
            for item in metadata["schemas"]
            if item["schema-id"] == metadata["current-schema-id"]
        )
        rows: list[Record] = []
        for path, entry in snapshot.data_files.items():
            vector = snapshot.vectors.get(path)
            if vector is not None:
                assert vector["sequence_number"] >= entry["sequence_number"], path
                assert vector["data_file"]["partition"] == entry["data_file"]["partition"], path
            rows += _read_file(entry["data_file"], schema["fields"], vector)
        assert set(snapshot.vectors) <= set(snapshot.data_files)
        return rows


def find_arrow_type(iceberg_type: Any, stored: pa.DataType | None) -> pa.DataType:
    """Return the Arrow type of a column; nested columns keep the type of their file."""
    if isinstance(iceberg_type, Mapping):
        return pa.null() if stored is None else stored
    decimal = _DECIMAL.fullmatch(iceberg_type)
    if decimal is not None:
        return pa.decimal128(*map(int, decimal.groups()))
    return _ARROW_TYPES[iceberg_type]


def _read_file(file: Record, fields: list[Record], vector: Record | None) -> Iterator[Record]:
    path = Path(file["file_path"])
    assert path.stat().st_size == file["file_size_in_bytes"], path
    stored = pq.read_table(path, partitioning=None)
    assert stored.num_rows == file["record_count"], path
    if vector is not None:
        deleted = read_vector(vector["data_file"])
        kept = [n for n in range(stored.num_rows) if n not in deleted]
        stored = stored.take(pa.array(kept, pa.int64()))
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in stored.schema]
    columns = dict(zip(ids, stored.columns, strict=True))
    arrays: list[Any] = []
    for field in fields:
        column = columns.get(field["id"])
        arrow_type = find_arrow_type(field["type"], None if column is None else column.type)
        if field["name"] in file["partition"]:
            value = file["partition"][field["name"]]
            arrays.append(pa.array([value] * stored.num_rows, arrow_type))
        elif column is None:
            arrays.append(pa.nulls(stored.num_rows, arrow_type))
        else:
            arrays.append(column.cast(arrow_type))
    names = [field["name"] for field in fields]
    for row in canonical_rows(pa.table(arrays, names=names)):
        yield dict(zip(names, row, strict=True))


def read_vector(file: Mapping[str, Any]) -> BitMap64:
    """Return the deleted positions of an entry, decoded as the Iceberg specification says."""
    start, size = file["content_offset"], file["content_size_in_bytes"]
    blob = Path(file["file_path"]).read_bytes()[start : start + size]
    (length,) = struct.unpack(">I", blob[:4])
    assert length == size - 8, "the length of the vector"
    (checksum,) = struct.unpack(">I", blob[-4:])
    assert zlib.crc32(blob[4:-4]) == checksum
    assert blob[4:8] == _VECTOR_MAGIC
    positions = BitMap64.deserialize(blob[8:-4])
    assert len(positions) == file["record_count"]
    return positions
