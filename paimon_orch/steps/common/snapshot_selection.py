"""The arguments that select a snapshot."""

from dataclasses import dataclass, field
from typing import Annotated

from paimon_orch.format.times import to_epoch_millis
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.table.metadata.time_travel import SnapshotSelector


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRequest(ParsedRequest):
    """A tag."""

    name: Annotated[str, Argument("Name of the tag.", metavar="TAG", is_positional=True)] = field(
        kw_only=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest(ParsedRequest):
    """Selects a snapshot; at most one argument is set."""

    snapshot_id: Annotated[
        int | None, Argument("Id of the snapshot.", option="--snapshot", metavar="ID")
    ] = None
    tag: Annotated[str | None, Argument("Snapshot of this tag.", metavar="TAG")] = None
    timestamp: Annotated[
        int | None,
        Argument(
            "Newest snapshot at or before this time: ISO 8601 or epoch milliseconds.",
            parse=to_epoch_millis,
            metavar="TIME",
        ),
    ] = None
    watermark: Annotated[
        int | None,
        Argument(
            "First snapshot with this watermark or a later one: ISO 8601 or epoch milliseconds.",
            parse=to_epoch_millis,
            metavar="TIME",
        ),
    ] = None

    @property
    def selector(self) -> SnapshotSelector:
        """Return the selector of the snapshot; raises :class:`InputError` for two arguments."""
        return SnapshotSelector(self.snapshot_id, self.tag, self.timestamp, self.watermark)
