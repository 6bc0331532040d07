"""Hand-written code compared with libraries that could replace it: library time / our time.

    python benchmarks/hand_written.py

Each case is a complete operation. The ratios in the docstrings of modules come from this benchmark.
``xxhash`` is not a dependency of the package; its case is skipped if it is not installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from measurement import console, medians
from pyroaring import BitMap

from paimon_orch.format import deletion_vector
from paimon_orch.format.bytes.roaring import build_bitmap
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.file_index import bit_slices, bitmap, bloom_filter, range_bitmap
from paimon_orch.format.file_index.index_keys import encode_column, encode_non_null_keys
from paimon_orch.format.manifest.columnar_manifest import DecodedManifest, Manifest, open_manifest
from paimon_orch.format.manifest.live_entries import DeletedFiles, iterate_live_rows
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    decode_manifest,
    encode_manifest,
)
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.format.types.data_types import AtomicType, TypeRoot

ROWS, FILES, REPEAT = 1_000_000, 20_000, 7
INT, TEXT = AtomicType(True, TypeRoot.INT), AtomicType(True, TypeRoot.VARCHAR, (100,))
Case = tuple[str, Callable[[], object], Callable[[], object]]
"""Name of the operation, our implementation, implementation with the library."""


def with_patches(run: Callable[[], object], *patches: Any) -> Callable[[], object]:
    """Return a function that calls ``run`` with the patches applied."""

    def patched() -> object:
        with patches[0], patches[1] if len(patches) > 1 else nullcontext():
            return run()

    return patched


def avro_cases() -> Iterator[Case]:
    """Yield cases that read a manifest, compared with fastavro."""
    stats = SimpleStats(bytes(28), bytes(28), (0, 0))
    entries = [
        ManifestEntry(
            kind=FileKind.ADD,
            partition=bytes(12),
            bucket=number % 64,
            total_buckets=64,
            file=DataFileMeta(
                file_name=f"data-{number:036}-0.parquet",
                file_size=number,
                row_count=number,
                min_key=bytes(20),
                max_key=bytes(20),
                key_stats=stats,
                value_stats=stats,
            ),
        )
        for number in range(FILES)
    ]
    data = encode_manifest(entries)
    yield (
        "all entries of a manifest",
        lambda: read_live_entries(open_manifest(data, "m")),
        lambda: read_live_entries(DecodedManifest(decode_manifest(data, "m"))),
    )
    yield (
        "one entry of a manifest",
        lambda: read_live_entries(open_manifest(data, "m"), 1),
        lambda: read_live_entries(DecodedManifest(decode_manifest(data, "m")), 1),
    )


def read_live_entries(manifest: Manifest, count: int | None = None) -> list[ManifestEntry]:
    """Return the first live entries of a manifest."""
    live = iterate_live_rows([manifest], DeletedFiles.of([manifest]))
    return [entry for _, rows in live for entry in manifest.entries(rows[:count])]


def library_mask(mask: Any) -> bytes:
    """Serialize the positions of a mask with pyroaring."""
    return library_bitmap(np.flatnonzero(mask))


def library_bitmap(positions: Any) -> bytes:
    """Serialize positions with pyroaring."""
    bits = BitMap(positions.astype(np.uint32))
    bits.run_optimize()
    return bytes(bits.serialize())


def library_groups(positions: Any, starts: Any) -> tuple[bytes, Any]:
    """Serialize each group of positions as a separate bitmap with pyroaring."""
    bodies = [library_bitmap(group) for group in np.split(positions, starts[1:])]
    return b"".join(bodies), np.array([len(body) for body in bodies], np.int64)


def roaring_cases() -> Iterator[Case]:
    """Yield cases that build indexes and deletion vectors, compared with pyroaring."""
    random = np.random.default_rng(0)
    for distinct in (1_000, 300_000):
        values = encode_column([pa.array(random.integers(0, distinct, ROWS), pa.int32())], INT)
        run = partial(bitmap.encode_bitmap_index, values, INT)
        library = with_patches(run, patch.object(bitmap, "serialize_groups", library_groups))
        yield f"bitmap index, {distinct:,} distinct values", run, library
        if distinct == 1_000:
            run = partial(range_bitmap.encode_range_bitmap_index, values, INT)
            yield (
                "range bitmap index",
                run,
                with_patches(
                    run,
                    patch.object(bit_slices, "serialize_mask", library_mask),
                    patch.object(range_bitmap, "serialize_mask", library_mask),
                ),
            )
    positions = np.flatnonzero(random.random(10 * ROWS) < 0.1)
    build = partial(DeletionVector.of, positions)
    yield (
        "deletion vector",
        build,
        with_patches(
            build, patch.object(deletion_vector, "build_bitmap_from_sorted", build_bitmap)
        ),
    )


def hash_cases() -> Iterator[Case]:
    """Yield a bloom filter, compared with xxhash."""
    random = np.random.default_rng(0)
    texts = [f"customer-{number}" for number in random.integers(0, 10**9, ROWS).tolist()]
    keys = encode_non_null_keys(pa.array(texts), TEXT)
    if importlib.util.find_spec("xxhash"):
        import xxhash

        def library_hash(values: pa.BinaryArray) -> Any:
            return np.array([xxhash.xxh64_intdigest(v) for v in values.to_pylist()], np.uint64)

        run = partial(build_bloom_filter, keys)
        yield (
            "bloom filter",
            run,
            with_patches(run, patch.object(bloom_filter, "hash_xxh64", library_hash)),
        )


def build_bloom_filter(keys: Any) -> bytes:
    """Return the bloom filter of a column."""
    builder = bloom_filter.BloomFilterBuilder(TEXT, ROWS, 0.1)
    builder.add(keys)
    return builder.finish()


def main() -> None:
    """Print the ratio of each operation."""
    for cases in (avro_cases, roaring_cases, hash_cases):
        for name, ours, library in cases():
            seconds = medians({"ours": ours, "library": library}, REPEAT)
            ratio = seconds["library"] / seconds["ours"]
            console.print(
                f"{name}: library / ours {ratio:.2f}, ours {seconds['ours'] * 1000:.1f} ms"
            )


if __name__ == "__main__":
    main()
