"""The table that the rules of the doctor examine, and the findings that they return."""

from dataclasses import dataclass, field

from paimon_orch.errors import CorruptFileError
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorFinding, DoctorRule, Severity
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.table import Table
from paimon_orch.table.table_stores import TableStores

READ_CHECK = "no command repairs this; `paimon-orch check --deep` lists all that is wrong. "
RESTORE_OR_ROLL_BACK = (
    "Restore the files from a backup, or roll back to a snapshot before the damage. If only older "
    "snapshots, tags or branches are named, the finding goes away when they expire or are deleted"
)
RESTORE_FILE = (
    "no command repairs this, because no older snapshot and no tag can be read either: restore the "
    "file from a backup or an older version of the object"
)
_EXPIRE = "Restore its files, or wait until it expires"


@dataclass(frozen=True, slots=True)
class RuleContext:
    """A table that is examined."""

    table: Table
    stores: TableStores
    now: float
    """The time in epoch seconds."""
    reported: set[str] = field(default_factory=set)
    """The paths of unreadable files of snapshots that have a finding."""

    @property
    def snapshots(self) -> SnapshotStore:
        """Return the snapshots of the table."""
        return self.stores.snapshots

    def find(
        self,
        rule: DoctorRule,
        severity: Severity,
        text: str,
        command: str | None = None,
        advice: str | None = None,
        **cost: int,
    ) -> DoctorFinding:
        """Return a finding in the table."""
        return DoctorFinding(
            table=self.table.identifier,
            rule=rule,
            severity=severity,
            text=text,
            command=command,
            advice=advice,
            cost=cost,
        )

    def describe_unreadable_snapshot(self, error: Exception | str) -> DoctorFinding:
        """Return the finding of a retained snapshot that cannot be read."""
        if isinstance(error, CorruptFileError):
            self.reported.add(error.path)
        return self.find(
            DoctorRule.UNREADABLE_SNAPSHOT,
            Severity.ERROR,
            f"a retained snapshot cannot be read: {error}",
            "repair" if self.snapshots.catalog is None else None,
            None if self.snapshots.catalog is None else READ_CHECK + _EXPIRE,
        )
