"""A catalog that keeps partitions in memory, and can fail, to test reports of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_orch.errors import StorageError
from paimon_orch.table.catalog_environment import CatalogEnvironment, PartitionStatistics
from paimon_orch.table.table import Table

Spec = Mapping[str, str]


@dataclass
class RecordedPartitions:
    """The partitions of one table, and the calls that changed them."""

    specs: list[dict[str, str]] = field(default_factory=list)
    calls: list[tuple[str, list[dict[str, str]]]] = field(default_factory=list)
    statistics: list[PartitionStatistics] = field(default_factory=list)
    failure: str | None = None
    """The message of the error that every change raises."""

    def list(self) -> list[dict[str, str]]:
        return [dict(spec) for spec in self.specs]

    def add(self, specs: Sequence[Spec]) -> None:
        self._record("add", specs)
        self.specs += [dict(spec) for spec in specs if dict(spec) not in self.specs]

    def drop(self, specs: Sequence[Spec]) -> None:
        self._record("drop", specs)
        self.specs = [spec for spec in self.specs if spec not in specs]

    def update_statistics(self, statistics: Sequence[PartitionStatistics]) -> None:
        self._record("update", [total.spec for total in statistics])
        self.statistics += statistics

    def mark_done(self, specs: Sequence[Spec]) -> None:
        self._record("mark", specs)

    def _record(self, name: str, specs: Sequence[Spec]) -> None:
        if self.failure is not None:
            raise StorageError(self.failure)
        self.calls.append((name, [dict(spec) for spec in specs]))

    def values(self) -> Sequence[tuple[str, ...]]:
        """Return the values of all partitions, sorted."""
        return sorted(tuple(spec.values()) for spec in self.specs)


def through_catalog(table: Table, partitions: RecordedPartitions) -> Table:
    """Return the table as its catalog opens it."""
    environment = CatalogEnvironment(partitions=partitions, marks=partitions, is_service=True)
    return replace(table, environment=environment)
