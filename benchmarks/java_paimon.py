"""Java Paimon as a contestant: in a warm process, or as a connector on a warm Spark session.

Both run without the JVM options that make tests start fast.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from measurement import console, cpu_seconds
from support.peers.environments import PeerUnavailableError, peer_start
from support.peers.protocol import PeerProcess

JAVA_2_0 = "java-2.0"
_TEST_ONLY_OPTIONS = ("-XX:TieredStopAtLevel=1", "-Xmx1g")


class JavaPaimon:
    """A process with a release of Java Paimon: the peer ``java-1.4`` or ``java-2.0``."""

    def __init__(self, peer: str) -> None:
        start = peer_start(peer)
        command = [word for word in start.command if word not in _TEST_ONLY_OPTIONS]
        command.insert(1, "-Xmx4g")
        self._process = PeerProcess(command, start.environment)

    def compact(self, warehouse: Path, table: str, repeat: int, *, full: bool) -> float:
        """Return the median CPU seconds of compacting copies of a table, after a warm-up run."""
        seconds = []
        for turn in range(1 + repeat):
            copy = warehouse.with_name(f"{warehouse.name}-java-{turn}")
            shutil.copytree(warehouse, copy)
            start = self._cpu_seconds()
            self._process.ask("compact", warehouse=str(copy), table=table, full=full)
            seconds.append(self._cpu_seconds() - start)
            shutil.rmtree(copy)
        return statistics.median(seconds[1:])

    def _cpu_seconds(self) -> float:
        return 0.0 if self._process.pid is None else cpu_seconds(self._process.pid)

    def close(self) -> None:
        """End the process."""
        self._process.close()


class JavaOnSpark:
    """A Paimon connector on a Spark session, which starts with the first compaction."""

    def __init__(self, peer: str, master: str) -> None:
        start = peer_start(peer)
        memory = {"PYSPARK_SUBMIT_ARGS": "--driver-memory 4g pyspark-shell"}
        self._process = PeerProcess([*start.command, master], {**start.environment, **memory})

    def compact(self, warehouse: Path, table: str, strategy: str) -> None:
        """Compact a table by ``CALL sys.compact``."""
        self._process.ask("compact", warehouse=str(warehouse), table=table, full=strategy == "full")

    def close(self) -> None:
        """End the process."""
        self._process.close()


def start_java(peer: str = JAVA_2_0) -> JavaPaimon | None:
    """Start Java Paimon; if it is not available, print the reason and return None."""
    try:
        return JavaPaimon(peer)
    except PeerUnavailableError as error:
        console.print(f"Skipped Java: {error}")
        return None
