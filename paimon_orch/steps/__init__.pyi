from paimon_orch.steps.autopilot.action_outcome import ActionOutcome, MaintenancePrices
from paimon_orch.steps.autopilot.budgets import MaintenanceBudgets
from paimon_orch.steps.autopilot.decisions import MaintenanceDecision
from paimon_orch.steps.autopilot.maintenance_history import read_maintenance_history
from paimon_orch.steps.autopilot.maintenance_plan import MaintenancePlan, plan_maintenance
from paimon_orch.steps.autopilot.maintenance_request import MaintenanceRequest
from paimon_orch.steps.autopilot.run_maintenance import MaintenanceResult, run_maintenance
from paimon_orch.steps.cleanup.purge_files import PURGE_FILES, purge_files
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.cleanup.remove_orphan_files import (
    REMOVE_ORPHAN_FILES,
    OrphanFilesPlan,
    OrphanFilesResult,
    RemoveOrphanFilesRequest,
    remove_orphan_files,
)
from paimon_orch.steps.common.executor import Executor, InProcessExecutor, Progress
from paimon_orch.steps.common.local_executor import LocalExecutor
from paimon_orch.steps.common.step import EmptyRequest, Step, run_step
from paimon_orch.steps.compaction.chain_table import (
    COMPACT_CHAIN_TABLE,
    CompactChainTableRequest,
    compact_chain_table,
)
from paimon_orch.steps.compaction.compact import (
    COMPACT,
    CompactionPlan,
    CompactionResult,
    CompactRequest,
    compact,
    run_compaction,
)
from paimon_orch.steps.compaction.decide import decide
from paimon_orch.steps.compaction.key_indexes import BUILD_KEY_INDEXES, build_key_indexes
from paimon_orch.steps.compaction.materialize_deletion_vectors import (
    MATERIALIZE_DELETION_VECTORS,
    materialize_deletion_vectors,
)
from paimon_orch.steps.compaction.move_postponed import (
    MOVE_POSTPONED,
    MovePostponedRequest,
    move_postponed,
)
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionPolicy
from paimon_orch.steps.compaction.sort_compact import SortOrder, SortRequest
from paimon_orch.steps.expiration.delete_tag import DELETE_TAG, DeleteTagRequest, delete_tag
from paimon_orch.steps.expiration.expire_changelogs import (
    EXPIRE_CHANGELOGS,
    ExpireChangelogsRequest,
    expire_changelogs,
)
from paimon_orch.steps.expiration.expire_partitions import (
    EXPIRE_PARTITIONS,
    ExpirePartitionsRequest,
    expire_partitions,
)
from paimon_orch.steps.expiration.expire_snapshots import (
    EXPIRE_SNAPSHOTS,
    ExpireSnapshotsRequest,
    SnapshotExpirationPlan,
    SnapshotExpirationResult,
    expire_snapshots,
)
from paimon_orch.steps.expiration.expire_tags import EXPIRE_TAGS, ExpireTagsRequest, expire_tags
from paimon_orch.steps.inspection.check_table import CheckReport, check
from paimon_orch.steps.inspection.findings import Finding
from paimon_orch.steps.inspection.health import TableHealth, compute_health
from paimon_orch.steps.inspection.inspect import TableReport, inspect
from paimon_orch.steps.maintenance.analyze import ANALYZE, AnalyzeRequest, AnalyzeResult, analyze
from paimon_orch.steps.maintenance.compact_manifests import COMPACT_MANIFESTS, compact_manifests
from paimon_orch.steps.maintenance.create_global_index import (
    CREATE_GLOBAL_INDEX,
    CreateGlobalIndexRequest,
    GlobalIndexResult,
    create_global_index,
)
from paimon_orch.steps.maintenance.create_tag import CREATE_TAG, CreateTagRequest
from paimon_orch.steps.maintenance.drop_global_index import (
    DROP_GLOBAL_INDEX,
    DropGlobalIndexRequest,
    DropGlobalIndexResult,
    drop_global_index,
)
from paimon_orch.steps.maintenance.reassign_row_ids import REASSIGN_ROW_IDS, reassign_row_ids
from paimon_orch.steps.maintenance.rename_tag import RENAME_TAG, RenameTagRequest
from paimon_orch.steps.maintenance.rescale import RESCALE, RescaleRequest, rescale
from paimon_orch.steps.maintenance.rewrite_file_index import (
    REWRITE_FILE_INDEX,
    FileIndexRewriteResult,
    RewriteFileIndexRequest,
    rewrite_file_index,
)
from paimon_orch.steps.maintenance.rollback_as_latest import (
    ROLLBACK_AS_LATEST,
    RollbackAsLatestRequest,
    rollback_as_latest,
)
from paimon_orch.steps.maintenance.trigger_tag_automatic_creation import CREATE_TAGS, create_tags
from paimon_orch.steps.publication.mark_done import MARK_DONE, MarkDoneRequest, mark_done
from paimon_orch.steps.publication.sync_iceberg import (
    SYNC_ICEBERG,
    IcebergSyncPlan,
    IcebergSyncResult,
    sync_iceberg,
)
from paimon_orch.steps.publication.sync_partitions import (
    SYNC_PARTITIONS,
    PartitionSyncResult,
    SyncPartitionsRequest,
    sync_partitions,
)
from paimon_orch.steps.repairs.remove_unexisting_files import (
    REMOVE_UNEXISTING_FILES,
    remove_unexisting_files,
)
from paimon_orch.steps.repairs.remove_unexisting_manifests import (
    REMOVE_UNEXISTING_MANIFESTS,
    remove_unexisting_manifests,
)
from paimon_orch.steps.repairs.repair import REPAIR, RepairRequest, RepairResult, repair
from paimon_orch.steps.repairs.repair_earliest_snapshot import REPAIR_EARLIEST_SNAPSHOT
from paimon_orch.steps.row_level.drop_partitions import DROP_PARTITIONS
from paimon_orch.steps.row_level.merge import merge
from paimon_orch.steps.row_level.row_level_write import RowLevelRequest, RowLevelResult, delete
from paimon_orch.steps.row_level.truncate import TRUNCATE
from paimon_orch.steps.row_level.update import update

__all__ = [
    "ANALYZE",
    "BUILD_KEY_INDEXES",
    "COMPACT",
    "COMPACT_CHAIN_TABLE",
    "COMPACT_MANIFESTS",
    "CREATE_GLOBAL_INDEX",
    "CREATE_TAG",
    "CREATE_TAGS",
    "DELETE_TAG",
    "DROP_GLOBAL_INDEX",
    "DROP_PARTITIONS",
    "EXPIRE_CHANGELOGS",
    "EXPIRE_PARTITIONS",
    "EXPIRE_SNAPSHOTS",
    "EXPIRE_TAGS",
    "MARK_DONE",
    "MATERIALIZE_DELETION_VECTORS",
    "MOVE_POSTPONED",
    "PURGE_FILES",
    "REASSIGN_ROW_IDS",
    "REMOVE_ORPHAN_FILES",
    "REMOVE_UNEXISTING_FILES",
    "REMOVE_UNEXISTING_MANIFESTS",
    "RENAME_TAG",
    "REPAIR",
    "REPAIR_EARLIEST_SNAPSHOT",
    "RESCALE",
    "REWRITE_FILE_INDEX",
    "ROLLBACK_AS_LATEST",
    "SYNC_ICEBERG",
    "SYNC_PARTITIONS",
    "TRUNCATE",
    "ActionOutcome",
    "AnalyzeRequest",
    "AnalyzeResult",
    "CheckReport",
    "CompactChainTableRequest",
    "CompactRequest",
    "CompactionDecision",
    "CompactionPlan",
    "CompactionPolicy",
    "CompactionResult",
    "CreateGlobalIndexRequest",
    "CreateTagRequest",
    "DeleteTagRequest",
    "DropGlobalIndexRequest",
    "DropGlobalIndexResult",
    "EmptyRequest",
    "Executor",
    "ExpireChangelogsRequest",
    "ExpirePartitionsRequest",
    "ExpireSnapshotsRequest",
    "ExpireTagsRequest",
    "FileIndexRewriteResult",
    "Finding",
    "GlobalIndexResult",
    "IcebergSyncPlan",
    "IcebergSyncResult",
    "InProcessExecutor",
    "LocalExecutor",
    "MaintenanceBudgets",
    "MaintenanceDecision",
    "MaintenancePlan",
    "MaintenancePrices",
    "MaintenanceRequest",
    "MaintenanceResult",
    "MarkDoneRequest",
    "MovePostponedRequest",
    "OrphanFilesPlan",
    "OrphanFilesResult",
    "PartitionSyncResult",
    "Progress",
    "Quarantine",
    "RemoveOrphanFilesRequest",
    "RenameTagRequest",
    "RepairRequest",
    "RepairResult",
    "RescaleRequest",
    "RewriteFileIndexRequest",
    "RollbackAsLatestRequest",
    "RowLevelRequest",
    "RowLevelResult",
    "SnapshotExpirationPlan",
    "SnapshotExpirationResult",
    "SortOrder",
    "SortRequest",
    "Step",
    "SyncPartitionsRequest",
    "TableHealth",
    "TableReport",
    "analyze",
    "build_key_indexes",
    "check",
    "compact",
    "compact_chain_table",
    "compact_manifests",
    "compute_health",
    "create_global_index",
    "create_tags",
    "decide",
    "delete",
    "delete_tag",
    "drop_global_index",
    "expire_changelogs",
    "expire_partitions",
    "expire_snapshots",
    "expire_tags",
    "inspect",
    "mark_done",
    "materialize_deletion_vectors",
    "merge",
    "move_postponed",
    "plan_maintenance",
    "purge_files",
    "read_maintenance_history",
    "reassign_row_ids",
    "remove_orphan_files",
    "remove_unexisting_files",
    "remove_unexisting_manifests",
    "repair",
    "rescale",
    "rewrite_file_index",
    "rollback_as_latest",
    "run_compaction",
    "run_maintenance",
    "run_step",
    "sync_iceberg",
    "sync_partitions",
    "update",
]
