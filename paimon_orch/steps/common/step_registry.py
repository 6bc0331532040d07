"""The declared steps by the names of their commands; a lookup imports the module of the step."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from paimon_orch.errors import NotFoundError
from paimon_orch.safe_text import clean_line
from paimon_orch.steps.common.step_declaration import StepDeclaration

STEP_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "compact": "compaction.compact",
        "materialize-deletion-vectors": "compaction.materialize",
        "move-postponed": "compaction.postpone",
        "rescale": "maintenance.rescale",
        "reassign-row-ids": "maintenance.reassign_row_ids",
        "compact-manifests": "maintenance.compact_manifests",
        "analyze": "maintenance.analyze",
        "rewrite-file-index": "maintenance.rewrite_file_index",
        "create-global-index": "maintenance.create_global_index",
        "drop-global-index": "maintenance.drop_global_index",
        "expire-snapshots": "expiration.expire_snapshots",
        "expire-partitions": "expiration.expire_partitions",
        "expire-changelogs": "expiration.expire_changelogs",
        "expire-tags": "expiration.expire_tags",
        "remove-orphan-files": "cleanup.remove_orphan_files",
        "purge-files": "cleanup.purge_files",
        "remove-unexisting-files": "cleanup.remove_unexisting_files",
        "remove-unexisting-manifests": "cleanup.remove_unexisting_manifests",
        "sync-iceberg": "maintenance.sync_iceberg",
        "sync-partitions": "maintenance.sync_partitions",
        "mark-done": "maintenance.mark_done",
    }
)
"""The modules that declare steps, by name."""


def load_declaration(name: str) -> StepDeclaration[Any, Any, Any]:
    """Return the declaration of a step. Raises :class:`NotFoundError` for an unknown name."""
    if name not in STEP_MODULES:
        raise NotFoundError(
            f"there is no step {clean_line(name)}; the steps are {', '.join(STEP_MODULES)}"
        )
    module = import_module(f"paimon_orch.steps.{STEP_MODULES[name]}")
    declaration: StepDeclaration[Any, Any, Any] = module.DECLARATION
    return declaration
