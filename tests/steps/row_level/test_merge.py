"""Merges in the process: kinds of tables, clauses, refusals and conflicts, against a model."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.merge_conditions import CONDITIONS, NAN, SOURCE, create_numbers
from support.tables import Row, assert_healthy, new_table, rows_of, stored_files, table_of

from paimon_orch import InputError, NotFoundError, PaimonError, UnsupportedError
from paimon_orch.steps import InProcessExecutor, compact
from paimon_orch.steps.row_level.merge import plan_merge
from paimon_orch.steps.row_level.merge_clauses import can_get_matches, find_matched_columns
from paimon_orch.table.table import Table

VECTORS = {"deletion-vectors.enabled": "true"}
TRACKED = {"key": (), "bucket": "-1", "row-tracking.enabled": "true"}
KINDS: dict[str, dict[str, Any]] = {
    "key": {"bucket": "2"},
    "key, vectors": {"bucket": "2", **VECTORS},
    "key, dynamic buckets": {"bucket": "-1"},
    "key, sequence": {"sequence.field": "n"},
    "key, aggregation": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
    "key, partial update": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "append": {"key": (), "bucket": "-1"},
    "append, vectors": {"key": (), "bucket": "-1", **VECTORS},
    "buckets": {"key": (), "bucket": "2", "bucket-key": "k"},
    "row tracking": TRACKED,
    "row tracking, vectors": {**TRACKED, **VECTORS},
    "data evolution": {**TRACKED, **VECTORS, "data-evolution.enabled": "true"},
}
every_kind = pytest.mark.parametrize("kind", KINDS)
sampled = pytest.mark.sampled(4)


def create_table(root: Path, kind: str) -> Table:
    """Keys 0 to 9 in two commits; those below 3 have no value."""
    options = dict(KINDS[kind])
    key = options.pop("key", ("k",))
    table = new_table(root, "k BIGINT, v STRING, n INT", key=key, **options)
    for start in (0, 5):
        numbers = range(start, start + 5)
        table.append(table_of("k v n", [(k, "old" if k > 2 else None, k) for k in numbers]))
    return table


def rows_after_compaction(table: Table) -> list[Row]:
    compact(table, InProcessExecutor())
    assert_healthy(table)
    return rows_of(table)


@sampled
@every_kind
def test_a_merge_updates_deletes_and_inserts_rows_in_one_snapshot(
    tmp_path: Path, kind: str
) -> None:
    table = create_table(tmp_path, kind)
    source = table_of("k v", [(4, "four"), (5, None), (7, "seven"), (100, "new")])

    snapshot = table.merge(
        source,
        "target.k = source.k",
        when_matched_delete="source.v is null",
        when_matched_update={"v": "source.v", "n": "target.n * 2"},
        when_not_matched_insert={"k": "source.k", "v": "source.v", "n": 1},
    )

    assert (table.snapshot(), snapshot.id if snapshot else None) == (snapshot, 3)
    model: dict[int, Row] = {k: (k, "old" if k > 2 else None, k) for k in range(10)}
    model |= {4: (4, "four", 8), 7: (7, "seven", 14), 100: (100, "new", 1)}
    del model[5]
    assert rows_after_compaction(table) == [model[k] for k in sorted(model)]


@sampled
@every_kind
def test_rows_without_a_match_in_the_source_are_deleted_and_updated(
    tmp_path: Path, kind: str
) -> None:
    table = create_table(tmp_path, kind)

    table.merge(
        table_of("k", [(2,), (7,), (50,)]),
        ["k"],
        when_not_matched_by_source_delete="n < 8",
        when_not_matched_by_source_update={"v": "'gone'"},
    )

    assert rows_after_compaction(table) == [
        (2, None, 2),
        (7, "old", 7),
        (8, "gone", 8),
        (9, "gone", 9),
    ]


@sampled
@every_kind
def test_two_source_rows_that_change_one_row_are_refused_and_leave_nothing(
    tmp_path: Path, kind: str
) -> None:
    table = create_table(tmp_path, kind)
    before = stored_files(table)
    twice = table_of("k v n", [(5, "a", 50), (6, "b", 60), (5, "c", 70)])

    for clauses in ({"when_matched_update": "*"}, {"when_matched_delete": "true"}):
        with pytest.raises(InputError, match="several rows of the source match the same row"):
            table.merge(twice, ["k"], **clauses)  # type: ignore[arg-type]

    assert stored_files(table) == before


def test_a_second_match_that_changes_nothing_is_allowed(tmp_path: Path) -> None:
    table = create_table(tmp_path, "append")

    table.merge(
        table_of("k v", [(5, "delete"), (5, "keep")]),
        ["k"],
        when_matched_delete="source.v = 'delete'",
    )

    assert [row[0] for row in rows_of(table)] == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_null_matches_nothing(tmp_path: Path) -> None:
    table = create_table(tmp_path, "append")
    table.append(table_of("k v n", [(None, "nobody", 0)]))

    table.merge(
        pa.table({"k": pa.nulls(1, pa.int64()), "v": ["x"], "n": [1]}),
        "target.k = source.k",
        when_matched_update="*",
        when_not_matched_insert="*",
    )

    assert rows_of(table)[:2] == [(None, "nobody", 0), (None, "x", 1)]


def test_a_star_takes_the_columns_of_a_frame_and_leaves_others_out(tmp_path: Path) -> None:
    table = create_table(tmp_path, "key")
    frame = pd.DataFrame({"n": [50, 0], "more": [1, 2], "v": ["five", "new"], "k": [5, 100]})

    table.merge(frame, "k", when_matched_update="*", when_not_matched_insert="*")

    assert rows_of(table)[5] == (5, "five", 50)
    assert rows_of(table)[-1] == (100, "new", 0)


def test_a_star_of_a_table_with_only_a_key_keeps_its_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT")
    table.upsert(table_of("k", [(1,)]))
    rows = table_of("k", [(1,), (2,)])

    table.merge(rows, ["k"], when_matched_update="*", when_not_matched_insert="*")

    assert rows_of(table) == [(1,), (2,)]


@pytest.mark.parametrize(
    "options", [{"partition_by": ("p",)}, {"bucket": "2", "bucket_key": "p"}], ids=str
)
def test_a_star_that_would_move_a_row_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    table = new_table(
        tmp_path, "k BIGINT, p STRING, n INT", **{"key": (), "bucket": "-1"} | options
    )
    table.append(table_of("k p n", [(1, "a", 1), (2, None, 2), (3, "b", 3)]))
    table.merge(table_of("k p n", [(1, "a", 5), (2, None, 6)]), ["k"], when_matched_update="*")
    before, moved = stored_files(table), table_of("k p n", [(3, "b", 7), (1, "b", 7)])

    with pytest.raises(
        InputError, match="the source's column 'p' is 'b' for a row with 'a', and p"
    ):
        table.merge(moved, ["k"], when_matched_update="*")
    assert stored_files(table) == before
    table.merge(moved, ["k"], when_matched_update="*", when_matched_delete="target.p = 'a'")

    assert rows_of(table) == [(2, None, 6), (3, "b", 7)]


def test_a_star_takes_equal_floating_point_values_as_unmoved(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "k BIGINT, p DOUBLE, n INT", key=(), partition_by=["p"], bucket="-1"
    )
    table.append(table_of("k p n", [(1, NAN, 1), (2, 0.0, 2), (3, None, 3)]))

    same = table_of("k p n", [(1, NAN, 5), (2, -0.0, 6), (3, None, 7)])
    table.merge(same, ["k"], when_matched_update="*")

    assert repr(rows_of(table)) == "[(1, nan, 5), (2, 0.0, 6), (3, None, 7)]"
    for moved in ((1, None, 8), (1, 1.0, 8), (2, NAN, 8), (3, NAN, 8)):
        with pytest.raises(InputError, match=r"p cannot be set"):
            table.merge(table_of("k p n", [moved]), ["k"], when_matched_update="*")


@pytest.mark.parametrize("key", [(), ("k",)], ids=["append", "key"])
def test_floating_point_keys_match_as_in_spark(tmp_path: Path, key: tuple[str, ...]) -> None:
    table = new_table(tmp_path, "k FLOAT, n INT", key=key, bucket="4" if key else "-1")
    write = table.upsert if key else table.append
    write(table_of("k n", [(0.0, 1), (NAN, 2), (0.1, 3), (0.5, 4), (None, 5)][: 4 if key else 5]))
    source = pa.table({"x": [-0.0, -NAN, 0.1, 0.5, None], "n": [10, 20, 30, 40, 50]})

    table.merge(source, "k = x", when_matched_update={"n": "source.n"})

    rows = {row for row in map(repr, rows_of(table)) if row != "(None, 5)"}
    assert rows == {"(0.0, 10)", "(0.10000000149011612, 3)", "(0.5, 40)", "(nan, 20)"}


@pytest.mark.parametrize("numbers", [[1], [1.0], [Decimal(1)], ["1"]], ids=str)
def test_numbers_and_text_match_a_floating_point_key(tmp_path: Path, numbers: list[Any]) -> None:
    table = new_table(tmp_path, "k DOUBLE, n INT", key=(), bucket="-1")
    table.append(table_of("k n", [(1.0, 1), (2.0, 2)]))

    table.merge(pa.table({"k": numbers}), ["k"], when_matched_delete="true")

    assert rows_of(table) == [(2.0, 2)]


def test_a_key_of_zeros_does_not_determine_the_bucket(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k DOUBLE, i INT", key=("k", "i"), bucket="2")

    assert can_get_matches(table.load().schema, {"k", "i"})


def test_keys_that_both_sides_have_many_times_need_no_pairs(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT", key=(), bucket="-1")
    table.append(table_of("k", [(1,)] * 5000))
    source = table_of("k", [*[(1,)] * 5000, (2,)])
    before = pa.default_memory_pool().max_memory()

    table.merge(source, ["k"], when_not_matched_insert="*")
    with pytest.raises(InputError, match="several rows of the source match the same row"):
        table.merge(source, ["k"], when_matched_update="*")

    # 25 million pairs need more
    assert pa.default_memory_pool().max_memory() < before + (100 << 20)
    assert table.scan().count() == 5001


@pytest.mark.parametrize("name", ["__paimon_row", "__paimon_kind", "__paimon_old_k"])
def test_columns_with_the_names_of_row_changes_are_refused(tmp_path: Path, name: str) -> None:
    table = new_table(tmp_path, f"k BIGINT, {name} INT", **{"merge-engine": "partial-update"})
    rows = table_of(f"k {name}", [(1, 1)])
    table.upsert(rows)

    with pytest.raises(UnsupportedError, match=f"'{name}' is not supported: changes of rows"):
        table.merge(rows, ["k"], when_matched_update="*")
    with pytest.raises(UnsupportedError, match=f"'{name}' is not supported: changes of rows"):
        table.update({name: 2})
    assert len(table.snapshots()) == 1


def test_columns_of_other_names_and_of_several_keys_match(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "dt DATE, id DECIMAL(10, 2), `a.b` STRING",
        key=("dt", "id"),
        partition_by=("dt",),
    )
    days = [date(2026, 1, day) for day in (1, 2)]
    rows = {"dt": [*days, days[0]], "id": [Decimal("1.50"), Decimal(2), Decimal(2)]}
    table.upsert(pa.table({**rows, "a.b": ["x", "y", "z"]}))

    table.merge(
        pa.table({"day": days, "amount": [1.5, 1.5], "a.b": ["new", "added"]}),
        "target.dt = source.day and (source.amount = id)",
        when_matched_update={"a.b": "source.`a.b`"},
        when_not_matched_insert={"dt": "day", "id": "amount", "a.b": "source.`a.b`"},
    )

    assert rows_of(table) == [
        (days[0], Decimal("1.50"), "new"),
        (days[0], Decimal("2.00"), "z"),
        (days[1], Decimal("1.50"), "added"),
        (days[1], Decimal("2.00"), "y"),
    ]


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("true", [5, 6, 7, 8]),
        ("source.n > target.n", [5, 6]),
        ("source.n <> target.n or source.n is null", [5, 6, 7]),
        ("not (source.n > target.n)", [8]),
        ("source.flag and target.v like 'o%'", [5, 7]),
        ("not flag", [6, 8]),
        ("k0 in (6, 7)", [6, 7]),
        ("day >= DATE '2026-01-03' and day < '2026-01-04'", [7]),
    ],
)
def test_conditions_of_deletes(tmp_path: Path, condition: str, keys: list[int]) -> None:
    table = create_table(tmp_path, "append")
    source = pa.table(
        {
            "k0": [5, 6, 7, 8],
            "n": [50, 7, None, 8],
            "flag": [True, False, True, False],
            "day": [date(2026, 1, day) for day in range(1, 5)],
        }
    )

    table.merge(source, "k = k0", when_matched_delete=condition)

    assert sorted(set(range(10)) - {row[0] for row in rows_of(table)}) == keys


@pytest.mark.parametrize(("condition", "keys"), CONDITIONS.items())
def test_conditions_compare_floating_point_numbers_as_spark_does(
    tmp_path: Path, condition: str, keys: list[int]
) -> None:
    table = create_numbers(tmp_path)

    table.merge(SOURCE, "k = id", when_matched_delete=condition)

    assert sorted(set(range(7)) - {row[0] for row in rows_of(table, columns=["k"])}) == keys


def test_a_merge_into_an_empty_table_and_of_an_empty_source(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    rows = table_of("k v", [(1, "a")])

    assert table.merge(rows.slice(0, 0), ["k"], when_not_matched_insert="*") is None
    table.merge(rows, ["k"], when_not_matched_insert="*")
    assert table.merge(rows, ["k"], when_not_matched_insert="*") is None
    table.merge(rows.slice(0, 0), ["k"], when_not_matched_by_source_delete="v = 'a'")

    assert (rows_of(table), len(table.snapshots())) == ([], 2)


def test_rows_keep_their_ids_and_new_rows_get_new_ids(tmp_path: Path) -> None:
    table = create_table(tmp_path, "row tracking")

    table.merge(
        table_of("k v n", [(3, "x", 0), (70, "y", 0)]),
        ["k"],
        when_matched_update="*",
        when_not_matched_insert="*",
    )

    rows = rows_of(table, columns=["k", "_ROW_ID"])
    assert (rows[3], rows[-1]) == ((3, 3), (70, 10))


def test_a_table_of_first_rows_only_takes_inserts(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"merge-engine": "first-row"})
    table.upsert(table_of("k v", [(1, "a")]))
    rows = table_of("k v", [(1, "x"), (2, "b")])

    with pytest.raises(UnsupportedError, match="'first-row'"):
        table.merge(rows, ["k"], when_matched_update="*", when_not_matched_insert="*")
    table.merge(rows, ["k"], when_not_matched_insert="*")

    assert rows_after_compaction(table) == [(1, "a"), (2, "b")]


UPDATE = {"when_matched_update": {"v": "source.v"}}
REFUSED: list[tuple[str, Any, dict[str, Any], type[Exception], str]] = [
    ("no clause", ["k"], {}, InputError, "requires an update, delete or insert clause"),
    ("no column", ["x"], UPDATE, NotFoundError, "no column 'source.x'; the columns are target.k"),
    ("empty", [], UPDATE, InputError, "on needs columns to match rows by"),
    ("number", 5, UPDATE, InputError, "on must be a list of names, such as"),
    ("inequality", "target.k < source.k", UPDATE, UnsupportedError, "Spark"),
    ("one side", "target.k = target.n", UPDATE, UnsupportedError, "target.COLUMN = source.COLUMN"),
    ("or", "target.k = source.k or true", UPDATE, UnsupportedError, "Spark"),
    ("ambiguous", "k = k", UPDATE, InputError, "write target.k or source.k"),
    ("other prefix", "t.k = s.k", UPDATE, InputError, "t.k is not a column: write target.COLUMN"),
    ("text key", "target.k = source.v", UPDATE, InputError, "on: the source's column 'v' is str"),
    ("number for text", "target.v = source.k", UPDATE, InputError, "int64, but column 'v' is text"),
    ("key column", ["k"], {"when_matched_update": {"k": "5"}}, InputError, "k cannot be set"),
    ("text", ["k"], {"when_matched_update": "v = 1"}, InputError, 'or "\\*" for all columns, not'),
    ("no value", ["k"], {"when_matched_update": {}}, InputError, "at least one column to set"),
    ("missing", ["k"], {"when_not_matched_insert": "*"}, InputError, "the source has no n; name"),
    ("function", ["k"], {"when_matched_update": {"v": "upper(source.v)"}}, UnsupportedError,
     "UPPER.* needs Spark"),
    ("unknown", ["k"], {"when_matched_update": {"v": "source.z"}}, InputError, "source.z"),
    ("target in an insert", ["k"], {"when_not_matched_insert": {"k": "target.k"}}, InputError,
     "no column 'target.k'"),
    ("flag", ["k"], {"when_matched_delete": True}, InputError, '"true" for all rows, not True'),
    ("condition", ["k"], {"when_matched_delete": "upper(source.v) = 'X'"}, InputError,
     "when_matched_delete: .*Other conditions need Spark"),
    ("text and number", ["k"], {"when_matched_delete": "source.v > target.n"}, InputError,
     "values of string and int32 cannot be compared"),
    ("value", ["k"], {"when_matched_update": {"n": "source.k * 1000000000000"}}, InputError,
     "column 'n'"),
    ("null key", ["k"], {"when_not_matched_insert": {"v": "source.v"}}, InputError,
     "column 'k' has 1 null values"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("on", "clauses", "kind", "message"), [x[1:] for x in REFUSED], ids=[x[0] for x in REFUSED]
)
def test_refused_merges_change_nothing(
    tmp_path: Path, on: Any, clauses: dict[str, Any], kind: type[Exception], message: str
) -> None:
    table = create_table(tmp_path, "key")
    before = stored_files(table)

    with pytest.raises(kind, match=message):
        table.merge(table_of("k v", [(5, "x"), (11, "y")]), on, **clauses)

    assert stored_files(table) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": (), "bucket": "-1", "row-tracking.enabled": "true",
          "data-evolution.enabled": "true"}, "deletion-vectors.enabled"),
        ({"merge-engine": "aggregation"}, "remove-record-on-delete"),
        ({"ignore-delete": "true"}, "ignores deletes"),
        ({"bucket": "-2"}, "postpone buckets"),
    ],
    ids=["data evolution", "aggregation", "ignore-delete", "postpone"],
)  # fmt: skip
def test_tables_that_cannot_delete_are_refused_by_name(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    key = options.get("key", ("k",))
    rest = {name: value for name, value in options.items() if name != "key"}
    table = new_table(tmp_path, key=key, **rest)
    table.append(table_of("k v", [(1, "a")]))

    with pytest.raises(UnsupportedError, match=message):
        table.merge(table_of("k v", [(1, "b")]), ["k"], when_not_matched_by_source_delete="true")
    assert len(table.snapshots()) == 1


@pytest.mark.parametrize("kind", ["key", "append", "append, vectors", "data evolution"])
def test_a_concurrently_inserted_row_is_updated_and_not_inserted_again(
    tmp_path: Path, kind: str
) -> None:
    table = create_table(tmp_path, kind)
    planned = plan_merge(
        table,
        table_of("k v", [(100, "merged")]),
        ["k"],
        when_matched_update={"v": "source.v", "n": "target.n + 1"},
        when_not_matched_insert={"k": "source.k", "v": "source.v"},
    )
    table.append(table_of("k v n", [(100, "raced", 5)]))

    result = planned.run()

    assert rows_of(table)[10:] == [(100, "merged", 6)]
    assert (result.updated, result.inserted, result.attempts) == (1, 0, 2)


@pytest.mark.parametrize("key", [("k", "p"), ("k",)])
def test_a_match_that_is_added_to_another_partition_is_updated(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    table = new_table(tmp_path, "k BIGINT, p STRING, n INT", key=key, partition_by=("p",))
    table.upsert(table_of("k p n", [(1, "a", 1)]))
    insert: dict[str, Any] = {"when_not_matched_insert": "*"}
    new = table_of("k p n", [(9, "b", 90)])
    planned = plan_merge(table, new, ["k"], when_matched_update={"n": "target.n + 1"}, **insert)
    table.upsert(table_of("k p n", [(9, "a", 5)]))

    result = planned.run()

    assert rows_of(table) == [(1, "a", 1), (9, "a", 6)]
    assert (result.updated, result.inserted, result.attempts) == (1, 0, 2)


@pytest.mark.parametrize(
    ("on", "columns"),
    [
        ("target.k = source.k and (source.x = target.p) and target.n < source.n", "k p"),
        ("Target.k = SOURCE.k", "k"),
        ("k = source.k", ""),
        ("target.k = target.p", ""),
        ("target.k = source.k or target.p = source.p", ""),
        ("target.k <=> source.k", ""),
        ("target.k = ", ""),
        (7, ""),
    ],
)
def test_only_equalities_of_columns_determine_the_bucket_of_a_match(
    on: object, columns: str
) -> None:
    assert find_matched_columns(on) == {*columns.split()}


def test_files_without_matching_keys_are_not_read(tmp_path: Path) -> None:
    table = create_table(tmp_path, "append")

    planned = plan_merge(table, table_of("k v", [(7, "x")]), ["k"], **UPDATE)  # type: ignore[arg-type]
    many = table_of("k v", [(k, "x") for k in range(5, 500)])

    assert len(planned.planned.files) == 1
    assert len(plan_merge(table, many, ["k"], **UPDATE).planned.files) == 1  # type: ignore[arg-type]


def test_a_preview_counts_rows_and_writes_nothing(tmp_path: Path) -> None:
    table = create_table(tmp_path, "key")
    before = stored_files(table)
    source = table_of("k v n", [(1, "a", 1), (2, None, 2), (30, "c", 3)])
    clauses: dict[str, Any] = {
        "when_matched_update": "*",
        "when_matched_delete": "source.v is null",
        "when_not_matched_insert": "*",
    }

    counted = plan_merge(table, source, ["k"], **clauses).preview()

    assert (counted.deleted, counted.updated, counted.inserted) == (1, 1, 1)
    assert stored_files(table) == before
    wrong = source.set_column(2, "n", [["x", "y", "z"]])
    with pytest.raises(PaimonError, match="cannot be stored"):
        plan_merge(table, wrong, ["k"], **clauses).preview()


def test_a_preview_refuses_rows_that_the_merge_engine_would_not_take(tmp_path: Path) -> None:
    table = create_table(tmp_path, "key, sequence")

    with pytest.raises(InputError, match="the old row would win"):
        plan_merge(table, table_of("k", [(5,)]), ["k"], when_matched_update={"n": 1}).preview()


Keys = st.integers(0, 6)
Target = st.lists(st.tuples(Keys, st.integers(0, 3)), max_size=8)
Source = st.lists(st.tuples(Keys | st.none(), st.integers(0, 3)), max_size=8)


def merge_in_model(rows: list[Row], source: list[Row], clauses: set[str]) -> list[Row] | None:
    """Return the rows after a merge, or None if two source rows change one row."""
    merged = list[Row]()
    for k, n in rows:
        matches = [m for key, m in source if key == k]
        changes = list[list[Row]]()
        for m in matches:
            if "delete" in clauses and m == 0:
                changes.append([])
            elif "update" in clauses:
                changes.append([(k, n + m)])
        if not matches and "delete unmatched" in clauses and n > 1:
            changes.append([])
        if len(changes) > 1:
            return None
        merged += changes[0] if changes else [(k, n)]
    if "insert" in clauses:
        merged += [row for row in source if row[0] not in {k for k, _ in rows}]
    return merged


@given(data=st.data())
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["key", "append", "append, vectors", "data evolution"])
def test_merges_of_random_rows_agree_with_a_model(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    target, source = data.draw(Target), data.draw(Source)
    names = ["update", "delete", "insert", "delete unmatched"]
    clauses = data.draw(st.sets(st.sampled_from(names), min_size=1))
    if kind == "key":  # of several new rows with one key, any may be written
        target, source = list(dict(target).items()), [x for x in source if x[0] is not None]
        source = source if "insert" not in clauses else list(dict(source).items())
    options = dict(KINDS[kind])
    key = options.pop("key", ("k",))
    table = new_table(tmp_path_factory.mktemp("w"), "k INT, n INT", key=key, **options)
    half = len(target) // 2
    schema = pa.schema([("k", pa.int32()), ("n", pa.int32())])
    for part in (target[:half], target[half:]):
        table.append(pa.Table.from_pylist([dict(zip("kn", x, strict=True)) for x in part], schema))
    rows = pa.Table.from_pylist([dict(zip("km", x, strict=True)) for x in source],
                                pa.schema([("k", pa.int64()), ("m", pa.int8())]))  # fmt: skip
    arguments = {
        "update": {"when_matched_update": {"n": "n + m"}},
        "delete": {"when_matched_delete": "m = 0"},
        "insert": {"when_not_matched_insert": {"k": "source.k", "n": "m"}},
        "delete unmatched": {"when_not_matched_by_source_delete": "n > 1"},
    }
    expected = merge_in_model(target, source, clauses)
    before = rows_of(table)
    given_clauses: Any = {}
    for name in clauses:
        given_clauses |= arguments[name]

    if expected is None:
        with pytest.raises(InputError, match="several rows of the source"):
            table.merge(rows, ["k"], **given_clauses)
        assert rows_of(table) == before
    else:
        table.merge(rows, ["k"], **given_clauses)
        assert rows_of(table) == sorted(expected, key=lambda x: (x[0] is not None, x))
        if table.snapshot() is not None:
            assert_healthy(table)
