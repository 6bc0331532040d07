"""Options of a stored schema that name places: no step writes or deletes outside of the table."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.tables import new_table, rows_of, table_of
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch import Catalog
from paimon_orch.errors import PaimonError
from paimon_orch.steps import compact, remove_orphan_files
from paimon_orch.table.table import Table

ICEBERG = "metadata.iceberg."
OPTIONS = {
    name: {name: "{place}"}
    for name in (
        "branch",
        "changelog-file.prefix",
        "data-file.path-directory",
        "data-file.prefix",
        "file.format",
        "partition.default-name",
        "path",
        "scan.fallback-branch",
    )
} | {
    "names in Iceberg": {
        f"{ICEBERG}storage": "table-location",
        f"{ICEBERG}database": "{place}",
        f"{ICEBERG}table": "{place}",
    },
    "a location of Iceberg": {
        f"{ICEBERG}storage": "table-location",
        f"{ICEBERG}storage-location": "{place}",
    },
}
STEPS: list[Callable[[Table], object]] = [
    lambda table: table.append(table_of("k p", [(9, None), (8, "a")])),
    rows_of,
    lambda table: compact(table, EXECUTOR, strategy="full"),
    lambda table: remove_orphan_files(table, EXECUTOR, older_than=int(time.time() * 1000)),
]


def list_files(root: Path, table: Path) -> dict[str, int]:
    """Return the times of the files outside of a table."""
    paths = (Path(folder) / name for folder, _, names in os.walk(root) for name in names)
    return {str(p): p.stat().st_mtime_ns for p in paths if not p.is_relative_to(table)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("place", ["../../../other.db/o/bucket-0/x-", "{root}/evil/x"])
@pytest.mark.parametrize("name", OPTIONS)
def test_no_option_of_a_table_moves_its_files_elsewhere(
    tmp_path: Path, name: str, place: str
) -> None:
    table = new_table(tmp_path, "k BIGINT, p STRING", key=(), partition_by=["p"], bucket="-1")
    table.append(table_of("k p", [(1, "a"), (2, None)]))
    catalog = Catalog(str(tmp_path))
    catalog.create_database("other")
    catalog.create_table("other.o", "k BIGINT").append(table_of("k", [(1,)]))
    (tmp_path / "evil").mkdir()
    path = Path(table.paths.root) / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    target = place.replace("{root}", str(tmp_path))
    schema["options"] |= {k: v.replace("{place}", target) for k, v in OPTIONS[name].items()}
    path.write_text(json.dumps(schema))
    before = list_files(tmp_path, Path(table.paths.root))

    for step in STEPS:
        with suppress(PaimonError):
            step(Catalog(str(tmp_path)).table("db.t"))

    assert list_files(tmp_path, Path(table.paths.root)) == before
