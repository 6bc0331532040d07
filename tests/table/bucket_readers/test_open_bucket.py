"""Each kind of table has a reader of buckets, checks of commits, and a target of changes."""

import pytest

from paimon_orch.format.table_kind import TableKind
from paimon_orch.steps.row_level.find_target import _TARGETS
from paimon_orch.table.bucket_readers.open_bucket import _READERS
from paimon_orch.table.commit.kind_conflicts import _CONFLICTS


@pytest.mark.parametrize("kind", TableKind)
def test_each_kind_has_its_classes(kind: TableKind) -> None:
    assert kind in _READERS
    assert kind in _CONFLICTS
    assert kind in _TARGETS
