"""The commands for global indexes print what they build and drop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import invoke
from support.data_evolution import evolving_table
from support.tables import table_of

from paimon_orch.errors import UnsupportedError


def test_an_index_is_created_and_dropped(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, "a BIGINT, p STRING", ["p"])
    table.append(table_of("a p", [(1, "x"), (2, "y")]))
    arguments = (str(tmp_path), "db.t", "--column", "a", "--json")

    planned = json.loads(invoke("create-global-index", *arguments, "--dry-run").stdout)
    created = json.loads(
        invoke("create-global-index", *arguments, "--partitions", "p=x", "--type", "bitmap").stdout
    )
    dropped = json.loads(
        invoke("drop-global-index", *arguments, "--type", "bitmap", "--yes").stdout
    )

    assert (planned["rows"], planned["index_files"], planned["snapshot_id"]) == (2, 2, 1)
    assert (created["rows"], created["index_files"], created["snapshot_id"]) == (1, 1, 2)
    assert (len(dropped["index_files"]), dropped["snapshot_id"]) == (1, 3)
    assert "0 index files" in invoke("drop-global-index", *arguments[:-1], "--dry-run").stdout


def test_a_column_that_cannot_have_an_index_is_refused(tmp_path: Path) -> None:
    evolving_table(tmp_path, "a BIGINT, l ARRAY<INT>")

    with pytest.raises(UnsupportedError, match="'l' of type ARRAY<INT> cannot have a global index"):
        invoke("create-global-index", str(tmp_path), "db.t", "--column", "l")
