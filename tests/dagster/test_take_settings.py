"""Factories of definitions take the fields of a class as keywords."""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import Parameter, signature

import dagster as dg
import pytest

import paimon_orch.dagster
from paimon_orch.dagster import build_compaction_asset, build_latest_snapshot_sensor
from paimon_orch.dagster.op_specs import take_settings
from paimon_orch.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to build."""

    table: str = field(kw_only=False)
    hour: int = 3


@take_settings(Settings)
def build(settings: Settings) -> str:
    """Build a text."""
    return f"{settings.table} at {settings.hour}"


def test_the_fields_are_the_keywords_of_the_factory() -> None:
    assert build("db.t") == "db.t at 3"
    assert build("db.t", hour=4) == build(hour=4, table="db.t") == "db.t at 4"
    assert str(signature(build)) == "(table: 'str', *, hour: 'int' = 3) -> 'str'"
    assert build.__name__ == "build"
    assert build.__doc__ == "Build a text."


def test_a_wrong_call_names_the_factory() -> None:
    with pytest.raises(TypeError, match=r"^build\(\) got an unexpected keyword argument 'day'$"):
        build("db.t", day=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^build_compaction_asset\(\) missing a required argument"):
        build_compaction_asset()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "name", [name for name in paimon_orch.dagster.__all__ if name.startswith("build_")]
)
def test_a_factory_takes_what_it_builds_for_by_position_and_settings_by_name(name: str) -> None:
    parameters = signature(getattr(paimon_orch.dagster, name)).parameters.values()
    optional = [each for each in parameters if each.default is not Parameter.empty]
    assert {each.name for each in optional if each.kind is not Parameter.KEYWORD_ONLY} <= {"key"}


def test_a_sensor_refuses_unknown_checks_when_it_is_defined() -> None:
    with pytest.raises(InputError, match="lake"):
        build_latest_snapshot_sensor("lake.orders", checks={"backlog": _limit()})


def _limit() -> paimon_orch.dagster.Limit:
    return paimon_orch.dagster.Limit(limit=1)


def test_the_description_of_a_job_is_that_of_its_op() -> None:
    job = paimon_orch.dagster.build_step_job("analyze", "lake.orders")
    [node] = job.nodes
    assert isinstance(job, dg.JobDefinition)
    assert node.definition.description == job.description
