"""Merge engines: what becomes of the rows of one key (merge-tree facts 3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.row_kind import is_retract
from paimon_orch.format.schema import VALUE_KIND, TableSchema
from paimon_orch.merge.fold import Mask
from paimon_orch.merge.keys import Indices
from paimon_orch.merge.rowfold import aggregation, partial_update, sequence_groups
from paimon_orch.merge.stream import SequenceOrder, Step


@dataclass(frozen=True, slots=True)
class MergeEngine:
    """Merges the rows of each key of a step; made by :func:`merge_engine`."""

    schema: TableSchema

    @property
    def _name(self) -> str:
        return self.schema.typed_options.merge_engine

    @property
    def ignores_delete(self) -> bool:
        """Tell whether -D and -U rows have no effect at all (3.2)."""
        options = self.schema.typed_options
        names = (
            "ignore-delete",
            *(f"{engine}.ignore-delete" for engine in _ENGINES_WITH_OLD_OPTION),
        )
        return any(options.boolean(name) for name in names)

    @property
    def newest_row_wins(self) -> bool:
        """Tell whether the newest row replaces an older one whatever that one holds."""
        return self._name == "deduplicate" and not self.sequence.names and not self.ignores_delete

    @property
    def first_row_wins(self) -> bool:
        """Tell whether later rows of a key are dropped."""
        return self._name == "first-row"

    @property
    def sequence(self) -> SequenceOrder:
        """Return how rows of one key are ordered before their sequence number."""
        options = self.schema.typed_options
        descending = options.text("sequence.field.sort-order", "ascending").lower() == "descending"
        return SequenceOrder(tuple(options.names("sequence.field")), descending)

    def needed(self, names: Sequence[str]) -> list[str]:
        """Return the columns to read so that ``names`` can be merged, in the order of the table."""
        schema = self.schema
        wanted = {*names, *schema.trimmed_primary_keys, *self.sequence.names}
        if self._name == "partial-update":
            for group in sequence_groups(schema):
                wanted |= set(group.fields)
        return [name for name in schema.names if name in wanted]

    def prepare(self, step: Step) -> Step:
        """Leave out the rows that have no say; keys of which none is left vanish."""
        if step.order is step.starts and not self.ignores_delete:
            return step  # one run alone
        if self.schema.typed_options.need_lookup and self._name != "first-row":
            step = newest_level_only(step)
        return without_retracts(step) if self.ignores_delete else step

    def merge(self, step: Step) -> pa.Table:
        """Return one row for each key of a prepared step, in key order; a deleted key is a -D row."""
        if not len(step.order):
            return step.rows.slice(0, 0)
        if self._name == "first-row":
            return _first_row(step)
        if step.order is step.starts:
            return step.rows  # one run alone: nothing to merge, nothing to move
        if self._name == "deduplicate":
            return step.rows.take(pa.array(step.lasts))
        return self._fold(step)

    def _fold(self, step: Step) -> pa.Table:
        """Merge keys of several rows by folding their columns; single rows pass through as they are."""
        sizes = step.sizes
        several = np.flatnonzero(sizes > 1)
        if not len(several):
            return step.rows.take(pa.array(step.lasts))
        make = aggregation if self._name == "aggregation" else partial_update
        fold = make(self.schema, step.rows, len(several))
        for groups, rows in lockstep(step, several, sizes[several]):
            fold.take(groups, rows)
        singles = np.flatnonzero(sizes == 1)
        merged = fold.result(step.rows.schema)
        if not len(singles):
            return merged
        alone = step.rows.take(pa.array(step.order[step.starts[singles]]))
        position = np.argsort(np.concatenate((singles, several)), kind="stable")
        return pa.concat_tables([alone, merged]).take(pa.array(position))


_ENGINES_WITH_OLD_OPTION = ("first-row", "deduplicate", "partial-update")


def merge_engine(schema: TableSchema) -> MergeEngine:
    """Return the merge engine of a table, its options checked."""
    engine = MergeEngine(schema)
    if schema.typed_options.merge_engine == "partial-update":
        sequence_groups(schema)
    return engine


def lockstep(step: Step, several: Indices, sizes: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Yield the first rows of all groups, then the second rows of those that have one, and so on.

    Each item is (numbers of the groups among ``several``, their rows).
    """
    by_size = np.argsort(-sizes, kind="stable")
    ordered, firsts = sizes[by_size], step.starts[several[by_size]]
    for turn in range(int(ordered[0])):
        alive = int(np.searchsorted(-ordered, -turn, side="left"))
        yield by_size[:alive], step.order[firsts[:alive] + turn]


def restricted(step: Step, keep: Mask) -> Step:
    """Return the step without some of its rows; ``keep`` is in the order of ``step.order``."""
    if keep.all():
        return step
    group = np.repeat(np.arange(len(step.starts)), step.sizes)
    starts = np.flatnonzero(np.diff(group[keep], prepend=-1))
    return Step(step.rows, step.keys, step.order[keep], starts, step.levels)


def newest_level_only(step: Step) -> Step:
    """Keep of each key's rows above level 0 the one of the lowest level: it is merged already (3.7)."""
    levels = step.levels[step.order]
    above = np.where(levels > 0, levels, np.iinfo(np.int32).max)
    lowest = np.repeat(np.minimum.reduceat(above, step.starts), step.sizes)
    return restricted(step, (levels == 0) | (levels == lowest))


def _retracts(step: Step) -> Mask:
    mask: Mask = is_retract(step.rows.column(VALUE_KIND.name))[step.order]
    return mask


def without_retracts(step: Step) -> Step:
    """Leave out -U and -D rows."""
    return restricted(step, ~_retracts(step))


def _first_row(step: Step) -> pa.Table:
    retracts = _retracts(step)
    if retracts.any():
        raise InputError(
            "'merge-engine' = 'first-row' takes no -U and -D rows; set 'ignore-delete' = 'true' to leave them out"
        )
    return step.rows.take(pa.array(step.order[step.starts]))


def drop_retracts(rows: pa.Table) -> pa.Table:
    """Return the rows that are there for a reader: no -U and no -D."""
    retracts = is_retract(rows.column(VALUE_KIND.name))
    return rows.filter(pa.array(~retracts)) if retracts.any() else rows
