"""Stores the greatest sequence number of a table as a property of its snapshots.

Write-only writers of tables with ``write.sequence-number-init-mode`` = ``snapshot`` start numbering
their rows after this property and read no files. Without the property they read all files of a
bucket. If its value were too small, older rows would replace newer rows in a merge.
"""

from collections.abc import Callable, Iterable, Mapping

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import WRITE_SEQUENCE_NUMBER_INIT_MODE
from paimon_orch.format.snapshot import Snapshot

MAX_SEQUENCE_NUMBER_PROPERTY = "sequence.generation.max-sequence-number"


def build_sequence_properties(
    options: Options,
    latest: Snapshot | None,
    added: Iterable[ManifestEntry],
    existing: Callable[[], Iterable[ManifestEntry]],
) -> Mapping[str, str]:
    """Return the property of the next snapshot, or no property if the options do not use it.

    ``existing`` reads all entries of ``latest``, only if that snapshot lacks the property.
    """
    if options.get(WRITE_SEQUENCE_NUMBER_INIT_MODE) != "snapshot":
        return {}
    numbers = [_find_greatest_sequence(added)]
    if latest is not None:
        numbers.append(
            _read_property(latest)
            if MAX_SEQUENCE_NUMBER_PROPERTY in latest.properties
            else _find_greatest_sequence(existing())
        )
    assigned = [number for number in numbers if number is not None]
    return {MAX_SEQUENCE_NUMBER_PROPERTY: str(max(assigned))} if assigned else {}


def _find_greatest_sequence(entries: Iterable[ManifestEntry]) -> int | None:
    added = (entry.file for entry in entries if entry.kind is FileKind.ADD)
    return max((file.max_sequence_number for file in added), default=None)


def _read_property(snapshot: Snapshot) -> int:
    text = snapshot.properties[MAX_SEQUENCE_NUMBER_PROPERTY]
    try:
        return int(text)
    except ValueError as error:
        raise CorruptFileError(
            f"snapshot-{snapshot.id}",
            f"property {MAX_SEQUENCE_NUMBER_PROPERTY!r} = {text!r} is not a whole number",
        ) from error
