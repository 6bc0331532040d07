"""Rules of snapshots: gaps, hints, clocks, overwritten snapshots and retention."""

from collections.abc import Iterator

from paimon_orch.errors import CorruptFileError, PaimonError, UnsupportedError, raise_if_temporary
from paimon_orch.format.display import format_count
from paimon_orch.format.options.core_options import SNAPSHOT_EXPIRE_LIMIT
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.expiration.retention import (
    Retention,
    RetentionRequest,
    find_first_retained_snapshot,
    read_retaining_consumers,
)
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorFinding, DoctorRule, Severity
from paimon_orch.steps.inspection.doctor.rule_context import RuleContext
from paimon_orch.steps.inspection.snapshot_chain import SnapshotChain
from paimon_orch.table.metadata.snapshot_store import (
    EARLIEST,
    LATEST,
    describe_hidden_snapshots,
    hides_snapshots,
)
from paimon_orch.table.table_state import TableState

_CLOCK_TOLERANCE_SECONDS = 300
_SET_CLOCK = (
    "no command repairs this: set the clock of the writers, or of this machine. The finding goes away "
    "with the next commits"
)


def read_latest(context: RuleContext) -> Snapshot | None:
    """Read the newest snapshot; the hint and the listing are needed for other findings."""
    if context.snapshots.catalog is None:
        hint = context.snapshots.hint(LATEST)
        newest = max(context.snapshots.ids(), default=0)
        latest = context.snapshots.find(newest) if newest >= (hint or 1) else None
        if latest is not None:
            return latest
    return context.snapshots.latest()


def check_snapshot_files(context: RuleContext, latest: Snapshot) -> Iterator[DoctorFinding]:
    """Check which snapshots exist, the hints, and the time of the newest snapshot."""
    ids = context.snapshots.ids()
    earliest = context.snapshots.earliest_id()
    if earliest is not None:
        expected = latest.id - earliest + 1
        missing = expected - sum(earliest <= number <= latest.id for number in ids)
        if missing > 0:
            verb = "is" if missing == 1 else "are"
            yield context.find(
                DoctorRule.SNAPSHOT_GAP,
                Severity.ERROR,
                f"{format_count(missing, 'snapshot')} between {earliest} and {latest.id} "
                f"{verb} missing: time travel, streaming reads and expiration fail",
                "repair",
                snapshots=missing,
            )
    if context.snapshots.catalog is None:
        yield from _check_hints(context, latest.id, ids)
    age = context.now - latest.time_millis / 1000
    if age < -_CLOCK_TOLERANCE_SECONDS:
        yield context.find(
            DoctorRule.CLOCK_SKEW,
            Severity.WARNING,
            f"snapshot {latest.id} was committed {-age:,.0f} s in the future: the clock of a "
            "writer or of this machine is wrong, and expiration by age deletes too much or "
            "too little",
            advice=_SET_CLOCK,
        )


def _check_hints(context: RuleContext, latest: int, ids: list[int]) -> Iterator[DoctorFinding]:
    # A stale LATEST is normal: writers create the snapshot first. Other writers than Java do not
    # write EARLIEST before the first expiration.
    oldest = min(ids, default=latest)
    for name, snapshot in ((LATEST, latest), (EARLIEST, oldest)):
        hint = context.snapshots.hint(name)
        if name == LATEST and hint is not None and hides_snapshots(hint, ids):
            text = describe_hidden_snapshots(hint, ids[-1])
            yield context.find(DoctorRule.WRONG_HINT, Severity.ERROR, text, "repair")
        is_optional = name == EARLIEST and oldest == 1
        if hint is None and is_optional:
            continue
        if hint is None or hint not in ids:
            state = "is missing or not a number" if hint is None else f"names snapshot {hint}"
            yield context.find(
                DoctorRule.WRONG_HINT,
                Severity.WARNING,
                f"the hint {name} {state}, and the snapshot is {snapshot}: readers list the "
                f"{format_count(len(ids), 'file')} of the snapshot directory until the next "
                "commit or expiration writes it",
                "repair",
                files=len(ids),
            )


def read_chain(context: RuleContext, latest: Snapshot) -> SnapshotChain | DoctorFinding:
    """Return the newest snapshots, or a finding if one of them cannot be read."""
    try:
        return SnapshotChain.read(context.snapshots, latest)
    except UnsupportedError:  # a newer format version is no damage
        raise
    except (PaimonError, OSError) as error:
        raise_if_temporary(error)
        return context.describe_unreadable_snapshot(error)


def check_chain(context: RuleContext, chain: SnapshotChain) -> Iterator[DoctorFinding]:
    """Check that each snapshot continues the one before it."""
    manifests = context.stores.manifests
    try:
        manifests.read_lists_ahead(chain.snapshots)
        for before, after in chain.find_breaks(manifests):
            yield context.find(
                DoctorRule.OVERWRITTEN_SNAPSHOT,
                Severity.ERROR,
                f"snapshot {after.id} does not continue snapshot {before.id}: its base has "
                f"other files. Another writer has overwritten one of them, for example on a "
                "store without exclusive creation; rows may be lost, and streaming readers "
                "saw other rows than batch readers",
                advice="no command finds the lost rows: run the jobs again that wrote at that "
                "time, and use a store or catalog with atomic commits. The finding goes away "
                "when the snapshots expire",
            )
    except (PaimonError, OSError) as error:
        raise_if_temporary(error)
        store = context.snapshots
        has_expired = store.catalog is None and not store.exists(chain.oldest.id)
        # the newest snapshot is read again, with a rule of its own
        if not has_expired and not _is_of_snapshot(context, error, chain.snapshots[-1]):
            yield context.describe_unreadable_snapshot(error)
    for before, after in chain.find_backward_times(_CLOCK_TOLERANCE_SECONDS * 1000):
        seconds = (before.time_millis - after.time_millis) / 1000
        yield context.find(
            DoctorRule.CLOCK_SKEW,
            Severity.WARNING,
            f"snapshot {after.id} was committed {seconds:,.0f} s before snapshot {before.id}: "
            "the clocks of the writers differ, and time travel by timestamp finds a wrong "
            "snapshot",
            advice=_SET_CLOCK,
        )


def _is_of_snapshot(context: RuleContext, error: Exception, snapshot: Snapshot) -> bool:
    """Return whether a snapshot cannot be read because of its lists, or of an error in a manifest."""
    try:
        manifests = context.stores.manifests.manifests(snapshot)
    except (PaimonError, OSError) as other:
        raise_if_temporary(other)
        return True
    name = error.path.rpartition("/")[2] if isinstance(error, CorruptFileError) else ""
    return any(meta.file_name == name for meta in manifests)


def check_retention(context: RuleContext, state: TableState) -> Iterator[DoctorFinding]:
    """Check which snapshots should have expired, and which consumers retain others."""
    options = state.schema.typed_options
    ids = context.snapshots.ids()
    if not ids:  # not every catalog writes the file of its newest snapshot
        return
    retention = Retention.of_snapshots(
        options, int(context.now * 1000), RetentionRequest(max_deletes=ids[-1])
    )
    end = find_first_retained_snapshot(context.snapshots, retention)
    if end is None:
        return
    consumers = read_retaining_consumers(state)
    retained = {path: number for path, number in consumers.items() if number < end}
    first = min([end, *retained.values()])
    expired = sum(number < first for number in ids)
    if expired:
        deletes = first - ids[0]
        more = f" --max-deletes {deletes}" if deletes > options.get(SNAPSHOT_EXPIRE_LIMIT) else ""
        yield context.find(
            DoctorRule.EXPIRED_SNAPSHOTS,
            Severity.WARNING,
            f"files of {format_count(expired, 'snapshot')} that expired by the table's options are "
            "still stored",
            f"expire-snapshots{more}",
            snapshots=expired,
        )
    for path, number in sorted(retained.items()):
        count = sum(number <= other < end for other in ids)
        yield context.find(
            DoctorRule.CONSUMER_RETAINS_SNAPSHOTS,
            Severity.WARNING,
            f"consumer {path.rpartition('consumer-')[2]} retains "
            f"{format_count(count, 'snapshot')} from {number} on; without consumers, those "
            f"before {end} would expire",
            "consumer list",
            snapshots=count,
        )
