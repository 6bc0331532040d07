"""Iceberg readers see what they have to see after each action of random histories."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from support.iceberg_histories import KINDS, Action, History, histories, open_iceberg_table

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", KINDS)
def test_iceberg_readers_see_the_table_after_each_action(kind: str) -> None:
    @settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
    @given(histories(12))
    def check(history: list[Action]) -> None:
        with tempfile.TemporaryDirectory() as root:
            model = History(Path(root), kind)
            model.run([*history, ("write", 1), ("full", 0)])
            model.check_time_travel()
            if not model.was_damaged:
                assert open_iceberg_table(model.table).unreferenced_files() == set()

    check()
