"""Damages tables: metadata is rewritten so that only the changed fields are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from support.tables import catalog_of

from paimon_orch.errors import StorageError
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry, encode_index_manifest
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, ManifestEntry, encode_manifest
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta, encode_manifest_list
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.table import Table


def edit_snapshot(table: Table, snapshot_id: int, **changes: Any) -> None:
    """Change fields of a snapshot file."""
    store = table.stores.snapshots
    changed = replace(store.get(snapshot_id), **changes)
    Path(store.path(snapshot_id)).write_bytes(changed.to_json())


def _replace_unchanging(table: Table, name: str, data: bytes) -> None:
    """Replace a metadata file as no writer does; a process that has read it would not notice."""
    (Path(table.paths.manifest_dir) / name).write_bytes(data)
    clear_metadata_cache()


def edit_delta(
    table: Table,
    snapshot_id: int,
    edit: Callable[[list[ManifestEntry]], Sequence[ManifestEntry]],
) -> None:
    """Rewrite the delta manifest of a snapshot, with correct sizes and counts in its list."""
    snapshot = table.stores.snapshots.get(snapshot_id)
    [meta] = table.stores.manifests.manifest_list(snapshot.delta_manifest_list)
    entries = list(edit(table.stores.manifests.open(meta).entries()))
    data = encode_manifest(entries)
    _replace_unchanging(table, meta.file_name, data)
    schema = table.load().schema
    summary = ManifestFileMeta.of(
        meta.file_name, len(data), entries, schema.partition_fields, schema.id
    )
    for number in table.stores.snapshots.ids():
        for name in ("base_manifest_list", "delta_manifest_list"):
            _edit_list(table, number, name, summary)


def _edit_list(table: Table, snapshot_id: int, name: str, changed: ManifestFileMeta) -> None:
    """Replace the entry of a manifest in a manifest list."""
    file_name = getattr(table.stores.snapshots.get(snapshot_id), name)
    metas = table.stores.manifests.manifest_list(file_name)
    if any(meta.file_name == changed.file_name for meta in metas):
        listed = [changed if meta.file_name == changed.file_name else meta for meta in metas]
        data = encode_manifest_list(listed)
        _replace_unchanging(table, file_name, data)
        edit_snapshot(table, snapshot_id, **{f"{name}_size": len(data)})


def edit_summaries(
    table: Table, snapshot_id: int, edit: Callable[[ManifestFileMeta], ManifestFileMeta]
) -> None:
    """Change what the lists of one snapshot state about its manifests, which stay unchanged."""
    snapshot = table.stores.snapshots.get(snapshot_id)
    for meta in table.stores.manifests.manifests(snapshot):
        for name in ("base_manifest_list", "delta_manifest_list"):
            _edit_list(table, snapshot_id, name, edit(meta))


def edit_files(table: Table, snapshot_id: int, **changes: Any) -> None:
    """Change the metadata of every file that a snapshot added or deleted."""
    edit_delta(
        table, snapshot_id, lambda entries: [_replace_file(entry, **changes) for entry in entries]
    )


def _replace_file(entry: ManifestEntry, **changes: Any) -> ManifestEntry:
    of_file = {name: value for name, value in changes.items() if name in DataFileMeta.__slots__}
    of_entry = {name: value for name, value in changes.items() if name not in of_file}
    return replace(entry, file=replace(entry.file, **of_file), **of_entry)


def edit_partitions(table: Table, snapshot_id: int, partition: bytes) -> None:
    """Change the partition of every file that a snapshot added, which may be any bytes."""
    snapshot = table.stores.snapshots.get(snapshot_id)
    [meta] = table.stores.manifests.manifest_list(snapshot.delta_manifest_list)
    entries = table.stores.manifests.open(meta).entries()
    data = encode_manifest([replace(entry, partition=partition) for entry in entries])
    _replace_unchanging(table, meta.file_name, data)
    changed = replace(meta, file_size=len(data))
    for name in ("base_manifest_list", "delta_manifest_list"):
        _edit_list(table, snapshot_id, name, changed)


def edit_index(
    table: Table,
    snapshot_id: int,
    edit: Callable[[list[IndexManifestEntry]], Sequence[IndexManifestEntry]],
) -> None:
    """Rewrite the index manifest of a snapshot."""
    name = table.stores.snapshots.get(snapshot_id).index_manifest
    assert name is not None
    data = encode_index_manifest(edit(table.stores.manifests.index_manifest(name)))
    _replace_unchanging(table, name, data)


def data_files(table: Table) -> list[Path]:
    """Return the live data files of the newest snapshot."""
    reader = table.stores.reader()
    schema = table.load().schema
    return [
        Path(reader.paths.data_file(schema, split.partition, split.bucket, file))
        for split in table.files()
        for file in split.files
    ]


def fail_to_write(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Make the writing of local files fail whose path contains a text, after their creation."""
    open_output = LocalFileIO.open_output

    def fail(io: LocalFileIO, path: str) -> IO[bytes]:
        sink = open_output(io, path)
        if part in path:
            sink.close()
            raise StorageError("the disk is full")
        return sink

    monkeypatch.setattr(LocalFileIO, "open_output", fail)


def store_option(table: Table, key: str, value: str) -> Table:
    """Write an option into the schema, as an engine that does not validate options does."""
    path = Path(table.paths.root) / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["options"][key] = value
    path.write_text(json.dumps(schema))
    return catalog_of(table).table(table.identifier)


def add_schema(table: Table, **options: str) -> Table:
    """Write a newer schema with other options, as an engine does that checks no files.

    In names of options `__` is a dot and `_` a dash.
    """
    newest = table.load().schema
    path = Path(table.paths.root) / "schema" / f"schema-{newest.id}"
    values = json.loads(path.read_text()) | {"id": newest.id + 1}
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    values["options"] |= named
    path.with_name(f"schema-{newest.id + 1}").write_text(json.dumps(values))
    return catalog_of(table).table(table.identifier)
