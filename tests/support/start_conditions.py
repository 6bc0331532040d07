"""Makes the tests independent of the shell, the agent and the user that start them."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import platformdirs


def handle_ignored_signals() -> None:
    """Handle the signals that tests send, also to child processes, if the parent ignored them.

    A shell without job control ignores SIGINT in a command that it starts with ``&``, and child
    processes inherit this. If SIGCHLD is ignored, the exit status of child processes is lost.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def print_like_to_a_pipe() -> None:
    """Remove variables of a terminal, and those with which a CI asks programs for colors."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES", "TERM"):
        os.environ.pop(name, None)


def reach_this_machine_without_a_proxy() -> None:
    """Add this machine to the hosts for which the proxy of a network is not used."""
    for name in ("no_proxy", "NO_PROXY"):
        hosts = [os.environ.get(name, ""), "127.0.0.1", "localhost"]
        os.environ[name] = ",".join(filter(None, hosts))


def use_writable_cache(repository: Path) -> None:
    """If the user's cache cannot be written, use a folder of the checkout that Git ignores."""
    if not _is_writable(platformdirs.user_cache_path("paimon-orch")):
        os.environ["XDG_CACHE_HOME"] = str(repository / ".test-data" / "cache")


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
