"""Spark reports our errors without the traceback of the worker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.tables import new_table, table_of

from paimon_orch.errors import PaimonError
from paimon_orch.spark.datasource.batch_write import build_writer
from paimon_orch.spark.datasource.stream_write import StreamTaskCommitMessage, build_stream_writer
from paimon_orch.table.write.commit_message import CommitMessage


@pytest.mark.parametrize("batch", [(), (1,)], ids=["batch", "stream"])
@pytest.mark.parametrize("method", ["write", "commit", "abort"])
def test_an_error_of_a_writer_has_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: tuple[int, ...], method: str
) -> None:
    table = new_table(tmp_path)
    build: Any = build_stream_writer if batch else build_writer
    writer = build({"path": table.paths.root}, ["k", "v"], overwrite=False)
    message = json.loads(CommitMessage().encode()) | {"entries": ""}
    damaged = StreamTaskCommitMessage(json.dumps(message).encode(), "query")
    arguments: dict[str, tuple[Any, ...]] = {
        "write": (iter(table_of("k v", [("no number", "a")]).to_batches()),),
        "commit": ([damaged], *batch),
        "abort": ([damaged, None], *batch),
    }
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "set in workers")
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")

    with pytest.raises(PaimonError):
        getattr(writer, method)(*arguments[method])

    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"
