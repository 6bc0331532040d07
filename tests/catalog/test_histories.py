"""Histories of random operations in each catalog: a step changes no retained version.

``tests/steps/test_invariants.py`` tests the same invariants in a directory, with more examples.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.catalogs.kinds import ROOT, CatalogUnderTest
from support.catalogs.rest_server import PYPAIMON_1_4
from support.histories import (
    KINDS,
    Operation,
    backdate_files,
    branch_of,
    make_table,
    operations,
    read_all_branches,
    select_retained,
    unreferenced_files,
)
from support.tables import assert_healthy, rows_of

from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.analyze import analyze
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.steps.maintenance.rescale import rescale
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()


def expire(table: Table) -> None:
    expire_snapshots(table, retain_max=2)


def remove_orphans(table: Table) -> None:
    backdate_files(table)
    remove_orphan_files(table)
    assert unreferenced_files(table) == set()


def compact_fully(table: Table) -> None:
    compact(table, EXECUTOR, strategy="full")


def rescale_buckets(table: Table) -> None:
    compact(table, EXECUTOR)
    rescale(table, 2)


def analyze_all(table: Table) -> None:
    analyze(table, EXECUTOR, columns=None)


STEPS: list[Callable[[Table], object]] = [
    compact_fully,
    rescale_buckets,
    analyze_all,
    compact_manifests,
    expire,
    remove_orphans,
]


@pytest.mark.slow
@settings(
    max_examples=3,
    phases=[Phase.explicit, Phase.generate],  # the steps of an example take seconds
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    st.sampled_from(sorted(KINDS)),
    operations(5),
    operations(3),
    st.permutations(STEPS),
    st.booleans(),
)
def test_steps_change_no_retained_version(
    catalog_under_test: CatalogUnderTest,
    kind: str,
    history: list[Operation],
    later: list[Operation],
    steps: list[Callable[[Table], object]],
    on_branch: bool,
) -> None:
    catalog_under_test.clear()
    has_branches = catalog_under_test.kind != PYPAIMON_1_4
    branches: list[Operation] = [("branch", 7), ("on branch", 1)] if has_branches else []
    past = [
        operation
        for operation in [*history, ("tag", 7), *branches, *later]
        if has_branches or "branch" not in operation[0]
    ]
    make_table(ROOT, kind, past, batch_rows=3)
    table = catalog_under_test.open().table("db.t")
    assert (table.environment.branches is not None) == catalog_under_test.is_rest
    changed = branch_of(table, "dev") if on_branch and has_branches else table
    rows = rows_of(changed)
    for step in steps:
        if step is rescale_buckets and (kind == "dynamic" or not rows):
            continue
        before = read_all_branches(table)
        step(table if step is remove_orphans else changed)
        after = read_all_branches(table)
        kept = set(before) & set(after)
        assert select_retained(after, dict.fromkeys(kept)) == select_retained(
            before, dict.fromkeys(kept)
        )
        assert kept == set(before) or step is expire
        assert check(table, deep=True).findings == ()
    assert rows_of(changed) == rows or kind == "vectors"
    assert_healthy(changed)
