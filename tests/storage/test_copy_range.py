"""Ranges of files and of bytes in memory are copied."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from paimon_orch.storage import copy_range as copy_range_module
from paimon_orch.storage.copy_range import copy_range

DATA = bytes(range(256)) * 40


@pytest.mark.parametrize(
    ("start", "length"),
    [(300, 1_000), (40, 250), (7, 30), (200, 100), (5, 0), (len(DATA), 0), (0, len(DATA))],
)
def test_a_range_of_a_file_is_appended_without_its_neighbors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, length: int
) -> None:
    monkeypatch.setattr(copy_range_module, "_PART_BYTES", 100)
    (tmp_path / "in").write_bytes(DATA)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("xb") as sink:
        sink.write(b"head")
        copy_range(source, sink, start, length)
        assert sink.tell() == 4 + length
        sink.write(b"tail")
    assert (tmp_path / "out").read_bytes() == b"head" + DATA[start : start + length] + b"tail"


def test_a_copy_holds_one_part_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Source(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            sizes.append(size)
            return super().read(size)

    monkeypatch.setattr(copy_range_module, "_PART_BYTES", 100)
    sizes: list[int | None] = []
    copy_range(Source(io.BytesIO(DATA)), io.BytesIO(), 40, 250)
    assert sizes == [100, 100, 50]


def test_ranges_of_bytes_in_memory_are_copied() -> None:
    sink = io.BytesIO()
    copy_range(io.BytesIO(DATA), sink, 300, 1_000)
    assert sink.getvalue() == DATA[300:1_300]


def test_a_range_after_the_end_of_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(DATA)
    with (tmp_path / "in").open("rb") as source, pytest.raises(EOFError):
        copy_range(source, io.BytesIO(), 1, len(DATA))


@pytest.mark.parametrize(("start", "length"), [(1, len(DATA)), (len(DATA), 1)])
def test_a_range_after_the_end_of_bytes_in_memory_is_an_error(start: int, length: int) -> None:
    with pytest.raises(EOFError, match=f"the file ends before byte {len(DATA) + 1}"):
        copy_range(io.BytesIO(DATA), io.BytesIO(), start, length)
