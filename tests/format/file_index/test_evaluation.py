"""Index evaluation excludes no row that a filter without index returns."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch.format.file_index.batch_evaluation import evaluate_batch
from paimon_orch.format.file_index.build import FileIndexBuilder
from paimon_orch.format.file_index.container import ByteSource, decode_container
from paimon_orch.format.file_index.evaluation import evaluate_rows
from paimon_orch.format.file_index.index_keys import (
    INDEX_TYPES,
    argsort_stable,
    check_indexable_type,
    encode_column,
)
from paimon_orch.format.file_index.index_options import parse_index_specs
from paimon_orch.format.file_index.index_query import IndexFilter, StoredColumn, find_stored_column
from paimon_orch.format.file_index.range_bitmap import encode_range_bitmap_index
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, Field, parse_type
from paimon_orch.format.types.predicate import (
    And,
    Leaf,
    Not,
    Operator,
    Or,
    Predicate,
    to_arrow_expression,
)

TYPES = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(30, 4)", "DATE",
    "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "STRING", "CHAR(4)", "BYTES",
]  # fmt: skip
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_UNICODE = st.text(st.sampled_from("ab\0\x7fé日😀\uffff"), max_size=4)


def atomic(text: str) -> AtomicType:
    data_type = parse_type(text)
    assert isinstance(data_type, AtomicType)
    return data_type


def list_supported_indexes(data_type: AtomicType) -> list[str]:
    """Return the index types that a column supports; BSI cannot hold the smallest number."""
    index_types = []
    for index in INDEX_TYPES:
        try:
            check_indexable_type(index, data_type)
        except Exception:  # noqa: BLE001, S112 - not supported
            continue
        index_types.append(index)
    return index_types


_FLOATS = (0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), -float("inf"), 1.401298464324817e-45)
_TIMES = (0, 1, -1, 999, 1000, 1001, -1000, -1001, 2**45, -(2**45))
_VALUES: dict[str, Sequence[Any]] = {
    "BOOLEAN": (False, True),
    "FLOAT": _FLOATS,
    "DOUBLE": _FLOATS,
    "DECIMAL": [Decimal(n) / 100 for n in (0, 1, -1, 250, 99999999, -99999999)],
    "DATE": (0, -1, 1, 19000, -719162),
    "TIME": (0, 1, 86_399_999, 500),
    "TIMESTAMP": _TIMES,
    "TIMESTAMP_LTZ": _TIMES,
    "VARBINARY": (b"", b"\0", b"\xff\xff", b"a" * 40),
    **{name: (0, 1, -1, 2, 7, 2 ** (n - 1) - 1, 1 - 2 ** (n - 1)) for name, n in _BITS.items()},
}


def values(data_type: AtomicType) -> st.SearchStrategy[Any]:
    """Return few values, including extremes, so that they repeat and match literals."""
    extremes = _VALUES.get(data_type.name)
    return _UNICODE if extremes is None else st.sampled_from(extremes)


def column(rows: list[Any], data_type: AtomicType) -> pa.Array:
    target = to_arrow_type(data_type)
    if data_type.name in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
        width = pa.int64() if pa.types.is_timestamp(target) else pa.int32()
        return pa.array(rows, width).view(target)
    return pa.array(rows, target)


def leaves(data_type: AtomicType) -> st.SearchStrategy[Predicate]:
    def build_comparison(op: Operator, literal: Any) -> Predicate:
        return Leaf("c", op, (column([literal], data_type)[0],))

    def build_membership_test(literals: list[Any]) -> Predicate:
        array = column(literals, data_type)
        return Leaf("c", Operator.IN, tuple(array[index] for index in range(len(array))))

    value = values(data_type).filter(lambda item: item == item)  # noqa: PLR0124 - NaN is refused
    return st.one_of(
        st.builds(
            build_comparison,
            st.sampled_from(
                [
                    Operator.EQUAL,
                    Operator.NOT_EQUAL,
                    Operator.LESS,
                    Operator.LESS_OR_EQUAL,
                    Operator.GREATER,
                    Operator.GREATER_OR_EQUAL,
                ]
            ),
            value,
        ),
        st.builds(build_membership_test, st.lists(value, min_size=1, max_size=3)),
        st.just(Leaf("c", Operator.IS_NULL)),
    )


def predicates(data_type: AtomicType) -> st.SearchStrategy[Predicate]:
    def combine(children: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
        several = st.lists(children, min_size=2, max_size=3).map(tuple)
        return st.one_of(st.builds(And, several), st.builds(Or, several), st.builds(Not, children))

    return st.recursive(leaves(data_type), combine, max_leaves=4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", TYPES)
@given(data=st.data())
@settings(max_examples=20)
def test_no_matching_row_is_excluded(text: str, data: st.DataObject) -> None:
    data_type = atomic(text)
    rows = column(data.draw(st.lists(st.none() | values(data_type), max_size=30)), data_type)
    kinds = data.draw(
        st.lists(st.sampled_from(list_supported_indexes(data_type)), min_size=1, unique=True)
    )
    predicate = data.draw(predicates(data_type))
    options = {f"file-index.{kind}.columns": "c" for kind in kinds}
    options |= {"file-index.bloom-filter.c.items": "10"} if "bloom-filter" in kinds else {}
    options |= {"file-index.bitmap.c.index-block-size": "64"} if "bitmap" in kinds else {}

    builder = FileIndexBuilder(parse_index_specs(options), [Field(id=0, name="c", type=data_type)])
    builder.add(pa.table({"c": rows}))
    indexes = decode_container(ByteSource.of(builder.finish()))
    stored_column = StoredColumn("c", data_type)
    selected = evaluate_rows(
        IndexFilter(predicate), indexes, lambda _: stored_column, len(rows)
    ).rows

    if selected is not None:
        assert matching(rows, predicate) <= set(selected)


def matching(rows: pa.Array, predicate: Predicate) -> set[int]:
    table = pa.table({"c": rows, "row": np.arange(len(rows))})
    return set(table.filter(to_arrow_expression(predicate)).column("row").to_pylist())


def rows_for(text: str, rows: list[Any], kind: str, predicate: Predicate) -> set[int] | None:
    data_type = atomic(text)
    specs = parse_index_specs({f"file-index.{kind}.columns": "c"})
    builder = FileIndexBuilder(specs, [Field(id=0, name="c", type=data_type)])
    builder.add(pa.table({"c": column(rows, data_type)}))
    indexes = decode_container(ByteSource.of(builder.finish()))
    stored_column = StoredColumn("c", data_type)
    selected = evaluate_rows(
        IndexFilter(predicate), indexes, lambda _: stored_column, len(rows)
    ).rows
    return None if selected is None else set(selected)


def leaf(op: Operator, *literals: Any) -> Leaf:
    return Leaf("c", op, literals)


def test_a_filter_on_zero_finds_positive_and_negative_zero() -> None:
    rows, zero = [0.0, -0.0, 1.0, None], pa.scalar(0.0)
    for kind in ("bitmap", "range-bitmap"):
        assert rows_for("DOUBLE", rows, kind, leaf(Operator.EQUAL, zero)) == {0, 1}
    assert rows_for("DOUBLE", rows, "range-bitmap", leaf(Operator.GREATER_OR_EQUAL, zero)) == {
        0,
        1,
        2,
    }
    assert rows_for(
        "DOUBLE", rows, "range-bitmap", leaf(Operator.LESS_OR_EQUAL, pa.scalar(-0.0))
    ) == {0, 1}
    assert rows_for("DOUBLE", rows, "range-bitmap", leaf(Operator.LESS, zero)) == set()


def test_a_negated_comparison_finds_nan() -> None:
    rows = [float("nan"), 5.0, 1.0]
    assert rows_for(
        "DOUBLE", rows, "range-bitmap", Not(leaf(Operator.GREATER, pa.scalar(1.0)))
    ) == {0, 2}


@pytest.mark.parametrize("kind", ["range-bitmap", "bitmap"])
def test_nan_is_found_in_an_index_but_not_excluded_by_it(kind: str) -> None:
    rows = [float("nan"), 1.0, None]
    assert rows_for("DOUBLE", rows, kind, leaf(Operator.IS_NAN)) == {0}
    assert rows_for("DOUBLE", rows, kind, Not(leaf(Operator.IS_NAN))) is None
    assert rows_for("INT", [1, 2], kind, leaf(Operator.IS_NAN)) is None


def test_timestamps_of_the_same_microsecond_share_an_index_key() -> None:
    rows, literal = [1000, 1001, 5000], pa.scalar(1000, pa.int64()).cast(pa.timestamp("ns"))
    assert rows_for("TIMESTAMP(9)", rows, "bitmap", leaf(Operator.EQUAL, literal)) == {0, 1}
    assert rows_for("TIMESTAMP(9)", rows, "bitmap", leaf(Operator.NOT_EQUAL, literal)) is None
    assert rows_for("TIMESTAMP(9)", rows, "bsi", leaf(Operator.LESS, literal)) == {0, 1}
    assert rows_for("TIMESTAMP(9)", rows, "bsi", leaf(Operator.GREATER, literal)) == {0, 1, 2}


def test_several_indexes_of_a_column_are_intersected() -> None:
    specs = parse_index_specs({"file-index.bitmap.columns": "c", "file-index.bsi.columns": "c"})
    builder = FileIndexBuilder(specs, [Field(id=0, name="c", type=atomic("INT"))])
    builder.add(pa.table({"c": pa.array([1, None, 3], pa.int32())}))
    indexes = decode_container(ByteSource.of(builder.finish()))
    index_filter = IndexFilter(leaf(Operator.NOT_EQUAL, pa.scalar(3, pa.int32())))

    evaluation = evaluate_rows(index_filter, indexes, lambda _: StoredColumn("c", atomic("INT")), 3)

    assert evaluation.rows is not None
    assert set(evaluation.rows) == {0}  # only the bitmap returns the null row
    assert evaluation.used == ("bitmap(c)", "bsi(c)")


def test_an_index_with_another_row_count_is_treated_as_damaged() -> None:
    specs = parse_index_specs({"file-index.bitmap.columns": "c"})
    builder = FileIndexBuilder(specs, [Field(id=0, name="c", type=atomic("INT"))])
    builder.add(pa.table({"c": pa.array([1, 2], pa.int32())}))
    indexes = decode_container(ByteSource.of(builder.finish()))
    index_filter = IndexFilter(leaf(Operator.EQUAL, pa.scalar(1, pa.int32())))

    with pytest.raises(ValueError, match="has 2 rows, but the file has 3"):
        evaluate_rows(index_filter, indexes, lambda _: StoredColumn("c", atomic("INT")), 3)


@pytest.mark.parametrize(
    ("stored_type", "read_type", "usable"),
    [
        ("INT", "BIGINT", True),
        ("INT", "INT NOT NULL", True),
        ("BIGINT", "INT", False),
        ("FLOAT", "DOUBLE", False),
        ("STRING", "VARCHAR(5)", False),
        ("DECIMAL(10, 2)", "DECIMAL(12, 2)", False),
    ],
)
def test_an_index_is_used_after_a_type_change_only_if_its_keys_are_still_valid(
    stored_type: str, read_type: str, usable: bool
) -> None:
    stored_column = find_stored_column(
        Field(id=3, name="new", type=parse_type(read_type)),
        Field(id=3, name="old", type=parse_type(stored_type)),
    )

    assert stored_column == (StoredColumn("old", atomic(stored_type)) if usable else None)


def test_a_literal_out_of_range_of_the_stored_type_uses_no_index() -> None:
    wide = pa.scalar(2**40)
    assert rows_for("INT", [1, 2], "bitmap", leaf(Operator.EQUAL, wide)) is None
    assert rows_for("INT", [1, 2], "bitmap", leaf(Operator.EQUAL, pa.scalar(2))) == {1}


def container(rows: pa.Array, data_type: AtomicType, kinds: list[str], **options: str) -> bytes:
    declared = {f"file-index.{kind}.columns": "c" for kind in kinds}
    index_of_option = {"items": "bloom-filter", "version": "bitmap", "index-block-size": "bitmap"}
    for name, value in options.items():
        option = name.replace("_", "-")
        if index_of_option.get(option, "range-bitmap") in kinds:
            declared[f"file-index.{index_of_option.get(option, 'range-bitmap')}.c.{option}"] = value
    builder = FileIndexBuilder(parse_index_specs(declared), [Field(id=0, name="c", type=data_type)])
    builder.add(pa.table({"c": rows}))
    return builder.finish()


SIZES = st.fixed_dictionaries({
    "items": st.sampled_from(["1", "10"]), "version": st.sampled_from(["1", "2"]),
    "index_block_size": st.sampled_from(["64", "16384"]), "chunk_size": st.sampled_from(["0", "16", "16384"]),
})  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", TYPES)
@given(data=st.data())
@settings(max_examples=15)
def test_batch_evaluation_agrees_with_single_files(text: str, data: st.DataObject) -> None:
    data_type = atomic(text)
    kinds = st.lists(st.sampled_from(list_supported_indexes(data_type)), min_size=1, unique=True)
    rows = st.lists(st.none() | values(data_type), max_size=12)
    files = [
        (column(part, data_type), data.draw(kinds), data.draw(SIZES))
        for part in data.draw(st.lists(rows, min_size=1, max_size=6))
    ]
    predicate = data.draw(predicates(data_type))
    containers = [container(part, data_type, k, **options) for part, k, options in files]
    counts = np.array([len(part) for part, _, _ in files])

    stored_column = StoredColumn("c", data_type)
    evaluation = evaluate_batch(IndexFilter(predicate), containers, lambda _: stored_column, counts)

    for index, (data_of_file, rows_of_file) in enumerate(zip(containers, counts, strict=True)):
        indexes = decode_container(ByteSource.of(data_of_file))
        single = evaluate_rows(
            IndexFilter(predicate), indexes, lambda _: stored_column, int(rows_of_file)
        ).rows
        is_empty = single is not None and not single
        if evaluation.excluded[index] or not evaluation.undecided[index]:
            assert evaluation.excluded[index] == is_empty


@pytest.mark.parametrize("kind", ["bloom-filter", "bitmap", "range-bitmap"])
@pytest.mark.parametrize("text", ["INT", "STRING"])
def test_equality_is_evaluated_for_all_files_of_a_batch(kind: str, text: str) -> None:
    data_type = atomic(text)
    stored_column = StoredColumn("c", data_type)
    parts = [[number % 7, number % 11, 90, None] for number in range(40)]
    rows = [
        column([v if text == "INT" or v is None else f"v{v}" for v in part], data_type)
        for part in parts
    ]
    containers = [container(part, data_type, [kind], items="10") for part in rows]

    value = pa.scalar(5, pa.int32()) if text == "INT" else pa.scalar("v5")
    index_filter = IndexFilter(leaf(Operator.EQUAL, value))
    evaluation = evaluate_batch(index_filter, containers, lambda _: stored_column, np.full(40, 4))

    assert not evaluation.undecided.any()
    has_five = np.array([5 in part for part in parts])
    assert not (evaluation.excluded & has_five).any()
    assert kind == "bloom-filter" or list(~evaluation.excluded) == list(has_five)


@given(
    position=st.integers(0, 400), damage=st.binary(min_size=1, max_size=4), kind=st.integers(0, 2)
)
@settings(max_examples=60)
def test_the_result_for_a_damaged_index_of_a_batch_is_undecided(
    position: int, damage: bytes, kind: int
) -> None:
    data_type, name = atomic("STRING"), ["bloom-filter", "bitmap", "range-bitmap"][kind]
    data = container(column(["a", "b", None, "a"], data_type), data_type, [name], items="10")
    position %= len(data)
    damaged = data[:position] + damage + data[position + len(damage) :]
    index_filter = IndexFilter(leaf(Operator.EQUAL, pa.scalar("a")))

    containers = [data, damaged, data[:position], data]
    evaluation = evaluate_batch(
        index_filter, containers, lambda _: StoredColumn("c", data_type), np.full(4, 4)
    )

    assert not evaluation.excluded[[0, 3]].any()
    assert not evaluation.undecided[[0, 3]].any()
    assert evaluation.undecided[2] or not position


@given(
    bits=st.sampled_from([1, 8, 31, 62, 64]), seed=st.integers(0, 9), width=st.sampled_from([4, 8])
)
@settings(max_examples=20)
def test_argsort_of_numbers_is_stable(bits: int, seed: int, width: int) -> None:
    random = np.random.default_rng(seed)
    top = 2 ** (min(bits, 8 * width) - 1)
    numbers = random.integers(-top, top, 40_000, f"i{width}")

    assert np.array_equal(argsort_stable(numbers), np.argsort(numbers, kind="stable"))


@pytest.mark.parametrize("text", ["BIGINT", "DOUBLE"])
def test_mostly_distinct_columns_have_the_same_index_as_with_the_general_encoding(
    text: str,
) -> None:
    data_type, random = atomic(text), np.random.default_rng(3)
    numbers = random.integers(-(2**62), 2**62, 40_000).astype(
        to_arrow_type(data_type).to_pandas_dtype()
    )
    numbers[::7] = numbers[3]
    rows = pa.array(numbers, mask=random.random(40_000) < 0.1)
    rows = rows if text == "BIGINT" else pa.concat_arrays([pa.array([float("nan"), None]), rows])

    by_sorting = encode_column([rows[:100], rows[100:]], data_type, may_sort=True)
    by_hashing = encode_column([rows], data_type)

    assert (by_sorting.keys[1:] > by_sorting.keys[:-1]).all()
    assert encode_range_bitmap_index(by_sorting, data_type) == encode_range_bitmap_index(
        by_hashing, data_type
    )
