"""Commits through a real server while requests, answers and connections get lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.catalogs.rest_proxy import (
    CUT_AFTER,
    CUT_BEFORE,
    Fault,
    ProxiedRequest,
    RestProxy,
    answer_after,
    answer_before,
)
from support.catalogs.rest_server import JAVA_2_0, PYPAIMON_1_4
from support.histories import unreferenced_files
from support.steps import commit_plan, run_units
from support.tables import rows_of, stored_files, table_of

from paimon_orch import (
    AccessDeniedError,
    Catalog,
    CatalogUnavailableError,
    CommitConflictError,
    CommitId,
    CommitOutcomeUnknownError,
    InputError,
    NotFoundError,
    PaimonError,
    UnsupportedError,
)
from paimon_orch.steps.compaction.compact import COMPACT, CompactRequest, commit
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

NIGHTLY = CommitId("nightly", 7)
FULL = CompactRequest(strategy="full")


@pytest.fixture
def table(proxy: RestProxy) -> Table:
    """`db.t` with the key 1 and two files in its two snapshots."""
    table = create_table(proxy)
    for text in ("old", "v"):
        table.upsert(rows(1, text=text))
    return table


def create_table(proxy: RestProxy, **options: str) -> Table:
    catalog = Catalog(**proxy.options)
    columns, key = "k INT NOT NULL, v STRING", ["k"]
    return catalog.create_table("db.t", columns, primary_key=key, options={"bucket": "1"} | options)


def rows(*keys: int, text: str = "v") -> pa.Table:
    return table_of("k v", [(key, f"{text}{key}") for key in keys])


def upsert(table: Table) -> object:
    return table.upsert(rows(2))


def upsert_once(table: Table) -> object:
    return table.upsert(rows(2), commit_id=NIGHTLY)


def compact_fully(table: Table) -> object:
    return commit_plan(COMPACT, table, COMPACT.plan(table, FULL))


CHANGES: dict[Callable[[Table], object], list[tuple[int, str]]] = {
    upsert: [(1, "v1"), (2, "v2")],
    upsert_once: [(1, "v1"), (2, "v2")],
    compact_fully: [(1, "v1")],
}
on_both_servers = pytest.mark.parametrize(
    ("served", "change"),
    [*((JAVA_2_0, change) for change in CHANGES), (PYPAIMON_1_4, upsert_once)],
    indirect=["served"],
)
every_change = pytest.mark.parametrize("change", CHANGES)

REFUSALS: list[tuple[list[Fault], type[PaimonError]]] = [
    ([answer_before(400)], InputError),
    ([answer_before(401)], AccessDeniedError),
    ([answer_before(403)], AccessDeniedError),
    ([answer_before(404)], NotFoundError),
    ([answer_before(405)], UnsupportedError),
    ([answer_before(501)], UnsupportedError),
    ([answer_before(429)] * 3, CatalogUnavailableError),
]


@every_change
@pytest.mark.parametrize(("faults", "error"), REFUSALS)
def test_a_refused_commit_changes_nothing_and_leaves_no_files(
    proxy: RestProxy,
    table: Table,
    faults: list[Fault],
    error: type[PaimonError],
    change: Callable[[Table], object],
) -> None:
    before = stored_files(table)
    proxy.inject("POST commit", *faults)

    with proxy.count() as requests, pytest.raises(error):
        change(table)

    assert requests["POST commit"] == len(faults)
    assert stored_files(table) == before
    assert rows_of(table) == [(1, "v1")]
    change(table)
    assert_committed_once(table, change)


def assert_committed_once(table: Table, change: Callable[[Table], object]) -> None:
    """Check that the third snapshot is the change, and that nothing was committed after it."""
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.id == 3
    assert rows_of(table) == CHANGES[change]
    assert check(table, deep=True).findings == ()


LOST_ANSWERS = [
    CUT_AFTER,
    answer_after(500),
    answer_after(502),
    answer_after(503),
    answer_after(504),
    Fault(forward=True, status=200, body=b"<html>"),
    Fault(forward=True, status=200, body=b""),
    Fault(forward=True, status=200, body={"success": None}),
]


@on_both_servers
@pytest.mark.parametrize("fault", LOST_ANSWERS)
def test_a_commit_whose_answer_is_lost_is_not_repeated(
    proxy: RestProxy, table: Table, fault: Fault, change: Callable[[Table], object]
) -> None:
    proxy.inject("POST commit", fault)

    with proxy.count() as requests:
        change(table)

    assert requests["POST commit"] == 1
    assert_committed_once(table, change)
    assert unreferenced_files(table) == set()


@every_change
@pytest.mark.parametrize("fault", [CUT_BEFORE, answer_before(500), answer_before(503)])
def test_a_commit_that_did_not_arrive_is_repeated(
    proxy: RestProxy, table: Table, fault: Fault, change: Callable[[Table], object]
) -> None:
    proxy.inject("POST commit", fault, fault)

    with proxy.count() as requests:
        change(table)

    assert requests["POST commit"] == 3
    assert_committed_once(table, change)


def test_a_conflict_and_an_overloaded_server_are_retried(proxy: RestProxy, table: Table) -> None:
    faults = [answer_before(429, Retry_After="0"), answer_before(409), answer_before(429)]
    proxy.inject("POST commit", *faults)
    upsert(table)
    assert_committed_once(table, upsert)
    assert unreferenced_files(table) == set()


@every_change
@pytest.mark.parametrize("fault", [CUT_BEFORE, answer_before(500), answer_before(503)])
def test_no_file_is_deleted_if_the_outcome_remains_unknown(
    proxy: RestProxy, table: Table, fault: Fault, change: Callable[[Table], object]
) -> None:
    before = stored_files(table)
    proxy.inject("POST commit", fault, fault, fault)

    with pytest.raises(CommitOutcomeUnknownError, match="No file was deleted"):
        change(table)

    assert rows_of(table) == [(1, "v1")]
    new = {Path(path).parent.name for path in stored_files(table) - before}
    assert new == {"bucket-0", "manifest"}
    change(table)
    assert_committed_once(table, change)


NOT_READABLE: list[list[Fault]] = [
    [answer_before(401)],
    [answer_before(403)],
    [answer_before(429)] * 3,
    [answer_before(503)] * 3,
    [Fault(status=200, body=b"<html>")],
    [Fault(status=200, body={"snapshot": {"id": 3}})],
]


@pytest.mark.parametrize("change", [upsert_once, compact_fully])
@pytest.mark.parametrize("faults", NOT_READABLE)
def test_a_commit_is_kept_if_the_answer_is_lost_and_the_outcome_cannot_be_read(
    proxy: RestProxy, table: Table, faults: list[Fault], change: Callable[[Table], object]
) -> None:
    snapshot_file = Path(table.stores.snapshots.path(3))

    def fail_to_serve() -> None:
        """The server has the snapshot, but its file does not exist yet."""
        snapshot_file.rename(snapshot_file.with_name("hidden"))
        proxy.inject("GET snapshot", *faults * 2)

    proxy.inject("POST commit", Fault(forward=True, after=fail_to_serve))

    with pytest.raises(CommitOutcomeUnknownError, match="No file was deleted"):
        change(table)

    proxy.remove_faults()
    snapshot_file.with_name("hidden").rename(snapshot_file)
    assert_committed_once(table, change)
    if change is upsert_once:
        change(table)
        assert_committed_once(table, change)


def test_a_commit_id_is_found_in_a_snapshot_without_a_file(proxy: RestProxy, table: Table) -> None:
    upsert_once(table)
    Path(table.stores.snapshots.path(3)).unlink()

    with proxy.count() as requests:
        snapshot = table.upsert(rows(2), commit_id=NIGHTLY)

    assert requests["POST commit"] == 0
    assert snapshot is not None
    assert snapshot.id == 3


@on_both_servers
def test_a_request_that_arrives_twice_is_committed_once(
    proxy: RestProxy, table: Table, change: Callable[[Table], object]
) -> None:
    """A gateway may repeat a request; the client gets the second answer: `success` is false."""
    proxy.inject("POST commit", Fault(before=proxy.forward, genuine=True))
    change(table)
    assert_committed_once(table, change)
    assert unreferenced_files(table) == set()


@on_both_servers
@pytest.mark.parametrize("arrives", ["before the next attempt", "after the next attempt"])
def test_a_request_that_arrives_late_is_committed_once(
    proxy: RestProxy, table: Table, arrives: str, change: Callable[[Table], object]
) -> None:
    late = list[ProxiedRequest]()

    def deliver(*_: object) -> None:
        proxy.forward(late.pop())

    is_first = arrives == "before the next attempt"
    proxy.inject(
        "POST commit",
        Fault(before=late.append),
        Fault(before=deliver, genuine=True) if is_first else Fault(genuine=True, after=deliver),
    )
    change(table)
    assert not late
    assert_committed_once(table, change)


def test_a_recreated_table_gets_no_compaction_of_the_old_one(
    proxy: RestProxy, table: Table
) -> None:
    table.upsert(rows(1, 2))
    plan = COMPACT.plan(table, FULL)
    messages = run_units(COMPACT, table, plan)
    Catalog(**proxy.options).drop_table("db.t")
    recreated = create_table(proxy)
    recreated.upsert(rows(5))
    before = stored_files(recreated)

    with pytest.raises(CommitConflictError):
        commit(table, plan, messages)

    assert stored_files(recreated) == before
    assert rows_of(recreated) == [(5, "v5")]


@st.composite
def operations(draw: st.DrawFn) -> list[tuple[bool, int, list[str]]]:
    """Draw operations: whether it is a compaction, the first key, and the faults."""
    faults = st.lists(st.sampled_from(sorted(RANDOM_FAULTS)), max_size=4)
    operation = st.tuples(st.booleans(), st.integers(0, 4), faults)
    return draw(st.lists(operation, min_size=1, max_size=6))


RANDOM_FAULTS: dict[str, Callable[[RestProxy], Fault]] = {
    "cut before": lambda _: CUT_BEFORE,
    "cut after": lambda _: CUT_AFTER,
    "500 after": lambda _: answer_after(500),
    "503 before": lambda _: answer_before(503),
    "429 before": lambda _: answer_before(429),
    "409 before": lambda _: answer_before(409),
    "403 before": lambda _: answer_before(403),
    "sent twice": lambda proxy: Fault(before=proxy.forward, genuine=True),
}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=operations())
def test_random_faults_lose_and_repeat_no_rows(
    proxy: RestProxy, history: list[tuple[bool, int, list[str]]]
) -> None:
    """An upsert is repeated with the same commit id until it succeeds, as a scheduler would."""
    catalog = Catalog(**proxy.options)
    catalog.drop_database("db", cascade=True, if_exists=True)
    table, model = create_table(proxy), dict[int, str]()
    for number, (is_compaction, key, faults) in enumerate(history):
        proxy.inject("POST commit", *(RANDOM_FAULTS[fault](proxy) for fault in faults))
        new = rows(key, key + 1, text=f"{number}-")
        action = partial(compact_fully if is_compaction else upsert_rows, table)
        if not is_compaction:
            action = partial(action, new, CommitId("job", number))
            model.update({row["k"]: row["v"] for row in new.to_pylist()})
        repeat_until_success(action)
        proxy.remove_faults()
        assert rows_of(table) == sorted(model.items())
    upserts = [s for s in table.stores.snapshots.walk_back() if s.commit_user == "job"]
    expected = [number for number, operation in enumerate(history) if not operation[0]]
    assert [snapshot.commit_identifier for snapshot in reversed(upserts)] == expected
    assert check(table, deep=True).findings == ()


def upsert_rows(table: Table, new: pa.Table, commit_id: CommitId) -> None:
    table.upsert(new, commit_id=commit_id)


def repeat_until_success(action: Callable[[], object]) -> None:
    while True:
        try:
            action()
        except (AccessDeniedError, CatalogUnavailableError, CommitOutcomeUnknownError):
            continue
        return


@pytest.mark.parametrize("change", [upsert, upsert_once])
def test_a_table_whose_uuid_changed_gets_no_commit(
    proxy: RestProxy, table: Table, change: Callable[[Table], object]
) -> None:
    proxy.rewrites["GET table"] = lambda _, answer: {**answer, "id": "another"}
    other = Catalog(**proxy.options).table("db.t")
    before = stored_files(table)
    with pytest.raises(NotFoundError):
        change(other)
    assert stored_files(table) == before
    assert rows_of(table) == [(1, "v1")]
