"""Changes between two snapshots: delta, changelog and diff."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.damage import edit_snapshot
from support.golden import assert_rows_equal, canonical_rows, golden_tables, table_name
from support.tables import Row, new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CorruptFileError, InputError, NotFoundError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.table.scan.incremental_scan import find_range_between_times
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()


def _changelog_cases() -> Iterator[Any]:
    for name, folder, entry in golden_tables():
        for changelog in entry["changelogs"]:
            case = f"{name}/{changelog['snapshot']}"
            yield pytest.param(folder, entry, changelog, id=case)


CHANGELOGS = list(_changelog_cases())


@pytest.mark.parametrize(("folder", "entry", "changelog"), CHANGELOGS)
def test_a_changelog_has_the_rows_of_its_writer(
    folder: Path, entry: dict[str, Any], changelog: dict[str, Any]
) -> None:
    table = Catalog(str(folder / "warehouse")).table(table_name(entry))
    number = changelog["snapshot"]
    changes = table.incremental(number - 1, number, "changelog").to_arrow()
    types = [str(field.type) for field in changes.schema]
    assert_rows_equal(changelog["rows"], canonical_rows(changes), types)
    auto = table.incremental(number - 1, number).to_arrow()
    assert canonical_rows(auto) == canonical_rows(changes)


def _changes(table: Table, *args: Any, **kwargs: Any) -> list[Row]:
    changes = table.incremental(*args, **kwargs).to_arrow()
    return sorted(zip(*(column.to_pylist() for column in changes.columns), strict=True))


def _tag(table: Table, name: str) -> None:
    snapshot = table.snapshot()
    assert snapshot is not None
    table.io.create(f"{table.paths.tag_dir}/tag-{name}", snapshot.to_json())


@pytest.fixture(params=["", "deletion-vectors"])
def keyed(tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    """Return a primary-key table with snapshots 1 to 3, compacted after each write."""
    options = {"deletion_vectors__enabled": "true"} if request.param else {}
    table = new_table(tmp_path, "k BIGINT, v STRING, n INT", bucket="2", **options)
    writes = (
        [(1, "a", 1), (2, "b", None), (3, "c", 3)],
        [(2, "b", None), (3, "C", 3), (4, "d", None)],
    )
    for rows in writes:
        table.upsert(table_of("k v n", rows))
        _compact(table)
        _tag(table, f"t{writes.index(rows) + 1}")
    table.delete(table_of("k", [(1,)]))
    _compact(table)
    _tag(table, "t3")
    return table


def _compact(table: Table) -> None:
    step.compact(table, EXECUTOR, strategy="full")


def test_a_diff_returns_inserts_deletes_and_updates(keyed: Table) -> None:
    assert _changes(keyed, "t1", "t2") == [("+I", 4, "d", None), ("+U", 3, "C", 3)]
    assert _changes(keyed, "t2", "t3") == [("-D", 1, "a", 1)]
    expected = [("+I", 4, "d", None), ("+U", 3, "C", 3), ("-D", 1, "a", 1)]
    assert _changes(keyed, "t1", "t3") == expected
    first, last = keyed.stores.snapshots.tag("t1").id, keyed.stores.snapshots.tag("t3").id
    assert _changes(keyed, first, last, "diff") == expected


def test_a_diff_applies_columns_and_a_filter(keyed: Table) -> None:
    assert _changes(keyed, "t1", "t3", columns=["v"], filter="k > 3") == [("+I", "d")]
    assert _changes(keyed, "t1", "t3", columns=["k"], filter="v = 'C'") == [("+U", 3)]
    assert _changes(keyed, "t1", "t3", filter="k = 77") == []


def test_a_delta_returns_appended_rows(keyed: Table) -> None:
    first, last = keyed.stores.snapshots.tag("t1").id, keyed.stores.snapshots.tag("t3").id
    appended = [
        ("+I", 2, "b", None),
        ("+I", 3, "C", 3),
        ("+I", 4, "d", None),
        ("-D", 1, None, None),
    ]
    changes = _changes(keyed, first, last)
    assert sorted(changes, key=repr) == sorted(appended, key=repr)
    assert _changes(keyed, first, last, filter="k = 1", columns=["k"]) == [("-D", 1)]
    assert _changes(keyed, "t1", "t3", "delta", columns=["k"], filter="v = 'C'") == [("+I", 3)]


def test_there_are_no_changes_from_a_snapshot_to_itself(keyed: Table) -> None:
    for mode in ("auto", "delta", "changelog", "diff"):
        assert _changes(keyed, 2, 2, mode) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("start", "end", "mode", "error"),
    [
        (2, 1, "auto", InputError),
        ("t2", "t1", "diff", InputError),
        ("t1", 3, "auto", InputError),
        (1, 99, "delta", NotFoundError),
        (1, 99, "diff", NotFoundError),
        (1, 2, "both", InputError),
        ("t1", "t9", "auto", NotFoundError),
    ],
)
def test_an_invalid_range_is_refused(
    keyed: Table, start: Any, end: Any, mode: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        keyed.incremental(start, end, mode)


def test_delta_and_diff_of_append_tables_return_appended_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING", key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a"), (1, "a")]))
    table.append(table_of("k v", [(2, "b")]))
    assert _changes(table, 0, 2) == [("+I", 1, "a"), ("+I", 1, "a"), ("+I", 2, "b")]
    assert _changes(table, 1, 2, "diff") == [("+I", 2, "b")]
    assert _changes(table, 0, 2, filter="k > 1") == [("+I", 2, "b")]


def test_moved_rows_are_not_differences(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING", key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a"), (1, "a"), (2, "b")]))
    table.overwrite(table_of("k v", [(3, "c"), (2, "b"), (1, "a")]), {})
    assert _changes(table, 1, 2, "diff") == [("+I", 3, "c"), ("-D", 1, "a")]
    assert _changes(table, 1, 2, "delta") == []  # an OVERWRITE is not an append


@pytest.mark.parametrize("key", [("k",), ("p", "k")])
def test_a_diff_deletes_keys_of_dynamic_buckets_before_it_adds_them_in_other_buckets(
    tmp_path: Path, key: Sequence[str]
) -> None:
    partition_by = [name for name in key if name == "p"]
    options = {"bucket": "-1", "dynamic_bucket__target_row_num": "2"}
    table = new_table(tmp_path, "p INT, k BIGINT", key=key, partition_by=partition_by, **options)
    table.upsert(table_of("p k", [(1, k) for k in range(6)]))
    table.overwrite(table_of("p k", [(1, k) for k in reversed(range(6))]), {})

    applied = set(range(6))
    for row in table.incremental(1, 2, "diff").to_arrow().to_pylist():
        applied = applied - {row["k"]} if row["rowkind"] == "-D" else applied | {row["k"]}

    assert applied == set(range(6))
    moved = table.incremental(1, 2, "diff", columns=["k"], filter="k = 0").to_arrow()
    assert moved.to_pylist() == [{"rowkind": "-D", "k": 0}, {"rowkind": "+I", "k": 0}]


def test_the_changelog_of_an_expired_snapshot_is_read_if_retained(tmp_path: Path) -> None:
    table = new_table(tmp_path, changelog_producer="none")
    for k in (1, 2):
        table.upsert(table_of("k v", [(k, "x")]))
    retained = tmp_path / "db.db" / "t" / "changelog"
    retained.mkdir()
    (tmp_path / "db.db" / "t" / "snapshot" / "snapshot-1").rename(retained / "changelog-1")
    assert _changes(table, 0, 2, columns=["k"]) == [("+I", 1), ("+I", 2)]


def test_rows_are_returned_as_a_batch_reader(keyed: Table) -> None:
    changes = keyed.incremental("t1", "t2")
    reader = changes.to_reader()
    assert reader.schema == changes.arrow_schema
    assert reader.schema.names == ["rowkind", "k", "v", "n"]
    assert reader.schema.field("rowkind").type == pa.string()
    assert reader.read_all().num_rows == 2


def test_a_changelog_of_another_size_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, changelog_producer="input")
    table.upsert(table_of("k v", [(1, "a")]))
    path = Path(table.stores.snapshots.path(1))
    snapshot = json.loads(path.read_bytes())
    path.write_text(json.dumps(snapshot | {"changelogManifestListSize": 7}))

    with pytest.raises(
        CorruptFileError, match=rf"{snapshot['changelogManifestList']}: has .* not 7"
    ):
        _changes(table, 0, 1)


def _three_appends(tmp_path: Path, **options: str) -> Table:
    """Return a table with snapshots 1 to 3 and tags a (1) and b (3); each writes key 1."""
    table = new_table(tmp_path, "k BIGINT, v STRING", **options)
    for number, text in enumerate("xyz", 1):
        table.upsert(table_of("k v", [(1, text)]))
        if number != 2:
            _tag(table, "a" if number == 1 else "b")
    return table


def test_the_scan_mode_option_is_the_default_between_snapshot_ids_but_not_tags(
    tmp_path: Path,
) -> None:
    table = _three_appends(tmp_path, incremental_between_scan_mode="DIFF")
    assert _changes(table, 1, 3) == [("+U", 1, "z")]
    assert _changes(table, 1, 3, "delta") == [("+I", 1, "y"), ("+I", 1, "z")]
    assert _changes(table, "a", "b") == [("+U", 1, "z")]


def test_tags_are_resolved_to_snapshots_if_the_option_is_set(tmp_path: Path) -> None:
    table = _three_appends(tmp_path, incremental_between_tag_to_snapshot="true")
    assert _changes(table, "a", "b") == [("+I", 1, "y"), ("+I", 1, "z")]
    assert _changes(table, "a", "b", "diff") == [("+U", 1, "z")]


@pytest.mark.parametrize(
    ("times", "diff", "delta"),
    [
        ((0, 9_999), (2, 4), (1, 4)),
        ((1_999, 2_000), (2, 2), (1, 2)),
        ((2_000, 4_000), (2, 4), (2, 4)),
        ((2_999, 3_999), (2, 3), (2, 3)),
        ((4_000, 5_000), (4, 4), (4, 4)),
        ((0, 1_999), (1, 1), (1, 1)),
    ],
)
def test_a_range_of_times_begins_at_the_snapshot_before_it(
    tmp_path: Path, times: tuple[int, int], diff: tuple[int, int], delta: tuple[int, int]
) -> None:
    """A difference needs a snapshot at its start, so it begins at the earliest one."""
    table = new_table(tmp_path)
    for number in range(1, 5):
        table.upsert(table_of("k v", [(number, "a")]))
        edit_snapshot(table, number, time_millis=number * 1_000)
    expire_snapshots(table, retain_max=3, retain_min=3)
    store = table.stores.snapshots
    assert store.ids() == [2, 3, 4]

    for mode, expected in (("diff", diff), ("delta", delta), ("auto", delta)):
        start, end, _ = find_range_between_times(store, *times, mode, table.load().schema)
        assert (start, end) == expected
    with pytest.raises(InputError, match="is after the last"):
        find_range_between_times(store, times[1] + 1, times[1], "auto", table.load().schema)


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_diff_from_before_the_first_snapshot_has_its_rows(tmp_path: Path, vectors: str) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled=vectors)
    for number in (1, 2):
        table.upsert(table_of("k v", [(number, "a")]))
    first = table.stores.snapshots.get(1).time_millis

    start, end, _ = find_range_between_times(
        table.stores.snapshots, first - 1, first + 10**9, "diff", table.load().schema
    )

    assert (start, end) == (0, 2)
    assert _changes(table, start, end, "diff") == [("+I", 1, "a"), ("+I", 2, "a")]
    assert _changes(table, 1, 2, "diff") == [("+I", 2, "a")]


def test_the_error_for_an_unknown_mode_names_the_option(tmp_path: Path) -> None:
    table = _three_appends(tmp_path)
    path = Path(table.stores.schemas.path(0))
    schema = json.loads(path.read_text())
    schema["options"]["incremental-between-scan-mode"] = "sometimes"
    path.write_text(json.dumps(schema))
    with pytest.raises(InputError, match=r"incremental-between-scan-mode.*sometimes"):
        table.incremental(1, 3)
