"""Java 2.0 and we alternately write, delete, compact and expire one table in HDFS."""

from __future__ import annotations

from uuid import uuid4

import pytest
from support.hdfs.cluster import HdfsCluster
from support.java_turns import run_turns
from support.peers.fixtures import open_shared_peer

from paimon_orch import Catalog


@pytest.mark.timeout(400)
@pytest.mark.parametrize("creator", ["java", "ours"])
def test_one_table_in_hdfs_is_written_and_maintained_in_turns(
    hdfs_cluster: HdfsCluster, creator: str
) -> None:
    root = f"{hdfs_cluster.uri}/tests/{uuid4()}"
    run_turns(
        open_shared_peer("java-2.0"),
        Catalog(root),
        {"warehouse": root},
        creator=creator,
        turns=range(3),
    )
