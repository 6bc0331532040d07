"""Unknown fields of any type are preserved in every file that is written."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from support.added_fields import (
    PLACES,
    PREFIX,
    avro_types,
    metadata_kind,
    random_value,
    seeded_random,
    with_type_names,
)
from support.golden import GOLDEN

from paimon_orch.errors import CorruptFileError, UnsupportedError
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest import index_manifest, manifest_list
from paimon_orch.format.manifest import manifest_entry as manifest
from paimon_orch.format.manifest.additional_fields import AdditionalFields
from paimon_orch.format.manifest.avro_blocks import AVRO_MAGIC
from paimon_orch.format.manifest.avro_container import NAMESPACE
from paimon_orch.format.manifest.columnar_manifest import ColumnarManifest
from paimon_orch.format.manifest.index_manifest import (
    DeletionVectorRange,
    GlobalIndexMeta,
    IndexManifestEntry,
    decode_index_manifest,
    encode_index_manifest,
)
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    decode_manifest,
    encode_manifest,
)
from paimon_orch.format.manifest.manifest_format import ManifestEncoding, decode_records
from paimon_orch.format.manifest.manifest_list import (
    ManifestFileMeta,
    decode_manifest_list,
    encode_manifest_list,
)
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.table.schema_change.apply_schema_changes import apply_schema_changes
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    RenameColumn,
    SchemaChange,
    UpdateColumnComment,
    UpdateNullability,
    UpdateType,
)

WRITERS = sorted(path for path in GOLDEN.glob("*") if path.is_dir())
STATS = SimpleStats(b"\1\2", b"\3\4", (None, 0, 5))
ROW = bytes(12)
FILE = DataFileMeta(
    file_name="a",
    file_size=1,
    row_count=2,
    min_key=b"k",
    max_key=b"l",
    key_stats=STATS,
    value_stats=STATS,
    creation_time=1_700_000_000_123,
)


@dataclass(frozen=True)
class Kind:
    """A kind of metadata file: three records, their encoder and decoder, and the known schema."""

    records: list[Any]
    encode: Callable[[list[Any]], bytes]
    decode: Callable[[bytes, str], list[Any]]
    schema: Any


KINDS = {
    "manifest": Kind(
        [
            ManifestEntry(
                kind=kind,
                partition=ROW,
                bucket=0,
                total_buckets=2,
                file=replace(FILE, file_name=name),
            )
            for kind, name in zip(FileKind, "ab", strict=True)
        ],
        encode_manifest,
        decode_manifest,
        manifest.MANIFEST_SCHEMA,
    ),
    "manifest-list": Kind(
        [
            ManifestFileMeta(
                file_name=name,
                file_size=10,
                num_added_files=2,
                num_deleted_files=1,
                partition_stats=STATS,
                schema_id=3,
            )
            for name in "ab"
        ],
        encode_manifest_list,
        decode_manifest_list,
        manifest_list.MANIFEST_LIST_SCHEMA,
    ),
    "index-manifest": Kind(
        [
            IndexManifestEntry(
                kind=FileKind.ADD,
                partition=ROW,
                bucket=0,
                index_type="HASH",
                file_name="a",
                file_size=9,
                row_count=1,
            ),
            IndexManifestEntry(
                kind=FileKind.ADD,
                partition=ROW,
                bucket=0,
                index_type="btree",
                file_name="b",
                file_size=9,
                row_count=1,
                ranges=(
                    DeletionVectorRange(data_file="x", offset=1, length=2),
                    DeletionVectorRange(data_file="y", offset=3, length=4, cardinality=5),
                ),
                global_index=GlobalIndexMeta(
                    row_range_start=0,
                    row_range_end=9,
                    index_field_id=1,
                    extra_field_ids=(2, 3),
                    index_meta=b"meta",
                ),
            ),
        ],
        encode_index_manifest,
        decode_index_manifest,
        index_manifest.INDEX_MANIFEST_SCHEMA,
    ),
}


def with_fields(data: bytes, fields: dict[str, Any], seed: int) -> bytes:
    """Add fields to a file; the seed and the record number determine their values."""
    reader: Any = fastavro.reader(io.BytesIO(data))
    schema, records = reader.writer_schema, list(reader)
    for path, kind in fields.items():
        target = schema
        *above, name = path.split(".")
        for step in above:
            target = next(f["type"] for f in target["fields"] if f["name"] == step)
            while not isinstance(target, dict) or target["type"] == "array":
                target = target["items"] if isinstance(target, dict) else target[1]
        target["fields"].insert(
            3, {"name": name, "type": with_type_names(kind, path.replace(".", "_"))}
        )
        for number, record in enumerate(records):
            nested_records = [record]
            for step in above:
                inner = [part[step] for part in nested_records if part[step] is not None]
                nested_records = [
                    x for part in inner for x in (part if isinstance(part, list) else [part])
                ]
            for part in nested_records:
                part[name] = random_value(kind, seeded_random(f"{seed} {path} {number}"))
    out = io.BytesIO()
    fastavro.writer(out, schema, records)
    return out.getvalue()


def read_records(data: bytes) -> list[Any]:
    """Return the records of a file without null fields, which equal missing fields."""
    return [_without_nulls(record) for record in fastavro.reader(io.BytesIO(data))]


def _without_nulls(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _without_nulls(part) for key, part in item.items() if part is not None}
    return [_without_nulls(part) for part in item] if isinstance(item, list) else item


@st.composite
def draw_fields(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    places = draw(st.lists(st.sampled_from(PLACES[kind]), min_size=1, max_size=3))
    return {f"{place}{PREFIX}_{n}": draw(avro_types()) for n, place in enumerate(places)}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(sorted(KINDS)), st.integers(0, 99))
def test_fields_of_any_type_are_written_as_they_were_read(
    data: st.DataObject, name: str, seed: int
) -> None:
    kind = KINDS[name]
    source = with_fields(kind.encode(kind.records), data.draw(draw_fields(name)), seed)
    decoded = kind.decode(source, "x")
    assert decoded == kind.records
    assert read_records(kind.encode(decoded)) == read_records(source)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(sorted(KINDS)))
def test_files_with_different_fields_are_merged(data: st.DataObject, name: str) -> None:
    kind = KINDS[name]
    plain, fields = kind.encode(kind.records), data.draw(draw_fields(name))
    some = {path: item for path, item in fields.items() if data.draw(st.booleans(), label=path)}
    sources = [plain, with_fields(plain, fields, 1), with_fields(plain, some, 2)]
    records = [record for source in sources for record in kind.decode(source, "x")]
    merged = kind.encode(records)
    assert read_records(merged) == [record for source in sources for record in read_records(source)]
    with mock.patch.object(manifest_list, "check_distinct_manifests"):  # each has the same names
        again = kind.decode(merged, "x")
    assert read_records(kind.encode(again)) == read_records(merged)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 99))
def test_columns_contain_the_same_fields_as_records(data: st.DataObject, seed: int) -> None:
    simple: st.SearchStrategy[Any] = st.sampled_from(["int", "long", "string", "bytes"])
    kinds = simple | simple.map(lambda item: {"type": "array", "items": item})
    kinds |= kinds.map(lambda kind: ["null", kind])
    places = data.draw(st.lists(st.sampled_from(PLACES["manifest"]), min_size=1, max_size=4))
    fields = {f"{place}{PREFIX}_{n}": data.draw(kinds) for n, place in enumerate(places)}
    source = with_fields(encode_manifest(KINDS["manifest"].records), fields, seed)
    columns = ColumnarManifest.decode(source, "x")
    assert columns is not None
    assert read_records(encode_manifest(columns.entries())) == read_records(source)
    assert [entry.file.additional for entry in columns.entries()] == [
        entry.file.additional for entry in decode_manifest(source, "x")
    ]


@pytest.mark.parametrize("name", KINDS)
def test_files_without_unknown_fields_keep_their_schema(name: str) -> None:
    kind = KINDS[name]
    written = kind.encode(kind.decode(kind.encode(kind.records), "x"))
    reader: Any = fastavro.reader(io.BytesIO(written))
    assert fastavro.parse_schema(reader.writer_schema) == fastavro.parse_schema(kind.schema)


def test_a_field_missing_in_some_files_becomes_nullable_with_null_first() -> None:
    plain = encode_manifest(KINDS["manifest"].records)
    later = with_fields(plain, {"_FILE._X": "long", "_Y": ["string", "null"]}, 0)
    entries = [*decode_manifest(plain, "a"), *decode_manifest(later, "b")]
    reader: Any = fastavro.reader(io.BytesIO(encode_manifest(entries)))
    fields = {field["name"]: field for field in reader.writer_schema["fields"]}
    file = {field["name"]: field for field in fields["_FILE"]["type"]["fields"]}
    assert file["_X"] == {"name": "_X", "type": ["null", "long"], "default": None}
    assert fields["_Y"] == {"name": "_Y", "type": ["null", "string"], "default": None}


def test_fields_of_nested_records_are_merged() -> None:
    plain = encode_manifest(KINDS["manifest"].records)
    ints, texts = ({"type": "record", "fields": [{"name": n, "type": n}]} for n in ("int", "string"))  # fmt: skip
    sources = [with_fields(plain, {"_X": kind}, 0) for kind in (ints, ["null", texts])]
    entries = [entry for source in sources for entry in decode_manifest(source, "x")]
    assert read_records(encode_manifest(entries)) == [
        r for source in sources for r in read_records(source)
    ]


@pytest.mark.parametrize(
    ("first_type", "second_type"),
    [
        ("long", "string"),
        ("int", "long"),
        ({"type": "array", "items": "int"}, ["null", {"type": "array", "items": "string"}]),
        ({"type": "fixed", "size": 2}, {"type": "fixed", "size": 3}),
    ],
)
def test_a_name_with_two_types_is_refused(first_type: Any, second_type: Any) -> None:
    plain = encode_manifest(KINDS["manifest"].records)
    sources = [with_fields(plain, {"_FILE._X": kind}, 0) for kind in (first_type, second_type)]
    entries = [entry for source in sources for entry in decode_manifest(source, "x")]
    with pytest.raises(UnsupportedError, match=r"'_FILE\._X'.*cannot be merged"):
        encode_manifest(entries)


@pytest.mark.parametrize("kind", [["null", "int", "long"], ["null", "bytes", {"type": "fixed", "size": 2}]])  # fmt: skip
def test_a_union_with_ambiguous_values_is_refused(kind: Any) -> None:
    source = with_fields(encode_manifest(KINDS["manifest"].records), {"_X": kind}, 0)
    with pytest.raises(UnsupportedError, match="'_X'"):
        encode_manifest(decode_manifest(source, "x"))


def test_a_union_of_two_records_preserves_the_branch() -> None:
    kinds = [
        {"type": "record", "name": f"r{n}", "fields": [{"name": "f", "type": "int"}]}
        for n in (1, 2)
    ]
    values = [(f"{NAMESPACE}.r{n}", {"f": n}) for n in (1, 2)]
    source = with_root_field(["null", *kinds], values)
    written = io.BytesIO(encode_manifest(decode_manifest(source, "x")))
    records: Any = fastavro.reader(written, return_named_type=True)
    assert [record["_X"] for record in records] == values


def test_a_type_reference_is_preserved() -> None:
    stats = f"{NAMESPACE}.record__FILE__KEY_STATS"
    value = {"_MIN_VALUES": b"1", "_MAX_VALUES": b"2", "_NULL_COUNTS": [1]}
    source = with_root_field(stats, [value, value])
    assert read_records(encode_manifest(decode_manifest(source, "x"))) == read_records(source)


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_unknown_simple_fields_of_other_formats_are_preserved(kind: str) -> None:
    source = rewrite_as(kind, {"_X": 1, "_Y": "a", "_Z": [b"b"]})
    entries = decode_manifest(source, "x")
    assert entries == KINDS["manifest"].records

    for written in ("avro", "parquet", "orc"):
        data = encode_manifest(entries, ManifestEncoding(written))
        for record in decode_records(data, "x", manifest.MANIFEST_FIELDS).values:
            file = record["_FILE"]
            assert (file["_X"], file["_Y"], file["_Z"]) == (1, "a", [b"b"])


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_unknown_nested_fields_of_other_formats_are_refused_only_on_write(kind: str) -> None:
    entries = decode_manifest(rewrite_as(kind, {"_X": {"y": 1}}), "x")
    assert entries == KINDS["manifest"].records
    with pytest.raises(UnsupportedError, match=r"'_FILE\._X'.*cannot be preserved"):
        encode_manifest(entries)


def rewrite_as(kind: str, fields: dict[str, Any]) -> bytes:
    """Return the manifest in another format, with more fields of files."""
    data = io.BytesIO(encode_manifest(KINDS["manifest"].records, ManifestEncoding(kind)))
    table = pq.read_table(data) if kind == "parquet" else orc.ORCFile(data).read()
    added = [pa.field(name, pa.array([value]).type) for name, value in fields.items()]
    index = table.schema.get_field_index("_FILE")
    file = pa.field("_FILE", pa.struct([*table.schema.field(index).type, *added]))
    rows = [{**row, "_FILE": {**row["_FILE"], **fields}} for row in table.to_pylist()]
    changed = pa.Table.from_pylist(rows, table.schema.set(index, file))
    sink = io.BytesIO()
    _ = pq.write_table(changed, sink) if kind == "parquet" else orc.write_table(changed, sink)
    return sink.getvalue()


def with_root_field(kind: Any, values: list[Any]) -> bytes:
    """Return a manifest whose entries have another field."""
    plain: Any = fastavro.reader(io.BytesIO(encode_manifest(KINDS["manifest"].records)))
    fields = [*plain.writer_schema["fields"], {"name": "_X", "type": kind}]
    records = [{**record, "_X": item} for record, item in zip(plain, values, strict=True)]
    out = io.BytesIO()
    fastavro.writer(out, {**plain.writer_schema, "fields": fields}, records)
    return out.getvalue()


def test_a_recursive_type_is_refused() -> None:
    fields = [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "chain"]}]
    chain = {"type": "record", "name": "chain", "fields": fields}
    source = with_root_field(chain, [{"n": 1, "next": {"n": 2, "next": None}}, {"n": 3}])
    with pytest.raises(CorruptFileError, match=r"uses the type \S*chain inside of itself"):
        decode_manifest(source, "x")


def test_exponentially_expanding_types_are_refused_only_on_write() -> None:
    kind: Any = {"type": "record", "name": "r0", "fields": [{"name": "f", "type": "int"}]}
    item: Any = {"f": 1}
    for number in range(1, 15):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"r{number - 1}"}]
        kind = {"type": "record", "name": f"r{number}", "fields": fields}
        item = {"a": item, "b": item}
    entries = decode_manifest(with_root_field(kind, [item, item]), "x")
    assert entries == KINDS["manifest"].records
    with pytest.raises(UnsupportedError, match="'_X'"):
        encode_manifest(entries)


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS, ids=lambda path: path.name)
def test_metadata_of_other_writers_is_written_as_it_was_read(writer: Path) -> None:
    paths = [path for path in writer.rglob("manifest/*") if path.is_file()]
    sources = {path: path.read_bytes() for path in paths}
    assert sources
    for path, source in sources.items():
        if source.startswith(AVRO_MAGIC):
            kind = KINDS[metadata_kind(path)]
            assert read_records(kind.encode(kind.decode(source, str(path)))) == read_records(
                source
            ), path


@pytest.mark.sampled(1)
@pytest.mark.parametrize("writer", WRITERS, ids=lambda path: path.name)
def test_snapshots_of_other_writers_keep_their_keys(writer: Path) -> None:
    for path in writer.rglob("snapshot-*"):
        source = json.loads(path.read_bytes())
        written = json.loads(Snapshot.from_json(path.read_bytes(), str(path)).to_json())
        assert written == {key: item for key, item in source.items() if item is not None}


def test_keys_of_a_schema_and_of_its_nested_types_are_kept() -> None:
    def with_key(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(with_key, value))
        added_key = {} if "bucket" in value else {"later": [len(value)]}
        return {k: with_key(v) if isinstance(v, dict | list) else v for k, v in value.items()} | added_key  # fmt: skip

    columns = parse_columns("a INT, b ROW<c ARRAY<ROW<d INT>>, e MAP<INT, ROW<f INT>>>")
    schema = build_table_schema(columns, options={"bucket": "-1"})
    plain = json.loads(schema.to_json())
    source = with_key({k: v for k, v in plain.items() if k not in ("partitionKeys", "primaryKeys")})
    source |= {"partitionKeys": [], "primaryKeys": []}
    decoded = TableSchema.from_json(json.dumps(source).encode(), "x")
    assert decoded.fields == schema.fields
    assert json.loads(decoded.to_json()) == source
    changes: list[SchemaChange] = [
        RenameColumn("a", "z"),
        UpdateType("z", "BIGINT"),
        UpdateColumnComment("b", "comment"),
        AddColumn(column=("b", "c", "element", "new"), type="INT"),
        UpdateNullability("b", nullable=True),
    ]
    altered = apply_schema_changes(decoded, changes, has_snapshots=True, time_millis=1)
    text = altered.to_json().decode()
    assert text.count('"later"') == decoded.to_json().decode().count('"later"')


@pytest.mark.parametrize(
    "record",
    [
        DataFileMeta(file_name="a", file_size=1, row_count=1),
        DeletionVectorRange(data_file="a", offset=1, length=1),
        DeletionVector({}),
        IndexManifestEntry(
            kind=FileKind.ADD, partition=b"", bucket=0, index_type="HASH",
            file_name="a", file_size=1, row_count=1,
        ),
        ManifestFileMeta.of("m", 1, [], [], 0),
    ],
    ids=lambda record: type(record).__name__,
)  # fmt: skip
def test_records_are_compared_by_their_known_fields(record: Any) -> None:
    assert replace(record, additional=AdditionalFields({}, {"_NEW": 1})) == record
