"""Commands on branches."""

from __future__ import annotations

import pytest
from support.commands import run_on
from support.tables import rows_of

from paimon_orch.errors import InputError, NotFoundError, PaimonError
from paimon_orch.table.table import Table


def test_a_branch_is_renamed(partitioned: Table) -> None:
    partitioned.tags.create("base", 1)
    partitioned.branches.create("dev", "base")
    partitioned.branches.create("other")
    assert run_on(partitioned, "branch rename", "dev", "new") == "renamed branch dev to new"
    assert partitioned.branches.names() == ["new", "other"]
    assert run_on(partitioned, "branch rename", "new", "x", "--dry-run") == (
        "would rename branch new to x of db.t; nothing was changed"
    )
    for name, to in (("new", "other"), ("new", "main"), ("new", "new"), ("new", "7")):
        for options in ((), ("--dry-run",)):
            with pytest.raises(InputError):
                run_on(partitioned, "branch rename", name, to, *options)
    with pytest.raises(NotFoundError, match="no branch 'gone'"):
        run_on(partitioned, "branch rename", "gone", "x")
    assert partitioned.branches.names() == ["new", "other"]


def test_branches_are_created_fast_forwarded_and_deleted(partitioned: Table) -> None:
    partitioned.tags.create("base", 1)
    create = ("branch create", "dev", "--tag", "base")
    assert run_on(partitioned, *create, "--dry-run") == (
        "would create branch dev of db.t at tag base; nothing was changed"
    )
    assert partitioned.branches.names() == []
    assert run_on(partitioned, *create) == "branch dev starts at tag base"
    with pytest.raises(InputError, match="already has a branch 'dev'"):
        run_on(partitioned, "branch create", "dev", "--dry-run")
    run_on(partitioned, "branch create", "empty")
    assert run_on(partitioned, "branch list").split() == ["dev", "empty"]
    output = run_on(partitioned, "branch fast-forward", "dev", "--dry-run")
    assert output.startswith("would move main of db.t from snapshot 2 to snapshot 1 of branch dev")
    assert (
        run_on(partitioned, "branch fast-forward", "dev", "--yes")
        == "moved main to snapshot 1 of branch dev"
    )
    output = run_on(partitioned, "branch delete", "dev", "--dry-run")
    assert output.startswith("would delete branch dev of db.t with 1 snapshot and 1 tag (base)")
    run_on(partitioned, "branch delete", "empty", "--yes")

    assert partitioned.branches.names() == ["dev"]
    assert len(rows_of(partitioned)) == 2


def test_an_empty_branch_name_is_refused(partitioned: Table) -> None:
    with pytest.raises(PaimonError, match="branch"):
        run_on(partitioned, "read", "--branch", "")


def test_a_dry_run_is_refused_like_the_command(partitioned: Table) -> None:
    run_on(partitioned, "branch create", "empty")

    for command, name, reason in (
        ("delete", "main", "must not be"),
        ("fast-forward", "main", "must not be"),
        ("fast-forward", "empty", "has no snapshot"),
        ("delete", "nope", "has no branch"),
    ):
        with pytest.raises(PaimonError, match=reason):
            run_on(partitioned, f"branch {command}", name, "--dry-run")
