"""The probe of a store's conditional create with several threads at the same moment."""

from __future__ import annotations

import time
from threading import Lock
from uuid import uuid4

import pytest

from paimon_orch.errors import FileNotCreatedError
from paimon_orch.storage import resolve_warehouse
from paimon_orch.storage.exclusive_create import ExclusiveCreator, _count_winners
from paimon_orch.storage.object_store_options import StorageOptions


class CheckThenWrite:
    """A store whose conditional create looks for the object first and writes it later."""

    def __init__(self, *, is_locked: bool) -> None:
        self.objects = dict[str, bytes]()
        self.is_locked = is_locked
        self._lock = Lock()

    def pipe_file(self, path: str, data: bytes, mode: str) -> None:
        if self.is_locked:
            with self._lock:
                self._create(path, data, mode)
        else:
            self._create(path, data, mode)

    def _create(self, path: str, data: bytes, mode: str) -> None:
        if mode == "create" and path in self.objects:
            raise FileExistsError(path)
        time.sleep(0.002)
        self.objects[path] = data

    def rm_file(self, path: str) -> None:
        del self.objects[path]


@pytest.mark.parametrize("is_locked", [True, False])
def test_only_a_store_that_checks_first_has_several_winners(*, is_locked: bool) -> None:
    store = CheckThenWrite(is_locked=is_locked)
    assert (_count_winners(store, "probe") == 1) is is_locked
    assert not store.objects


class Unreachable:
    """A store whose requests fail after the first ones."""

    def __init__(self) -> None:
        self.objects = dict[str, bytes]()

    def pipe_file(self, path: str, data: bytes, **_: str) -> None:
        if self.objects:
            raise ConnectionError("lost")
        self.objects[path] = data

    def cat_file(self, path: str) -> bytes:
        return self.objects[path]

    def rm_file(self, path: str) -> None:
        """Do not delete."""


def test_a_store_that_cannot_be_tested_is_not_written() -> None:
    io, root = resolve_warehouse(f"s3://{uuid4()}/wh")
    creator = ExclusiveCreator(
        fs=Unreachable(), io=io, options=StorageOptions.of({}), lock_seconds=1
    )
    for _ in range(2):
        with pytest.raises(FileNotCreatedError, match="requests failed that test whether"):
            creator.create(f"{root}/snapshot-1", b"mine")
        creator.fs.objects.clear()
