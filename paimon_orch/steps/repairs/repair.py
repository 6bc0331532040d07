"""Repair what doctor finds in a table.

Other steps do the repairs; all repairs are planned first.

Each repair is one commit, or writes a hint after the old one was put aside. A kill between two
repairs leaves a table that can be read as before. See docs/doctor.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, NamedTuple

from paimon_orch.errors import InputError, PaimonError, UnsupportedError, raise_if_temporary
from paimon_orch.format.display import format_count, format_size
from paimon_orch.format.paths import MAIN_BRANCH
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.safe_text import format_names
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.step import (
    EmptyRequest,
    Step,
    StepOutcome,
    build_metadata_step,
    plan_and_run,
    run_step,
)
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.steps.compaction.plan import CompactionResult, CompactRequest
from paimon_orch.steps.inspection.damage.unreadable_files import find_state_without
from paimon_orch.steps.inspection.damage.unreadable_references import (
    describe_reference,
    find_unreadable_references,
)
from paimon_orch.steps.inspection.damage.way_back import find_unreadable_snapshots
from paimon_orch.steps.inspection.doctor.doctor import examine_opened_table
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorFinding, DoctorRule, Severity
from paimon_orch.steps.maintenance import rollback_as_latest
from paimon_orch.steps.publication import sync_iceberg, sync_partitions
from paimon_orch.steps.publication.sync_iceberg import IcebergSyncPlan
from paimon_orch.steps.publication.sync_partitions import PartitionSyncPlan
from paimon_orch.steps.repairs import (
    delete_duplicate_keys,
    merge_overlapping_files,
    rebuild_indexes,
    remove_unexisting_files,
    remove_unexisting_manifests,
    repair_hints,
    unreadable_snapshots,
)
from paimon_orch.steps.repairs.remove_unexisting_files import (
    REMOVE_UNEXISTING_FILES,
    MissingFilesResult,
)
from paimon_orch.steps.repairs.tag_before import describe_tag, tag_before_repair
from paimon_orch.table.iceberg.iceberg_settings import is_iceberg_enabled
from paimon_orch.table.metadata.rollback import check_can_repair_earliest
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.table import Table

_RULES_THAT_READ_ROWS = {DoctorRule.DUPLICATE_KEYS, DoctorRule.UNREADABLE_FILES}
"""The rules whose repairs read data files to find the damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest(ParsedRequest):
    """Selects the findings to repair."""

    rules: Annotated[
        Sequence[str] | None,
        Argument(
            "Finding of doctor to repair, such as snapshot-gap; repeatable.",
            option="--rule",
            metavar="RULE",
            default="all that can be repaired",
        ),
    ] = field(default=None, kw_only=False)
    """The rules to repair; None means all that metadata shows.

    Duplicate keys and unreadable files are repaired only if they are selected.
    """

    def includes(self, rule: DoctorRule) -> bool:
        """Return whether a rule is selected."""
        if self.rules is None:
            return rule not in _RULES_THAT_READ_ROWS
        return rule in self.rules


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairAction:
    """One planned repair."""

    rule: DoctorRule
    text: str
    """What is done, and which rows are lost."""
    run: Callable[[], str] = field(repr=False, compare=False)
    """Does the repair, and returns its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRepair:
    """A finding that is not repaired."""

    rule: DoctorRule
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """The repairs of a table, in their order. The plan is falsy if there are none."""

    request: RepairRequest
    actions: tuple[RepairAction, ...] = ()
    refused: tuple[RefusedRepair, ...] = ()
    deferred: tuple[DoctorRule, ...] = ()
    """The rules that can be planned only after these repairs."""

    def __bool__(self) -> bool:
        """Return whether there is anything to repair."""
        return bool(self.actions)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {
            "repairs": [{"rule": each.rule.value, "text": each.text} for each in self.actions],
            "refused": [{"rule": each.rule.value, "reason": each.reason} for each in self.refused],
            "deferred": [rule.value for rule in self.deferred],
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action="repair",
            link=" ",
            details=f": {'; '.join(_describe_actions(self))}",
            lines=[*self.describe_refused(), *_describe_next(self.deferred)],
            columns={"rule": "string", "repair": "string"},
            items=[{"rule": each.rule.value, "repair": each.text} for each in self.actions],
            nothing="" if self else "nothing to repair",
            asks=bool(self),
            undo="",
            is_incomplete=bool(self.refused),
        )

    def describe_refused(self) -> list[str]:
        """Return the findings that are not repaired."""
        return [f"not repaired: {each.rule}: {each.reason}" for each in self.refused]


def _describe_next(rules: Sequence[DoctorRule]) -> list[str]:
    """Return which rules can only be examined, or repaired, by another run."""
    return [f"after these repairs, run repair again for: {', '.join(rules)}"] if rules else []


def _describe_actions(plan: RepairPlan) -> list[str]:
    return [f"{action.rule}: {action.text}" for action in plan.actions]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult(StepOutcome):
    """The results of the repairs, in the order of the plan."""

    plan: RepairPlan
    results: tuple[str, ...] = ()
    tag: str | None = None
    """The tag of the newest snapshot before the first repair that commits one."""
    kept: str = ""
    """How to read the tag."""
    next_rules: tuple[DoctorRule, ...] = ()
    """The deferred rules of the plan that another run repairs."""

    def to_dict(self) -> dict[str, object]:
        """Return the plan and the results as JSON values."""
        values = {"results": list(self.results), "tag": self.tag, "next": [*self.next_rules]}
        return self.plan.to_dict() | values

    def describe(self) -> list[str]:
        """Return the results, the findings that remain, and where the state before is."""
        actions = zip(_describe_actions(self.plan), self.results, strict=True)
        done = [f"{action}: {result}" for action, result in actions]
        rest = [*self.plan.describe_refused(), *_describe_next(self.next_rules)]
        return [*done, *rest, *([self.kept] if self.kept else [])]


class _Repair(NamedTuple):
    text: str
    """What is done, and which rows are lost."""
    run: Callable[[], str]
    """Does the repair, and returns its result."""


_PlanRepair = Callable[[Table], _Repair | None]
_AnyStep = Step[Any, Any, Any, Any, Any, Any]


def _plan_hints(table: Table) -> _Repair | None:
    planned = repair_hints.plan(table, EmptyRequest())
    if not planned:
        return None
    texts = [f"write the hint {hint.name} = {hint.snapshot}" for hint in planned.hints]
    lost = sum(hint.lost_snapshots for hint in planned.hints)
    if lost:
        texts.append(
            f"the rows of {format_count(lost, 'missing snapshot')} are lost unless its file is "
            "restored before"
        )
    run = partial(_run_step, table, repair_hints.REPAIR_HINTS, planned)
    return _Repair("; ".join(texts), run)


def _plan_gap(table: Table) -> _Repair | None:
    store = table.stores.snapshots
    latest, earliest, ids = store.latest_id(), store.earliest_id(), set(store.ids())
    if latest is None or earliest is None or latest not in ids:
        return None
    first = latest
    while first - 1 in ids and first > earliest:
        first -= 1
    if first == earliest:
        return None
    check_can_repair_earliest(store, first)
    older = sum(earliest <= number < first for number in ids)

    def run() -> str:
        table.repair_earliest_snapshot(first)
        return f"snapshot {first} is the earliest one"

    return _Repair(
        f"make snapshot {first} the earliest one; {format_count(older, 'older snapshot')} "
        "before the gap can then not be read by time travel",
        run,
    )


def _plan_unreadable_table(table: Table) -> _Repair | None:
    planned = unreadable_snapshots.plan_newest(table)
    if planned is None:
        return None
    return _Repair(planned.describe(), partial(unreadable_snapshots.roll_back, table, planned))


def _plan_unreadable_snapshots(table: Table) -> _Repair | None:
    ids = [*find_unreadable_snapshots(table)]
    if not ids:
        return None
    return _Repair(
        f"move the files of {format_count(len(ids), 'unreadable snapshot')} to the quarantine, "
        f"and make snapshot {ids[-1] + 1} the earliest one; time travel and streaming reads before it "
        "are then not possible",
        partial(unreadable_snapshots.put_older_aside, table, ids),
    )


def _plan_unreadable_references(table: Table) -> _Repair | None:
    errors = find_unreadable_references(table.stores)
    if not errors:
        return None
    paths = [error.path for error in errors]

    def run() -> str:
        quarantine = Quarantine.of(table)
        quarantine.put(quarantine.build_folder_name(), paths)
        return "done"

    return _Repair(
        f"move {format_names(map(describe_reference, paths))} to the quarantine; what only they "
        "keep is lost, and remove-orphan-files deletes its files later",
        run,
    )


def _plan_unreadable_files(table: Table) -> _Repair | None:
    planned = remove_unexisting_files.plan_unreadable(table)
    if not planned:
        return None
    names = [entry.file.file_name for entry in planned.entries]
    older = find_state_without(planned.state, names)
    files = format_count(len(names), "unreadable data file")
    if older is not None and older.has_same_rows:
        selector = SnapshotSelector(older.snapshot.id)
        rollback = rollback_as_latest.plan(
            table, rollback_as_latest.RollbackAsLatestRequest(selector=selector)
        )
        return _Repair(
            f"commit the state of snapshot {older.snapshot.id} again, which does not need "
            f"{files}; only compactions came after it, so no row is lost",
            partial(_run_step, table, rollback_as_latest.ROLLBACK_AS_LATEST, rollback),
        )
    text = f"commit the state without {files}; {planned.describe_loss()}"
    if older is not None:
        command = table.stores.label.format_command("rollback")
        text += (
            f". Or, instead of this repair, roll back to snapshot {older.snapshot.id}, which does not "
            f"have them: `{command} --snapshot {older.snapshot.id} --as-latest`"
        )
    return _Repair(text, partial(_run_step, table, REMOVE_UNEXISTING_FILES, planned))


def _find_stale_iceberg(table: Table) -> IcebergSyncPlan | None:
    if not is_iceberg_enabled(table.stores.get_schema()) or table.paths.branch != MAIN_BRANCH:
        return None
    return sync_iceberg.plan(table, EmptyRequest())


def _find_missing_partitions(table: Table) -> PartitionSyncPlan | None:
    reports = table.stores.build_catalog_reports()
    if reports.partitions is None and reports.tag_partitions is None:
        return None
    return sync_partitions.plan(table, sync_partitions.SyncPartitionsRequest())


def _use_step(
    step: _AnyStep,
    describe: Callable[[Any], str],
    find: Callable[[Table], object] | None = None,
) -> _PlanRepair:
    """Return what plans a repair that a step does; ``find`` makes the plan, by default the step."""

    def plan_repair(table: Table) -> _Repair | None:
        planned = step.planner(table, EmptyRequest()) if find is None else find(table)
        if not planned:
            return None
        return _Repair(describe(planned), partial(_run_step, table, step, planned))

    return plan_repair


def _run_step(table: Table, step: _AnyStep, planned: Any) -> str:
    outcome = run_step(step, table, planned)
    if isinstance(outcome, MissingFilesResult) and outcome.snapshot is not None:
        return f"committed snapshot {outcome.snapshot.id}{outcome.describe_visible_rows()}"
    snapshot = getattr(outcome, "snapshot", None)
    if isinstance(outcome, CompactionResult):
        return f"committed snapshot {outcome.snapshot_id}"
    return f"committed snapshot {snapshot.id}" if isinstance(snapshot, Snapshot) else "done"


_PLANNERS: Mapping[DoctorRule, _PlanRepair] = {
    # Later repairs read what earlier ones make readable.
    DoctorRule.WRONG_HINT: _plan_hints,
    DoctorRule.UNREADABLE_TABLE: _plan_unreadable_table,
    DoctorRule.SNAPSHOT_GAP: _plan_gap,
    DoctorRule.MISSING_MANIFESTS: _use_step(
        remove_unexisting_manifests.REMOVE_UNEXISTING_MANIFESTS,
        lambda planned: (
            "commit the state without "
            f"{format_count(len(planned.paths), 'missing or unreadable manifest')}; "
            f"{planned.describe_loss()}"
        ),
        remove_unexisting_manifests.plan_unreadable,
    ),
    DoctorRule.UNREADABLE_SNAPSHOT: _plan_unreadable_snapshots,
    DoctorRule.UNREADABLE_REFERENCES: _plan_unreadable_references,
    DoctorRule.MISSING_FILES: _use_step(
        REMOVE_UNEXISTING_FILES,
        lambda planned: (
            f"commit the state without {format_count(len(planned.paths), 'missing data file')}; "
            f"{planned.describe_loss()}"
        ),
    ),
    DoctorRule.UNREADABLE_FILES: _plan_unreadable_files,
    DoctorRule.OVERLAPPING_FILES: _use_step(
        merge_overlapping_files.MERGE_OVERLAPPING_FILES,
        lambda planned: (
            f"merge {format_count(len(planned.inputs), 'overlapping file')} "
            f"({format_size(planned.bytes)}) of {format_count(planned.buckets, 'bucket')}; rows "
            "that a newer row of their key replaces are put into the quarantine"
        ),
        lambda table: merge_overlapping_files.plan(table, CompactRequest()),
    ),
    DoctorRule.DUPLICATE_KEYS: _use_step(
        delete_duplicate_keys.DELETE_DUPLICATE_KEYS,
        lambda planned: (
            f"delete {format_count(planned.row_count, 'row')} of keys with a newer row in "
            f"{format_count(planned.bucket_count, 'bucket')}; the rows are put into the quarantine"
        ),
    ),
    DoctorRule.STALE_DELETION_VECTORS: _use_step(
        rebuild_indexes.DROP_STALE_VECTORS,
        lambda planned: (
            f"drop {format_count(len(planned.stale), 'deletion vector')} of files that are not live"
        ),
    ),
    DoctorRule.MISSING_HASH_INDEX: _use_step(
        rebuild_indexes.REBUILD_HASH_INDEXES,
        lambda planned: (
            f"read the keys of {format_count(len(planned.buckets), 'bucket')} "
            f"({format_size(planned.bytes)}), and write their hash indexes"
        ),
    ),
    DoctorRule.STALE_ICEBERG_METADATA: _use_step(
        sync_iceberg.SYNC_ICEBERG,
        lambda planned: (
            f"publish the newest snapshot as Iceberg metadata: {planned.status.problem}"
        ),
        _find_stale_iceberg,
    ),
    DoctorRule.STALE_CATALOG_PARTITIONS: _use_step(
        sync_partitions.SYNC_PARTITIONS,
        lambda planned: f"add {format_count(len(planned.missing), 'partition')} to the catalog",
        _find_missing_partitions,
    ),
}
_STATE_RULES = {
    DoctorRule.MISSING_MANIFESTS,
    DoctorRule.MISSING_FILES,
    DoctorRule.UNREADABLE_FILES,
    DoctorRule.OVERLAPPING_FILES,
    DoctorRule.DUPLICATE_KEYS,
    DoctorRule.STALE_DELETION_VECTORS,
    DoctorRule.MISSING_HASH_INDEX,
}
"""The rules whose repairs commit another state."""
REPAIRABLE_RULES = tuple(_PLANNERS)
"""The rules that can be repaired, in the order of the repairs."""


def plan(table: Table, request: RepairRequest) -> RepairPlan:
    """Plan the repairs of a table; changes nothing.

    Raises :class:`InputError` if a selected rule cannot be repaired. Refused are findings with
    severity error that no repair fixes.
    """
    _check_rules(request)
    findings = [f for f in examine_opened_table(table) if request.includes(f.rule)]
    wanted = {finding.rule for finding in findings} | set(request.rules or ())
    actions, refused, deferred = list[RepairAction](), list[RefusedRepair](), list[DoctorRule]()
    for rule, plan_rule in _PLANNERS.items():
        if not request.includes(rule):
            continue
        try:
            repair = plan_rule(table)
        except (UnsupportedError, InputError) as error:
            # A step may be refused although there is nothing to repair.
            refused += [RefusedRepair(rule=rule, reason=str(error))] if rule in wanted else []
        except (PaimonError, OSError) as error:
            raise_if_temporary(error)
            # If nothing is planned before, and no rule is selected, the findings have the error.
            deferred += [rule] if actions else []
            if not actions and rule in (request.rules or ()):
                refused.append(RefusedRepair(rule=rule, reason=str(error)))
        else:
            if repair is not None:
                actions.append(RepairAction(rule=rule, text=repair.text, run=repair.run))
    planned = {action.rule for action in actions} | {each.rule for each in refused}
    refused += [
        RefusedRepair(rule=finding.rule, reason=_explain_refusal(finding))
        for finding in findings
        if finding.severity is Severity.ERROR and finding.rule not in planned and not deferred
    ]
    return RepairPlan(
        request=request,
        actions=tuple(actions),
        refused=tuple(refused),
        deferred=tuple(deferred),
    )


def _explain_refusal(finding: DoctorFinding) -> str:
    """Return the finding with what helps instead of a repair."""
    if finding.command is not None and not finding.command.startswith("repair"):
        return f"{finding.text} (run `paimon-orch {finding.command}`)"
    return finding.text if finding.advice is None else f"{finding.text} ({finding.advice})"


def _check_rules(request: RepairRequest) -> None:
    unknown = sorted(set(request.rules or ()) - set(_PLANNERS))
    if unknown:
        raise InputError(
            f"{format_names(unknown)}: not repaired by this command; docs/doctor.md says what to do. "
            f"Rules that can be repaired: {', '.join(REPAIRABLE_RULES)}"
        )


def commit(table: Table, plan: RepairPlan) -> RepairResult:
    """Do the planned repairs, one after the other.

    A repair commits, so the later ones are planned again: their files can be gone. Before the first
    one that changes rows or indexes, the state is tagged; it can be read only after hints are
    repaired.
    """
    results, tag = list[str](), None
    for planned in plan.actions:
        repair = _PLANNERS[planned.rule](table) if results else planned
        if tag is None and planned.rule in _STATE_RULES:
            latest = table.stores.snapshots.latest()
            tag = None if latest is None else tag_before_repair(table, latest, table.tags.names())
        results.append("not needed any more" if repair is None else repair.run())
    kept = "" if tag is None else describe_tag(table.stores.label, tag)
    return RepairResult(
        plan=plan,
        results=tuple(results),
        tag=tag,
        kept=kept,
        next_rules=tuple(rule for rule in plan.deferred if _needs_another_run(table, rule)),
    )


def _needs_another_run(table: Table, rule: DoctorRule) -> bool:
    """Return whether a rule has something to repair, or still cannot be examined."""
    try:
        return _PLANNERS[rule](table) is not None
    except (UnsupportedError, InputError):
        return False
    except (PaimonError, OSError) as error:
        raise_if_temporary(error)
        return True


REPAIR = build_metadata_step("repair", plan, commit, max_attempts=1)


@take_fields(RepairRequest)
def repair(table: Table, request: RepairRequest) -> RepairResult:
    """Repair what the doctor finds in a table, or only the findings of some rules.

    Nothing is deleted: each repair is a new snapshot, or moves a file or rows to the quarantine,
    and the tag ``before-repair-<UTC time>`` keeps the state before.
    Rows that are lost already remain lost. Raises :class:`InputError` for a rule that cannot be
    repaired, and the errors of the steps; the repairs before the failed one are complete.
    """
    return plan_and_run(REPAIR, table, request)


DECLARATION = declare_step(
    REPAIR,
    RepairRequest,
    help="Each repair commits a snapshot or writes a hint. Nothing is deleted: the tag "
    "before-repair-<UTC time> keeps the state before, and replaced hints and rows are put into the "
    "quarantine. Rows that are lost already remain lost. The exit status is 1 if a finding with "
    "severity error cannot be repaired.",
    examples=["/lake db.orders --dry-run", "/lake db.orders --rule snapshot-gap --yes"],
    asks=True,
)
