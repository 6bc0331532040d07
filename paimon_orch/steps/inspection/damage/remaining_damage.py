"""Whether files that a step could not read are still damaged."""

from collections.abc import Sequence

from paimon_orch.errors import CorruptFileError
from paimon_orch.steps.inspection.damage.unreadable_files import find_unreadable_files
from paimon_orch.steps.inspection.doctor.doctor import examine_opened_table
from paimon_orch.steps.inspection.doctor.doctor_findings import Severity
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


def find_remaining_damage(table: Table, paths: Sequence[str]) -> list[str]:
    """Return those of some damaged files that the newest snapshot needs, and that cannot be read.

    Reads these files, if they are data files, and metadata.
    """
    if not paths:
        return []
    names = {path: path.rpartition("/")[2] for path in paths}
    try:
        state = table.load()
        unreadable = {
            file.name for file in find_unreadable_files(state, lambda name: name in names.values())
        }
        unreadable |= _find_missing(state, [*names.values()])
    except CorruptFileError:  # of the metadata, without which no file can be judged
        return [*paths]
    findings = examine_opened_table(table)
    errors = " ".join(each.text for each in findings if each.severity is Severity.ERROR)
    return [path for path, name in names.items() if name in unreadable or name in errors]


def _find_missing(state: TableState, names: Sequence[str]) -> set[str]:
    """Return the names of live data files that do not exist."""
    if state.snapshot is None:
        return set()
    return {
        entry.file.file_name
        for entry in state.manifests.read_live_entries(state.snapshot)
        if entry.file.file_name in names
        and not state.io.exists(
            state.paths.data_file(state.schema, entry.partition, entry.bucket, entry.file)
        )
    }
