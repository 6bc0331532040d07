"""How messages name a table and the commands to run on it."""

from pathlib import Path

import pytest
from support.tables import new_table

from paimon_orch import Catalog
from paimon_orch.table.table_label import TableLabel


def test_commands_quote_their_arguments() -> None:
    label = TableLabel("db.t$partitions", "/a lake")
    assert label.format_command("read") == "paimon-orch read '/a lake' 'db.t$partitions'"


def test_a_label_has_the_name_of_the_catalog_or_the_warehouse_of_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__PROD__WAREHOUSE", str(tmp_path))
    table = new_table(tmp_path)

    assert table.stores.label == TableLabel("db.t", str(tmp_path))
    assert Catalog("prod").table("db.t").stores.label == TableLabel("db.t", "prod")
