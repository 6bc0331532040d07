"""Every step, and units however they end, on a Spark Connect server to whose workers the package is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.talk import Talk
from spark.cluster import connect_server, driver, make_environment
from spark.every_step import STEPS, assert_done

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("connect"),
    pytest.mark.timeout(300),  # executors start cold: quick on a quiet machine
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    folder = tmp_path_factory.mktemp("connect")
    python = make_environment(folder / "workers")
    with (
        connect_server(folder, python) as remote,
        driver(remote=remote, ship_package=True) as talk,
    ):
        talk.ask("workers", tasks=2)  # starts the session, which no test waits for
        yield talk


def test_units_are_done_fail_and_are_cancelled_as_on_classic_spark(
    server: Talk, tmp_path: Path
) -> None:
    found = server.ask("units", folder=str(tmp_path))[0]

    assert found == ["1 4 9", [3, 3], "CorruptFileError", "CancelledError"]


@pytest.mark.parametrize("name", STEPS)
def test_every_step_does_the_same_on_spark_connect(server: Talk, tmp_path: Path, name: str) -> None:
    assert_done(name, tmp_path, lambda: server.ask("run", step=name, warehouse=str(tmp_path))[0])


def test_another_session_follows_one_that_the_server_has_ended(
    server: Talk, tmp_path: Path
) -> None:
    message, is_same = server.ask("released")[0]

    assert "session is of no use, start another one: " in message
    assert "SESSION_CLOSED" in message
    assert is_same == "False"
    assert_done(
        "delete", tmp_path, lambda: server.ask("run", step="delete", warehouse=str(tmp_path))[0]
    )
