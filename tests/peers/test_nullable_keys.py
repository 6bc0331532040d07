"""Java Paimon and we merge and compact rows with null in the primary key; null equals null."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.peers import ours
from support.peers.kinds import Kind, Record, Step, compact, write
from support.peers.peers import Peer

from paimon_orch.format.options.core_options import PRIMARY_KEY_NULLABLE


def part(value: str, keys: list[tuple[int | None, str | None]]) -> Step:
    return write([{"a": a, "b": b, "v": value} for a, b in keys])


@pytest.mark.parametrize("bucket", ["1", "3"])
def test_java_and_we_merge_null_keys_alternately(java: Peer, tmp_path: Path, bucket: str) -> None:
    keys = [(None, None), (None, "x"), (1, None), (1, "x")]
    steps = [part(f"{turn}", keys[turn % 3 :]) for turn in range(6)]
    kind = Kind(
        name="nullable keys",
        steps=steps,
        columns="a BIGINT, b STRING, v STRING",
        primary_key=["a", "b"],
        options={"bucket": bucket, "primary-key.nullable": "true"},
    )
    table = ours.create(tmp_path, kind)
    for turn, step in enumerate(steps):
        if turn % 2:
            ours.run_step(tmp_path, step)
            java.run(warehouse=tmp_path, **compact())
        else:
            java.run(warehouse=tmp_path, **step, options={"write-only": "true"})
            ours.run_step(tmp_path, compact(full=False))

    def in_order(records: list[Record]) -> list[str]:
        return sorted(str([row["a"], row["b"], row["v"]]) for row in records)

    assert in_order(java.read(tmp_path)) == in_order(kind.expected())
    assert in_order(ours.read(tmp_path, kind)) == in_order(kind.expected())
    assert table.load().schema.typed_options.get(PRIMARY_KEY_NULLABLE)
