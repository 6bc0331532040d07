"""Processes that commit through one server at the same time, or are killed during a commit."""

from __future__ import annotations

import os
import signal
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from support.catalogs.rest_proxy import Fault, RestProxy
from support.catalogs.rest_server import JAVA_2_0, PYPAIMON_1_4, RestServer
from support.commit_race import append_concurrently, start_append
from support.histories import unreferenced_files
from support.tables import rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

PROCESSES, APPENDS = 8, 2


def create_table(options: dict[str, Any]) -> Table:
    many = {"commit.max-retries": "100"}
    columns = "process BIGINT, number BIGINT"
    return Catalog(**options).create_table("db.t", columns, options=many)


@pytest.mark.slow
@pytest.mark.parametrize("served", [JAVA_2_0, PYPAIMON_1_4], indirect=True)
def test_concurrent_processes_lose_no_commit(served: RestServer, proxy: RestProxy) -> None:
    table = create_table(proxy.options)

    options = {name: value for name, value in served.options.items() if name != "uri"}
    expected = append_concurrently(served.uri, options, PROCESSES, APPENDS)

    assert rows_of(table) == sorted(expected)
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.id == PROCESSES * APPENDS
    assert unreferenced_files(table) == set()
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize("is_committed", [True, False])
def test_the_next_process_commits_after_one_was_killed(
    proxy: RestProxy, *, is_committed: bool
) -> None:
    table = create_table(proxy.options)
    table.append(table_of("process number", [(0, 0)]))
    children = list[BaseProcess]()

    def kill() -> None:
        pid = children[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    proxy.inject("POST commit", Fault(forward=is_committed, after=kill))
    options = {name: value for name, value in proxy.options.items() if name != "uri"}
    children.append(start_append(proxy.uri, options, 1))
    children[0].join(100)
    assert children[0].exitcode == -signal.SIGKILL

    table.append(table_of("process number", [(0, 2)]))

    numbers = [0, 1, 2] if is_committed else [0, 2]
    assert rows_of(table) == [(0, number) for number in numbers]
    assert check(table, deep=True).findings == ()
