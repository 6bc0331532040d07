"""Remote files are opened once, and ahead of their use."""

from __future__ import annotations

import pickle
from typing import IO
from uuid import uuid4

import pytest

from paimon_orch.errors import CorruptFileError
from paimon_orch.storage import FileIO, LocalFileIO, recent_inputs, resolve_warehouse
from paimon_orch.storage.recent_inputs import RecentInputs, alternate, iterate_ahead

pytest.importorskip("fsspec")


@pytest.fixture
def io(monkeypatch: pytest.MonkeyPatch) -> FileIO:
    io = resolve_warehouse(f"memory://{uuid4()}/warehouse")[0]
    original = type(io).open_input

    def open_input(self: FileIO, path: str, size: int | None = None) -> IO[bytes]:
        opened.append(path.rpartition("/")[2])
        return original(self, path, size)

    opened.clear()
    monkeypatch.setattr(type(io), "open_input", open_input)
    return io


opened: list[str] = []


def new_files(io: FileIO, *contents: bytes) -> list[str]:
    root = io.root  # type: ignore[attr-defined]
    paths = [f"{root}/f{number}" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        io.write(path, content)
    return paths


def read(inputs: RecentInputs, io: FileIO, path: str, size: int) -> bytes:
    with inputs.open(io, path, size) as source:
        return source.read()


def test_a_remote_file_is_opened_once(io: FileIO) -> None:
    inputs = RecentInputs()
    [path] = new_files(io, b"content")

    assert inputs.start(io, path, 7)
    assert inputs.start(io, path, 7)
    for _ in range(2):
        assert read(inputs, io, path, 7) == b"content"
    assert opened == ["f0"]
    with pytest.raises(CorruptFileError, match="has 7 bytes"):
        inputs.open(io, path, 8)


def test_an_error_is_raised_by_the_opening_that_needs_the_file(io: FileIO) -> None:
    inputs = RecentInputs()
    [path] = new_files(io, b"content")

    assert inputs.start(io, path, 9)
    assert inputs.start(io, f"{path}-missing", 9)
    with pytest.raises(CorruptFileError, match="has 7 bytes, but its manifest entry states 9"):
        inputs.open(io, path, 9)
    with pytest.raises(FileNotFoundError):
        inputs.open(io, f"{path}-missing", 9)


def test_memory_is_bounded(io: FileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_inputs, "_MAX_BYTES", 25)
    monkeypatch.setattr(recent_inputs, "_MAX_STARTED_BYTES", 25)
    inputs, paths = RecentInputs(), new_files(io, *[bytes(10)] * 4)

    assert [inputs.start(io, path, 10) for path in paths] == [True, True, False, False]
    for path in (*paths, paths[3], paths[2], paths[0]):
        assert read(inputs, io, path, 10) == bytes(10)
    assert sorted(opened) == ["f0", "f0", "f1", "f2", "f3"]


def test_a_local_file_is_opened_each_time(tmp_path: object) -> None:
    io, inputs, path = LocalFileIO(), RecentInputs(), f"{tmp_path}/file"
    io.write(path, b"old")
    assert not inputs.start(io, path, 3)
    assert read(inputs, io, path, 3) == b"old"
    io.write(path, b"new")
    assert read(inputs, io, path, 3) == b"new"


def test_a_copy_in_another_process_has_no_content(io: FileIO) -> None:
    inputs = RecentInputs()
    [path] = new_files(io, b"content")
    read(inputs, io, path, 7)
    copied = pickle.loads(pickle.dumps(inputs))  # noqa: S301 - its own bytes
    read(copied, io, path, 7)
    assert opened == ["f0", "f0"]


def test_the_next_items_are_started_until_one_cannot_be_started() -> None:
    free, started = 3, list[int]()

    def start(number: int) -> bool:
        if len(started) == free:
            return False
        started.append(number)
        return True

    items = iterate_ahead(range(6), start)
    assert next(items) == 0
    assert started == [0, 1, 2]
    free = 5
    assert next(items) == 1
    assert started == [0, 1, 2, 3, 4]
    assert list(items) == [2, 3, 4, 5]


def test_the_first_files_of_all_runs_are_opened_first() -> None:
    assert list(alternate(["abc", "", "d", "ef"])) == ["a", "d", "e", "b", "f", "c"]
    assert list(alternate([])) == []
