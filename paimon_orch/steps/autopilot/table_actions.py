"""Finds the candidate actions of one table; reads only metadata.

Candidates have the state ``CHOSEN``; whether they fit into the budgets is decided among the
candidates of all tables.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.display import format_count
from paimon_orch.format.manifest.live_files import NO_TIME
from paimon_orch.format.options.core_options import (
    MANIFEST_TARGET_FILE_SIZE,
    SOURCE_SPLIT_OPEN_FILE_COST,
)
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps.autopilot.decisions import ActionKind, DecisionState, MaintenanceDecision
from paimon_orch.steps.autopilot.level_merges import choose_candidates
from paimon_orch.steps.autopilot.maintenance_request import MaintenanceRequest
from paimon_orch.steps.autopilot.partition_layout import (
    PartitionWork,
    compute_local_millis,
    read_partition_work,
)
from paimon_orch.steps.autopilot.read_cost import (
    PartitionLayout,
    ReadSavings,
    compute_scores,
    estimate_savings,
)
from paimon_orch.steps.common.bucket_scan import scan_latest_buckets
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import EmptyRequest
from paimon_orch.steps.compaction.decide import decide, find_problems_of, sum_metrics
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionMetrics
from paimon_orch.steps.expiration.retention import (
    Retention,
    RetentionRequest,
    find_first_retained_snapshot,
    read_retaining_consumers,
)
from paimon_orch.steps.inspection.health import has_index_options
from paimon_orch.steps.inspection.health_metrics import MATERIALIZE_VECTORS
from paimon_orch.steps.inspection.verdict.verdict import open_judge
from paimon_orch.steps.maintenance import compact_manifests
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.scan.partition_selection import plan_live_buckets
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

_DUE = float("inf")
"""The score of actions that are executed whatever a read saves."""


@repeat_if_expired
def find_actions(
    table: Table, request: MaintenanceRequest, executor: Executor | None = None
) -> list[MaintenanceDecision]:
    """Return the candidate actions of a table, and why it gets no other ones."""
    state = table.load()
    finder = _ActionFinder(table=table, state=state, request=request, executor=executor)
    if state.snapshot is None:
        return [finder.skip(None, DecisionState.NOTHING_TO_DO, "the table has no snapshot")]
    return [*finder.find()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rewrite:
    """A candidate compaction of one partition."""

    path: str
    cause: str
    metrics: CompactionMetrics
    is_full: bool
    files: int
    bytes: int
    buckets: int
    up_to_level: int | None = None
    remaining_runs: int = -1
    unseen_since: int | None = None
    """The time of the oldest file with rows that have waited too long to become visible."""
    is_preferred: bool = False
    """Whether it is chosen before candidates of the partition that save more for a byte."""
    is_hollow: bool = False
    """Whether more rows are deleted than the policy allows; the rewrite is worth it in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ActionFinder:
    table: Table
    state: TableState
    request: MaintenanceRequest
    executor: Executor | None

    @property
    def schema(self) -> TableSchema:
        """Return the schema of the table's state."""
        return self.state.schema

    def find(self) -> Iterator[MaintenanceDecision]:
        finders: dict[ActionKind, Callable[[], Iterator[MaintenanceDecision]]] = {
            ActionKind.SNAPSHOT_EXPIRATION: self._find_snapshot_expiration,
            ActionKind.MINOR_COMPACTION: self._find_compactions,
            ActionKind.MATERIALIZATION: self._find_materialization,
            ActionKind.MANIFEST_COMPACTION: self._find_manifest_compaction,
            ActionKind.FILE_INDEX_REWRITE: self._find_index_rewrite,
        }
        for kind, find in finders.items():
            try:
                yield from list(find())
            except (UnsupportedError, InputError) as error:
                yield self.skip(kind, DecisionState.REFUSED, str(error))

    def skip(
        self, action: ActionKind | None, state: DecisionState, reason: str, partition: str = ""
    ) -> MaintenanceDecision:
        return MaintenanceDecision(
            table=self.table.identifier,
            action=action,
            state=state,
            reason=reason,
            partition=partition,
        )

    def _choose(
        self,
        action: ActionKind,
        reason: str,
        *,
        saved_requests: int = 0,
        saved_bytes: int = 0,
        rewrite_bytes: int = 0,
        is_due: bool = False,
    ) -> MaintenanceDecision:
        saved_cost = saved_bytes + saved_requests * self._open_file_bytes
        score = _DUE if is_due else self._score([saved_cost], [rewrite_bytes])[0]
        return MaintenanceDecision(
            table=self.table.identifier,
            action=action,
            state=DecisionState.CHOSEN,
            reason=reason,
            saved_requests=saved_requests,
            saved_bytes=saved_bytes,
            rewrite_bytes=rewrite_bytes,
            score=score,
        )

    def _score(self, savings: Sequence[float], sizes: Sequence[int]) -> list[float]:
        reads = np.full(len(sizes), self.request.find_reads(self.table.identifier))
        scores = compute_scores(
            np.array(savings, np.float64), np.array(sizes, np.int64), reads.astype(np.float64)
        )
        return [*map(float, scores.tolist())]

    @property
    def _open_file_bytes(self) -> int:
        return self.schema.typed_options.get(SOURCE_SPLIT_OPEN_FILE_COST)

    def _find_compactions(self) -> Iterator[MaintenanceDecision]:
        self.state.check_step(StepKind.COMPACT)
        scan = scan_latest_buckets(
            self.state, PartitionRequest(), self.executor, now=self.request.now
        )
        if scan is None:
            return
        works = read_partition_work(scan, self.request.expiration_margin)
        idle_before = compute_local_millis(scan.now - self.request.idle_time)
        unseen_before = compute_local_millis(scan.now - self.request.visibility_wait)
        rewrites: list[_Rewrite] = []
        idle_partitions = 0
        decisions = decide(self.table, self.request.policy, scan=scan)
        for decision in decisions:
            work = works.get(decision.partition, PartitionWork())
            is_due = work.oldest_unseen <= unseen_before
            if work.is_expiring and not is_due:
                yield self._skip_expiring(decision.partition)
                continue
            limit = None if is_due else self.request.policy.rewrite_bytes
            candidates = [*self._plan_rewrites(decision, work, idle_before, limit)]
            if is_due:
                candidates = self._make_due(candidates, work.oldest_unseen)
            rewrites += candidates
            if candidates:
                continue
            if decision.metrics.rewrite_bytes:
                kind, state = self._compaction_kind(is_full=False), DecisionState.SKIPPED
                yield self.skip(kind, state, decision.reason, decision.partition)
            else:
                idle_partitions += 1
        if idle_partitions:
            yield self.skip(
                self._compaction_kind(is_full=False),
                DecisionState.NOTHING_TO_DO,
                f"partitions without files to compact: {idle_partitions}",
            )
        compactions = [*self._build_compactions(rewrites)]
        if not any(each.score >= self.request.budgets.min_score for each in compactions):
            # single partitions are not worth a commit, but all of them together may be
            compactions = [*self._find_table_compaction(decisions, works)] or compactions
        yield from compactions

    def _find_table_compaction(
        self, decisions: Sequence[CompactionDecision], works: Mapping[str, PartitionWork]
    ) -> Iterator[MaintenanceDecision]:
        """Yield a full compaction of all partitions if the table is beyond a limit of doctor."""
        metrics = sum_metrics([each.metrics for each in decisions])
        problems = find_problems_of(metrics)
        rewrites = [
            _build_full_rewrite(each.partition, "", each.metrics, works[each.partition])
            for each in decisions
            if each.partition in works
        ]
        size, limit = sum(each.bytes for each in rewrites), self.request.policy.rewrite_bytes
        is_allowed = limit is None or size <= limit
        is_expiring = any(work.is_expiring for work in works.values())
        if not problems or not size or not is_allowed or is_expiring:
            return
        savings = self._estimate_savings(rewrites)
        files, size_saved = int(savings.files.sum()), int(savings.bytes.sum())
        yield MaintenanceDecision(
            table=self.table.identifier,
            action=self._compaction_kind(is_full=True),
            is_full=True,
            state=DecisionState.CHOSEN,
            reason=f"{'; '.join(map(str, problems))}; saves each read {format_count(files, 'file')}",
            saved_requests=files,
            saved_bytes=size_saved,
            rewrite_bytes=size,
            score=self._score([float(savings.cost.sum())], [size])[0],
        )

    def _skip_expiring(self, path: str) -> MaintenanceDecision:
        return self.skip(
            self._compaction_kind(is_full=False),
            DecisionState.SKIPPED,
            f"the partition expires within {self.request.expiring_within}",
            path,
        )

    def _compaction_kind(self, *, is_full: bool) -> ActionKind:
        if self.schema.is_clustered:
            return ActionKind.CLUSTERING
        return ActionKind.FULL_COMPACTION if is_full else ActionKind.MINOR_COMPACTION

    def _plan_rewrites(
        self,
        decision: CompactionDecision,
        work: PartitionWork,
        idle_before: int,
        limit: int | None,
    ) -> Iterator[_Rewrite]:
        """Yield the compactions of which a partition may get one."""
        metrics = decision.metrics
        is_idle = NO_TIME < work.newest < idle_before
        fits = limit is None or work.full_bytes <= limit
        is_hollow = decision.compact and decision.strategy == "full"
        can_be_full = fits and work.full_files > 0
        if (is_idle and can_be_full) or is_hollow:
            cause = decision.reason if is_hollow else f"no new file for {self.request.idle_for}"
            rewrite = _build_full_rewrite(decision.partition, cause, metrics, work)
            yield replace(rewrite, is_preferred=True, is_hollow=is_hollow)
        if is_hollow:
            return
        has_same_merge = metrics.rewrite_files and any(
            merge.bytes == metrics.rewrite_bytes for merge in work.merges
        )
        fits = limit is None or metrics.rewrite_bytes <= limit
        if (decision.compact or decision.is_waiting) and fits and not has_same_merge:
            yield _Rewrite(
                path=decision.partition,
                cause=_describe_layout(metrics),
                metrics=metrics,
                is_full=False,
                files=metrics.rewrite_files,
                bytes=metrics.rewrite_bytes,
                buckets=work.buckets,
            )
        yield from _plan_merges(decision, work, limit)
        problems = find_problems_of(metrics)
        if problems and can_be_full and not is_idle:
            cause = "; ".join(map(str, problems))
            yield _build_full_rewrite(decision.partition, cause, metrics, work)

    def _make_due(self, candidates: Sequence[_Rewrite], since: int) -> list[_Rewrite]:
        """Return the minor compactions as due, or all candidates if there are only full ones."""
        minor = [each for each in candidates if not each.is_full] or candidates
        cause = f"rows are not visible to batch readers for more than {self.request.visible_within}"
        return [replace(each, unseen_since=since, cause=f"{cause}; {each.cause}") for each in minor]

    def _build_compactions(self, rewrites: Sequence[_Rewrite]) -> Iterator[MaintenanceDecision]:
        savings = self._estimate_savings(rewrites)
        scores = [
            self._adjust(score, rewrite)
            for score, rewrite in zip(
                self._score(savings.cost.tolist(), [rewrite.bytes for rewrite in rewrites]),
                rewrites,
                strict=True,
            )
        ]
        for number in self._choose_rewrites(rewrites, scores):
            rewrite, score = rewrites[number], scores[number]
            is_rewritten = rewrite.files > 0
            effect = savings.describe(number) if is_rewritten else "moves postponed rows to buckets"
            yield MaintenanceDecision(
                table=self.table.identifier,
                action=self._compaction_kind(is_full=rewrite.is_full),
                partition=rewrite.path,
                is_full=rewrite.is_full,
                up_to_level=rewrite.up_to_level,
                state=DecisionState.CHOSEN,
                reason=f"{rewrite.cause}; {effect}",
                saved_requests=max(0, round(savings.files[number])),
                saved_bytes=max(0, int(savings.bytes[number])),
                rewrite_bytes=rewrite.bytes,
                score=score,
                unseen_since=rewrite.unseen_since,
            )

    def _estimate_savings(self, rewrites: Sequence[_Rewrite]) -> ReadSavings:
        schema = self.schema
        return estimate_savings(
            _build_layout(rewrites),
            target_file_bytes=schema.target_file_size,
            open_file_bytes=self._open_file_bytes,
            packs_files=schema.is_bucket_unaware,
        )

    def _adjust(self, score: float, rewrite: _Rewrite) -> float:
        """Return the score of a rewrite, which may be due or worth it whatever a read saves."""
        # Readers do not see the rows of postpone buckets before a compaction.
        if not rewrite.files or rewrite.unseen_since is not None:
            return _DUE
        return max(score, self.request.budgets.min_score) if rewrite.is_hollow else score

    def _choose_rewrites(self, rewrites: Sequence[_Rewrite], scores: Sequence[float]) -> list[int]:
        """Return one compaction for each partition."""
        numbers = {rewrite.path: number for number, rewrite in enumerate(rewrites)}
        chosen = choose_candidates(
            np.array([numbers[rewrite.path] for rewrite in rewrites], np.int64),
            np.array(scores, np.float64),
            np.array([rewrite.is_preferred for rewrite in rewrites], bool),
            self.request.budgets.min_score,
        )
        return [*map(int, chosen.tolist())]

    def _find_snapshot_expiration(self) -> Iterator[MaintenanceDecision]:
        self.state.check_step(StepKind.DELETE)
        options, snapshots = self.schema.typed_options, self.state.snapshots
        now = self.request.now
        seconds = time.time() if now is None else now.timestamp()
        retention = Retention.of_snapshots(options, int(seconds * 1000), RetentionRequest())
        consumers = read_retaining_consumers(self.state)
        end = find_first_retained_snapshot(snapshots, retention, consumers.values())
        expired = 0 if end is None else sum(number < end for number in snapshots.ids())
        kind = ActionKind.SNAPSHOT_EXPIRATION
        if expired:
            yield self._choose(kind, f"expired snapshots: {expired}", is_due=True)
        else:
            yield self.skip(kind, DecisionState.NOTHING_TO_DO, "no snapshot has expired")

    def _find_manifest_compaction(self) -> Iterator[MaintenanceDecision]:
        kind = ActionKind.MANIFEST_COMPACTION
        planned = compact_manifests.plan(self.table, EmptyRequest(), state=self.state)
        target = self.schema.typed_options.get(MANIFEST_TARGET_FILE_SIZE)
        remaining = max(1, -(-planned.bytes // target))
        saved = max(0, planned.manifests - remaining)
        if planned and saved:
            text = f"manifests: {planned.manifests}, deleted entries: {planned.deleted_entries}"
            yield self._choose(kind, text, saved_requests=saved, rewrite_bytes=planned.bytes)
        else:
            text = f"manifests to merge: {planned.small if planned else 0}"
            yield self.skip(kind, DecisionState.NOTHING_TO_DO, text)

    def _find_materialization(self) -> Iterator[MaintenanceDecision]:
        schema, kind = self.schema, ActionKind.MATERIALIZATION
        if not (has_data_evolution(schema) and schema.typed_options.has_deletion_vectors):
            return
        judge = open_judge(self.table, state=self.state)
        remedy = judge.find_remedy(MATERIALIZE_VECTORS)
        if remedy is None:
            yield self.skip(kind, DecisionState.NOTHING_TO_DO, "no deleted rows are stored")
            return
        decision = self._choose(
            kind,
            f"{judge.deleted_ratio:.0%} of the stored rows are deleted, and readers skip them",
            saved_requests=max(0, judge.now.requests - remedy.after.requests),
            saved_bytes=max(0, judge.now.bytes - remedy.after.bytes),
            rewrite_bytes=remedy.rewrite_bytes,
        )
        if judge.deleted_ratio > self.request.policy.deleted_ratio:
            decision = replace(decision, score=max(decision.score, self.request.budgets.min_score))
        yield decision

    def _find_index_rewrite(self) -> Iterator[MaintenanceDecision]:
        schema, kind = self.schema, ActionKind.FILE_INDEX_REWRITE
        if not has_index_options(schema):
            return
        self.state.check_step(StepKind.COMPACT)
        if has_data_evolution(schema):
            raise UnsupportedError(
                "file indexes of tables with 'data-evolution.enabled' = true are not rewritten"
            )
        snapshot = self.state.snapshot
        assert snapshot is not None
        buckets = plan_live_buckets(
            self.state, schema, snapshot, PartitionRequest(), with_indexed=True
        )
        files = buckets.groups.files
        assert files.indexed is not None
        is_missing = ~files.indexed & (files.buckets >= 0)
        size, count = int(files.file_sizes[is_missing].sum()), int(is_missing.sum())
        if not count:
            yield self.skip(kind, DecisionState.NOTHING_TO_DO, "all files have file indexes")
            return
        # A selective read skips the files that have an index.
        text = f"files without the file indexes of the table's options: {count}"
        yield self._choose(kind, text, saved_requests=count, saved_bytes=size, rewrite_bytes=size)


def _build_full_rewrite(
    path: str, cause: str, metrics: CompactionMetrics, work: PartitionWork
) -> _Rewrite:
    return _Rewrite(
        path=path,
        cause=cause,
        metrics=metrics,
        is_full=True,
        files=work.full_files,
        bytes=work.full_bytes,
        buckets=work.full_buckets,
    )


def _plan_merges(
    decision: CompactionDecision, work: PartitionWork, limit: int | None
) -> Iterator[_Rewrite]:
    """Yield the merge up to each level that changes something else than that of the level below."""
    previous = 0
    for level, merge in enumerate(work.merges):
        if merge.files > previous and (limit is None or merge.bytes <= limit):
            yield _Rewrite(
                path=decision.partition,
                cause=f"{_describe_layout(decision.metrics)}; merges levels 0 to {level}",
                metrics=decision.metrics,
                is_full=False,
                files=merge.files,
                bytes=merge.bytes,
                buckets=merge.buckets,
                up_to_level=level,
                remaining_runs=merge.remaining_runs,
            )
        previous = merge.files


def _describe_layout(metrics: CompactionMetrics) -> str:
    return (
        f"sorted runs: {metrics.sorted_runs}, level-0 files: {metrics.level0_files}, "
        f"small files: {metrics.small_files}"
    )


def _build_layout(rewrites: Sequence[_Rewrite]) -> PartitionLayout:
    metrics = [rewrite.metrics for rewrite in rewrites]
    return PartitionLayout(
        files=np.array([each.files for each in metrics], np.int64),
        bytes=np.array([each.bytes for each in metrics], np.int64),
        sorted_runs=np.array([each.sorted_runs for each in metrics], np.int64),
        deleted_ratio=np.array([each.deleted_ratio for each in metrics], np.float64),
        rewrite_files=np.array([each.files for each in rewrites], np.int64),
        rewrite_bytes=np.array([each.bytes for each in rewrites], np.int64),
        rewrite_buckets=np.array([each.buckets for each in rewrites], np.int64),
        is_full=np.array([each.is_full for each in rewrites], bool),
        remaining_runs=np.array([each.remaining_runs for each in rewrites], np.int64),
    )
