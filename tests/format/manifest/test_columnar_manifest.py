"""Columnar decoding of manifests equals decoding record by record, for every writer."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.golden import GOLDEN

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.manifest.columnar_manifest import (
    ColumnarManifest,
    DecodedManifest,
    open_manifest,
    read_entries_at,
)
from paimon_orch.format.manifest.live_entries import (
    DeletedFiles,
    filter_live_entries,
    iterate_live_rows,
)
from paimon_orch.format.manifest.live_files import NO_TIME, UNKNOWN, collect_live_files
from paimon_orch.format.manifest.manifest_entry import (
    MANIFEST_SCHEMA,
    DataFileMeta,
    FileKind,
    ManifestEntry,
    _entry_to_avro,
    decode_manifest,
    encode_manifest,
)
from paimon_orch.format.manifest.manifest_format import ManifestEncoding
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.format.types.data_types import AtomicType, TypeRoot

WRITERS = sorted(path for path in GOLDEN.glob("*") if path.is_dir())
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
CHARACTERS = st.characters(exclude_characters="/\\\0", exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS, max_size=20)
SAFE_NAMES = TEXTS.filter(lambda name: name not in ("", ".", ".."))
TYPES = [AtomicType(True, TypeRoot.INT), AtomicType(True, TypeRoot.VARCHAR, (100,))]
ROWS = st.lists(st.tuples(st.none() | INTS, st.none() | st.text(max_size=70)), max_size=1).map(
    lambda values: serialize_row(values[0], TYPES) if values else serialize_row((), ())
)
STATS = st.builds(
    SimpleStats,
    st.binary(max_size=200),
    st.binary(max_size=20),
    st.none() | st.lists(st.none() | LONGS, max_size=4).map(tuple),
)
STRINGS = st.lists(TEXTS, max_size=3).map(tuple)
FILES = st.builds(
    DataFileMeta,
    file_name=SAFE_NAMES,
    file_size=LONGS,
    row_count=LONGS,
    min_key=st.binary(max_size=20),
    max_key=st.binary(max_size=20),
    key_stats=STATS,
    value_stats=STATS,
    min_sequence_number=LONGS,
    max_sequence_number=LONGS,
    schema_id=LONGS,
    level=st.integers(0, 6),
    extra_files=st.lists(SAFE_NAMES, max_size=2).map(tuple),
    creation_time=st.none() | st.integers(0, 2**42),
    delete_row_count=st.none() | LONGS,
    embedded_index=st.none() | st.binary(max_size=200),
    file_source=st.none() | st.integers(0, 1),
    value_stats_cols=st.none() | STRINGS,
    external_path=st.none() | TEXTS,
    first_row_id=st.none() | LONGS,
    write_cols=st.none() | STRINGS,
)
ENTRIES = st.builds(
    ManifestEntry,
    kind=st.sampled_from(FileKind),
    partition=ROWS,
    bucket=INTS,
    total_buckets=INTS,
    file=FILES,
)
OTHER_SCHEMAS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda schema: schema,
    "in a union with null": lambda schema: ["null", schema],
    "null second": lambda schema: [schema, "null"],
    "without later fields": lambda schema: _with_file_fields(schema, lambda fields: fields[:-4]),
    "with a later field": lambda schema: _with_file_fields(
        schema, lambda fields: [{"name": "_LATER", "type": ["null", "string"]}, *fields]
    ),
}


def entries(count: int, **changes: Any) -> list[ManifestEntry]:
    key = serialize_row([7, "a longer text"], TYPES)
    stats = SimpleStats(key, key, (0, None))
    return [
        ManifestEntry(
            kind=FileKind.ADD,
            partition=serialize_row([n % 3, None], TYPES),
            bucket=n % 2,
            total_buckets=2,
            file=replace(
                DataFileMeta(
                    file_name=f"data-{UUID(int=n)}.parquet",
                    file_size=n,
                    row_count=n,
                    min_key=key,
                    max_key=key,
                    key_stats=stats,
                    value_stats=stats,
                ),
                **changes,
            ),
        )
        for n in range(count)
    ]


def write_manifest(schema: Any, values: list[ManifestEntry], interval: int = 100) -> bytes:
    buffer = io.BytesIO()
    records = [_entry_to_avro(value) for value in values]
    fastavro.writer(buffer, schema, records, "zstandard", interval)
    return buffer.getvalue()


def _with_file_fields(schema: Any, change: Callable[[list[Any]], list[Any]]) -> Any:
    *others, file = schema["fields"]
    kind = {**file["type"], "fields": change(file["type"]["fields"])}
    return {**schema, "fields": [*others, {**file, "type": kind}]}


@pytest.mark.slow
@pytest.mark.parametrize("folder", WRITERS, ids=lambda path: path.name)
def test_avro_manifests_of_other_writers_are_decoded_as_columns(folder: Path) -> None:
    paths = [path for path in folder.rglob("manifest/manifest-*") if "-list-" not in path.name]
    avro = {path: data for path in paths if (data := path.read_bytes()).startswith(b"Obj")}
    assert avro
    for path, data in avro.items():
        columns = ColumnarManifest.decode(data, str(path))
        assert columns is not None, path
        assert columns.entries() == decode_manifest(data, str(path)), path


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(ENTRIES, min_size=1, max_size=5), st.sampled_from(sorted(OTHER_SCHEMAS)))
def test_columnar_decoding_agrees_with_decoding_record_by_record(
    values: list[ManifestEntry], schema: str
) -> None:
    data = write_manifest(OTHER_SCHEMAS[schema](MANIFEST_SCHEMA), values)
    columns = ColumnarManifest.decode(data, "m")
    expected = decode_manifest(data, "m")
    assert columns is not None
    assert columns.entries() == expected
    odd = np.arange(1, len(values), 2)
    assert columns.entries(odd) == expected[1::2]
    assert columns.partitions() == [value.partition for value in values]


def content_of(data: bytes) -> bytes:
    return b"".join(
        block.bytes_.getvalue() for block in cast("Any", fastavro.block_reader(io.BytesIO(data)))
    )


def container(count: int, content: bytes) -> bytes:
    """Return a manifest of one block."""
    head = encode_manifest([], ManifestEncoding(codec="null"))
    return head + zigzag(count) + zigzag(len(content)) + content + head[-16:]


def zigzag(number: int) -> bytes:
    raw, out = number << 1, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def test_bytes_that_look_like_an_entry_inside_an_entry_are_ignored() -> None:
    values = entries(5, embedded_index=content_of(encode_manifest(entries(2))))
    columns = ColumnarManifest.decode(encode_manifest(values), "m")
    assert columns is not None
    assert columns.entries() == values


def test_array_blocks_with_a_byte_size_are_decoded() -> None:
    values = entries(3, extra_files=("one", "two"))
    content = content_of(encode_manifest(values))
    plain, sized = b"\x04\x06one\x06two\x00", b"\x03\x10\x06one\x06two\x00"
    assert content.count(plain) == 3
    columns = ColumnarManifest.decode(container(3, content.replace(plain, sized)), "m")
    assert columns is not None
    assert columns.entries() == values


@pytest.mark.parametrize("change", [1, -1, 3])
def test_a_wrong_record_count_of_a_block_is_an_error(change: int) -> None:
    content = content_of(encode_manifest(entries(400)))
    data = container(400 + change, content)
    assert ColumnarManifest.decode(data, "m") is None
    with pytest.raises(CorruptFileError, match=r"^m: "):
        open_manifest(data, "m")


def test_a_file_without_the_magic_bytes_of_avro_is_corrupt() -> None:
    data = b"\x00" + encode_manifest(entries(400))[1:]
    assert ColumnarManifest.decode(data, "m") is None
    with pytest.raises(CorruptFileError, match=r"^m: .*not an Avro file"):
        open_manifest(data, "m")


def test_extra_bytes_after_the_records_are_an_error() -> None:
    content = content_of(encode_manifest(entries(400))) + b"\x00"
    assert ColumnarManifest.decode(container(400, content), "m") is None
    with pytest.raises(CorruptFileError, match=r"^m: "):
        open_manifest(container(400, content), "m")


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a\\b", "..", ".", "", "a\0"])
@pytest.mark.parametrize("field", ["file_name", "extra_files"])
def test_names_outside_their_directory_are_refused(field: str, name: str) -> None:
    value: Any = name if field == "file_name" else (name,)
    good, [bad] = entries(400), entries(1, **{field: value})
    with pytest.raises(CorruptFileError, match="outside its directory"):
        open_manifest(encode_manifest([*good, bad]), "m")


@pytest.mark.parametrize("read", [ColumnarManifest.entries, ColumnarManifest.extra_file_names])
def test_names_of_extra_files_are_checked_when_they_are_read(
    read: Callable[[ColumnarManifest], object],
) -> None:
    columns = ColumnarManifest.decode(encode_manifest(entries(4, extra_files=("../x",))), "m")
    assert columns is not None
    with pytest.raises(CorruptFileError, match=r"^m: .*'../x'.*outside its directory"):
        read(columns)


def test_text_that_is_not_utf_8_is_an_error() -> None:
    content = content_of(encode_manifest(entries(400))).replace(b"data-", b"dat\xff-", 1)
    with pytest.raises(CorruptFileError, match=r"^m: "):
        open_manifest(container(400, content), "m")


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.lists(ENTRIES, max_size=3), max_size=3), st.data())
def test_live_entries_agree_with_a_simple_implementation(
    values: list[list[ManifestEntry]], data: st.DataObject
) -> None:
    everything = [entry for manifest in values for entry in manifest]
    repeated = data.draw(st.lists(st.sampled_from(everything), max_size=6)) if everything else []
    kinds = st.sampled_from(FileKind)
    levels = st.integers(0, 6)
    again = [
        replace(entry, kind=data.draw(kinds), file=entry.file.with_level(data.draw(levels)))
        for entry in repeated
    ]
    groups = [*values, again]
    manifests = [
        ColumnarManifest.decode(encode_manifest(group), "m") or DecodedManifest(group)
        for group in groups
    ]
    deleted = DeletedFiles.of(manifests)
    live = filter_live_entries(entry for group in groups for entry in group)
    rows = list(iterate_live_rows(manifests, deleted))
    assert [entry for manifest, kept in rows for entry in manifest.entries(kept)] == live
    partitions = {entry.partition for entry in everything[::2]}
    asked = list[bytes]()

    def select(candidates: Sequence[bytes]) -> set[bytes]:
        asked.extend(candidates)
        return partitions & set(candidates)

    selected = [e for e in live if e.partition in partitions and e.file.level in range(2, 5)]
    rows = list(iterate_live_rows(manifests, deleted, select, range(2, 5)))
    assert [entry for manifest, kept in rows for entry in manifest.entries(kept)] == selected
    assert len(asked) == len(set(asked))


def or_else(value: int | None, null: int) -> int:
    return null if value is None else value


def read_values(entry: ManifestEntry) -> tuple[object, ...]:
    file = entry.file
    source = or_else(file.file_source, UNKNOWN)
    return (
        entry.partition,
        entry.bucket,
        entry.total_buckets,
        file.level,
        file.file_size,
        file.row_count,
        or_else(file.delete_row_count, UNKNOWN),
        file.min_sequence_number,
        file.max_sequence_number,
        or_else(file.creation_time, NO_TIME),
        file.schema_id,
        source if source in range(128) else UNKNOWN,
        file.file_name,
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.lists(ENTRIES, max_size=4), max_size=4), st.data())
def test_live_files_agree_with_the_entries(
    groups: list[list[ManifestEntry]], data: st.DataObject
) -> None:
    encoded = [encode_manifest(group) for group in groups]
    manifests = [
        ColumnarManifest.decode(part, "m") or DecodedManifest(group)
        for part, group in zip(encoded, groups, strict=True)
    ]
    live = iterate_live_rows(manifests, DeletedFiles.of(manifests))
    numbered = ((number, *item) for number, item in enumerate(live))
    files = collect_live_files((), numbered, with_names=True)
    expected = filter_live_entries(entry for group in groups for entry in group)

    assert len(files) == len(expected)
    assert files.names is not None
    columns = (
        [files.partitions[code] for code in files.partition_codes.tolist()],
        files.buckets.tolist(),
        files.total_buckets.tolist(),
        files.levels.tolist(),
        files.file_sizes.tolist(),
        files.row_counts.tolist(),
        files.delete_row_counts.tolist(),
        files.min_sequence_numbers.tolist(),
        files.max_sequence_numbers.tolist(),
        files.creation_times.tolist(),
        files.schema_ids.tolist(),
        files.sources.tolist(),
        files.names.to_pylist(),
    )
    assert list(zip(*columns, strict=True)) == [read_values(entry) for entry in expected]

    by_bucket = dict[tuple[bytes, int], list[int]]()
    for row, entry in enumerate(expected):
        by_bucket.setdefault((entry.partition, entry.bucket), []).append(row)
    buckets = files.group_by_bucket()
    assert [rows.tolist() for rows in buckets.split()] == list(by_bucket.values())
    assert buckets.first_rows.tolist() == [rows[0] for rows in by_bucket.values()]
    assert buckets.sum(np.arange(len(files))).tolist() == list(map(sum, by_bucket.values()))
    chosen = data.draw(st.sets(st.integers(0, len(buckets) - 1)) if len(buckets) else st.just(()))
    some = buckets.take(np.array(sorted(chosen), np.int64))
    assert [rows.tolist() for rows in some.split()] == [
        list(by_bucket.values())[group] for group in sorted(chosen)
    ]

    for number, part in enumerate(encoded):
        rows = some.files.take(np.flatnonzero(files.manifest_codes == number)[::2])
        stored = read_entries_at(part, "m", rows.positions)
        assert stored == [e for e in groups[number] if e in expected][::2]
