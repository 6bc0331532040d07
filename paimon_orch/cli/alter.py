"""The command ``alter``: columns, options and comments of a table, changed all at once."""

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Literal

import typer

from paimon_orch.cli.common import DryRun, Identifier, Warehouse, open_catalog, parse_pair
from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field, type_to_sql
from paimon_orch.table.schema_evolution.alter import apply_schema_changes
from paimon_orch.table.schema_evolution.schema_changes import (
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

OptionTexts = list[str] | None
AddOption = Annotated[
    OptionTexts, typer.Option(help='"note STRING", "note STRING first", "note STRING after id"')
]
CommentOption = Annotated[str | None, typer.Option(help="comment of the table; empty for none")]
DefaultOption = Annotated[
    OptionTexts, typer.Option(help="v=0: what writers store for null; v= for nothing")
]
MoveOption = Annotated[
    OptionTexts, typer.Option(help='"v first", "v last", "v before id", "v after id"')
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
    app.command()(alter)


def alter(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    drop: Annotated[OptionTexts, typer.Option(help="column to drop")] = None,
    rename: Annotated[OptionTexts, typer.Option(help="old=new name of a column")] = None,
    retype: Annotated[OptionTexts, typer.Option("--type", help="v=BIGINT: another type")] = None,
    nullable: Annotated[
        OptionTexts, typer.Option(help="column that may be null from now on")
    ] = None,
    not_null: Annotated[
        OptionTexts, typer.Option(help="column that may not be null any more")
    ] = None,
    add: AddOption = None,
    default: DefaultOption = None,
    move: MoveOption = None,
    column_comment: Annotated[OptionTexts, typer.Option(help="v=text; v= for none")] = None,
    comment: CommentOption = None,
    set_option: Annotated[OptionTexts, typer.Option("--set", help="bucket=4: an option")] = None,
    reset: Annotated[OptionTexts, typer.Option(help="option to go back to its default")] = None,
    dry_run: DryRun = False,
) -> None:
    """Change columns, options and comments, all at once.

    Every option may be repeated; they are applied in the order in which they are listed here. The field city of a nested
    column address is address.city. No file is rewritten: old ones are read in the new shape.
    """
    catalog = open_catalog(ctx, warehouse)
    target = catalog.table(table)
    schema = target.schema
    path = partial(_parse_column, schema)
    changes = [
        *(DropColumn(path(name)) for name in drop or []),
        *(RenameColumn(path(old), new) for old, new in _parse_pairs(rename, "--rename old=new")),
        *(UpdateType(path(name), to) for name, to in _parse_pairs(retype, "--type v=BIGINT")),
        *(UpdateNullability(path(name), nullable=True) for name in nullable or []),
        *(UpdateNullability(path(name), nullable=False) for name in not_null or []),
        *(_parse_add(text, path) for text in add or []),
        *(_parse_default(text, path) for text in default or []),
        *(_parse_move(text) for text in move or []),
        *(_parse_column_comment(text, path) for text in column_comment or []),
        *([] if comment is None else [UpdateComment(comment or None)]),
        *(SetOption(key, value) for key, value in _parse_pairs(set_option, "--set bucket=4")),
        *(ResetOption(key) for key in reset or []),
    ]
    if not changes:
        raise InputError("alter was given nothing to change; see paimon-orch alter --help")
    changed = (
        _plan_schema(target, schema, changes) if dry_run else catalog.alter_table(table, changes)
    )
    _print_schema_diff(schema, changed)
    if dry_run:
        print("nothing was changed")


def _plan_schema(table: Table, schema: TableSchema, changes: list[SchemaChange]) -> TableSchema:
    has_snapshots, now = table.stores.snapshots.latest_id() is not None, int(time.time() * 1000)
    return apply_schema_changes(schema, changes, has_snapshots=has_snapshots, time_millis=now)


def _parse_column(schema: TableSchema, text: str) -> ColumnPath:
    """Return a path into nested columns, unless there is a column of that very name."""
    return text if text in schema.names or "." not in text else tuple(text.split("."))


def _parse_pairs(texts: OptionTexts, example: str) -> Iterator[tuple[str, str]]:
    return (parse_pair(text, example) for text in texts or [])


def _parse_add(text: str, path: Callable[[str], ColumnPath]) -> SchemaChange:
    match = _ADD_PATTERN.fullmatch(text)
    if match is None:
        raise InputError(f"--add {text!r} must be a name and a type, such as 'note STRING'")
    name, data_type, first, after = match.groups()
    return AddColumn(column=path(name), type=data_type, first=bool(first), after=after)


def _parse_default(text: str, path: Callable[[str], ColumnPath]) -> SchemaChange:
    name, value = parse_pair(text, "--default v=0")
    return UpdateDefault(path(name), value or None)


def _parse_column_comment(text: str, path: Callable[[str], ColumnPath]) -> SchemaChange:
    name, comment = parse_pair(text, "--column-comment v=text")
    return UpdateColumnComment(path(name), comment or None)


def _parse_move(text: str) -> SchemaChange:
    match = _MOVE_PATTERN.fullmatch(text)
    if match is None:
        raise InputError(f"--move {text!r} must look like 'v first', 'v last' or 'v after id'")
    name, end, side, to = match.groups()
    return MoveColumn(name, _POSITIONS[(end or side).lower()], to)


def _print_schema_diff(old: TableSchema, new: TableSchema) -> None:
    """Print what is different, the old state behind a minus."""
    before, after = _format_schema(old), _format_schema(new)
    if before == after:
        print("the table is like this already")
        return
    print(f"schema {old.id} -> {new.id}")
    for line in before:
        if line not in after:
            print(f"- {line}")
    for line in after:
        if line not in before:
            print(f"+ {line}")


def _format_schema(schema: TableSchema) -> list[str]:
    comment = [] if schema.comment is None else [f"comment {schema.comment}"]
    options = [f"option {key} = {value}" for key, value in sorted(schema.options.items())]
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
