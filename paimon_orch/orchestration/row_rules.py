"""Rules that no row may break, proved by the metadata of the files without reading a data file.

A rule is a filter that no row may match, such as ``amount < 0`` or ``id IS NULL``. The statistics
and embedded indexes of a file prove that none of its rows match, or leave it open.

See docs/format/statistics.md#use-on-read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.arrays import Indices
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.file_fields import build_file_fields
from paimon_orch.format.options.core_options import SCAN_FALLBACK_BRANCH
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.table_kind import TableKind
from paimon_orch.format.types.predicate import Predicate, collect_columns
from paimon_orch.table.chain.chain_branches import find_chain_branches
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.scan.file_pruner import FilePruner

if TYPE_CHECKING:
    from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOutcome:
    """What the metadata of the newest snapshot tells about a rule."""

    name: str
    filter: str
    """The filter that no row may match."""

    files: int
    """The number of files that may have matching rows; 0 proves the rule."""

    rows: int
    """The number of rows in these files, with deleted and replaced ones."""

    all_files: int
    """The number of files of the snapshot."""

    @property
    def is_proved(self) -> bool:
        """Whether no row of the table can match."""
        return not self.files


@repeat_if_expired
def evaluate_row_rules(table: "Table", rules: Mapping[str, str]) -> list[RuleOutcome]:
    """Evaluate rules in one pass over the manifests of the newest snapshot.

    ``rules`` are filters that no row may match, by the names of the rules. A file whose statistics
    leave a rule open may have only rows that were deleted or replaced since it was written.

    Raises :class:`InputError` for a filter that does not fit the table, and
    :class:`UnsupportedError` if the values of a column are in no single file: for tables with data
    evolution, and for columns that the merge engine combines; and for tables of which readers also
    see rows of other branches.
    """
    state = table.load(with_lists=True)
    schema = state.get_schema()
    state.check_step(StepKind.READ, schema)
    _check_reads_one_branch(table.identifier, schema, state.paths.branch)
    tallies = {
        name: _Tally(FilePruner(schema, _bind(name, text, schema), state.schemas.get))
        for name, text in rules.items()
    }
    all_files = 0

    def count(manifest: Manifest, rows: Indices) -> Indices:
        nonlocal all_files
        all_files += len(rows)
        for tally in tallies.values():
            tally.add(manifest, rows)
        return rows[:0]  # no entry is needed

    if state.snapshot is not None:
        state.manifests.read_live_entries(state.snapshot, choose=count)
    return [
        RuleOutcome(
            name=name, filter=rules[name], files=tally.files, rows=tally.rows, all_files=all_files
        )
        for name, tally in tallies.items()
    ]


@dataclass(slots=True)
class _Tally:
    """Counts the files that may have rows that break a rule, and their rows."""

    pruner: FilePruner
    files: int = 0
    rows: int = 0

    def add(self, manifest: Manifest, rows: Indices) -> None:
        selected = self.pruner.select_rows(manifest, rows)
        self.files += len(selected)
        if len(selected):
            counts = np.array(build_file_fields(manifest, selected).get("_ROW_COUNT"), np.int64)
            self.rows += int(counts.sum())


def _check_reads_one_branch(identifier: str, schema: TableSchema, branch: str) -> None:
    """Raise :class:`UnsupportedError` if readers also see rows of other branches."""
    fallback = (schema.typed_options.get(SCAN_FALLBACK_BRANCH) or "").strip()
    if find_chain_branches(schema, branch) is not None or fallback not in ("", branch):
        raise UnsupportedError(
            f"{identifier}: readers also see rows of other branches (chain tables, and tables with "
            f"{SCAN_FALLBACK_BRANCH.key!r}), so the files of this branch do not prove a rule; "
            "check the other branches, for example db.t$branch_delta"
        )


def _bind(name: str, text: str, schema: TableSchema) -> Predicate:
    """Return the predicate of a rule, whose columns are stored as readers see them."""
    predicate = bind_filter(text, schema)
    if predicate is None:
        raise InputError(f"the rule {name!r} has no filter")
    if schema.kind is TableKind.DATA_EVOLUTION:
        raise UnsupportedError(
            f"the rule {name!r}: the columns of a row are in several files of a table with "
            "'data-evolution.enabled', so the statistics of a file do not prove a rule"
        )
    options, keys = schema.typed_options, schema.identifying_names
    combined = sorted(collect_columns(predicate) - keys)
    if schema.kind is TableKind.PRIMARY_KEY and options.combines_rows and combined:
        raise UnsupportedError(
            f"the rule {name!r} names {', '.join(combined)}: the merge engine "
            f"{options.merge_engine} combines the values of several files, so their statistics do "
            f"not prove a rule; only rules on the keys {', '.join(sorted(keys))} are proved"
        )
    return predicate
