"""The Python functions of steps take the fields of their requests."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from inspect import getdoc, signature
from pathlib import Path
from typing import Annotated

import pytest
from support.tables import new_table

from paimon_orch import steps
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.executor import Executor, InProcessExecutor, Progress
from paimon_orch.steps.common.step_declaration import CallOnExecutor, take_fields
from paimon_orch.table.table import Table


def _refuse_five(_table: Table, value: int) -> None:
    if value == 5:
        raise NotFoundError("there is no 5")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRequest(ParsedRequest):
    """What to count."""

    name: Annotated[str, Argument("Name to count.")] = field(kw_only=False)
    at_most: Annotated[
        int, Argument("Largest count.", minimum=1, check=_refuse_five, default="one")
    ] = 1
    now: int | None = None


@take_fields(CountRequest)
def count(table: Table, request: CountRequest) -> tuple[str, int]:
    """Count a name."""
    assert isinstance(table, Table)
    return request.name, request.at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRequest(ParsedRequest):
    """How far to count."""

    at_most: Annotated[int, Argument("Largest count.", minimum=1)] = 1


@take_fields(LimitRequest)
def count_units(
    table: Table, request: LimitRequest, executor: Executor | None, progress: Progress | None
) -> tuple[int, Executor | None, bool]:
    """Count units."""
    assert isinstance(table, Table)
    return request.at_most, executor, progress is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountCall(CallOnExecutor, CountRequest):
    """A call whose executor follows the name."""


@take_fields(CountCall)
def count_on_executor(table: Table, request: CountCall) -> tuple[str, Executor | None]:
    """Count a name elsewhere."""
    assert isinstance(table, Table)
    return request.name, request.executor


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return new_table(tmp_path)


def test_the_fields_are_parameters_with_their_types_and_defaults() -> None:
    assert str(signature(count)).replace("paimon_orch.table.table.", "") == (
        "(table: Table, name: str, *, at_most: int = 1, now: int | None = None) -> tuple[str, int]"
    )
    names = list(signature(count_units).parameters)
    assert names == ["table", "executor", "at_most", "progress"]
    assert count.__annotations__["at_most"] is int
    assert count.__name__ == "count"  # type: ignore[attr-defined]


def test_values_are_passed_by_position_or_name(table: Table) -> None:
    executor = InProcessExecutor()
    assert count(table, "a") == ("a", 1)
    assert count(table=table, name="a", at_most=2) == ("a", 2)
    assert count_units(table) == (1, None, False)
    assert count_on_executor(table, "a") == ("a", None)
    assert count_on_executor(table, "a", executor) == ("a", executor)
    assert count_on_executor(table, "a", executor=executor) == ("a", executor)
    assert count_units(table, executor, at_most=3) == (3, executor, False)
    assert count_units(table, progress=lambda *_: None, executor=executor) == (1, executor, True)


def test_the_sentences_of_the_fields_are_in_the_docstring() -> None:
    assert getdoc(count) == (
        "Count a name.\n\n:param name: Name to count.\n:param at_most: Largest count. Default: one."
    )
    assert ":param executor: runs the work units; by default this process" in str(
        getdoc(count_units)
    )


def test_a_wrong_call_names_the_function(table: Table) -> None:
    with pytest.raises(TypeError, match=r"^count\(\) missing a required argument: 'name'$"):
        count(table)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^count\(\) got an unexpected keyword argument 'most'$"):
        count(table, "a", most=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^count\(\) too many positional arguments$"):
        count(table, "a", 2)  # type: ignore[call-arg]


def test_values_are_checked_by_the_request_and_with_the_table(table: Table) -> None:
    with pytest.raises(InputError, match=r"^at_most is 0; the minimum is 1$"):
        count(table, "a", at_most=0)
    with pytest.raises(NotFoundError, match="there is no 5"):
        count(table, "a", at_most=5)


def test_an_iterator_becomes_a_list_that_can_be_read_twice() -> None:
    request = steps.CompactRequest(buckets=iter([0, 2]))  # type: ignore[arg-type]
    assert request.buckets == (0, 2)


CALLS = """
from datetime import timedelta
from paimon_orch.steps import InProcessExecutor, compact, drop_global_index, mark_done, repair
from paimon_orch.table.table import Table

def call(table: Table) -> None:
    compact(table, InProcessExecutor(), idle_for=timedelta(hours=2), buckets=[1], progress=print)
    reveal_type(mark_done(table, ["dt=1"]))
    repair(table, rules=["snapshot-gap"])
    drop_global_index(table, "a", index_type="btree")
    compact(table, strategy="all")
    compact(table, idle=timedelta(hours=2))
    mark_done(table)
    drop_global_index(table, 1)
"""


@pytest.mark.slow
def test_type_checkers_know_the_fields(tmp_path: Path, repository: Path) -> None:
    script = tmp_path / "calls.py"
    script.write_text(CALLS, encoding="utf-8")
    shown = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(script)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split(":", 1)[1] for line in shown.stdout.splitlines() if "calls.py:" in line]
    refused = CALLS.splitlines().index('    compact(table, strategy="all")') + 1
    numbers = dict.fromkeys(line.split(":")[0] for line in lines)  # some have a note too
    assert list(numbers) == ["8", *map(str, range(refused, refused + 4))]
    assert "MarkDoneResult" in lines[0]
    assert "Literal['minor', 'full']" in lines[1]
