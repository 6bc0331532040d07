"""Each kind of table has a reader of buckets, and one for the rows to change."""

import pytest

from paimon_orch.format.table_kind import TableKind
from paimon_orch.steps.row_level.find_target import _TARGETS
from paimon_orch.table.bucket_readers.open_bucket import _READERS


@pytest.mark.parametrize("kind", TableKind)
def test_each_kind_has_a_reader_and_a_target_of_changes(kind: TableKind) -> None:
    assert kind in _READERS
    assert kind in _TARGETS
