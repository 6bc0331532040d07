"""The command ``alter``: changes columns, options and comments of a table in one new schema."""

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

import typer

from paimon_orch.cli.arguments import CatalogLocation, DryRun, Identifier, JsonOutput, Yes
from paimon_orch.cli.common import confirm, open_catalog, parse_pairs
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES, Output, print_note
from paimon_orch.errors import InputError
from paimon_orch.format.display import format_count
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field, type_to_sql
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
from paimon_orch.table.table import Table

Texts = list[str] | None

_Drop = Annotated[Texts, typer.Option(metavar="COLUMN", help="Drop a column.")]
_Rename = Annotated[Texts, typer.Option(metavar="OLD=NEW", help="Rename a column.")]
_Type = Annotated[
    Texts,
    typer.Option("--type", metavar="COLUMN=TYPE", help="Change a type, e.g. v=BIGINT."),
]
_Nullable = Annotated[Texts, typer.Option(metavar="COLUMN", help="Allow null in a column.")]
_NotNull = Annotated[Texts, typer.Option(metavar="COLUMN", help="Forbid null in a column.")]
_Add = Annotated[
    Texts,
    typer.Option(
        metavar='"NAME TYPE"', help='Add a column, e.g. "note STRING" or "note STRING after id".'
    ),
]
_Default = Annotated[
    Texts,
    typer.Option(
        metavar="COLUMN=VALUE",
        help="Set the value that writers store instead of null; an empty value removes it.",
    ),
]
_Move = Annotated[
    Texts,
    typer.Option(
        metavar='"COLUMN PLACE"', help='Move a column, e.g. "v first", "v last" or "v after id".'
    ),
]
_ColumnComment = Annotated[
    Texts,
    typer.Option(
        metavar="COLUMN=TEXT", help="Set the comment of a column; an empty value removes it."
    ),
]
_Comment = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Set the comment of the table; an empty value removes it."),
]
_Set = Annotated[Texts, typer.Option("--set", metavar="KEY=VALUE", help="Set a table option.")]
_Reset = Annotated[Texts, typer.Option(metavar="KEY", help="Reset a table option to its default.")]

_EXAMPLES = [
    "alter /lake db.orders --add 'note STRING after id' --dry-run",
    "alter /lake db.orders --set bucket=8 --reset write-only",
]
_ADD_PATTERN = re.compile(r"\s*(\S+)\s+(.+?)(?:\s+(?:(first)|after\s+(\S+)))?\s*", re.IGNORECASE)
_MOVE_PATTERN = re.compile(r"\s*(\S+)\s+(?:(first|last)|(before|after)\s+(\S+))\s*", re.IGNORECASE)
_POSITIONS: dict[str, Literal["first", "last", "before", "after"]] = {
    "first": "first",
    "last": "last",
    "before": "before",
    "after": "after",
}


def add_commands(app: typer.Typer) -> None:
    """Register the command of this module."""
    register_command(app, alter, examples=_EXAMPLES, has_allowances=False)


def alter(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    drop: _Drop = None,
    rename: _Rename = None,
    retype: _Type = None,
    nullable: _Nullable = None,
    not_null: _NotNull = None,
    add: _Add = None,
    default: _Default = None,
    move: _Move = None,
    column_comment: _ColumnComment = None,
    comment: _Comment = None,
    set_option: _Set = None,
    reset: _Reset = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Change columns, options and comments.

    Every option except --comment may be repeated. All changes are made in one new schema, in the
    order of the options on this page. The field city of a nested column address is address.city.
    No data file is rewritten: readers convert old files to the new schema. Asks before it drops a
    column, and before readers see other values: after a type that holds fewer values, or another
    way to merge rows while files are not compacted.
    """
    catalog = open_catalog(ctx, location)
    target = catalog.table(table)
    schema = target.stores.get_schema()
    path = partial(_parse_column, schema)
    changes = [
        *(DropColumn(path(name)) for name in drop or []),
        *_parse_each(rename, "--rename old=new", lambda old, new: RenameColumn(path(old), new)),
        *_parse_each(retype, "--type v=BIGINT", lambda name, to: UpdateType(path(name), to)),
        *(UpdateNullability(path(name), nullable=True) for name in nullable or []),
        *(UpdateNullability(path(name), nullable=False) for name in not_null or []),
        *(_parse_add(text, path) for text in add or []),
        *_parse_each(
            default, "--default v=0", lambda name, text: UpdateDefault(path(name), text or None)
        ),
        *(_parse_move(text) for text in move or []),
        *_parse_each(
            column_comment,
            "--column-comment v=text",
            lambda name, text: UpdateColumnComment(path(name), text or None),
        ),
        *([] if comment is None else [UpdateComment(comment or None)]),
        *_parse_each(set_option, "--set bucket=4", SetOption),
        *(ResetOption(key) for key in reset or []),
    ]
    if not changes:
        raise InputError("alter has nothing to change; see paimon-orch alter --help")
    planned = _plan_schema(target, schema, changes)  # refuses invalid changes before the question
    effects = describe_changed_rows(target, schema, planned)
    if not dry_run:
        _confirm_effects(target, drop or [], effects, yes=yes)
    new_schema = planned if dry_run else catalog.alter_table(table, changes)
    _print_schema_diff(schema, new_schema, effects, dry_run=dry_run, output=output)
    _note_other_buckets(target, schema, new_schema)


def _note_other_buckets(table: Table, old: TableSchema, new: TableSchema) -> None:
    """Say that files keep their buckets, which writers then refuse."""
    before, after = old.typed_options.bucket, new.typed_options.bucket
    if before != after and min(before, after) > 0 and table.stores.snapshots.latest_id():
        command = table.stores.label.format_command("rescale")
        print_note(
            "files that exist keep their buckets, and writes to their partitions are refused "
            f"until they have {after}; to rewrite them, run {command}"
        )


def _confirm_effects(table: Table, drop: list[str], effects: list[str], *, yes: bool) -> None:
    """Ask before columns are dropped, and before readers see other values of existing rows."""
    losses = []
    if drop and (rows := sum(split.row_count for split in table.files())):
        losses.append(f"drop the values of column {', '.join(drop)} in {format_count(rows, 'row')}")
    if effects:
        losses.append(f"change {' and '.join(effects)}")
    if losses:
        confirm(f"{' and '.join(losses)} of {table.identifier}", yes=yes)


def _plan_schema(table: Table, schema: TableSchema, changes: list[SchemaChange]) -> TableSchema:
    check_deletion_vectors_change(table, changes)
    has_snapshots, now = table.stores.snapshots.latest_id() is not None, int(time.time() * 1000)
    return apply_schema_changes(schema, changes, has_snapshots=has_snapshots, time_millis=now)


def _parse_column(schema: TableSchema, text: str) -> ColumnPath:
    """Split a dotted name into a nested path.

    If a column has exactly this name, return the name unchanged.
    """
    return text if text in schema.names or "." not in text else tuple(text.split("."))


def _parse_each(
    texts: Texts, example: str, build: Callable[[str, str], SchemaChange]
) -> list[SchemaChange]:
    return [build(name, value) for name, value in parse_pairs(texts, example).items()]


def _parse_add(text: str, path: Callable[[str], ColumnPath]) -> SchemaChange:
    match = _ADD_PATTERN.fullmatch(text)
    if match is None:
        raise InputError(f"--add {text!r} must be a name and a type, such as 'note STRING'")
    name, data_type, first, after = match.groups()
    return AddColumn(column=path(name), type=data_type, first=bool(first), after=after)


def _parse_move(text: str) -> SchemaChange:
    match = _MOVE_PATTERN.fullmatch(text)
    if match is None:
        raise InputError(f"--move {text!r} must look like 'v first', 'v last' or 'v after id'")
    name, end, side, reference = match.groups()
    return MoveColumn(name, _POSITIONS[(end or side).lower()], reference)


def _print_schema_diff(
    old: TableSchema, new: TableSchema, effects: list[str], *, dry_run: bool, output: Output
) -> None:
    """Print removed lines of the schema with a minus, and added lines with a plus."""
    before, after = _format_schema(old), _format_schema(new)
    removed = [line for line in before if line not in after]
    added = [line for line in after if line not in before]
    values: dict[str, object] = {
        "previous_schema_id": old.id,
        "schema_id": new.id if removed or added else old.id,
        "removed": removed,
        "added": added,
        "changed_rows": effects,
    }
    lines = (
        [f"schema {old.id} -> {new.id}"]
        if removed or added
        else ["the table already has this schema"]
    )
    lines += [f"- {line}" for line in removed] + [f"+ {line}" for line in added]
    lines += [f"readers see other rows: {effect}" for effect in effects]
    if dry_run:
        lines.append("nothing was changed")
    output.print_values(values, *lines)


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
