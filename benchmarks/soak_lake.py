"""The lake of soak.py: its tables, what a scan of them opens, and the checks at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from soak_places import JAVA, Place
from support.peers.peers import Peer, PeerError
from support.soak_tables import COLUMNS, Record, SoakTable, TableHistory, verify

from paimon_orch import Catalog
from paimon_orch.errors import PaimonError
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.bucket_metrics import BucketMetrics
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

Sample = tuple[int, int, int, int]
"""Seconds since the start, files, sorted runs (of the bucket with most of them), and bytes."""
BEFORE = "us, before the last compaction"
_EXAMPLES = 10


def create_tables(catalog: Catalog, tables: Sequence[SoakTable]) -> None:
    """Create the tables."""
    for table in tables:
        catalog.create_table(
            table.identifier,
            COLUMNS,
            primary_key=table.primary_key,
            partition_by=table.partition_by,
            options=table.all_options,
        )


class Sampler:
    """Samples what a scan of each table opens."""

    def __init__(self, catalog: Catalog, tables: Sequence[SoakTable]) -> None:
        self._tables = {table.name: catalog.table(table.identifier) for table in tables}
        self._start = time.monotonic()
        self.samples: dict[str, list[Sample]] = {name: [] for name in self._tables}
        self.missed = 0
        """Samples of snapshots that expired while they were read."""

    def sample(self) -> None:
        """Add one sample for each table."""
        for name, table in self._tables.items():
            try:
                report = inspect(table)
                runs = (
                    0
                    if report.live is None
                    else BucketMetrics(report.live).compute_max_sorted_runs()
                )
            except PaimonError:
                self.missed += 1
                continue
            seconds = round(time.monotonic() - self._start)
            self.samples[name].append((seconds, report.file_count, runs, report.bytes))


class FinalCheck:
    """Reads all tables after the writers have stopped, before and after a full compaction."""

    def __init__(
        self,
        catalog: Catalog,
        place: Place,
        readers: Sequence[Peer],
        replaced: Mapping[str, int],
    ) -> None:
        self._catalog, self._place, self._readers = catalog, place, readers
        self._replaced = replaced

    def run(self, table: SoakTable, histories: Sequence[TableHistory]) -> Record:
        """Return the differences between each reader and the operations, and other findings."""
        opened = self._catalog.table(table.identifier)
        newest = opened.snapshot()

        def compare(read: Callable[[], list[Record]]) -> Record:
            return _compare(histories, read, self._replaced.get(table.name, 0))

        results = {}
        if not table.is_postponed:  # batch reads see no rows in postpone buckets
            results[BEFORE] = compare(lambda: _read(opened, merge_level_0=True))
        problems = _try(lambda: _compact(opened, table))
        results["us"] = compare(lambda: _read(opened))
        for peer in self._readers:
            results[peer.name] = compare(lambda peer=peer: self._ask(peer, table))  # type: ignore[misc]
        problems += self._check(opened, table)
        return {
            "commits": 0 if newest is None else newest.id,
            "replaced_snapshots": self._replaced.get(table.name, 0),
            "readers": results,
            "findings": problems,
        }

    def _ask(self, peer: Peer, table: SoakTable) -> list[Record]:
        answer = peer.ask("read", self._place.peers[peer.name], table=table.identifier, options={})
        assert isinstance(answer, list)
        return answer

    def _check(self, opened: Table, table: SoakTable) -> list[str]:
        """Check all files, remove those of killed processes, and check again."""
        findings = [str(finding) for finding in check(opened, deep=True).findings]
        findings += _try(lambda: expire_snapshots(opened))  # completes what a kill interrupted
        findings += _try(lambda: remove_orphan_files(opened, older_than=int(time.time() * 1000)))
        findings += [f"after the cleanup: {each}" for each in check(opened, deep=True).findings]
        for peer in self._readers:
            if peer.name == JAVA:
                findings += self._ask_checker(peer, table)
        return findings[:_EXAMPLES]

    def _ask_checker(self, java: Peer, table: SoakTable) -> list[str]:
        warehouse = self._place.peers[JAVA]
        try:
            lines = java.ask("oracle", warehouse, table=table.identifier, command="check", words=[])
        except PeerError as error:
            return [f"Java's checker: {error}"]
        return [f"Java's checker: {line}" for line in lines]


def _read(table: Table, **scan: Any) -> list[Record]:
    rows: list[Record] = table.scan(**scan).to_arrow().to_pylist()
    return rows


def _compact(opened: Table, table: SoakTable) -> None:
    if table.is_postponed:
        opened.compact()  # moves the rows to real buckets
    opened.compact(strategy="full")


def _compare(
    histories: Sequence[TableHistory], read: Callable[[], list[Record]], replaced: int
) -> Record:
    try:
        found = verify(histories, read(), replaced)
    except (PaimonError, PeerError) as error:
        return {"error": str(error)[-500:]}
    return {
        "rows": found.rows,
        "lost": found.lost,
        "duplicated": found.duplicated,
        "replaced": found.replaced,
        **({"examples": list(found.examples)} if found.examples else {}),
    }


def _try(action: Callable[[], object]) -> list[str]:
    try:
        action()
    except PaimonError as error:
        return [f"{type(error).__name__}: {error}"]
    return []
