"""Rewrites Iceberg metadata as other writers would have written it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import fastavro
from support.iceberg_metadata import IcebergTable, Json, to_local_path


def rewrite_version(iceberg: IcebergTable, metadata: Json) -> None:
    """Replace the table metadata that the hint names."""
    path = iceberg.directory / f"v{iceberg.hint}.metadata.json"
    path.write_text(json.dumps(metadata))


def rewrite_as_java(iceberg: IcebergTable) -> None:
    """Remove what Java Paimon 2.0 does not write or keep from the newest version."""
    metadata = iceberg.metadata
    metadata.pop("next-row-id", None)
    for snapshot in metadata["snapshots"]:
        for key in ("first-row-id", "added-rows"):
            snapshot.pop(key, None)
        summary = snapshot["summary"]
        snapshot["summary"] = {k: v for k, v in summary.items() if not k.startswith("paimon-")}
        file = to_local_path(snapshot["manifest-list"])
        _rewrite_avro(file, lambda record: record, without="first_row_id")
    rewrite_version(iceberg, metadata)


def rewrite_paths(iceberg: IcebergTable, prefix: str) -> None:
    """Prepend a text to all paths of the newest version; other versions are deleted."""
    metadata = iceberg.metadata

    def rewrite_file(entry: Json) -> Json:
        for key in ("file_path", "referenced_data_file"):
            if entry["data_file"][key] is not None:
                entry["data_file"][key] = prefix + entry["data_file"][key]
        return entry

    lengths: dict[str, int] = {}
    for snapshot in metadata["snapshots"]:
        for manifest in iceberg.manifests(snapshot):
            path = str(manifest.file.path)
            if path not in lengths:
                lengths[path] = _rewrite_avro(manifest.file.path, rewrite_file)

        def rewrite_manifest(entry: Json) -> Json:
            path = entry["manifest_path"]
            return {**entry, "manifest_path": prefix + path, "manifest_length": lengths[path]}

        _rewrite_avro(Path(snapshot["manifest-list"]), rewrite_manifest)
        snapshot["manifest-list"] = prefix + snapshot["manifest-list"]
    metadata["location"] = prefix + metadata["location"]
    rewrite_version(iceberg, metadata)


def _rewrite_avro(
    path: Path, rewrite: Callable[[Json], Json], *, without: str | None = None
) -> int:
    """Rewrite the records of a file, without a top-level field; return its new size."""
    with path.open("rb") as source:
        reader = fastavro.reader(source)
        schema = dict(reader.writer_schema)  # type: ignore[arg-type]
        records = [rewrite(dict(record)) for record in reader]  # type: ignore[arg-type]
        header = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
    schema["fields"] = [field for field in schema["fields"] if field["name"] != without]
    with path.open("wb") as sink:
        fastavro.writer(sink, schema, records, metadata=header)
    return path.stat().st_size
