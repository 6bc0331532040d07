"""Checks options before each step on a table: refuses the step, or warns of allowed options."""

from collections.abc import Mapping
from functools import cache

from paimon_orch.format.options.blocking_options import (
    Allowances,
    check_step,
    describe_options,
    describe_unknown_options,
    find_blocking_options,
    raise_step_refused,
)
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.safe_text import get_logger

logger = get_logger(__name__)


def require_step(
    table: str,
    options: Mapping[str, str],
    step: StepKind,
    allowances: Allowances,
    *,
    has_service: bool,
) -> None:
    """Check a step with :func:`check_step`; log each allowed option once per table."""
    for obstacle in check_step(table, options, step, allowances, has_service=has_service):
        consequence = "stale after this run" if obstacle.is_external else "allowed for this run"
        _warn_once(f"{table}: {consequence}: {obstacle.describe()}")


def list_stale_options(
    options: Mapping[str, str], step: StepKind, allowances: Allowances, *, has_service: bool
) -> list[str]:
    """Return the options, as ``key=value``, whose external systems an allowed step leaves stale."""
    return [
        f"{key}={value}"
        for obstacle in find_blocking_options(options, step, has_service=has_service)
        if obstacle.is_external and obstacle.is_allowed(allowances)
        for key, value in hide_secrets({obstacle.key: obstacle.value}).items()
    ]


def require_external_systems(
    table: str, options: Mapping[str, str], allowances: Allowances, *, has_service: bool
) -> None:
    """Refuse to drop a table that an external system refers to; ignores other options."""
    obstacles = find_blocking_options(options, StepKind.DELETE, has_service=has_service)
    external = [obstacle for obstacle in obstacles if obstacle.is_external]
    if external and not allowances.stale_external:
        raise_step_refused(table, external, StepKind.DELETE)


def warn_of_options(table: str, options: Mapping[str, str], *, has_service: bool = False) -> None:
    """Log the options of a new or altered table that are unknown or that a step refuses."""
    for sentence in describe_options(options, has_service=has_service):
        logger.warning("%s: %s", table, sentence)


def warn_of_unknown_options(table: str, options: Mapping[str, str]) -> None:
    """Log unknown options, which may belong to a newer release, once per table and option."""
    for sentence in describe_unknown_options(options):
        _warn_once(f"{table}: {sentence}")


@cache
def _warn_once(message: str) -> None:
    logger.warning(message)
