"""The branches of a chain table.

See docs/format/chain-tables.md#branches.
"""

from dataclasses import dataclass

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.options.core_options import (
    CHAIN_TABLE_ENABLED,
    SCAN_FALLBACK_DELTA_BRANCH,
    SCAN_FALLBACK_SNAPSHOT_BRANCH,
)
from paimon_orch.format.schema import TableSchema


@dataclass(frozen=True, slots=True)
class ChainBranches:
    """The names of the two branches whose partitions a chain table combines."""

    snapshot: str
    """The branch with complete partitions."""
    delta: str
    """The branch with the changes since the partition before."""

    @classmethod
    def of(cls, schema: TableSchema) -> "ChainBranches | None":
        """Return the branches that the options of a chain table name, or None."""
        options = schema.typed_options
        snapshot = options.get(SCAN_FALLBACK_SNAPSHOT_BRANCH)
        delta = options.get(SCAN_FALLBACK_DELTA_BRANCH)
        if not options.get(CHAIN_TABLE_ENABLED) or snapshot is None or delta is None:
            return None
        return cls(snapshot, delta)

    def is_snapshot(self, branch: str) -> bool:
        """Return whether a branch is the snapshot branch."""
        return branch.casefold() == self.snapshot.casefold()

    def is_delta(self, branch: str) -> bool:
        """Return whether a branch is the delta branch."""
        return branch.casefold() == self.delta.casefold()


def refuse_chain_table(identifier: str, schema: TableSchema, action: str, advice: str) -> None:
    """Raise :class:`UnsupportedError` if the table is a chain table or one of its branches."""
    if schema.typed_options.get(CHAIN_TABLE_ENABLED):
        raise UnsupportedError(
            f"{identifier}: {action} is not supported for chain tables ('{CHAIN_TABLE_ENABLED.key}' "
            f"= true), because their branches depend on each other; {advice}. Nothing was changed"
        )


def find_chain_branches(schema: TableSchema, branch: str) -> ChainBranches | None:
    """Return the branches that a read of ``branch`` combines, or None if it reads only itself.

    The snapshot branch and the delta branch are read separately.
    """
    branches = ChainBranches.of(schema)
    if branches is None or branches.is_snapshot(branch) or branches.is_delta(branch):
        return None
    return branches
