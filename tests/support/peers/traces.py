"""Traces of options in the files of a table: its rows do not show whether a writer ignored one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

_BITMAP32_MAGIC = (1581511376).to_bytes(4, "big")
_BITMAP64_MAGIC = (1681511377).to_bytes(4, "little")
_INDEX_FILE_VERSION = b"\x01"


def find_traces(table: Path) -> set[str]:
    """Return the traces of a table; `kinds` lists the expected traces."""
    traces = {*_data_file_traces(table), *_index_file_traces(table), *_snapshot_traces(table)}
    if any(path.read_bytes().startswith(b"ORC") for path in (table / "manifest").iterdir()):
        traces.add("ORC manifests")
    return traces


def _data_file_traces(table: Path) -> Iterator[str]:
    files = list(table.rglob("bucket-*/data-*"))
    yield from {f"{path.suffix[1:]} files" for path in files}
    if len({path.parent for path in files}) > 1:
        yield "buckets"
    for path in files:
        if path.suffix == ".parquet":
            parquet = pq.ParquetFile(path)
            yield parquet.metadata.row_group(0).column(0).compression.lower()
            if not any(name.startswith("_KEY_") for name in parquet.schema.names):
                yield "no key columns"


def _index_file_traces(table: Path) -> Iterator[str]:
    for path in (table / "index").glob("index-*"):
        data = path.read_bytes()
        # The file starts with its version and the length and magic number of the first vector.
        if data.startswith(_INDEX_FILE_VERSION) and data[5:9] == _BITMAP32_MAGIC:
            yield "32-bit deletion vectors"
        elif data.startswith(_INDEX_FILE_VERSION) and data[5:9] == _BITMAP64_MAGIC:
            yield "64-bit deletion vectors"
        else:
            yield "hash index"


def _snapshot_traces(table: Path) -> Iterator[str]:
    for path in (table / "snapshot").glob("snapshot-*"):
        snapshot = json.loads(path.read_bytes())
        if snapshot.get("nextRowId") is not None:
            yield "row ids"
        if snapshot.get("changelogManifestList") is not None:
            yield "changelog"
        yield f"a snapshot of {snapshot['commitKind']}"
