"""Invalid options of primary-key tables are refused on creation and on change."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import assert_healthy, deletion_vectors_of, levels_of, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.schema_change.schema_changes import ResetOption, SetOption
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
COLUMNS = (
    "k INT, p INT, v INT, w INT, s INT, f STRING, at STRING, ok BOOLEAN, b BYTES, m MAP<INT, INT>, "
    "rows ARRAY<ROW<x INT, y STRING>>, ts MAP<INT, ROW<x INT, t STRING>>, list ARRAY<INT>, c VARCHAR(9)"
)
VECTORS = {"deletion-vectors.enabled": "true"}
AGGREGATION = {"merge-engine": "aggregation"}
PARTIAL = {"merge-engine": "partial-update"}
FIRST_ROW = {"merge-engine": "first-row"}
LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction"}


def function(column: str, name: str, **more: str) -> dict[str, str]:
    options = {key.replace("_", "-"): value for key, value in more.items()} | {
        "aggregate-function": name
    }
    return AGGREGATION | {f"fields.{column}.{key}": value for key, value in options.items()}


REFUSED: list[tuple[dict[str, str], str]] = [
    (
        VECTORS | FULL,
        "deletion vectors cannot be combined with 'changelog-producer' = 'full-compaction'",
    ),
    (VECTORS | FIRST_ROW, "deletion vectors cannot be combined with 'merge-engine' = 'first-row'"),
    (FIRST_ROW | FULL, "first-row' allows only 'changelog-producer' = none or lookup"),
    (FIRST_ROW | {"changelog-producer": "input"}, "= none or lookup"),
    (FIRST_ROW | {"sequence.field": "v"}, "cannot be combined with first-row"),
    ({"merge-engine": "magic"}, "'magic' is not a merge engine"),
    ({"changelog-producer": "gossip"}, "'gossip' is not a changelog producer"),
    ({"sequence.field.sort-order": "random"}, "'random' is not a sort order"),
    (
        {"lookup-compact": "harsh"},
        "'harsh' is not a lookup compaction mode; use one of: radical, gentle",
    ),
    ({"sequence.field": "v,v"}, "names a column twice"),
    ({"sequence.field": "missing"}, "names the column 'missing'"),
    (AGGREGATION | {"sequence.field": "v", "fields.v.aggregate-function": "sum"}, "cannot have"),
    (LOOKUP | {"streaming-read-overwrite": "true"}, "changes would be read twice"),
    (FULL | {"streaming-read-overwrite": "true"}, "changes would be read twice"),
    (LOOKUP | {"full-compaction.delta-commits": "3"}, "cannot be combined with"),
    (
        {"sequence.snapshot-ordering": "true", "write-only": "true", "sequence.field": "v"},
        "cannot be combined with 'sequence.field'",
    ),
    ({"sequence.snapshot-ordering": "true"}, "needs a primary key and 'write-only'"),
    (
        PARTIAL | {"ignore-delete": "true", "partial-update.remove-record-on-delete": "true"},
        "drops",
    ),
    (
        PARTIAL
        | {"partial-update.ignore-delete": "true", "fields.s.sequence-group": "v"}
        | {"partial-update.remove-record-on-sequence-group": "s"},
        "cannot be combined with 'ignore-delete'",
    ),
    (
        PARTIAL
        | {"fields.s.sequence-group": "v", "partial-update.remove-record-on-delete": "true"},
        "cannot be combined with sequence groups",
    ),
    (PARTIAL | {"fields.s.sequence-group": "k"}, "'k' belongs to the primary key"),
    (PARTIAL | {"fields.k.sequence-group": "v"}, "'k' belongs to the primary key"),
    (PARTIAL | {"fields.s.sequence-group": "missing"}, "'missing'"),
    (PARTIAL | {"fields.s.sequence-group": "v", "fields.w.sequence-group": "v"}, "in two sequence"),
    (PARTIAL | {"fields.s.sequence-group": "v", "fields.v.sequence-group": "w"}, "in two sequence"),
    (
        PARTIAL
        | {"fields.s.sequence-group": "v"}
        | {"partial-update.remove-record-on-sequence-group": "v"},
        "names v, which is not a sequence field",
    ),
    (PARTIAL | {"fields.v.aggregate-function": "sum"}, "'sum' needs a sequence group"),
    (
        function("v", "sum", ignore_retract="true")
        | {"aggregation.remove-record-on-delete": "true"},
        "ignore-retract' cannot be combined with",
    ),
    (function("v", "mean"), "'mean' is not an aggregate function; the functions are"),
    (function("f", "sum"), "takes a number, not STRING"),
    (function("ok", "product"), "takes a number, not BOOLEAN"),
    (function("list", "max"), "takes a comparable type"),
    (function("v", "bool_and"), "takes BOOLEAN, not INT"),
    (function("f", "rbm32"), "takes VARBINARY"),
    (function("v", "hll_sketch"), "takes VARBINARY"),
    (function("c", "listagg"), "takes STRING, not VARCHAR"),
    (function("v", "collect"), "takes an ARRAY"),
    (function("list", "merge_map"), "takes a MAP"),
    (function("m", "merge_map_with_keytime"), "takes a MAP of ROWs"),
    (
        function("ts", "merge_map_with_keytime", ts_field="u"),
        "is not a field of the rows; the fields are x",
    ),
    (function("list", "nested_update"), "takes an ARRAY of ROWs"),
    (function("rows", "nested_update", nested_key="z"), "z is not a field"),
    (function("rows", "nested_update", nested_sequence_field="x"), "need 'fields.rows.nested-key'"),
    (function("rows", "nested_partial_update"), "needs 'fields.rows.nested-key'"),
    (
        function("rows", "nested_update", nested_key="x", nested_key_null_strategy="guess"),
        "must be merge, ignore or error",
    ),
    ({"record-level.expire-time": "1 h"}, "needs 'record-level.time-field'"),
    ({"record-level.expire-time": "1 h", "record-level.time-field": "f"}, "must be INT, BIGINT"),
    ({"record-level.time-field": "f"}, "names 'f' of type STRING, which must be INT, BIGINT"),
    ({"record-level.time-field": "missing"}, "names the column 'missing'"),
    ({"pk-clustering-override": "true"}, "needs 'clustering.columns'"),
    (
        {"pk-clustering-override": "true", "clustering.columns": "v"},
        "needs 'deletion-vectors.enabled'",
    ),
    (
        VECTORS
        | {"pk-clustering-override": "true", "clustering.columns": "v", "sequence.field": "s"},
        "cannot be combined with 'sequence.field'",
    ),
    ({"pk-btree.index.columns": "v"}, "needs 'deletion-vectors.enabled'"),
    (
        VECTORS
        | {
            "pk-bitmap.index.columns": "v",
            "pk-clustering-override": "true",
            "clustering.columns": "v",
        },
        "cannot be combined with 'pk-clustering-override'",
    ),
    (
        VECTORS | {"pk-btree.index.columns": "v", "pk-bitmap.index.columns": "w,v"},
        "one index only",
    ),
    (VECTORS | {"pk-btree.index.columns": "z"}, "names the column 'z'"),
    ({"num-levels": "1"}, "must be at least 2"),
    ({"compaction.delete-ratio-threshold": "2"}, "must be from 0 to 1"),
    ({"compaction.delete-ratio-threshold": "half"}, "must be a number"),
    ({"compaction.optimization-interval": "often"}, "cannot be parsed"),
    ({"changelog.num-retained.max": "3"}, "must not be above 'changelog.num-retained.max'"),
    (LOOKUP | {"changelog-producer.row-deduplicate-ignore-fields": "z"}, "names the column 'z'"),
]


def catalog_of(root: Path) -> Catalog:
    return Catalog(str(root))


@pytest.mark.parametrize(("options", "rule"), REFUSED)
def test_creating_a_table_that_breaks_a_rule_is_refused(
    tmp_path: Path, options: dict[str, str], rule: str
) -> None:
    catalog = catalog_of(tmp_path)

    with pytest.raises(InputError, match=rule):
        catalog.create_table("db.t", COLUMNS, primary_key=["k"], options=options)
    assert not list(tmp_path.rglob("schema-0"))


@pytest.mark.parametrize(("options", "rule"), REFUSED)
def test_altering_a_table_so_that_it_breaks_a_rule_is_refused(
    tmp_path: Path, options: dict[str, str], rule: str
) -> None:
    catalog = catalog_of(tmp_path)
    table = catalog.create_table("db.t", COLUMNS, primary_key=["k"])

    with pytest.raises(InputError, match=rule):
        catalog.alter_table("db.t", [SetOption(*option) for option in options.items()])
    assert table.stores.schemas.ids() == [0]


def test_append_tables_have_no_changelog(tmp_path: Path) -> None:
    for options, rule in [
        (LOOKUP, "append tables have no changelog"),
        ({"streaming-read-overwrite": "true"}, "streaming-read-append-overwrite"),
        ({"full-compaction.delta-commits": "2"}, "needs a primary key or a fixed 'bucket'"),
    ]:
        with pytest.raises(InputError, match=rule):
            catalog_of(tmp_path).create_table("db.t", COLUMNS, options=options)


def create_table_with_key(root: Path, **options: str) -> Table:
    named = {
        "bucket": "1",
        **{k.replace("__", ".").replace("_", "-"): v for k, v in options.items()},
    }
    return catalog_of(root).create_table("db.t", "k INT, v INT", primary_key=["k"], options=named)


def switch_deletion_vectors(table: Table, value: str) -> Table:
    catalog = catalog_of(Path(table.paths.root).parents[1])
    catalog.alter_table("db.t", [SetOption("deletion-vectors.enabled", value)])
    return catalog.table("db.t")


@pytest.mark.slow
def test_deletion_vectors_are_enabled_and_disabled_after_a_full_compaction(tmp_path: Path) -> None:
    table = create_table_with_key(tmp_path, deletion_vectors__modifiable="true")
    expected: dict[int, int] = {}
    for turn, value in enumerate(["true", "false", "true"]):
        for step in range(2):
            rows = [(k, 100 * turn + 10 * step + k) for k in range(step, 8)]
            table.upsert(table_of("k v", rows))
            expected |= dict(rows)
            compact(table, EXECUTOR)
        table.delete(table_of("k", [(turn,)]))
        del expected[turn]
        compact(table, EXECUTOR)

        compact(table, EXECUTOR, strategy="full")
        assert rows_of(table) == sorted(expected.items())
        table = switch_deletion_vectors(table, value)
        assert rows_of(table) == sorted(expected.items())
        assert deletion_vectors_of(table) == {}


def test_deletion_vectors_are_not_enabled_while_rows_are_not_merged(tmp_path: Path) -> None:
    table = create_table_with_key(tmp_path, deletion_vectors__modifiable="true")
    table.upsert(table_of("k v", [(1, 1)]))

    with pytest.raises(InputError, match="after a full compaction"):
        switch_deletion_vectors(table, "true")


def test_deletion_vectors_are_not_disabled_while_they_delete_rows(tmp_path: Path) -> None:
    table = create_table_with_key(
        tmp_path, deletion_vectors__modifiable="true", deletion_vectors__enabled="true"
    )
    table.upsert(table_of("k v", [(k, k) for k in range(9)]))
    compact(table, EXECUTOR)
    table.delete(table_of("k", [(1,)]))
    compact(table, EXECUTOR)
    assert levels_of(table) == [5]

    with pytest.raises(InputError, match=r"bucket 0 of db\.t has rows to merge or deletion"):
        catalog_of(tmp_path).alter_table("db.t", [ResetOption("deletion-vectors.enabled")])


@pytest.mark.parametrize("value", ["true", "false"])
def test_the_deletion_vectors_option_of_a_table_with_rows_changes_only_if_it_is_modifiable(
    tmp_path: Path, value: str
) -> None:
    table = create_table_with_key(
        tmp_path, deletion_vectors__enabled="false" if value == "true" else "true"
    )
    table.upsert(table_of("k v", [(1, 1)]))
    compact(table, EXECUTOR, strategy="full")

    with pytest.raises(InputError, match=r"deletion-vectors\.modifiable"):
        switch_deletion_vectors(table, value)


def test_deletion_vectors_of_both_widths_are_read_after_the_option_changes(tmp_path: Path) -> None:
    table = create_table_with_key(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(k, k) for k in range(30)]))
    compact(table, EXECUTOR)
    for turn, wide in enumerate(["true", "false", "true"]):
        table.delete(table_of("k", [(turn,)]))
        compact(table, EXECUTOR)
        catalog_of(tmp_path).alter_table("db.t", [SetOption("deletion-vectors.bitmap64", wide)])
        table = catalog_of(tmp_path).table("db.t")

        assert rows_of(table) == [(k, k) for k in range(turn + 1, 30)]
        assert_healthy(table)
