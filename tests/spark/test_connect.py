"""Every step, and units with every outcome, on a Spark Connect server.

The package is sent to the workers of the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.peers.protocol import PeerProcess
from support.spark.cluster import make_environment, run_connect_server, run_driver
from support.spark.step_cases import STEP_CASES, assert_step_done

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("connect"),
    pytest.mark.timeout(300),  # the start of a server is slow on a busy machine
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerProcess]:
    folder = tmp_path_factory.mktemp("connect")
    python = make_environment(folder / "workers")
    with (
        run_connect_server(folder, python) as remote,
        run_driver(remote=remote, ship_package=True) as talk,
    ):
        talk.ask("workers", tasks=2)  # this starts the session before the first test
        yield talk


def test_units_succeed_fail_and_are_cancelled_as_on_classic_spark(
    server: PeerProcess, tmp_path: Path
) -> None:
    outcomes = server.ask("units", folder=str(tmp_path))[0]

    assert outcomes == ["1 4 9", [3, 3], "CorruptFileError", "CancelledError"]


@pytest.mark.parametrize("name", STEP_CASES)
def test_every_step_has_the_same_result_on_spark_connect(
    server: PeerProcess, tmp_path: Path, name: str
) -> None:
    assert_step_done(
        name, tmp_path, lambda: server.ask("run", step=name, warehouse=str(tmp_path))[0]
    )


def test_a_session_ended_by_the_server_is_replaced(server: PeerProcess, tmp_path: Path) -> None:
    message, is_same = server.ask("released")[0]

    assert "session is no longer usable; start a new one: " in message
    assert "SESSION_CLOSED" in message
    assert is_same == "False"
    assert_step_done(
        "delete", tmp_path, lambda: server.ask("run", step="delete", warehouse=str(tmp_path))[0]
    )
