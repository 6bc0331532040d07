import dagster as dg
import pytest

from paimon_orch.dagster.progress import log_progress


def test_progress_is_logged_no_more_often_than_the_interval(
    capsys: pytest.CaptureFixture[str],
) -> None:
    context = dg.build_op_context()

    log_progress(context, "compact lake.orders", interval_seconds=0)(3, 8)
    log_progress(context, "compact lake.items", interval_seconds=60)(3, 8)

    logged = capsys.readouterr().err
    assert "compact lake.orders: 3 of 8 work units done" in logged
    assert "lake.items" not in logged
