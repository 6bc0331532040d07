"""Declared steps: their arguments as JSON values, in one way for all front ends."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

import pytest

import paimon_orch.steps
from paimon_orch.cli.app import INDEX
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.times import parse_duration
from paimon_orch.steps.common.argument import Argument, convert_arguments, list_arguments
from paimon_orch.steps.common.step_registry import find_steps, load_declaration


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyRequest:
    """A request with one field of each kind."""

    name: Annotated[str, Argument("A text.")]
    count: Annotated[int | None, Argument("A number.", minimum=1)] = None
    ratio: Annotated[float, Argument("A ratio.")] = 0.5
    age: Annotated[timedelta | None, Argument("An age.", parse=parse_duration)] = None
    mode: Annotated[Literal["fast", "slow"], Argument("A choice.")] = "fast"
    buckets: Annotated[tuple[int, ...] | None, Argument("Numbers.")] = None
    specs: Annotated[Sequence[str | Mapping[str, object]] | None, Argument("Partitions.")] = None
    force: Annotated[bool, Argument("A switch.")] = False
    now: int | None = None


def test_values_of_json_become_values_of_the_request() -> None:
    values = {
        "name": "n",
        "count": 1,
        "ratio": 1,
        "age": "3 h",
        "mode": "slow",
        "buckets": [0, 2],
        "specs": ["dt=a", {"dt": "b"}],
        "force": True,
    }

    assert ToyRequest(**convert_arguments(ToyRequest, values)) == ToyRequest(
        name="n",
        count=1,
        ratio=1,
        age=timedelta(hours=3),
        mode="slow",
        buckets=(0, 2),
        specs=("dt=a", {"dt": "b"}),
        force=True,
    )
    assert convert_arguments(ToyRequest, {"name": "n", "count": None, "age": None}) == {
        "name": "n",
        "count": None,
        "age": None,
    }


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "missing arguments: name"),
        ({"name": "n", "now": 1}, "unknown arguments: now; possible are name, count, ratio"),
        ({"name": 1}, "name is 1, but must be a text"),
        ({"name": None}, "name is None, but must be a text"),
        ({"name": "n", "count": 0}, "count is 0; the minimum is 1"),
        ({"name": "n", "count": "3"}, "count is '3', but must be a whole number"),
        ({"name": "n", "count": True}, "count is True, but must be a whole number"),
        ({"name": "n", "count": 1.0}, "count is 1.0, but must be a whole number"),
        ({"name": "n", "ratio": False}, "ratio is False, but must be a number"),
        ({"name": "n", "ratio": None}, "ratio is None, but must be a number"),
        ({"name": "n", "age": 3}, "age is 3, but must be a text"),
        ({"name": "n", "age": "3"}, "age '3' is not a duration"),
        ({"name": "n", "mode": "x"}, "mode is 'x', but must be fast or slow"),
        ({"name": "n", "buckets": [0, "1"]}, r"^buckets\[1\] is '1', but must be a whole number"),
        ({"name": "n", "buckets": 1}, "buckets is 1, but must be a list"),
        ({"name": "n", "specs": "dt=a"}, "specs is 'dt=a', but must be a list"),
        ({"name": "n", "specs": [1]}, r"^specs\[0\] is 1, but must be a text or an object"),
        ({"name": "n", "force": 1}, "force is 1, but must be true or false"),
        ({"name": ["\x1b[2J"]}, r"name is \['\\x1b\[2J'\], but must be a text"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_name(
    values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        convert_arguments(ToyRequest, values)


def test_an_unknown_step_is_refused_with_the_names_of_all_steps() -> None:
    with pytest.raises(
        NotFoundError, match="no step compac; the steps are alter, analyze, clear-consumers, "
    ):
        load_declaration("compac")


def test_the_registry_finds_the_modules_with_declarations() -> None:
    root = paimon_orch.steps.__path__
    modules = {each.name for each in pkgutil.walk_packages(root, "paimon_orch.steps.")}
    declared = {
        name.removeprefix("paimon_orch.steps.")
        for name in modules
        if hasattr(importlib.import_module(name), "DECLARATION")
    }

    assert declared == {f"{entry.folder}.{entry.module}" for entry in find_steps().values()}
    assert {entry.command.split()[0] for entry in find_steps().values()} <= set(INDEX)


@pytest.mark.parametrize("name", sorted(find_steps()))
def test_every_declared_argument_has_a_sentence_and_a_type(name: str) -> None:
    declaration = load_declaration(name)

    for field in list_arguments(declaration.request).values():
        assert field.argument.help[0].isupper()
        assert field.argument.help.endswith(".")
        assert field.argument.parse is not None or field.describe_type()
    required = [each.name for each in declaration.arguments.values() if each.is_required]
    required_by_step = {
        "create-branch": ["name"],
        "create-global-index": ["column"],
        "create-tag": ["name"],
        "delete": ["where"],
        "delete-branch": ["name"],
        "delete-tag": ["name"],
        "drop-global-index": ["column"],
        "drop-partitions": ["partitions"],
        "fast-forward-branch": ["name"],
        "ingest": ["source"],
        "mark-done": ["partitions"],
        "merge-into": ["source", "on"],
        "rename-branch": ["name", "to"],
        "rename-tag": ["name", "to"],
        "repair-earliest-snapshot": ["snapshot_id"],
        "reset-consumer": ["name"],
        "update": ["assignments"],
    }
    assert required == required_by_step.get(name, [])
