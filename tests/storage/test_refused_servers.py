"""S3 servers that must be refused, because two committers could overwrite each other there."""

from __future__ import annotations

from uuid import uuid4

import pytest
from support.unsafe_s3 import Condition, run_unsafe_s3

from paimon_orch.errors import UnsupportedError
from paimon_orch.storage import resolve_warehouse


@pytest.mark.sampled(1)
@pytest.mark.parametrize("condition", [Condition.IGNORED, Condition.CHECKED_FIRST])
def test_a_server_that_does_not_keep_the_condition_is_refused_by_name(condition: Condition) -> None:
    pytest.importorskip("s3fs")
    root = f"s3://{uuid4()}/wh"
    with run_unsafe_s3(condition) as options:
        io = resolve_warehouse(root, options)[0]
        bucket = root.removesuffix("/wh")
        with pytest.raises(UnsupportedError, match=f"the store at {bucket} ignores the condition"):
            io.create(f"{root}/snapshot-1", b"mine")
        assert io.list_tree(root) == [], "the objects of the probe are deleted"


def test_a_server_that_keeps_the_condition_is_accepted() -> None:
    pytest.importorskip("s3fs")
    root = f"s3://{uuid4()}/wh"
    with run_unsafe_s3(Condition.KEPT) as options:
        io = resolve_warehouse(root, options)[0]
        assert io.create(f"{root}/snapshot-1", b"mine")
        assert not io.create(f"{root}/snapshot-1", b"theirs")
