"""How many versions of a table are retained, and how long: table options, and arguments that override them.

See docs/format/snapshot-expiration.md.
"""

from dataclasses import dataclass

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    CHANGELOG_NUM_RETAINED_MAX,
    CHANGELOG_NUM_RETAINED_MIN,
    CHANGELOG_TIME_RETAINED,
    SNAPSHOT_EXPIRE_LIMIT,
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
    SNAPSHOT_TIME_RETAINED,
)

_SNAPSHOT, _CHANGELOG = "snapshot", "changelog"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRequest:
    """Limits that override the table's options; what is None is taken from the options.

    An argument wins over an option that contradicts it.
    """

    retain_max: int | None = None
    """The number of versions to retain at most."""
    retain_min: int | None = None
    """The number of versions to retain at least."""
    older_than: int | None = None
    """The time before which versions expire, in epoch milliseconds."""
    max_deletes: int | None = None
    """The number of versions to delete at most."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept: numbers of versions, a time (epoch milliseconds), and how many may go at once."""

    retain_min: int
    retain_max: int
    older_than: int
    limit: int

    @classmethod
    def of_snapshots(
        cls, options: Options, now_millis: int, limits: RetentionRequest
    ) -> "Retention":
        """Take what a caller says of snapshots, and the table's options for the rest."""
        return cls._of(options, _SNAPSHOT, now_millis, limits)

    @classmethod
    def of_changelogs(
        cls, options: Options, now_millis: int, limits: RetentionRequest
    ) -> "Retention":
        """Take what a caller says of changelogs, and the options of changelogs or else snapshots for the rest."""
        return cls._of(options, _CHANGELOG, now_millis, limits)

    @classmethod
    def _of(
        cls, options: Options, kind: str, now_millis: int, limits: RetentionRequest
    ) -> "Retention":
        retain_min, retain_max = limits.retain_min, limits.retain_max
        older_than, max_deletes = limits.older_than, limits.max_deletes
        least = options.get(SNAPSHOT_NUM_RETAINED_MIN)
        most = options.get(SNAPSHOT_NUM_RETAINED_MAX)
        kept = options.get(SNAPSHOT_TIME_RETAINED)
        if kind == _CHANGELOG:
            least = options.get(CHANGELOG_NUM_RETAINED_MIN, least)
            most = options.get(CHANGELOG_NUM_RETAINED_MAX, most)
            kept = options.get(CHANGELOG_TIME_RETAINED, kept)
        if retain_min is None and retain_max is not None:
            least = min(least, retain_max)
        if retain_max is None and retain_min is not None:
            most = max(most, retain_min)
        found = cls(
            least if retain_min is None else retain_min,
            most if retain_max is None else retain_max,
            now_millis - int(kept.total_seconds() * 1000) if older_than is None else older_than,
            options.get(SNAPSHOT_EXPIRE_LIMIT) if max_deletes is None else max_deletes,
        )
        found._check(kind)
        return found

    def _check(self, kind: str) -> None:
        """Refuse numbers out of range; options and arguments have the same names but for their separators."""
        for name, number, least in (
            ("maximum (retain-max)", self.retain_max, 1),
            ("minimum (retain-min)", self.retain_min, 1),
            ("most to delete at once (max-deletes)", self.limit, 0),
        ):
            if number < least:
                raise InputError(
                    f"the {name} of {kind}s is {number}, but must be {least} or more; nothing was deleted"
                )
        if self.retain_max < self.retain_min:
            raise InputError(
                f"the maximum (retain-max) of {kind}s is {self.retain_max}, but must not be less than the minimum "
                f"(retain-min), which is {self.retain_min}; nothing was deleted"
            )


def is_changelog_decoupled(options: Options, retention: Retention) -> bool:
    """Tell whether changelogs outlive their snapshots, which are kept as told."""
    most = options.get(CHANGELOG_NUM_RETAINED_MAX, retention.retain_max)
    least = options.get(CHANGELOG_NUM_RETAINED_MIN, retention.retain_min)
    snapshot_time = options.get(SNAPSHOT_TIME_RETAINED)
    return (
        most > retention.retain_max
        or least > retention.retain_min
        or options.get(CHANGELOG_TIME_RETAINED, snapshot_time) > snapshot_time
    )
