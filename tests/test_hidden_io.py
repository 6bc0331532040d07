"""Properties and constructors must not read or write files: house rule of `paimon_orch`."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from support.io_calls import Package

ALLOWED = {
    "paimon_orch.catalog.catalog.Catalog.__init__": "reads the configuration of named catalogs",
    # Objects of work units, which live as long as the read or compaction that begins with them.
    "paimon_orch.merge.compact.bucket_compaction.BucketCompaction.__init__": "deletion vectors",
    "paimon_orch.merge.compact.pk_clustering_compaction.ClusteredCompaction.__init__": "footers",
    "paimon_orch.steps.repairs.delete_duplicate_keys._BucketWriter.__init__": "index manifest",
    "paimon_orch.table.cleanup.snapshot_deletion.SnapshotDeletionPlanner.__post_init__": "lists",
    "paimon_orch.table.bucket_readers.bucket_reader.BucketReader.__init__": "deletion vectors",
    # Names that users know.
    "paimon_orch.steps.inspection.inspect.TableReport.buckets": "manifests, to build entries",
    "paimon_orch.steps.inspection.inspect.TableReport.max_sorted_runs": "the same",
    "paimon_orch.table.scan.incremental_scan.IncrementalScan.rows_not_visible": "manifests",
    "paimon_orch.table.scan.scan.Scan.rows_not_visible": "manifests",
    "paimon_orch.table.system_table._BinlogScan.rows_not_visible": "the same",
}
"""What reads or writes files nevertheless, and which."""


@pytest.mark.slow
def test_properties_and_constructors_do_no_io(repository: Path) -> None:
    package = Package(repository / "paimon_orch")
    found = {function.qualified_name: function.cause for function in package.find_hidden_io()}

    assert found.keys() - ALLOWED.keys() == set(), [found[x] for x in found.keys() - ALLOWED.keys()]
    assert ALLOWED.keys() - found.keys() == set(), "does no I/O any more; remove it from the list"


@pytest.mark.parametrize(
    "body",
    [
        "return self.io.read_bytes('x')",
        "return self.io.size('x')",
        "return self.store.latest()",
        "return find(self.store)",
        "store = Store(self.io)\n        return store.latest()",
        "return Store.of(self.io).latest()",
        "return unknown.latest()",
        "return open('x')",
    ],
)
def test_io_is_found_behind_calls(body: str, tmp_path: Path) -> None:
    assert find_in(tmp_path, body) == ["package.table.Table.value"]


@pytest.mark.parametrize(
    "body",
    [
        "return self.name.size()",
        "return self.store.path()",
        "return self.store",
        "return {}.get(1)",
    ],
)
def test_other_calls_are_no_io(body: str, tmp_path: Path) -> None:
    assert find_in(tmp_path, body) == []


def find_in(folder: Path, body: str) -> list[str]:
    """The names of hidden I/O in a package with a property."""
    package = folder / "package"
    package.mkdir()
    (package / "store.py").write_text(
        dedent("""
        class Store:
            def __init__(self, io: FileIO):
                self._io = io

            @classmethod
            def of(cls, io: FileIO) -> "Store":
                return cls(io)

            def latest(self):
                return self._io.exists("LATEST")

            def get(self, number):
                return self._io.read_bytes(str(number))

            def path(self):
                return "path"

        def find(store):
            return store.latest()
        """)
    )
    (package / "table.py").write_text(
        "from package.store import Store, find\n\n"
        "class Table:\n    io: FileIO\n    store: Store | None\n    name: str\n\n"
        f"    @property\n    def value(self):\n        {body}\n"
    )
    return [function.qualified_name for function in Package(package).find_hidden_io()]
