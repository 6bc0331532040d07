"""Steps: maintenance of one table, and changes of its rows.

This package exports what users call; the modules below it are internal. Names are imported on first
use, as steps need different parts of the library. :mod:`paimon_orch.steps.common.step` describes
how a step works.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paimon_orch.steps.cleanup.quarantine import Quarantine
    from paimon_orch.steps.cleanup.remove_orphan_files import (
        OrphanFilesPlan,
        OrphanFilesResult,
        remove_orphan_files,
    )
    from paimon_orch.steps.cleanup.remove_unexisting_files import remove_unexisting_files
    from paimon_orch.steps.common.executor import Executor, InProcessExecutor, Progress
    from paimon_orch.steps.common.step import Step, run_step
    from paimon_orch.steps.compaction.compact import (
        COMPACT,
        CompactionPlan,
        CompactionResult,
        CompactRequest,
        compact,
        run_compaction,
    )
    from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionPolicy, decide
    from paimon_orch.steps.compaction.postpone import (
        MOVE_POSTPONED,
        MovePostponedRequest,
        move_postponed,
    )
    from paimon_orch.steps.compaction.sort_compact import SortOrder, SortRequest
    from paimon_orch.steps.expiration.expire_changelogs import expire_changelogs
    from paimon_orch.steps.expiration.expire_partitions import expire_partitions
    from paimon_orch.steps.expiration.expire_snapshots import (
        SnapshotExpirationPlan,
        SnapshotExpirationResult,
        expire_snapshots,
    )
    from paimon_orch.steps.expiration.expire_tags import delete_tag, expire_tags
    from paimon_orch.steps.inspection.check_table import CheckReport, check
    from paimon_orch.steps.inspection.findings import Finding
    from paimon_orch.steps.inspection.health import TableHealth, compute_health
    from paimon_orch.steps.inspection.inspect import TableReport, inspect
    from paimon_orch.steps.maintenance.analyze import (
        ANALYZE,
        AnalyzeRequest,
        AnalyzeResult,
        analyze,
    )
    from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
    from paimon_orch.steps.maintenance.create_tags import create_tags
    from paimon_orch.steps.maintenance.rescale import RESCALE, RescaleRequest, rescale
    from paimon_orch.steps.maintenance.rewrite_file_index import (
        REWRITE_FILE_INDEX,
        FileIndexRewriteResult,
        RewriteFileIndexRequest,
        rewrite_file_index,
    )
    from paimon_orch.steps.row_level.row_level_write import RowLevelRequest, RowLevelResult, delete

_MODULES = {
    "common.executor": ("Executor", "InProcessExecutor", "Progress"),
    "common.step": ("Step", "run_step"),
    "compaction.compact": (
        "COMPACT",
        "CompactRequest",
        "CompactionPlan",
        "CompactionResult",
        "compact",
        "run_compaction",
    ),
    "compaction.policy": ("CompactionDecision", "CompactionPolicy", "decide"),
    "compaction.postpone": ("MOVE_POSTPONED", "MovePostponedRequest", "move_postponed"),
    "compaction.sort_compact": ("SortOrder", "SortRequest"),
    "expiration.expire_changelogs": ("expire_changelogs",),
    "expiration.expire_partitions": ("expire_partitions",),
    "expiration.expire_snapshots": (
        "SnapshotExpirationPlan",
        "SnapshotExpirationResult",
        "expire_snapshots",
    ),
    "expiration.expire_tags": ("delete_tag", "expire_tags"),
    "cleanup.quarantine": ("Quarantine",),
    "cleanup.remove_orphan_files": ("OrphanFilesPlan", "OrphanFilesResult", "remove_orphan_files"),
    "cleanup.remove_unexisting_files": ("remove_unexisting_files",),
    "inspection.check_table": ("CheckReport", "check"),
    "inspection.findings": ("Finding",),
    "inspection.health": ("TableHealth", "compute_health"),
    "inspection.inspect": ("TableReport", "inspect"),
    "maintenance.analyze": ("ANALYZE", "AnalyzeRequest", "AnalyzeResult", "analyze"),
    "maintenance.compact_manifests": ("compact_manifests",),
    "maintenance.create_tags": ("create_tags",),
    "maintenance.rescale": ("RESCALE", "RescaleRequest", "rescale"),
    "maintenance.rewrite_file_index": (
        "REWRITE_FILE_INDEX",
        "FileIndexRewriteResult",
        "RewriteFileIndexRequest",
        "rewrite_file_index",
    ),
    "row_level.row_level_write": ("RowLevelRequest", "RowLevelResult", "delete"),
}
_MODULE_BY_NAME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ANALYZE",
    "COMPACT",
    "MOVE_POSTPONED",
    "RESCALE",
    "REWRITE_FILE_INDEX",
    "AnalyzeRequest",
    "AnalyzeResult",
    "CheckReport",
    "CompactRequest",
    "CompactionDecision",
    "CompactionPlan",
    "CompactionPolicy",
    "CompactionResult",
    "Executor",
    "FileIndexRewriteResult",
    "Finding",
    "InProcessExecutor",
    "MovePostponedRequest",
    "OrphanFilesPlan",
    "OrphanFilesResult",
    "Progress",
    "Quarantine",
    "RescaleRequest",
    "RewriteFileIndexRequest",
    "RowLevelRequest",
    "RowLevelResult",
    "SnapshotExpirationPlan",
    "SnapshotExpirationResult",
    "SortOrder",
    "SortRequest",
    "Step",
    "TableHealth",
    "TableReport",
    "analyze",
    "check",
    "compact",
    "compact_manifests",
    "compute_health",
    "create_tags",
    "decide",
    "delete",
    "delete_tag",
    "expire_changelogs",
    "expire_partitions",
    "expire_snapshots",
    "expire_tags",
    "inspect",
    "move_postponed",
    "remove_orphan_files",
    "remove_unexisting_files",
    "rescale",
    "rewrite_file_index",
    "run_compaction",
    "run_step",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
