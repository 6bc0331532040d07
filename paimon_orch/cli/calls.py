"""Calls of commands: classes whose fields are the arguments and options of a command.

A command that takes one parameter ``call`` has the fields of its class as options.
"""

from dataclasses import dataclass

import typer

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.cli import common
from paimon_orch.cli.arguments import CatalogLocation, DryRun, ExecutorOption, JsonOutput, Master
from paimon_orch.cli.screen import LINES
from paimon_orch.steps.common.executor_choice import ChoosingExecutor, ExecutorKind


@dataclass(frozen=True, kw_only=True)
class CatalogCall:
    """A call of a command that works on a catalog, perhaps with an executor."""

    ctx: typer.Context
    location: CatalogLocation
    output: JsonOutput = LINES

    def open_catalog(self) -> Catalog:
        """Open the catalog."""
        return common.open_catalog(self.ctx, self.location)


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """The options of a command whose work may run on Spark, and can be planned only."""

    dry_run: DryRun = False
    executor: ExecutorOption = ExecutorKind.AUTO
    master: Master = None

    def build_executor(self) -> ChoosingExecutor:
        """Return the executor, which starts Spark only for work that needs it."""
        return common.build_executor(self.executor, self.master)
