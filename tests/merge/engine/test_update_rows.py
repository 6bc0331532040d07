"""Rows that are written for updates: the model merges them to the requested rows, or raises."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.merge_model import AGGREGATE_FUNCTIONS, Row, Rules, is_add

from paimon_orch.errors import InputError
from paimon_orch.format.row.row_kind import parse_row_kinds
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.merge.engine.update_rows import compute_update_rows

COLUMNS = {"s": "INT", "v": "INT", "w": "INT", "names": "STRING", "items": "ARRAY<INT>"}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-4, 4),
    "STRING": st.sampled_from(["a", "b", "a,b"]),
    "ARRAY<INT>": st.lists(st.integers(0, 2), max_size=2),
}
FUNCTIONS = [
    *(name for name in AGGREGATE_FUNCTIONS if "bool" not in name),
    "first_value",
    "first_non_null_value",
]
OF_TEXT = {"names": "listagg", "items": "collect"}


def options_of(rules: Rules) -> dict[str, str]:
    named = {"merge-engine": rules.engine, "sequence.field": ",".join(rules.sequence)}
    named["sequence.field.sort-order"] = "descending" if rules.descending else "ascending"
    named[f"{rules.engine}.remove-record-on-delete"] = str(rules.remove_on_delete).lower()
    if rules.group[0]:
        named[f"fields.{','.join(rules.group[0])}.sequence-group"] = ",".join(rules.group[1])
    for name, function in rules.functions.items():
        named[f"fields.{name}.aggregate-function"] = function
    return {key: value for key, value in named.items() if value}


def schema_of(options: dict[str, str], columns: dict[str, str] = COLUMNS) -> TableSchema:
    listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    fields = parse_columns(f"k INT NOT NULL, {listed}")
    return TableSchema(
        id=0,
        fields=tuple(fields),
        highest_field_id=len(fields),
        partition_keys=(),
        primary_keys=("k",),
        options=options,
        comment="",
        time_millis=0,
    )


def table_of(schema: TableSchema, rows: list[Row], *, kinds: bool) -> pa.Table:
    rows_as_table = pa.Table.from_pylist(rows, schema=to_arrow_schema(schema.fields))
    if not kinds:
        return rows_as_table
    codes = parse_row_kinds(pa.array([row["_kind"] for row in rows], pa.string()))
    return rows_as_table.add_column(0, "_VALUE_KIND", codes)


def read_back(written: pa.Table, rows: list[Row]) -> list[Row]:
    values = written.drop_columns("_VALUE_KIND").to_pylist()
    return [row | {"_kind": old["_kind"]} for row, old in zip(values, rows, strict=True)]


def aggregations() -> st.SearchStrategy[Rules]:
    functions = st.fixed_dictionaries(
        {
            **{
                name: st.sampled_from([f for f in FUNCTIONS if f not in OF_TEXT.values()])
                for name in "svw"
            },
            **{name: st.just(function) for name, function in OF_TEXT.items()},
        }
    )
    rules = functions.map(
        lambda named: Rules(engine="aggregation", columns=tuple(COLUMNS), functions=named)
    )
    removing = functions.map(
        lambda named: Rules(
            engine="aggregation", columns=tuple(COLUMNS), functions=named, remove_on_delete=True
        )
    )
    return rules | removing


def plain(engine: str, **rules: Any) -> Rules:
    return Rules(engine=engine, columns=tuple(COLUMNS), **rules)


ENGINES = {
    "deduplicate, sequence": st.just(plain("deduplicate", sequence=("s",))),
    "deduplicate, descending": st.just(plain("deduplicate", sequence=("s",), descending=True)),
    "partial-update": st.just(plain("partial-update")),
    "partial-update, deletes": st.just(plain("partial-update", remove_on_delete=True)),
    "partial-update, sequence": st.just(plain("partial-update", sequence=("s",))),
    "partial-update, groups": st.just(plain("partial-update", group=(("s",), ("v", "names")))),
    "partial-update, a sum in a group": st.just(
        plain("partial-update", group=(("s",), ("v", "w")), functions={"v": "sum"})
    ),
    "aggregation": aggregations(),
}


def deletes(rules: Rules) -> bool:
    return rules.engine == "deduplicate" or rules.remove_on_delete


@st.composite
def cases(draw: st.DrawFn, engine: str) -> tuple[Rules, list[list[Row]], list[Row]]:
    """Draw rules, the written rows of some keys, and their requested rows."""
    rules = draw(ENGINES[engine])
    values = {name: st.none() | VALUES[kind] for name, kind in COLUMNS.items()}
    history = st.lists(st.fixed_dictionaries(values), min_size=1, max_size=3)
    histories: list[list[Row]] = []
    requested: list[Row] = []
    for key, rows in enumerate(draw(st.lists(history, min_size=1, max_size=3))):
        numbered = [
            row | {"k": key, "_kind": "+I", "_number": number} for number, row in enumerate(rows)
        ]
        old = rules.merge(numbered, is_lookup_merge=False)
        assert old is not None
        changed = draw(st.dictionaries(st.sampled_from(list(COLUMNS)), st.none(), max_size=2))
        new = {name: draw(values[name]) for name in changed}
        is_deleted = deletes(rules) and draw(st.integers(0, 4)) == 0
        histories.append(numbered)
        requested.append(old | (new | {"_kind": "+U"} if not is_deleted else {"_kind": "-D"}))
    return rules, histories, requested


def has_requested_values(row: Row | None, requested: Row) -> bool:
    if row is None or not is_add(row) or not is_add(requested):
        return (row is not None and is_add(row)) == is_add(requested)
    return all(row[name] == requested[name] for name in COLUMNS)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_update_produces_the_requested_rows_or_is_refused(engine: str) -> None:
    @settings(max_examples=30)
    @given(cases(engine))
    def check(case: tuple[Rules, list[list[Row]], list[Row]]) -> None:
        rules, histories, requested = case
        schema = schema_of(options_of(rules))
        old = [rules.merge(rows, is_lookup_merge=False) or {} for rows in histories]
        last = {"_number": 9}

        def merge_of(rows: list[Row], written: Row) -> Row | None:
            return rules.merge([*rows, written | last], is_lookup_merge=False)

        try:
            update_rows = compute_update_rows(
                schema, table_of(schema, old, kinds=False), table_of(schema, requested, kinds=True)
            )
        except InputError:
            pairs = zip(old, requested, strict=True)
            assert not all(
                has_requested_values(merge_of([old_row], new), new) for old_row, new in pairs
            )
            return
        for rows, old_row, new, written in zip(
            histories, old, requested, read_back(update_rows, requested), strict=True
        ):
            assert has_requested_values(merge_of([old_row], written), new)
            assert has_requested_values(merge_of(rows, written), new)

    check()


def value_to_write(
    options: dict[str, str], kind: str, old: object, new: object, row_kind: str = "+U"
) -> object:
    """Return the value to write so that column v gets a requested value."""
    schema = schema_of(options, {"v": kind})
    rows: list[Row] = [{"k": 1, "v": old}], [{"k": 1, "v": new, "_kind": row_kind}]  # type: ignore[assignment]
    before, after = table_of(schema, rows[0], kinds=False), table_of(schema, rows[1], kinds=True)  # type: ignore[arg-type]
    return compute_update_rows(schema, before, after).column("v")[0].as_py()


def aggregation_options(function: str) -> dict[str, str]:
    return {"merge-engine": "aggregation", "fields.v.aggregate-function": function}


@pytest.mark.parametrize(
    ("kind", "old", "new", "written"),
    [
        ("BIGINT", 10, 4, -6),
        ("BIGINT", None, 4, 4),
        ("BIGINT", 4, 4, None),
        ("BIGINT NOT NULL", 4, 4, 0),
        ("DECIMAL(5, 2)", Decimal("1.25"), Decimal("-0.75"), Decimal("-2.00")),
        ("DOUBLE", 0.1, 0.3, 0.3 - 0.1),
    ],
)
def test_an_update_of_a_sum_writes_the_difference(
    kind: str, old: object, new: object, written: object
) -> None:
    assert value_to_write(aggregation_options("sum"), kind, old, new) == written


@pytest.mark.parametrize(
    ("function", "kind", "old", "new", "message"),
    [
        ("max", "INT", 5, 4, "column 'v' would be 5, not 4.*function 'max'"),
        ("sum", "INT", 5, None, "column 'v' would be 5, not None"),
        ("sum", "TINYINT", 100, -100, "the difference of the new and the old value does not fit"),
        ("product", "INT", 5, 4, "column 'v' would be 20, not 4"),
        ("last_non_null_value", "INT", 5, None, "a null does not overwrite its value"),
        ("listagg", "STRING", "a", "b", "column 'v' would be 'a,b', not 'b'"),
    ],
)
def test_an_update_that_an_aggregation_cannot_produce_is_refused_with_the_function(
    function: str, kind: str, old: object, new: object, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        value_to_write(aggregation_options(function), kind, old, new)


@pytest.mark.parametrize("function", ["product", "listagg", "collect", "sum", "rbm32"])
def test_an_unchanged_value_is_not_aggregated_again(function: str) -> None:
    kinds = {"listagg": ("STRING", "a"), "collect": ("ARRAY<INT>", [1]), "rbm32": ("BYTES", b"")}
    kind, value = kinds.get(function, ("INT", 5))

    assert value_to_write(aggregation_options(function), kind, value, value) is None


@pytest.mark.parametrize(
    ("order", "lower", "message"),
    [
        (
            "ascending",
            4,
            "of the new row is lower or null; set it to the old value or a higher one",
        ),
        (
            "descending",
            6,
            "of the new row is higher or null; set it to the old value or a lower one",
        ),
    ],
)
def test_an_update_that_the_sequence_field_orders_before_the_old_row_is_refused_with_advice(
    order: str, lower: int, message: str
) -> None:
    options = {"sequence.field": "v", "sequence.field.sort-order": order}

    with pytest.raises(InputError, match=rf"the old row would win.*\(v\) {message}"):
        value_to_write(options, "INT", 5, lower)
    assert value_to_write(options, "INT", 5, 5) == 5


def test_the_error_names_the_sequence_group_that_prevents_an_update() -> None:
    options = {"merge-engine": "partial-update", "fields.s.sequence-group": "v"}
    schema = schema_of(options)
    old: Row = dict.fromkeys(COLUMNS) | {"k": 1, "v": 1}
    new = old | {"v": 2, "_kind": "+U"}

    with pytest.raises(InputError, match=r"k = 1.*only with its sequence group \(s\)"):
        compute_update_rows(
            schema, table_of(schema, [old], kinds=False), table_of(schema, [new], kinds=True)
        )


@pytest.mark.parametrize(("sequence", "refused"), [(1, False), (None, True)])
def test_a_delete_sets_the_sequence_of_a_sequence_group(
    sequence: int | None, *, refused: bool
) -> None:
    group = "partial-update.remove-record-on-sequence-group"
    schema = schema_of(
        {"merge-engine": "partial-update", "fields.s.sequence-group": "v", group: "s"}
    )
    old: Row = dict.fromkeys(COLUMNS) | {"k": 1, "v": 1, "s": sequence}
    before = table_of(schema, [old], kinds=False)
    after = table_of(schema, [old | {"_kind": "-D"}], kinds=True)

    if refused:
        with pytest.raises(InputError, match="would not be deleted"):
            compute_update_rows(schema, before, after)
    else:
        assert compute_update_rows(schema, before, after).to_pylist() == after.to_pylist()


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("DOUBLE", float("nan")),
        ("ARRAY<DOUBLE>", [float("nan")]),
        ("ROW<x FLOAT>", {"x": float("nan")}),
        ("MAP<DOUBLE, INT>", [(float("nan"), 1), (0.0, 2)]),
    ],
)
def test_a_column_with_nan_keeps_its_value(sql: str, value: object) -> None:
    options = {"merge-engine": "partial-update"}
    schema = schema_of(options, {"v": "INT", "x": sql})
    old = pa.table({"k": [1], "v": [1], "x": [value]}, to_arrow_schema(schema.fields))
    new = old.set_column(1, old.schema.field(1), pa.array([2], pa.int32()))

    written = compute_update_rows(
        schema, old, new.append_column("_VALUE_KIND", pa.array([0], pa.int8()))
    )

    assert written["x"].to_pylist() == [None]
