"""Java Paimon as the contestant of a benchmark: a warm process, or its connector on a warm session of Spark.

Both without the limits that make tests start fast.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from measure import console, cpu_seconds
from support.peers.environments import PeerUnavailableError, peer_start
from support.peers.protocol import PeerProcess

_PEER = "java-1.4"
_FOR_TESTS_ALONE = ("-XX:TieredStopAtLevel=1", "-Xmx1g")


class Java:
    """The newest release of Java Paimon that the Maven repository gives out."""

    def __init__(self) -> None:
        start = peer_start(_PEER)
        command = [word for word in start.command if word not in _FOR_TESTS_ALONE]
        command.insert(1, "-Xmx4g")
        self._talk = PeerProcess(command, start.environment)

    def compact(self, warehouse: Path, table: str, repeat: int, *, full: bool) -> float:
        """Return the median CPU seconds of compacting copies of a table, after one that warms the process up."""
        seconds = []
        for turn in range(1 + repeat):
            copy = warehouse.with_name(f"{warehouse.name}-java-{turn}")
            shutil.copytree(warehouse, copy)
            begin = self._cpu_seconds()
            self._talk.ask("compact", warehouse=str(copy), table=table, full=full)
            seconds.append(self._cpu_seconds() - begin)
            shutil.rmtree(copy)
        return statistics.median(seconds[1:])

    def _cpu_seconds(self) -> float:
        return 0.0 if self._talk.pid is None else cpu_seconds(self._talk.pid)

    def close(self) -> None:
        """End the process."""
        self._talk.close()


class JavaOnSpark:
    """One of Paimon's connectors on a session of Spark that starts with the first compaction."""

    def __init__(self, peer: str, master: str) -> None:
        start = peer_start(peer)
        memory = {"PYSPARK_SUBMIT_ARGS": "--driver-memory 4g pyspark-shell"}
        self._talk = PeerProcess([*start.command, master], {**start.environment, **memory})

    def compact(self, warehouse: Path, table: str, strategy: str) -> None:
        """Compact a table by ``CALL sys.compact``."""
        self._talk.ask("compact", warehouse=str(warehouse), table=table, full=strategy == "full")

    def close(self) -> None:
        """End the process."""
        self._talk.close()


def java() -> Java | None:
    """Start it; None, and a word why, where it cannot run."""
    try:
        return Java()
    except PeerUnavailableError as error:
        console.print(f"Java is left out: {error}")
        return None
