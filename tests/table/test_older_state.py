"""Rollbacks to snapshots whose files have other rows under the newest options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.tables import catalog_of, new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog, Table
from paimon_orch.errors import InputError
from paimon_orch.steps import compact
from paimon_orch.steps.maintenance.rollback_as_latest import rollback_as_latest
from paimon_orch.table.schema_change.schema_changes import SetOption, UpdateType


def create_switched_table(root: Path, key: str, value: str) -> Table:
    """Create a table whose snapshots 1 and 2 are to merge and 3 is not; then change an option."""
    catalog = Catalog(str(root))
    options = {"bucket": "1", "deletion-vectors.modifiable": "true"}
    table = catalog.create_table("db.t", "k BIGINT, v BIGINT", primary_key=["k"], options=options)
    for number in range(2):
        table.append(table_of("k v", [(1, number), (2, number)]))
    compact(table, strategy="full")
    catalog.alter_table("db.t", [SetOption(key, value)])
    return catalog.table("db.t")


@pytest.mark.parametrize("roll_back", [Table.rollback, rollback_as_latest])
@pytest.mark.parametrize(
    ("key", "value"), [("deletion-vectors.enabled", "true"), ("sequence.field", "v")]
)
def test_a_rollback_to_rows_to_merge_is_refused_after_an_option_changed(
    tmp_path: Path, roll_back: Callable[[Table, int], object], key: str, value: str
) -> None:
    table = create_switched_table(tmp_path, key, value)
    before = stored_files(table)

    with pytest.raises(InputError, match=f"option '{key}' has changed since snapshot 2"):
        roll_back(table, 2)

    assert stored_files(table) == before


@pytest.mark.parametrize("roll_back", [Table.rollback, rollback_as_latest])
def test_a_compacted_snapshot_is_rolled_back_to_after_vectors_were_enabled(
    tmp_path: Path, roll_back: Callable[[Table, int], object]
) -> None:
    table = create_switched_table(tmp_path, "deletion-vectors.enabled", "true")
    table.append(table_of("k v", [(3, 3)]))

    roll_back(table, 3)

    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [1, 1]


@pytest.mark.parametrize(
    ("options", "older_type", "newer_type"),
    [
        ({"sequence.field": "s"}, "STRING", "INT"),
        ({"sequence.field": "s"}, "INT", "STRING"),
        ({"sequence.field": "s"}, "BIGINT", "INT"),
        ({"merge-engine": "aggregation", "fields.s.aggregate-function": "max"}, "STRING", "INT"),
        ({"merge-engine": "partial-update", "fields.s.sequence-group": "v"}, "STRING", "INT"),
    ],
)
def test_a_return_to_rows_to_merge_is_refused_after_their_order_changed(
    tmp_path: Path, options: dict[str, str], older_type: str, newer_type: str
) -> None:
    table = create_retyped_table(tmp_path, options, older_type, newer_type)
    before = stored_files(table)

    for roll_back in (Table.rollback, rollback_as_latest):
        with pytest.raises(InputError, match="the type of column 's', by which rows are merged"):
            roll_back(table, 2)
    with pytest.raises(InputError, match="merged by column 's', whose type has changed"):
        table.incremental(2, 3, mode="diff").to_arrow()

    assert stored_files(table) == before
    assert table.scan(snapshot_id=2).to_arrow().num_rows == 1


@pytest.mark.parametrize(
    ("older_type", "newer_type"), [("INT", "BIGINT"), ("VARCHAR(9)", "STRING")]
)
def test_wider_types_keep_the_order_of_older_rows(
    tmp_path: Path, older_type: str, newer_type: str
) -> None:
    table = create_retyped_table(tmp_path, {"sequence.field": "s"}, older_type, newer_type)
    older = table.scan(snapshot_id=2).to_arrow().to_pylist()

    changes = table.incremental(2, 3, mode="diff").to_arrow()
    table.rollback(2)

    assert changes.num_rows == 0
    assert table.scan().to_arrow().to_pylist() == older


def test_a_return_to_files_that_the_newest_types_cannot_read_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v BOOLEAN")
    table.append(table_of("k v", [(1, True)]))
    catalog = catalog_of(table)
    catalog.alter_table("db.t", [UpdateType("v", "STRING")])
    table.overwrite(table_of("k v", [(1, "2026-01-01")]))
    catalog.alter_table("db.t", [UpdateType("v", "DATE")])
    rows, before = rows_of(table), stored_files(table)

    for roll_back in (Table.rollback, rollback_as_latest):
        with pytest.raises(InputError, match="'v' as BOOLEAN, which cannot be cast to DATE"):
            roll_back(table, 1)

    assert stored_files(table) == before
    assert rows_of(table) == rows


def create_retyped_table(
    root: Path, options: dict[str, str], older_type: str, newer_type: str
) -> Table:
    """Create a table with two rows to merge in snapshot 2; then change the type of a column."""
    catalog = Catalog(str(root))
    table = catalog.create_table(
        "db.t", f"k BIGINT, v BIGINT, s {older_type}", primary_key=["k"],
        options={"bucket": "1", "alter-column-null-to-not-null.disabled": "false"} | options,
    )  # fmt: skip
    for value in (9, 10):
        text = value if older_type.endswith("INT") else str(value)
        table.append(table_of("k v s", [(1, value, text)]))
    catalog.alter_table("db.t", [UpdateType(("s",), newer_type)])
    table = catalog.table("db.t")
    compact(table, strategy="full")
    return table


def test_the_advice_of_a_refused_rollback_works(tmp_path: Path) -> None:
    table = create_switched_table(tmp_path, "deletion-vectors.enabled", "true")
    catalog = Catalog(str(tmp_path))

    catalog.alter_table("db.t", [SetOption("deletion-vectors.enabled", "false")])
    table = catalog.table("db.t")
    table.rollback(2)

    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "v": 1}, {"k": 2, "v": 1}]
