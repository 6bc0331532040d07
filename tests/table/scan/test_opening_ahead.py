"""Scans of remote tables open several files at the same time."""

from __future__ import annotations

import threading
import time
from typing import IO
from uuid import uuid4

import pyarrow as pa
import pytest
from support.tables import table_of

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import CorruptFileError
from paimon_orch.steps import compact
from paimon_orch.storage.object_store import FsspecFileIO
from paimon_orch.table.table import Table

pytest.importorskip("fsspec")


class Openings:
    """The data files that were opened, and how many at the same time."""

    def __init__(self) -> None:
        self.names, self.most, self._active = list[str](), 0, 0
        self._lock = threading.Lock()

    def clear(self) -> None:
        self.names, self.most = [], 0

    def __call__(self, io: FsspecFileIO, path: str, size: int | None = None) -> IO[bytes]:
        name = path.rpartition("/")[2]
        if not name.startswith("data-"):
            return ORIGINAL(io, path, size)
        with self._lock:
            self.names.append(name)
            self._active += 1
            self.most = max(self.most, self._active)
        try:
            time.sleep(0.02)
            return ORIGINAL(io, path, size)
        finally:
            with self._lock:
                self._active -= 1


ORIGINAL = FsspecFileIO.open_input


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> Openings:
    openings = Openings()
    monkeypatch.setattr(
        FsspecFileIO, "open_input", lambda io, path, size=None: openings(io, path, size)
    )
    return openings


def new_table(keys: list[str], options: dict[str, str]) -> Table:
    catalog = Catalog(f"memory://{uuid4()}/warehouse")
    return catalog.create_table(
        "db.t", "k INT, v STRING", primary_key=keys, options={"write-only": "true", **options}
    )


def rows(first: int) -> pa.Table:
    return table_of("k v", [(first + number, f"v{first}") for number in range(3)])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    ("keys", "options"),
    [([], {}), (["k"], {"bucket": "1"}), (["k"], {"bucket": "8"})],
    ids=["append", "one bucket", "buckets"],
)
def test_a_scan_opens_each_file_once_and_several_together(
    openings: Openings, keys: list[str], options: dict[str, str], kind: str
) -> None:
    table = new_table(keys, {**options, "file.format": kind})
    for number in range(20):
        (table.upsert if keys else table.append)(rows(number if keys else 3 * number))
    files = {file.file_name for split in table.files() for file in split.files}
    openings.clear()

    result = table.scan().to_arrow().sort_by("k")

    assert result.column("k").to_pylist() == list(range(22 if keys else 60))
    if keys:
        assert result.column("v").to_pylist() == [f"v{min(k, 19)}" for k in range(22)]
    assert sorted(openings.names) == sorted(files)
    assert openings.most > 4
    openings.clear()
    assert table.scan(filter="k >= 0").count() == result.num_rows
    assert sorted(openings.names) == sorted(files)
    assert openings.most > 4


def test_a_scan_with_a_limit_opens_no_file_ahead(openings: Openings) -> None:
    table = new_table([], {})
    for number in range(6):
        table.append(rows(3 * number))
    openings.clear()
    assert table.scan(filter="k >= 0", limit=2).to_arrow().num_rows == 2
    assert len(openings.names) == 1


def test_a_merge_with_a_limit_opens_the_first_file_of_each_run_together(
    openings: Openings,
) -> None:
    table = new_table(["k"], {"bucket": "1"})
    for _ in range(6):
        table.upsert(rows(0))
    openings.clear()
    assert table.scan(limit=2).to_arrow().num_rows == 2
    assert len(openings.names) == 6
    assert openings.most > 3


@pytest.mark.parametrize("keys", [[], ["k"]], ids=["append", "keys"])
def test_a_compaction_opens_each_file_once_and_several_together(
    openings: Openings, keys: list[str]
) -> None:
    table = new_table(keys, {"bucket": "1"} if keys else {})
    for number in range(8):
        (table.upsert if keys else table.append)(rows(number))
    openings.clear()
    compact(table, strategy="full")
    assert len(openings.names) == len(set(openings.names)) == 8
    assert openings.most > 4
    assert table.scan().to_arrow().num_rows == (10 if keys else 24)


def test_a_damaged_file_stops_the_scan_where_it_is_read(openings: Openings) -> None:
    table = new_table([], {})
    for number in range(4):
        table.append(rows(3 * number))
    [split] = table.files()
    damaged = f"{table.paths.root}/bucket-0/{split.files[2].file_name}"
    table.io.write(damaged, b"short")

    batches = table.scan().to_batches()
    assert [next(batches).column("k")[0].as_py() for _ in range(2)] == [0, 3]
    with pytest.raises(CorruptFileError, match="has 5 bytes, but its manifest entry states"):
        next(batches)


def test_deleted_rows_of_several_buckets_are_left_out() -> None:
    table = new_table(["k"], {"bucket": "4", "deletion-vectors.enabled": "true"})
    table.upsert(table_of("k v", [(number, "old") for number in range(40)]))
    compact(table, strategy="full")
    table.upsert(table_of("k v", [(number, "new") for number in range(20)]))
    compact(table)
    result = table.scan().to_arrow().sort_by("k")
    assert result.column("v").to_pylist() == ["new"] * 20 + ["old"] * 20
