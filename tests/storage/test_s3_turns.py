"""Java 2.0 and we alternately write, delete, compact and expire one table on S3."""

from __future__ import annotations

import pytest
from storage.conftest import Bucket
from support.java_turns import run_turns
from support.peers.environments import JAVA_WITH_S3
from support.peers.fixtures import open_shared_peer

from paimon_orch import Catalog


@pytest.mark.services
def test_one_table_on_s3_is_written_and_maintained_in_turns(s3: Bucket) -> None:
    options = s3.options
    warehouse = {
        "warehouse": s3.root,
        "s3.endpoint": options["endpoint_url"],
        "s3.access-key": options["key"],
        "s3.secret-key": options["secret"],
        "s3.path.style.access": "true",
    }
    java = open_shared_peer(JAVA_WITH_S3)
    run_turns(java, Catalog(s3.root, **options), warehouse, creator="java", turns=range(1, 2))
