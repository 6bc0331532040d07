"""Change columns, options and comments."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

from paimon_orch.errors import InputError
from paimon_orch.format.display import format_count
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field, type_to_sql
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.described_change import ChangePlan
from paimon_orch.steps.common.step import StepOutcome
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.steps.definition.catalog_step import declare_catalog_step
from paimon_orch.steps.definition.catalog_target import CatalogEntry
from paimon_orch.table.schema_change.apply_schema_changes import apply_schema_changes
from paimon_orch.table.schema_change.changed_rows import describe_changed_rows
from paimon_orch.table.schema_change.deletion_vectors_switch import check_deletion_vectors_change
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    ColumnPath,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetOption,
    UpdateColumnComment,
    UpdateComment,
    UpdateDefault,
    UpdateNullability,
    UpdateType,
)
from paimon_orch.table.table_state import TableState

Texts = Sequence[str] | None
TextByName = Mapping[str, str] | None

_ADD_PATTERN = re.compile(r"\s*(\S+)\s+(.+?)(?:\s+(?:(first)|after\s+(\S+)))?\s*", re.IGNORECASE)
_MOVE_PATTERN = re.compile(r"\s*(\S+)\s+(?:(first|last)|(before|after)\s+(\S+))\s*", re.IGNORECASE)
_POSITIONS: dict[str, Literal["first", "last", "before", "after"]] = {
    "first": "first",
    "last": "last",
    "before": "before",
    "after": "after",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterRequest(ParsedRequest):
    """The changes of a table's schema, in the order in which they are made."""

    drop: Annotated[Texts, Argument("Drop a column.", metavar="COLUMN")] = None
    rename: Annotated[TextByName, Argument("Rename a column.", metavar="OLD=NEW")] = None
    types: Annotated[
        TextByName,
        Argument("Change a type, e.g. v=BIGINT.", option="--type", metavar="COLUMN=TYPE"),
    ] = None
    nullable: Annotated[Texts, Argument("Allow null in a column.", metavar="COLUMN")] = None
    not_null: Annotated[Texts, Argument("Forbid null in a column.", metavar="COLUMN")] = None
    add: Annotated[
        Texts,
        Argument(
            'Add a column, e.g. "note STRING" or "note STRING after id".', metavar='"NAME TYPE"'
        ),
    ] = None
    defaults: Annotated[
        TextByName,
        Argument(
            "Set the value that writers store instead of null; an empty value removes it.",
            option="--default",
            metavar="COLUMN=VALUE",
        ),
    ] = None
    move: Annotated[
        Texts,
        Argument(
            'Move a column, e.g. "v first", "v last" or "v after id".', metavar='"COLUMN PLACE"'
        ),
    ] = None
    column_comments: Annotated[
        TextByName,
        Argument(
            "Set the comment of a column; an empty value removes it.",
            option="--column-comment",
            metavar="COLUMN=TEXT",
        ),
    ] = None
    comment: Annotated[
        str | None,
        Argument("Set the comment of the table; an empty value removes it.", metavar="TEXT"),
    ] = None
    options: Annotated[
        TextByName, Argument("Set a table option.", option="--set", metavar="KEY=VALUE")
    ] = None
    reset: Annotated[Texts, Argument("Reset a table option to its default.", metavar="KEY")] = None

    def list_changes(self, schema: TableSchema) -> Iterator[SchemaChange]:
        """Yield the changes of a schema; a dotted name is that of a nested field."""
        path = partial(_parse_column, schema)
        yield from (DropColumn(path(name)) for name in self.drop or ())
        yield from (RenameColumn(path(name), new) for name, new in _items(self.rename))
        yield from (UpdateType(path(name), to) for name, to in _items(self.types))
        yield from (UpdateNullability(path(name), nullable=True) for name in self.nullable or ())
        yield from (UpdateNullability(path(name), nullable=False) for name in self.not_null or ())
        yield from (_parse_add(text, path) for text in self.add or ())
        yield from (UpdateDefault(path(name), text or None) for name, text in _items(self.defaults))
        yield from map(_parse_move, self.move or ())
        for name, text in _items(self.column_comments):
            yield UpdateColumnComment(path(name), text or None)
        if self.comment is not None:
            yield UpdateComment(self.comment or None)
        yield from (SetOption(key, value) for key, value in _items(self.options))
        yield from map(ResetOption, self.reset or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterResult(StepOutcome):
    """The schemas before and after the changes, and which rows readers see otherwise."""

    old: TableSchema
    new: TableSchema
    effects: Sequence[str]
    notes: Sequence[str]

    def list_notes(self) -> Sequence[str]:
        """Return what the change does not do."""
        return self.notes

    @property
    def is_change(self) -> bool:
        """Return whether the schemas differ, perhaps only in a secret, which is not shown."""
        before, after = (
            (each.fields, dict(each.options), each.comment) for each in (self.old, self.new)
        )
        return before != after

    def _list_lines(self) -> tuple[list[str], list[str]]:
        """Return the lines of the schema that were removed, and those that were added."""
        before, after = _format_schema(self.old), _format_schema(self.new)
        removed = [line for line in before if line not in after]
        return removed, [line for line in after if line not in before]

    def to_dict(self) -> dict[str, object]:
        """Return the ids of the schemas and their different lines as JSON values."""
        removed, added = self._list_lines()
        return {
            "previous_schema_id": self.old.id,
            "schema_id": self.new.id if self.is_change else self.old.id,
            "removed": removed,
            "added": added,
            "changed_rows": list(self.effects),
        }

    def describe(self) -> list[str]:
        """Return removed lines of the schema with a minus, and added lines with a plus."""
        if not self.is_change:
            return []
        removed, added = self._list_lines()
        return [
            f"schema {self.old.id} -> {self.new.id}",
            *(f"- {line}" for line in removed),
            *(f"+ {line}" for line in added),
            *(f"readers see other rows: {effect}" for effect in self.effects),
        ]


def _items(texts: TextByName) -> Sequence[tuple[str, str]]:
    return list((texts or {}).items())


def plan(entry: CatalogEntry, request: AlterRequest) -> ChangePlan:
    """Compute the new schema, and the rows that readers see otherwise.

    Raises :class:`InputError` for changes that are invalid, and if there are none.
    """
    table = entry.catalog.table(entry.identifier)
    state = table.load()
    changes = list(request.list_changes(state.schema))
    if not changes:
        raise InputError("alter has nothing to change; see paimon-orch alter --help")
    state.check_step(StepKind.ALTER)
    planned = _compute_schema(state, changes)
    effects = describe_changed_rows(state, state.schema, planned)
    losses = _describe_losses(state, request.drop or (), effects)
    notes = _note_other_buckets(state, planned)
    change = AlterResult(old=state.schema, new=planned, effects=effects, notes=notes)

    def apply() -> AlterResult:
        return replace(change, new=entry.catalog.alter_table(entry.identifier, changes))

    return ChangePlan(
        request=request,
        values=change.to_dict(),
        report=PlanReport(
            action=" and ".join(losses) or "change the schema",
            lines=[*change.describe(), *notes],
            nothing="" if change.is_change else "the table already has this schema",
            asks=bool(losses),
        ),
        apply=apply,
    )


def _compute_schema(state: TableState, changes: Sequence[SchemaChange]) -> TableSchema:
    check_deletion_vectors_change(state, changes)
    has_snapshots, now = state.snapshot is not None, int(time.time() * 1000)
    return apply_schema_changes(state.schema, changes, has_snapshots=has_snapshots, time_millis=now)


def _note_other_buckets(state: TableState, new: TableSchema) -> list[str]:
    """Say that files keep their buckets, which writers then refuse."""
    before, after = state.schema.typed_options.bucket, new.typed_options.bucket
    if before == after or min(before, after) < 1 or state.snapshot is None:
        return []
    note = (
        "files that exist keep their buckets, and writes to their partitions are refused until they "
        f"have {after}; to rewrite them, run {state.label.format_command('rescale')}"
    )
    return [note]


def _describe_losses(state: TableState, drop: Sequence[str], effects: Sequence[str]) -> list[str]:
    """Say which values are dropped, and which rows readers see with other values."""
    losses = []
    if drop and (rows := sum(split.row_count for split in state.newest_files())):
        losses.append(f"drop the values of column {', '.join(drop)} in {format_count(rows, 'row')}")
    if effects:
        losses.append(f"change {' and '.join(effects)}")
    return losses


def _parse_column(schema: TableSchema, text: str) -> ColumnPath:
    """Split a dotted name into a nested path.

    If a column has exactly this name, return the name unchanged.
    """
    return text if text in schema.names or "." not in text else tuple(text.split("."))


def _parse_add(text: str, path: Callable[[str], ColumnPath]) -> SchemaChange:
    match = _ADD_PATTERN.fullmatch(text)
    if match is None:
        raise InputError(f"add {text!r} must be a name and a type, such as 'note STRING'")
    name, data_type, first, after = match.groups()
    return AddColumn(column=path(name), type=data_type, first=bool(first), after=after)


def _parse_move(text: str) -> SchemaChange:
    match = _MOVE_PATTERN.fullmatch(text)
    if match is None:
        raise InputError(f"move {text!r} must look like 'v first', 'v last' or 'v after id'")
    name, end, side, reference = match.groups()
    return MoveColumn(name, _POSITIONS[(end or side).lower()], reference)


def _format_schema(schema: TableSchema) -> list[str]:
    comment = [] if schema.comment is None else [f"comment {schema.comment}"]
    options = [
        f"option {key} = {value}" for key, value in sorted(hide_secrets(schema.options).items())
    ]
    return [
        f"columns {', '.join(schema.names)}",
        *map(_format_column, schema.fields),
        *comment,
        *options,
    ]


def _format_column(field: Field) -> str:
    default = "" if field.default_value is None else f" DEFAULT {field.default_value}"
    comment = "" if field.description is None else f" COMMENT {field.description}"
    return f"column {field.name} {type_to_sql(field.type)}{default}{comment}"


DECLARATION = declare_catalog_step(
    "alter",
    AlterRequest,
    plan,
    help="Every option except --comment may be repeated. All changes are made in one new schema, "
    "in the order of the options on this page. The field city of a nested column address is "
    "address.city. No data file is rewritten: readers convert old files to the new schema. Asks "
    "before it drops a column, and before readers see other values: after a type that holds fewer "
    "values, or another way to merge rows while files are not compacted.",
    examples=[
        "/lake db.orders --add 'note STRING after id' --dry-run",
        "/lake db.orders --set bucket=8 --reset write-only",
    ],
)
