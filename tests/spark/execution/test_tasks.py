"""The state of workers after tasks."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from zipimport import zipimporter

import pyarrow as pa
import pytest

from paimon_orch.spark.execution import tasks
from paimon_orch.spark.execution.tasks import build_worker_task, map_units_in_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archives() -> set[str]:
    return {path for path, it in sys.path_importer_cache.items() if isinstance(it, zipimporter)}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An archive with two modules, on the path of a worker without the objects of one."""
    path = str(tmp_path / "modules.zip")
    with zipfile.ZipFile(path, "w") as file:
        for name in ("one", "two"):
            file.writestr(f"archived_{name}.py", f"NAME = {name!r}\n")
    monkeypatch.syspath_prepend(path)
    spec = SimpleNamespace(name="pyspark.daemon")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setattr(tasks, "_freeze_objects", lambda: None)
    yield path
    for name in ("one", "two"):
        sys.modules.pop(f"archived_{name}", None)


def test_archives_are_not_read_again_before_the_next_task_but_can_be_imported(
    archive: str,
) -> None:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = [importlib.import_module("archived_one").NAME]
            yield batch.append_column("name", pa.array(names))

    running = build_worker_task(task, ["id"])(iter([pa.record_batch({"0": [1]})]))
    result = next(running)
    assert archive in archives()
    assert list(running) == []

    assert result.to_pydict() == {"id": [1], "name": ["one"]}
    assert not archives()
    assert importlib.import_module("archived_two").NAME == "two"


def test_archives_are_not_read_again_after_a_failed_task(archive: str) -> None:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        importlib.import_module("archived_one")
        yield from batches
        raise RuntimeError("no more rows")

    with pytest.raises(RuntimeError, match="no more rows"):
        list(build_worker_task(task, [])(iter(())))
    assert archive not in archives()


@pytest.mark.slow
def test_a_worker_freezes_its_objects_after_its_first_task(spark: SparkSession) -> None:
    def look(_: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch(
            {"pid": [os.getpid()], "frozen": [gc.get_freeze_count()], "archives": [len(archives())]}
        )

    met, again = set[int](), 0
    frozen_here = gc.get_freeze_count()
    for _ in range(6):
        [(pid, frozen, archive_count)] = map_units_in_spark(
            spark, 1, look, "pid long, frozen long, archives long"
        ).collect()
        if pid in met:
            again += 1
            assert frozen > 10_000
            assert not archive_count
        met.add(pid)

    assert again
    assert gc.get_freeze_count() == frozen_here  # the driver does not freeze its objects
