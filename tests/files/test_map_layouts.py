"""MAP columns in an unsupported layout are refused with their names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.golden import GOLDEN, copy_warehouse

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact


@pytest.mark.parametrize("name", ["t", "t_pk"])
def test_a_shredded_map_is_refused_with_the_name_of_its_layout(name: str, tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "map_shared_shredding", tmp_path / "w")
    for path in (warehouse / "db.db" / name / "schema").iterdir():
        schema = json.loads(path.read_text(encoding="utf-8"))
        options = schema["options"]
        schema["options"] = {key: options[key] for key in options if ".map." not in key}
        path.write_text(json.dumps(schema), encoding="utf-8")
    table = Catalog(str(warehouse)).table(f"db.{name}")

    with pytest.raises(UnsupportedError, match="shared-shredding"):
        table.scan().to_arrow()
    if name == "t_pk":
        with pytest.raises(UnsupportedError, match="shared-shredding"):
            compact(table, InProcessExecutor(), strategy="full")
    assert table.stores.snapshots.latest_id() == 2
