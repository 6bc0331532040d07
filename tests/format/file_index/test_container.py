"""Containers: names, order, and damaged bytes."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.file_index.bitmap import BitmapIndex, encode_bitmap_index
from paimon_orch.format.file_index.build import FileIndexBuilder
from paimon_orch.format.file_index.container import ByteSource, decode_container, encode_container
from paimon_orch.format.file_index.evaluation import evaluate_rows
from paimon_orch.format.file_index.index_keys import encode_column
from paimon_orch.format.file_index.index_options import group_by_column, parse_index_specs
from paimon_orch.format.file_index.index_query import IndexFilter, StoredColumn
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot, parse_type
from paimon_orch.format.types.predicate import And, Leaf, Operator, Or

NAMES = st.text(min_size=1, max_size=12)  # includes NUL and surrogate pairs
KINDS = st.sampled_from(["bitmap", "bloom-filter", "bsi", "range-bitmap", "btree"])
COLUMNS = st.dictionaries(
    NAMES, st.dictionaries(KINDS, st.none() | st.binary(max_size=9)), max_size=4
)
STRING = AtomicType(True, TypeRoot.VARCHAR, (2**31 - 1,))
INT = AtomicType()


@given(COLUMNS)
def test_a_round_trip_does_not_change_containers(
    columns: dict[str, dict[str, bytes | None]],
) -> None:
    data = encode_container([(name, indexes.items()) for name, indexes in columns.items()])

    decoded = decode_container(ByteSource.of(data))

    read = {
        name: {kind: None if blob is None else blob.bytes() for kind, blob in indexes.items()}
        for name, indexes in decoded.items()
    }
    assert read == columns


def test_unknown_bytes_after_the_head_are_skipped() -> None:
    data = encode_container([("c", [("bitmap", b"\x01")])])
    head = struct.unpack_from(">i", data, 12)[0]
    longer = bytearray(data[: head - 4] + struct.pack(">i", 3) + b"new" + data[head:])
    struct.pack_into(">i", longer, 12, head + 3)
    struct.pack_into(">i", longer, head - 12, head + 3)  # the body starts here now

    blob = decode_container(ByteSource.of(bytes(longer)))["c"]["bitmap"]

    assert blob is not None
    assert blob.bytes() == b"\x01"


def test_a_newer_container_is_refused_by_its_version() -> None:
    data = bytearray(encode_container([]))
    data[11] = 2

    with pytest.raises(UnsupportedError, match="version 2"):
        decode_container(ByteSource.of(bytes(data)))


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(InputError, match="too long"):
        encode_container([("é" * 40_000, [])])


ROWS = 60
TEXTS = [None if n % 9 == 0 else f"value {n % 13}" for n in range(ROWS)]
NUMBERS = [n % 7 - 3 for n in range(ROWS)]


def whole_container() -> bytes:
    """Return a container with one index of every type, over a text and a number column."""
    options = {
        "file-index.bitmap.columns": "s,n", "file-index.bloom-filter.columns": "s",
        "file-index.bloom-filter.s.items": "20", "file-index.range-bitmap.columns": "s,n",
        "file-index.bsi.columns": "n", "file-index.range-bitmap.s.chunk-size": "16",
        "file-index.bitmap.s.index-block-size": "64",
    }  # fmt: skip
    builder = FileIndexBuilder(
        parse_index_specs(options),
        [Field(id=0, name="s", type=STRING), Field(id=1, name="n", type=INT)],
    )
    builder.add(pa.table({"s": TEXTS, "n": pa.array(NUMBERS, pa.int32())}))
    return builder.finish()


WHOLE = whole_container()
ASKED = And(
    (
        Or(
            (
                Leaf("s", Operator.EQUAL, (pa.scalar("value 5"),)),
                Leaf("s", Operator.GREATER, (pa.scalar("value 8"),)),
            )
        ),
        Or(
            (
                Leaf("n", Operator.LESS_OR_EQUAL, (pa.scalar(1, pa.int32()),)),
                Leaf("n", Operator.IS_NULL),
            )
        ),
    )
)


def ask(data: bytes) -> BitMap | None:
    """Return the rows that may match according to the indexes; None for all rows."""
    types = {"s": STRING, "n": INT}
    return evaluate_rows(
        IndexFilter(ASKED),
        decode_container(ByteSource.of(data)),
        lambda c: StoredColumn(c, types[c]),
        ROWS,
    ).rows


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=4))
def test_damaged_indexes_return_a_result_or_raise_expected_errors(
    position: int, damage: bytes
) -> None:
    data = WHOLE[:position] + damage + WHOLE[position + len(damage) :]
    try:
        rows = ask(data)
    except (ValueError, struct.error, UnsupportedError, IndexError, UnicodeError):
        return
    assert rows is None or isinstance(rows, BitMap)


def test_a_truncated_container_is_an_error() -> None:
    assert ask(WHOLE) == BitMap(
        row for row in range(ROWS)
        if (TEXTS[row] == "value 5" or (TEXTS[row] or "") > "value 8") and NUMBERS[row] <= 1
    )  # fmt: skip
    for end in range(0, 200, 7):
        with pytest.raises((ValueError, struct.error, IndexError)):
            ask(WHOLE[:end])


def test_queries_find_exactly_the_values_of_many_blocks() -> None:
    texts = sorted({f"{n % 97}-{'x' * (n % 5)}" for n in range(400)})
    rows = pa.array([text for text in texts for _ in range(2)])
    data = encode_bitmap_index(encode_column([rows], STRING), STRING, block_size=100)
    index = BitmapIndex(ByteSource.of(data), STRING)

    for number, text in enumerate(texts):
        result = index.query(Operator.EQUAL, [text.encode()])
        assert result is not None
        assert list(result) == [2 * number, 2 * number + 1]
    for absent in ("", "0", "96-xxxxxx", "~", "5-xx\0"):
        assert absent in texts or not index.query(Operator.EQUAL, [absent.encode()])


def test_a_key_inside_another_key_is_not_found() -> None:
    inner = b"\x00\x00\x00\x01a"  # these bytes look like the entry of the text "a"
    rows = pa.array([inner.decode() + "b" * 12, "zz"])
    data = encode_bitmap_index(encode_column([rows], STRING), STRING)

    result = BitmapIndex(ByteSource.of(data), STRING).query(Operator.EQUAL, [b"a"])

    assert result is not None
    assert not result


def test_a_value_larger_than_a_block_is_refused() -> None:
    rows = encode_column([pa.array(["x" * 90])], STRING)

    with pytest.raises(InputError, match="index-block-size"):
        encode_bitmap_index(rows, STRING, block_size=90)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"file-index.bitmap.columns": "n", "file-index.bitmap.n.version": "3"}, "version 1 or 2"),
        ({"file-index.bloom-filter.columns": "n", "file-index.bloom-filter.n.fpp": "much"}, "fpp"),
        ({"file-index.bloom-filter.columns": "n", "file-index.bloom-filter.n.fpp": "1"}, "cannot have .* a false-positive rate of 1.0; set .items. "),
        ({"file-index.bloom-filter.columns": "n", "file-index.bloom-filter.n.items": "9999999999"}, "more than 2147483647 bits"),
    ],
)  # fmt: skip
def test_invalid_options_are_refused(options: dict[str, str], message: str) -> None:
    def build() -> None:
        builder = FileIndexBuilder(parse_index_specs(options), [Field(id=0, name="n", type=INT)])
        builder.add(pa.table({"n": pa.array([1], pa.int32())}))
        builder.finish()

    with pytest.raises(InputError, match=message):
        build()


def test_options_of_a_map_key_override_options_of_the_map() -> None:
    options = {
        "file-index.bitmap.columns": "m[a],m[b.c]", "file-index.bitmap.m.version": "1",
        "file-index.bitmap.m[a].version": "2", "file-index.read.enabled": "true",
        "file-index.in-manifest-threshold": "1 kb",
    }  # fmt: skip
    settings = {spec.name: dict(spec.options.values) for spec in parse_index_specs(options)}

    assert settings == {"m[a]": {"version": "2"}, "m[b.c]": {"version": "1"}}


def test_maps_without_the_key_are_indexed_as_null() -> None:
    fields = [Field(id=0, name="m", type=parse_type("MAP<STRING, INT>"))]
    specs = parse_index_specs({"file-index.bitmap.columns": "m[a]"})
    builder = FileIndexBuilder(specs, fields)
    maps = pa.array(
        [[("x", 0)], [("a", 1)], None, [("b", 2), ("a", 3)], []], pa.map_(pa.string(), pa.int32())
    )
    builder.add(pa.table({"m": maps}).slice(1))
    blob = decode_container(ByteSource.of(builder.finish()))["m[a]"]["bitmap"]
    assert blob is not None

    rows_by_key = {key: list(rows) for key, rows in BitmapIndex(blob, INT).items()}

    assert rows_by_key == {None: [1, 3], 1: [0], 3: [2]}


@given(st.lists(st.tuples(NAMES, st.sampled_from(["bitmap", "bsi"])), max_size=40, unique=True))
def test_a_container_lists_every_index_once(declared: list[tuple[str, str]]) -> None:
    specs = [
        spec
        for name, kind in declared
        if "," not in name and name.strip()
        for spec in parse_index_specs({f"file-index.{kind}.columns": name})
    ]
    unique = {(spec.index, spec.column, spec.key): spec for spec in specs}

    order = group_by_column([*unique.values()])

    listed = [(spec.index, spec.column, spec.key) for _, indexes in order for spec in indexes]
    assert sorted(listed, key=repr) == sorted(unique, key=repr)
    assert all(name == spec.name for name, indexes in order for spec in indexes)
