"""Ranges of files and of bytes in memory are copied."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from paimon_orch.storage import copy_range as copy_range_module
from paimon_orch.storage.copy_range import copy_range

DATA = bytes(range(256)) * 40


def test_ranges_of_files_are_appended_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_range_module, "_PART_BYTES", 100)
    (tmp_path / "in").write_bytes(DATA)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("xb") as sink:
        sink.write(b"head")
        copy_range(source, sink, 300, 1_000)
        assert sink.tell() == 1_004
        sink.write(b"-")
        copy_range(source, sink, 5, 0)
        copy_range(source, sink, 0, len(DATA))
    assert (tmp_path / "out").read_bytes() == b"head" + DATA[300:1_300] + b"-" + DATA


def test_ranges_of_bytes_in_memory_are_copied() -> None:
    sink = io.BytesIO()
    copy_range(io.BytesIO(DATA), sink, 300, 1_000)
    assert sink.getvalue() == DATA[300:1_300]


def test_a_range_after_the_end_of_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(DATA)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("xb") as sink:
        with pytest.raises(EOFError, match=f"the file ends before byte {len(DATA) + 1}"):
            copy_range(source, sink, 1, len(DATA))
        with pytest.raises(EOFError):
            copy_range(io.BytesIO(DATA), sink, len(DATA), 1)
