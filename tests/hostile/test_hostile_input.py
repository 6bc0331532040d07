"""Input files of an ingest that are pipes, sockets and devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.limited_process import refuse
from support.special_files import SPECIAL_FILES
from support.tables import new_table

from paimon_orch.spark.input_files import read_files
from paimon_orch.steps.ingest_columns import find_columns
from paimon_orch.steps.ingest_files import read_input_files
from paimon_orch.storage import LocalFileIO

READERS: dict[str, Callable[[str, Path], object]] = {
    "local": lambda path, root: read_input_files([path], new_table(root).load().schema),
    "columns": lambda path, _: find_columns([path], LocalFileIO()),
    "Spark": lambda path, _: read_files(cast("Any", SimpleNamespace(read=None)), [path]),
}
PLACES = ["{root}/in/x.{form}", "{root}/in", "file:{root}/in/x.{form}", "file://{root}/in"]


@pytest.mark.sampled(20)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
@pytest.mark.parametrize("kind", SPECIAL_FILES)
def test_a_special_file_is_not_opened(
    tmp_path: Path, kind: str, form: str, place: str, reader: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / f"a.{form}").write_text("k\n1\n")
    SPECIAL_FILES[kind](folder / f"x.{form}")
    path = place.format(root=tmp_path, form=form)

    assert f"x.{form} is a special file" in refuse(lambda: READERS[reader](path, tmp_path))
