import dagster as dg
import pytest

from paimon_orch.dagster.spark_links import build_progress_logger


def test_progress_is_logged_at_most_once_per_interval(
    capsys: pytest.CaptureFixture[str],
) -> None:
    context = dg.build_op_context()

    build_progress_logger(context, "compact lake.orders", interval_seconds=0)(3, 8)
    build_progress_logger(context, "compact lake.items", interval_seconds=60)(3, 8)

    logged = capsys.readouterr().err
    assert "compact lake.orders: 3 of 8 work units done" in logged
    assert "lake.items" not in logged
