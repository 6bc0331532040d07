"""Values that were accepted in silence, or ended in an error of Python: one sentence for each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.tables import catalog_of, new_table, table_of

from paimon_orch import AddColumn, CommitId, DropColumn, InputError, SetOption
from paimon_orch import steps as typed_steps
from paimon_orch.steps.row_level.delete import DeleteRequest
from paimon_orch.table.table import Table

steps: Any = typed_steps  # so that wrong types can be passed
ROWS = pa.table({"k": [1], "v": ["x"]})


def open_catalog(table: Table) -> Any:
    return catalog_of(table)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(tmp_path)
    for text in "ab":
        created.upsert(table_of("k v", [(1, text)]))
    return created


WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda t: t.scan(limit=-1), "limit must be at least 0, not -1"),
    (lambda t: t.history(-1), "limit must be at least 0, not -1"),
    (lambda t: t.scan(order_by=""), "order_by names no column; write for example 'price desc, id'"),
    (lambda t: t.scan(order_by=[]), "order_by names no column"),
    (lambda t: t.scan(merge_level_0="no"), "merge_level_0 must be True or False, not 'no'"),
    (lambda t: t.incremental(1, 2, merge_level_0=1), "merge_level_0 must be True or False, not 1"),
    (lambda t: t.allow(stale_external="no"), "stale_external must be True or False, not 'no'"),
    (lambda t: t.allow(unknown_options="no"), "unknown_options must be True or False, not 'no'"),
    (lambda t: t.files(5), "snapshot must be a snapshot, such as table.snapshot(5), not 5"),
    (lambda t: t.compact(strategy="big"), "strategy is 'big', but must be minor or full"),
    (lambda t: t.compact(strategy=1), "strategy is 1, but must be minor or full"),
    (lambda t: t.compact(where=1), "where is 1, but must be a text"),
    (lambda t: t.upsert(ROWS, row_kind=1), "row_kind must be text, such as 'op', not 1"),
    (lambda t: t.upsert(ROWS, commit_id="a"), "commit_id must be a CommitId, such as CommitId('n"),
    (lambda _: CommitId("a", "b"), "the identifier of a commit must be a whole number"),  # type: ignore[arg-type]
    (lambda _: CommitId("a", None), "must be a whole number, not None"),  # type: ignore[arg-type]
    (lambda _: CommitId(5, 1), "the user of a commit must be text"),  # type: ignore[arg-type]
    (lambda t: t.tags.create("a", "1"), "snapshot_id must be a whole number, such as 5, not '1'"),
    (lambda t: t.tags.get(5), "a tag name must be text, such as '2026-01-31', not 5"),
    (lambda t: t.tags.delete(5), "a tag name must be text"),
    (lambda t: t.branches.create(5), "a branch name must be text, such as 'test', not 5"),
    (lambda t: t.branches.delete(5), "a branch name must be text"),
    (lambda t: t.branches.fast_forward(5), "a branch name must be text"),
    (lambda t: steps.expire_snapshots(t, retain_max="1"), "retain_max is '1', but must be a whole numb"),
    (lambda t: steps.expire_snapshots(t, retain_min=1.5), "retain_min is 1.5, but must be a whole numbe"),
    (lambda t: steps.expire_snapshots(t, older_than=True), "older_than True is not a point in time"),
    (lambda t: steps.expire_snapshots(t, older_than=-1), "older_than -1 is before 1970"),
    (lambda t: steps.expire_tags(t, older_than=-1), "older_than -1 is before 1970"),
    (lambda t: steps.remove_orphan_files(t, older_than=True), "older_than True is not a point in time"),
    (lambda t: steps.remove_orphan_files(t, older_than=-1), "older_than -1 is before 1970"),
    (lambda t: steps.rescale(t, "2"), "bucket_num is '2', but must be a whole number"),
    (lambda t: steps.analyze(t, columns="kv"), "columns is 'kv', but must be a list: write ['kv']"),
    (lambda t: steps.mark_done(t, "dt=1"), "partitions is 'dt=1', but must be a list: write ['dt=1']"),
    (lambda t: steps.mark_done(t, 5), "partitions is 5, but must be a list"),
    (lambda t: steps.analyze(t, columns=[1]), "columns is [1], but must be a list, each of a text"),
    (lambda t: steps.repair(t, ["snapshot-gap", 1]), "rules is ['snapshot-gap', 1], but must be a list, each of a text"),
    (lambda _: DeleteRequest(where=None), "where is None, but must be a text"),  # type: ignore[arg-type]
    (lambda t: steps.update(t, {"v": "'x'"}, 1), "where is 1, but must be a text or an object"),
    (lambda t: open_catalog(t).drop_table(None), "a table name must be text"),
    (lambda t: open_catalog(t).rename_table("db.t", 5), "a table name must be text"),
    (lambda t: open_catalog(t).create_database(5), "a database name must be text, such as 'sales'"),
    (lambda t: open_catalog(t).alter_table("db.t", [AddColumn(column=5, type="INT")]),  # type: ignore[arg-type]
     "a path of a column must be a list of names, such as ['id'], not 5"),
    (lambda t: open_catalog(t).alter_table("db.t", [DropColumn(5)]),  # type: ignore[arg-type]
     "a path of a column must be a list of names"),
    (lambda _: SetOption("bucket", None), "option 'bucket' must be text or a number, not None"),  # type: ignore[arg-type]
    (lambda _: SetOption(1, "2"), "the name of an option must be text"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_value_is_refused(
    table: Table, call: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        call(table)

    assert message in str(caught.value)
    assert table.snapshots()[-1].id == 2


def test_numbers_of_numpy_and_of_options_are_taken(table: Table) -> None:
    import numpy as np

    steps.expire_snapshots(table, retain_max=np.int64(1), retain_min=np.int32(1))
    schema = catalog_of(table).alter_table("db.t", [SetOption("num-levels", 7)])  # type: ignore[arg-type]

    assert schema.options["num-levels"] == "7"
    assert table.history(0) == []
