"""What tasks leave behind in the worker that runs them."""

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from zipimport import zipimporter

import pyarrow as pa
import pytest

from paimon_orch.spark.tasks import without_archives


def archives() -> set[str]:
    return {path for path, it in sys.path_importer_cache.items() if isinstance(it, zipimporter)}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An archive on the path with two modules."""
    path = str(tmp_path / "modules.zip")
    with zipfile.ZipFile(path, "w") as file:
        for name in ("one", "two"):
            file.writestr(f"archived_{name}.py", f"NAME = {name!r}\n")
    monkeypatch.syspath_prepend(path)
    yield path
    for name in ("one", "two"):
        sys.modules.pop(f"archived_{name}", None)


def test_python_is_not_made_to_read_archives_again_before_the_next_task(archive: str) -> None:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = [importlib.import_module("archived_one").NAME]
            yield batch.append_column("name", pa.array(names))

    batch = pa.record_batch({"id": [1]})
    running = without_archives(task)(iter([batch]))
    found = next(running)
    assert archive in archives()
    assert list(running) == []

    assert found.to_pydict() == {"id": [1], "name": ["one"]}
    assert not archives()
    assert importlib.import_module("archived_two").NAME == "two"


def test_a_task_that_fails_is_no_exception(archive: str) -> None:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        importlib.import_module("archived_one")
        yield from batches
        raise RuntimeError("no more rows")

    with pytest.raises(RuntimeError, match="no more rows"):
        list(without_archives(task)(iter(())))
    assert not archives()
