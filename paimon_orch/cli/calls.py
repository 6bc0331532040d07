"""Calls of commands: classes whose fields are the arguments and options of a command.

A command that takes one parameter ``call`` has the fields of its class as options.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.cli import common
from paimon_orch.cli.arguments import (
    CatalogLocation,
    DryRun,
    ExecutorOption,
    Identifier,
    JsonOutput,
    Master,
    SnapshotId,
)
from paimon_orch.cli.registration import declared_option, option
from paimon_orch.cli.screen import LINES
from paimon_orch.steps.common.executor_choice import ChoosingExecutor, ExecutorKind
from paimon_orch.steps.common.snapshot_selection import SnapshotRequest

if TYPE_CHECKING:
    from paimon_orch.table.scan.base_scan import BaseScan


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
class ScanCall(CatalogCall):
    """A call of a command that scans a table or a system table."""

    table: Identifier
    where: str | None = option("SQL filter, e.g. \"status = 'OPEN'\".", metavar="CONDITION")
    snapshot: SnapshotId = None
    tag: str | None = declared_option(SnapshotRequest, "tag")
    timestamp: int | None = declared_option(SnapshotRequest, "timestamp")
    watermark: int | None = declared_option(SnapshotRequest, "watermark")
    merge_level_0: bool | None = option(
        "Read or skip level 0 of tables with deletion vectors and of first-row tables.",
        show_default="the table's options",
    )

    def open_scan(
        self, identifier: str, columns: list[str] | None = None, **options: Any
    ) -> "BaseScan":
        """Open the scan, and print how many rows it does not return before a compaction."""
        opened = common.open_readable(self.ctx, self.location, identifier)
        scan = opened.scan(
            columns,
            self.where,
            snapshot_id=self.snapshot,
            tag=self.tag,
            timestamp=self.timestamp,
            watermark=self.watermark,
            merge_level_0=self.merge_level_0,
            **options,
        )
        common.note_rows_not_visible(opened, scan)
        return scan


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """The options of a command whose work may run on Spark, and can be planned only."""

    dry_run: DryRun = False
    executor: ExecutorOption = ExecutorKind.AUTO
    master: Master = None

    def build_executor(self) -> ChoosingExecutor:
        """Return the executor, which starts Spark only for work that needs it."""
        return common.build_executor(self.executor, self.master)
