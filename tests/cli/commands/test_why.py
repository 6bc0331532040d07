"""The command ``why``; test_verdict.py runs the commands that it names."""

from __future__ import annotations

import json
from pathlib import Path

from support.commands import Run
from support.tables import table_of

from paimon_orch import Catalog


def test_the_paragraph_has_the_cost_now_and_after_the_command(run: Run, tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "id BIGINT NOT NULL, v STRING", primary_key=["id"], options={"bucket": "1"}
    )
    assert run("why", tmp_path, "db.t").out.startswith("A scan of db.t opens 0 data files and 0 ")
    for text in "abc":
        table.upsert(table_of("id v", [(1, text)]))

    paragraph = run("why", tmp_path, "db.t").out

    assert paragraph.startswith("A scan of db.t opens 3 data files and 3 manifests: about 11 ")
    assert "It merges up to 3 sorted runs in a bucket. " in paragraph
    after = f"After paimon-orch compact {tmp_path} db.t --strategy full: about 1 request fewer, "
    assert f"{after}at most 1 sorted run. It rewrites 3 files of " in paragraph
    assert paragraph.endswith("No limit of doctor is exceeded.\n")
    measured = run("why", tmp_path, "db.t", "--simulate").out
    assert measured.startswith(paragraph)
    assert "Measured on 1 of 1 bucket" in measured
    assert "in 3 requests to 3 files" in measured
    document = json.loads(run("why", tmp_path, "db.t", "--simulate", "--json").out)
    assert document["simulation"]["after"]["files"] == 1
    assert len(table.snapshots()) == 3
    run("compact", tmp_path, "db.t", "--strategy", "full")
    assert "nothing was measured" in run("why", tmp_path, "db.t", "--simulate").out
    assert "sorted runs" not in run("why", tmp_path, "db.t").out
