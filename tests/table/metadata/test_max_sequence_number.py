"""Snapshots store the greatest sequence number if writers continue from it."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import GOLDEN, copy_warehouse

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.metadata.max_sequence_number import MAX_SEQUENCE_NUMBER_PROPERTY
from paimon_orch.table.table import Table

MODE = {"write.sequence-number-init-mode": "snapshot"}


def _property(table: Table) -> str | None:
    snapshot = table.snapshot()
    assert snapshot is not None
    return snapshot.properties.get(MAX_SEQUENCE_NUMBER_PROPERTY)


@pytest.fixture
def golden(tmp_path: Path) -> Table:
    folder = GOLDEN / "java-2.0" / "sequence_options"
    return Catalog(str(copy_warehouse(folder, tmp_path / "wh"))).table("db.t_init")


def test_a_compaction_keeps_the_number_that_java_stored(golden: Table) -> None:
    before = _property(golden)
    assert before is not None
    assert compact(golden, InProcessExecutor(), strategy="full").snapshot_id is not None
    assert _property(golden) == before


def test_a_write_stores_the_number_of_its_newest_row(golden: Table) -> None:
    before = _property(golden)
    assert before is not None
    rows = golden.scan(limit=3).to_arrow()
    golden.upsert(rows)
    newest = max(f.max_sequence_number for split in golden.files() for f in split.files)
    assert newest > int(before)
    assert _property(golden) == str(newest)


def test_a_missing_number_is_computed_once_from_the_files(
    tmp_path: Path,
) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "id BIGINT NOT NULL, v STRING", primary_key=["id"], options={"bucket": "1"}
    )
    rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    table.upsert(rows)
    assert _property(table) is None
    path = Path(table.stores.schemas.path(0))
    schema = json.loads(path.read_bytes())
    path.write_text(json.dumps(schema | {"options": schema["options"] | MODE}))
    compact(table, InProcessExecutor(), strategy="full")
    assert _property(table) == "2"


def test_other_tables_do_not_have_the_property(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "id BIGINT")
    table.append(pa.table({"id": [1]}))
    assert _property(table) is None
