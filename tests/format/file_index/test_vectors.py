"""Index files of Java Paimon are read, and written with the same bytes, apart from their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap
from support.index_vectors import (
    Vector,
    group_vectors,
    java_bytes,
    naming,
    parse_atomic_type,
    row_set,
    to_column,
    vector_rows,
    vectors,
)

from paimon_orch.errors import PaimonError
from paimon_orch.format.bytes.murmur3 import hash_bytes
from paimon_orch.format.bytes.roaring import serialize_positions
from paimon_orch.format.file_index.bitmap import BitmapIndex, encode_bitmap_index
from paimon_orch.format.file_index.bloom_filter import compute_bloom_filter_parameters, hash_keys
from paimon_orch.format.file_index.build import FileIndexBuilder, is_built_with
from paimon_orch.format.file_index.container import ByteSource, decode_container, encode_container
from paimon_orch.format.file_index.evaluation import TopN, evaluate_rows, open_index, select_rows
from paimon_orch.format.file_index.index_keys import Key, encode_column, encode_non_null_keys
from paimon_orch.format.file_index.index_options import IndexSpec, parse_index_specs
from paimon_orch.format.file_index.index_query import IndexFilter, StoredColumn
from paimon_orch.format.file_index.range_bitmap import RangeBitmapIndex
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import FILE_INDEX_IN_MANIFEST_THRESHOLD
from paimon_orch.format.types.data_types import AtomicType, Field, parse_type
from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Or, Predicate


def name_of(vector: Vector) -> str:
    return str(vector["id"])


def select_written(candidates: list[Vector]) -> list[Vector]:
    return [vector for vector in candidates if "error" not in vector]


def spec_of(vector: Vector) -> IndexSpec:
    return IndexSpec(vector["index"], "c", None, Options(vector.get("options", {})))


def built(vector: Vector, rows: pa.Array) -> bytes:
    """Return the only blob of a container of one column."""
    builder = FileIndexBuilder(
        [spec_of(vector)], [Field(id=0, name="c", type=parse_type(vector["type"]))]
    )
    builder.add(pa.table({"c": rows}))
    blob = decode_container(ByteSource.of(builder.finish()))["c"][vector["index"]]
    assert blob is not None
    return blob.bytes()


@pytest.mark.parametrize("group", group_vectors(vectors("index")))
def test_index_bytes_equal_those_of_java(group: list[Vector]) -> None:
    for vector in group:
        with naming(vector):
            check_index_bytes(vector)


def check_index_bytes(vector: Vector) -> None:
    if "error" in vector:
        kind = parse_type(vector["type"])
        values = (
            to_column(vector_rows(vector), kind) if isinstance(kind, AtomicType) else pa.nulls(0)
        )
        with pytest.raises(PaimonError):
            built(vector, values)
        return
    data_type, expected = parse_atomic_type(vector["type"]), java_bytes(vector)
    data = built(vector, to_column(vector_rows(vector), data_type))
    # The index of Java needs no rebuild.
    assert is_built_with(spec_of(vector), ByteSource.of(expected), data_type)
    assert_same_index(vector["index"], data, expected, data_type)


def assert_same_index(index: str, data: bytes, expected: bytes, data_type: AtomicType) -> None:
    """Compare bytes; Java writes the bitmaps of a bitmap index in the order of a hash table."""
    if index == "bitmap":
        assert contents(data, data_type) == contents(expected, data_type)
        assert len(data) == len(expected)
    else:
        assert data == expected


def contents(data: bytes, data_type: AtomicType) -> dict[Key | None, BitMap]:
    return dict(BitmapIndex(ByteSource.of(data), data_type).items())


@pytest.mark.parametrize("group", group_vectors(select_written(vectors("index", "bitmap"))))
def test_a_bitmap_index_of_java_contains_the_rows_of_every_value(group: list[Vector]) -> None:
    for vector in group:
        with naming(vector):
            check_rows_of_values(vector)


def check_rows_of_values(vector: Vector) -> None:
    data_type = parse_atomic_type(vector["type"])
    encoded = encode_column([to_column(vector_rows(vector), data_type)], data_type)
    keys: list[Key] = (
        encoded.keys.to_pylist()
        if isinstance(encoded.keys, pa.BinaryArray)
        else encoded.keys.tolist()
    )
    expected: dict[Key | None, set[int]] = {}
    for row, code in enumerate(encoded.codes.tolist()):
        expected.setdefault(None if code < 0 else keys[code], set()).add(row)

    rows_by_value = contents(java_bytes(vector), data_type)

    assert {key: set(rows) for key, rows in rows_by_value.items()} == expected


OPERATORS = {
    "eq": Operator.EQUAL,
    "neq": Operator.NOT_EQUAL,
    "lt": Operator.LESS,
    "lte": Operator.LESS_OR_EQUAL,
    "gt": Operator.GREATER,
    "gte": Operator.GREATER_OR_EQUAL,
    "in": Operator.IN,
    "not_in": Operator.NOT_IN,
    "between": Operator.BETWEEN,
    "is_null": Operator.IS_NULL,
    "is_not_null": Operator.IS_NOT_NULL,
}
OTHER_OPERATORS = {"not_between", "starts_with"}


@pytest.mark.parametrize("group", group_vectors(v for v in vectors("index") if v.get("queries")))
def test_queries_of_java_indexes_return_the_same_rows_as_java(group: list[Vector]) -> None:
    for vector in group:
        with naming(vector):
            check_queries(vector)


def check_queries(vector: Vector) -> None:
    data_type = parse_atomic_type(vector["type"])
    blob = ByteSource.of(java_bytes(vector))
    for query in vector["queries"]:
        expected = query["expect"]
        if isinstance(expected, dict):
            continue  # Java raises an error
        if query["op"] == "topn":
            answer: BitMap | None = top(RangeBitmapIndex(blob, data_type), query)
        else:
            answer = ask(vector["index"], blob, data_type, query)
        if expected == "REMAIN":
            assert answer is None, query
        else:
            ranges = [] if expected == "SKIP" else expected
            assert answer is not None, query
            assert set(answer) == row_set(ranges), query


def ask(kind: str, blob: ByteSource, data_type: AtomicType, query: dict[str, Any]) -> BitMap | None:
    index = open_index(kind, blob, data_type)
    assert index is not None
    literals = query.get("literals", [])
    keys = [None if value is None else key(value, data_type) for value in literals]
    if None in keys and kind == "bloom-filter":
        return None  # bloom filters have no null literals
    if query["op"] in OTHER_OPERATORS:
        return None
    return index.query(OPERATORS[query["op"]], keys)  # type: ignore[arg-type]


def key(value: Any, data_type: AtomicType) -> Key:
    keys = encode_non_null_keys(to_column([value], data_type), data_type)
    return bytes(keys[0].as_py()) if isinstance(keys, pa.BinaryArray) else int(keys[0])


def top(index: RangeBitmapIndex, query: dict[str, Any]) -> BitMap:
    selection = query.get("selection")
    return index.top(
        query["k"],
        descending=query["order"] == "desc",
        nulls_first=query["nulls"] == "first",
        strict=query["orders"] == 1,
        selection=None if selection is None else BitMap(row_set(selection)),
    )


@pytest.mark.parametrize("vector", vectors("hash"), ids=name_of)
def test_hashes_of_every_type_equal_those_of_java(vector: Vector) -> None:
    data_type = parse_atomic_type(vector["type"])
    values = to_column([value for value, _ in vector["values"]], data_type)

    hashes = hash_keys(encode_non_null_keys(values, data_type), data_type)

    assert [f"{int(code):016x}" for code in hashes] == [code for _, code in vector["values"]]


@pytest.mark.parametrize("vector", vectors("bloom_params"), ids=name_of)
def test_sizes_of_bloom_filters_equal_those_of_java(vector: Vector) -> None:
    for items, fpp, bits, functions in vector["values"]:
        assert compute_bloom_filter_parameters(items, fpp) == (bits, functions)


@pytest.mark.parametrize("vector", vectors("string_hash"), ids=name_of)
def test_string_hashes_equal_those_of_java(vector: Vector) -> None:
    for text, code in vector["values"]:
        assert hash_bytes(text.encode("utf-8", "surrogatepass")) == code & 0xFFFFFFFF


@pytest.mark.parametrize("vector", vectors("roaring"), ids=name_of)
def test_serialized_bitmaps_equal_those_of_java(vector: Vector) -> None:
    rows = sorted(
        {row for low, high, *step in vector["ranges"] for row in range(low, high + 1, *step)}
    )

    assert serialize_positions(np.array(rows, np.int64)) == java_bytes(vector)


@pytest.mark.parametrize("vector", vectors("container_raw"), ids=name_of)
def test_containers_equal_those_of_java(vector: Vector) -> None:
    columns = [
        (c["name"], [(i["type"], None if i["body_hex"] is None else bytes.fromhex(i["body_hex"])) for i in c["indexes"]])
        for c in vector["columns"]
    ]  # fmt: skip

    assert encode_container(columns) == java_bytes(vector)

    decoded = decode_container(ByteSource.of(java_bytes(vector)))
    bodies = {
        name: {kind: None if blob is None else blob.bytes() for kind, blob in indexes.items()}
        for name, indexes in decoded.items()
    }
    assert bodies == {name: dict(indexes) for name, indexes in columns}


def fields_of(vector: Vector) -> list[Field]:
    return [
        Field(id=field_id, name=name, type=parse_type(text.replace(",", ", ")))
        for field_id, (name, text) in enumerate(vector["schema"])
    ]


def table_of(vector: Vector) -> pa.Table:
    columns = {}
    for position, field in enumerate(fields_of(vector)):
        values = [row[position] for row in vector["rows"]]
        if isinstance(field.type, AtomicType):
            columns[field.name] = to_column(values, field.type)
        else:
            maps = [None if value is None else list(value.items()) for value in values]
            columns[field.name] = pa.array(maps, pa.map_(pa.string(), pa.int32()))
    return pa.table(columns)


@pytest.mark.parametrize("vector", vectors("data_file_index"), ids=name_of)
def test_the_container_of_a_data_file_equals_that_of_java(vector: Vector) -> None:
    if "error" in vector:
        with pytest.raises(PaimonError):
            FileIndexBuilder(parse_index_specs(vector["options"]), fields_of(vector))
        return
    builder = FileIndexBuilder(parse_index_specs(vector["options"]), fields_of(vector))
    rows = table_of(vector)
    builder.add(rows.slice(0, 3))
    builder.add(rows.slice(3))

    data = builder.finish()

    specs = {
        (spec.name, spec.index): spec.value_type(fields_of(vector))
        for spec in parse_index_specs(vector["options"])
    }
    ours = decode_container(ByteSource.of(data))
    expected = decode_container(ByteSource.of(java_bytes(vector)))
    assert len(data) == len(java_bytes(vector))
    assert {(name, index) for name in ours for index in ours[name]} == set(specs)
    for (name, index), data_type in specs.items():
        blob, java_blob = ours[name][index], expected[name][index]
        assert (blob is None) == (java_blob is None)
        if blob is not None and java_blob is not None:
            assert_same_index(index, blob.bytes(), java_blob.bytes(), data_type)
    threshold = Options(vector["options"]).get(FILE_INDEX_IN_MANIFEST_THRESHOLD)
    assert (len(data) <= threshold) == vector["embedded"]


@pytest.mark.parametrize("vector", select_written(vectors("data_file_index")), ids=name_of)
def test_predicates_on_indexes_of_a_data_file_select_the_same_rows_as_java(vector: Vector) -> None:
    types = types_of(vector)
    indexes = decode_container(ByteSource.of(java_bytes(vector)))
    for question in vector.get("predicates", []):
        predicate = parse_predicate(question["predicate"], types)
        if predicate is None:
            continue
        result = evaluate_rows(
            IndexFilter(predicate), indexes, stored_of(types), len(vector["rows"])
        ).rows
        if question["predicate"].get("op") == "between" and result is not None and not result:
            # Java queries both bounds in one call, which has no result for an index without values.
            assert None in indexes[question["predicate"]["col"]].values()
            result = None
        compare(result, question["expect"], question)
    for question in vector.get("evaluator", []):
        evaluator(vector, question)


def evaluator(vector: Vector, case: dict[str, Any]) -> None:
    values, types = case["input"], types_of(vector)
    if values.get("dv") == "bitmap64":
        return  # Java reads no positions from 64-bit deletion vectors
    question: IndexFilter | TopN | int | None = values.get("limit")
    if values.get("filters"):
        parts = [parse_predicate(part, types) for part in values["filters"]]
        if None in parts:
            return
        question = IndexFilter(And(tuple(part for part in parts if part is not None)))
    elif values.get("topn"):
        topn = values["topn"]
        question = TopN(
            column=topn["col"],
            k=topn["k"],
            descending=topn["order"] == "desc",
            nulls_first=topn["nulls"] == "first",
            sort_keys=topn.get("orders", 1),
        )
    deleted = None if values.get("dv") is None else BitMap(row_set(values["dv"]))
    indexes = (
        None if values.get("no_index") else decode_container(ByteSource.of(java_bytes(vector)))
    )
    rows = values.get("row_count", len(vector["rows"]))

    compare(
        select_rows(question, indexes, column_of=stored_of(types), row_count=rows, deleted=deleted),
        case["expect"],
        case,
    )


def compare(result: BitMap | None, expected: Any, question: Any) -> None:
    if expected == "REMAIN":
        assert result is None, question
    else:
        ranges = [] if expected == "SKIP" else expected
        assert result is not None, question
        assert set(result) == row_set(ranges), question


def types_of(vector: Vector) -> dict[str, AtomicType]:
    """Return the types by names of columns and map keys."""
    types = {}
    for field in fields_of(vector):
        if isinstance(field.type, AtomicType):
            types[field.name] = field.type
    for spec in parse_index_specs(vector["options"]):
        types[spec.name] = spec.value_type(fields_of(vector))
    return types


def stored_of(types: dict[str, AtomicType]) -> Any:
    return lambda name: StoredColumn(name, types[name]) if name in types else None


def parse_predicate(tree: dict[str, Any], types: dict[str, AtomicType]) -> Predicate | None:
    """Return a predicate of the vectors, None for unsupported tests."""
    for key, combination in (("and", And), ("or", Or)):
        if key in tree:
            parts = [parse_predicate(part, types) for part in tree[key]]
            return None if None in parts else combination(tuple(p for p in parts if p is not None))
    data_type, op = types.get(tree["col"]), OPERATORS.get(tree["op"])
    literals = tree.get("literals", [])
    if data_type is None or op is None or None in literals:
        return None
    values = tuple(to_column(literals, data_type)[index] for index in range(len(literals)))
    match op:
        case Operator.IS_NOT_NULL:
            return Not(Leaf(tree["col"], Operator.IS_NULL))
        case Operator.NOT_IN:
            return Not(Leaf(tree["col"], Operator.IN, values))
        case Operator.BETWEEN:
            low = Leaf(tree["col"], Operator.GREATER_OR_EQUAL, values[:1])
            return And((low, Leaf(tree["col"], Operator.LESS_OR_EQUAL, values[1:])))
    return Leaf(tree["col"], op, values)


def test_old_readers_support_only_bitmap_indexes_of_version_1() -> None:
    values = encode_column([pa.array([1, 1, 2], pa.int32())], parse_atomic_type("INT"))

    assert encode_bitmap_index(values, parse_atomic_type("INT"), version=1)[0] == 1
