"""Damaged data files are refused, and do not end the process inside of pyarrow."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["orc", "parquet", "avro"])
def test_damaged_metadata_of_data_files_raises_expected_errors(kind: str) -> None:
    command = [sys.executable, "-m", "support.damaged_data_files", kind]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert (result.returncode, result.stdout) == (0, "")
