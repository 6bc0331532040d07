import os
import signal
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from urllib.request import proxy_bypass

import platformdirs
import pytest
from rich.console import Console
from support.start_conditions import (
    handle_ignored_signals,
    print_like_to_a_pipe,
    reach_this_machine_without_a_proxy,
    use_writable_cache,
)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


@pytest.fixture
def ignored_signals() -> Iterator[None]:
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_signals_that_the_parent_ignored_are_handled(ignored_signals: None) -> None:
    handle_ignored_signals()

    handlers = [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL]
    assert [signal.getsignal(number) for number in SIGNALS] == handlers


def test_programs_print_without_the_colors_that_a_ci_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    print_like_to_a_pipe()

    assert not Console(file=StringIO()).is_terminal


def test_this_machine_is_reached_without_the_proxy_of_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "example.com")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")

    reach_this_machine_without_a_proxy()

    assert proxy_bypass("127.0.0.1:80")
    assert proxy_bypass("example.com")
    assert not proxy_bypass("example.org")


def test_the_cache_is_in_the_checkout_if_the_home_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    use_writable_cache(tmp_path)

    cache = platformdirs.user_cache_path("paimon-orch")
    assert cache == tmp_path / ".test-data" / "cache" / "paimon-orch"


def test_a_cache_that_can_be_written_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    use_writable_cache(tmp_path / "checkout")

    assert os.environ["XDG_CACHE_HOME"] == str(tmp_path / "cache")
