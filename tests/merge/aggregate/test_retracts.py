"""Merges of rows of one key, including deletes: one case per rule of each merge engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import InputError
from paimon_orch.format.row.row_kind import ROW_KIND_SYMBOLS
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.sort.sort_merge_reader import build_sorted_batch

Values = tuple[int | None, ...]
KindAndValues = tuple[str, Values]
AGGREGATION = {
    "merge-engine": "aggregation",
    "fields.a.aggregate-function": "sum",
    "fields.b.aggregate-function": "last_value",
}
REMOVING = AGGREGATION | {"aggregation.remove-record-on-delete": "true"}
PARTIAL = {"merge-engine": "partial-update"}
PARTIAL_REMOVING = PARTIAL | {"partial-update.remove-record-on-delete": "true"}
GROUP = PARTIAL | {"fields.s.sequence-group": "a"}
SUM_GROUP = GROUP | {"fields.a.aggregate-function": "sum"}
FIRST_GROUP = GROUP | {"fields.a.aggregate-function": "first_non_null_value"}
FIRST_VALUE_GROUP = GROUP | {"fields.a.aggregate-function": "first_value"}
GROUP_REMOVING = GROUP | {"partial-update.remove-record-on-sequence-group": "s"}
TWO = PARTIAL | {"fields.s,b.sequence-group": "a"}


def schema_of(options: dict[str, str]) -> TableSchema:
    return build_table_schema(
        parse_columns("k INT, s INT, a INT, b INT"),
        primary_key=["k"],
        partition_by=[],
        options=options | {"bucket": "1"},
    )


def merge_rows(
    options: dict[str, str], rows: list[KindAndValues], *, merges_single_rows: bool = False
) -> KindAndValues | None:
    """Merge rows of one key in the given order; values are those of s, a and b."""
    schema = schema_of(options)
    columns: dict[str, Any] = {
        "_SEQUENCE_NUMBER": pa.array(range(len(rows)), pa.int64()),
        "_VALUE_KIND": pa.array([ROW_KIND_SYMBOLS.index(kind) for kind, _ in rows], pa.int8()),
        "k": pa.array([1] * len(rows), pa.int32()),
    }
    for position, name in enumerate(("s", "a", "b")):
        kind = to_arrow_type(schema.field(name).type)
        columns[name] = pa.array([values[position] for _, values in rows], kind)
    engine = create_merge_engine(schema)
    step = engine.prepare(build_sorted_batch(pa.table(columns), ["k"], engine.sequence))
    result = engine.merge(step, merges_single_rows=merges_single_rows).to_pylist()
    if not result:
        return None
    (row,) = result
    return ROW_KIND_SYMBOLS[row["_VALUE_KIND"]], (row["s"], row["a"], row["b"])


CASES: dict[str, tuple[dict[str, str], list[KindAndValues], KindAndValues | None]] = {
    "deduplicate: the last row of any kind": (
        {},
        [("+I", (1, 1, 1)), ("-D", (9, 9, 9))],
        ("-D", (9, 9, 9)),
    ),
    "deduplicate: the greatest sequence, null the smallest": (
        {"sequence.field": "s"},
        [("+I", (5, 1, 1)), ("+I", (3, 2, 2)), ("+I", (None, 3, 3))],
        ("+I", (5, 1, 1)),
    ),
    "deduplicate: descending, null is the smallest all the same": (
        {"sequence.field": "s", "sequence.field.sort-order": "descending"},
        [("+I", (5, 1, 1)), ("+I", (3, 2, 2)), ("+I", (None, 3, 3))],
        ("+I", (3, 2, 2)),
    ),
    "deduplicate: the second sequence field decides between equals": (
        {"sequence.field": "s,a"},
        [("+I", (5, 2, 1)), ("+I", (5, 1, 2)), ("+I", (5, None, 3))],
        ("+I", (5, 2, 1)),
    ),
    "deduplicate: the last row of those with equal sequences": (
        {"sequence.field": "s"},
        [("+I", (5, 2, 1)), ("-D", (5, 1, 2))],
        ("-D", (5, 1, 2)),
    ),
    "ignore-delete: deletes are ignored": (
        {"ignore-delete": "true"},
        [("+I", (1, 1, 1)), ("-U", (2, 2, 2)), ("-D", (9, 9, 9))],
        ("+I", (1, 1, 1)),
    ),
    "ignore-delete: a key with only deletes is dropped": (
        {"deduplicate.ignore-delete": "true"},
        [("-D", (1, 1, 1)), ("-D", (9, 9, 9))],
        None,
    ),
    "first-row: the first, and deletes are left out if they are ignored": (
        {"merge-engine": "first-row", "first-row.ignore-delete": "true"},
        [("-D", (0, 0, 0)), ("+I", (1, 1, 1)), ("+I", (2, 2, 2))],
        ("+I", (1, 1, 1)),
    ),
    "aggregation: always an insert": (
        AGGREGATION,
        [("-D", (None, 4, 4)), ("-U", (None, 3, 4))],
        ("+I", (None, -7, None)),
    ),
    "aggregation: a column without function keeps the last value that is not null": (
        AGGREGATION,
        [("+I", (7, 1, 1)), ("+I", (None, None, None))],
        ("+I", (7, 1, None)),
    ),
    "aggregation: removed by -D, not by -U": (
        REMOVING,
        [("+I", (1, 5, 5)), ("-U", (None, 2, 5)), ("-D", (8, 8, 8))],
        ("-D", (8, 8, 8)),
    ),
    "aggregation: an add continues with the values of the delete": (
        REMOVING,
        [("+I", (1, 5, 5)), ("-D", (8, 8, 8)), ("+I", (None, 1, 2))],
        ("+I", (8, 9, 2)),
    ),
    "partial-update: what is not null overwrites": (
        PARTIAL,
        [("+I", (1, 1, None)), ("+U", (None, 2, None)), ("+U", (None, None, 3))],
        ("+I", (1, 2, 3)),
    ),
    "partial-update: removed by -D, revived by an add that fills what it brings": (
        PARTIAL_REMOVING,
        [("+I", (1, 1, 1)), ("-D", (None, 8, None)), ("+I", (2, None, None))],
        ("+I", (2, 8, None)),
    ),
    "partial-update: -U has no effect where -D removes": (
        PARTIAL_REMOVING,
        [("+I", (1, 1, 1)), ("-U", (9, 9, 9))],
        ("+I", (1, 1, 1)),
    ),
    "sequence group: an older row changes only what is outside": (
        GROUP,
        [("+I", (5, 1, 1)), ("+I", (4, 2, 2))],
        ("+I", (5, 1, 2)),
    ),
    "sequence group: a row that is not older brings its nulls": (
        GROUP,
        [("+I", (5, 1, 1)), ("+I", (5, None, None))],
        ("+I", (5, None, 1)),
    ),
    "sequence group: a row without a sequence does not change the group": (
        GROUP,
        [("+I", (5, 1, 1)), ("+I", (None, 2, 2))],
        ("+I", (5, 1, 2)),
    ),
    "sequence group of two: nulls are smallest, left to right": (
        TWO,
        [("+I", (5, 1, 2)), ("+I", (5, 2, None)), ("+I", (5, 3, 3)), ("+I", (None, 4, 9))],
        ("+I", (5, 3, 3)),
    ),
    "sequence group: a delete sets the columns of the group to null and remains an insert": (
        GROUP,
        [("+I", (5, 1, 1)), ("-D", (6, 9, 9))],
        ("+I", (6, None, 1)),
    ),
    "sequence group: an older delete changes nothing": (
        GROUP,
        [("+I", (5, 1, 1)), ("-D", (4, 9, 9))],
        ("+I", (5, 1, 1)),
    ),
    "sequence group: aggregates take older rows too, and take them back": (
        SUM_GROUP,
        [("+I", (5, 1, 1)), ("+I", (4, 10, 2)), ("-U", (3, 4, None)), ("-U", (6, 2, None))],
        ("+I", (6, 5, 2)),
    ),
    "sequence group: the first value is that of the last late row": (
        FIRST_GROUP,
        [("+I", (9, 1, 1)), ("+I", (2, 2, 1)), ("+I", (5, 3, 1))],
        ("+I", (9, 3, 1)),
    ),
    "sequence group: a late null replaces the first value": (
        FIRST_GROUP,
        [("+I", (9, 1, 1)), ("+I", (5, None, 1))],
        ("+I", (9, None, 1)),
    ),
    "sequence group: after a null the first of two late rows is kept": (
        FIRST_GROUP,
        [("+I", (9, None, 1)), ("+I", (2, 2, 1)), ("+I", (5, 3, 1)), ("+I", (9, 4, 1))],
        ("+I", (9, 2, 1)),
    ),
    "sequence group: a third late row after a null replaces the value again": (
        FIRST_GROUP,
        [("+I", (9, None, 1)), ("+I", (2, 2, 1)), ("+I", (5, 3, 1)), ("+I", (4, 4, 1))],
        ("+I", (9, 4, 1)),
    ),
    "sequence group: a value after a late one is the first that counts": (
        FIRST_GROUP,
        [("+I", (9, None, 1)), ("+I", (2, 2, 1)), ("+I", (9, 4, 1)), ("+I", (9, 5, 1))],
        ("+I", (9, 4, 1)),
    ),
    "sequence group: the first value, null or not, is that of the last late row": (
        FIRST_VALUE_GROUP,
        [("+I", (9, None, 1)), ("+I", (2, 2, 1)), ("+I", (5, 3, 1))],
        ("+I", (9, 3, 1)),
    ),
    "sequence group: after a delete the first late call keeps the value that is there": (
        FIRST_VALUE_GROUP | {"fields.a.ignore-retract": "true"},
        [("-D", (9, 1, 1)), ("+I", (5, 2, 1)), ("+I", (6, 3, 1))],
        ("+I", (9, 3, 1)),
    ),
    "sequence group: ignore-retract keeps the aggregate": (
        SUM_GROUP | {"fields.a.ignore-retract": "true"},
        [("+I", (5, 1, 1)), ("-D", (6, 9, 9))],
        ("+I", (6, 1, 1)),
    ),
    "sequence group: a key that begins with a delete begins with its values": (
        GROUP,
        [("-D", (5, 1, 7)), ("+I", (4, 2, None))],
        ("+I", (5, None, 7)),
    ),
    "ignore-delete: a sequence group begins with the values of a delete that is ignored": (
        GROUP | {"ignore-delete": "true"},
        [("-D", (5, 1, 7)), ("+I", (6, 2, None)), ("-D", (9, 9, 9))],
        ("+I", (6, 2, 7)),
    ),
    "ignore-delete: an aggregation takes back what files hold": (
        AGGREGATION | {"ignore-delete": "true"},
        [("+I", (1, 5, 5)), ("-D", (None, 2, 5))],
        ("+I", (1, 3, None)),
    ),
    "sequence group: a key with only deletes is a delete": (
        GROUP,
        [("-D", (5, 1, 1)), ("-D", (6, 2, 2))],
        ("-D", (6, None, 1)),
    ),
    "sequence group: a delete removes the row if the option is set": (
        GROUP_REMOVING,
        [("+I", (5, 1, 1)), ("-D", (6, 9, 9))],
        ("-D", (6, 9, 9)),
    ),
    "sequence group: an older delete does not remove it": (
        GROUP_REMOVING,
        [("+I", (5, 1, 1)), ("-D", (4, 9, 9))],
        ("+I", (5, 1, 1)),
    ),
    "sequence group: -U does not remove it": (
        GROUP_REMOVING,
        [("+I", (5, 1, 1)), ("-U", (6, 9, 9))],
        ("+I", (6, None, 1)),
    ),
    "sequence group: a removed row is revived by a row that is not older": (
        GROUP_REMOVING,
        [("+I", (5, 1, 1)), ("-D", (6, 9, 9)), ("+I", (6, 2, None))],
        ("+I", (6, 2, 9)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_of_one_key_are_merged(name: str) -> None:
    options, rows, expected = CASES[name]

    assert merge_rows(options, rows) == expected


ALONE = [
    ({}, "-D", "-D"),
    (AGGREGATION, "-U", "+I"),
    (REMOVING, "-U", "+I"),
    (REMOVING, "-D", "-D"),
    (PARTIAL_REMOVING, "-D", "-D"),
    (GROUP, "-D", "-D"),
    (GROUP, "-U", "-D"),
]


@pytest.mark.parametrize(("options", "kind", "looked_up"), ALONE)
def test_a_single_retract_is_kept_unless_a_lookup_merges_it(
    options: dict[str, str], kind: str, looked_up: str
) -> None:
    rows: list[KindAndValues] = [(kind, (1, 2, 3))]

    assert merge_rows(options, rows) == (kind, (1, 2, 3))
    result = merge_rows(options, rows, merges_single_rows=True)
    assert result is not None
    assert result[0] == looked_up


def test_a_lookup_merge_of_a_single_row_without_sequence_clears_its_sequence_group() -> None:
    rows: list[KindAndValues] = [("+I", (None, 2, 3))]

    assert merge_rows(GROUP, rows) == ("+I", (None, 2, 3))
    assert merge_rows(GROUP, rows, merges_single_rows=True) == ("+I", (None, None, 3))


def test_only_the_newest_row_is_aggregated_if_older_rows_are_removed() -> None:
    schema = schema_of(GROUP | {"changelog-producer": "lookup"})
    rows = {"k": [1, 1, 2], "s": [5, None, None], "a": [1, 2, 4], "b": [1, 3, 6]}
    columns = {name: pa.array(values, pa.int32()) for name, values in rows.items()}
    kinds, numbers = pa.array([0, 0, 0], pa.int8()), pa.array([1, 2, 3], pa.int64())
    step = build_sorted_batch(
        pa.table({"_SEQUENCE_NUMBER": numbers, "_VALUE_KIND": kinds} | columns), ["k"]
    )
    engine = create_merge_engine(schema)

    result = engine.merge(engine.prepare(replace(step, levels=np.array([5, 4, 4], np.int32))))

    assert result.select(["s", "a", "b"]).to_pylist() == [
        {"s": None, "a": None, "b": 3},
        {"s": None, "a": 4, "b": 6},
    ]


@pytest.mark.parametrize("options", [PARTIAL, {"merge-engine": "first-row"}])
def test_engines_without_deletes_name_the_option_to_set(options: dict[str, str]) -> None:
    with pytest.raises(InputError, match="'ignore-delete'"):
        merge_rows(options, [("+I", (1, 1, 1)), ("-D", (1, 1, 1))])


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        ({}, False),
        ({"first-row.ignore-delete": "true"}, True),
        ({"deduplicate.ignore-delete": "true"}, True),
        ({"partial-update.ignore-delete": "true"}, True),
        ({"ignore-delete": "false", "deduplicate.ignore-delete": "true"}, False),
        ({"ignore-delete": "true", "deduplicate.ignore-delete": "false"}, True),
    ],
)
def test_older_keys_of_ignore_delete_apply_if_the_new_key_is_missing(
    options: dict[str, str], ignored: bool
) -> None:
    assert schema_of(options).typed_options.ignores_delete == ignored


WRITES = [("a", "+I"), ("b", "-U"), ("c", "+U"), ("d", "-D")]


@pytest.mark.parametrize(
    ("option", "written_kind"), [("ignore_delete", "ac"), ("ignore_update_before", "acd")]
)
def test_ignored_rows_get_no_sequence_number_and_no_changelog(
    tmp_path: Path, option: str, written_kind: str
) -> None:
    table = new_table(tmp_path, "k STRING", changelog_producer="input", **{option: "true"})

    table.upsert(table_of("k kind", WRITES), row_kind="kind")

    changelog = table.incremental(0, 1).to_arrow()["k"].to_pylist()
    assert "".join(changelog) == written_kind
    assert [(f.row_count, f.max_sequence_number) for s in table.files() for f in s.files] == [
        (len(written_kind), len(written_kind) - 1)
    ]
    assert rows_of(table) == [("a",), ("c",)]


def test_a_column_can_contain_the_row_kind(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k STRING, kind STRING", rowkind__field="kind")

    table.upsert(table_of("k kind", [("a", "+I"), ("b", "+I")]))
    table.upsert(table_of("k kind", [("a", "-D"), ("b", "+U")]))

    assert rows_of(table) == [("b", "+U")]
    with pytest.raises(InputError, match="row kind None must be one of"):
        table.upsert(table_of("k kind", [("a", None), ("b", "+I")]))
