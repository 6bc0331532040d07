"""Generates docs/reference from the commands and from the attributes of the components.

PYTHONPATH=tests:. python -m support.docs.reference
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import dagster as dg
import typer
from pydantic.fields import FieldInfo
from typer.cli import get_docs_for_click
from typer.main import get_command

from paimon_orch.cli.app import app
from paimon_orch.dagster import (
    PaimonDatabaseComponent,
    PaimonTableComponent,
    PaimonWarehouseComponent,
)

FOLDER = Path(__file__).parents[3] / "docs" / "reference"

# Typer writes the type of an argument after its metavar.
_ARGUMENT_TYPE = re.compile(r"(?<=[A-Z]) <(?:str|int|list\[str\])>(?=`)")

_COMPONENTS = """\
# Attributes of the components

`make reference` generates this page from the code. `dg check yaml` validates a `defs.yaml` with the
same models. [Dagster](../dagster.md) has examples.
"""


def pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    command = get_command(app)
    commands = get_docs_for_click(obj=command, ctx=typer.Context(command), name="paimon-orch")
    commands = _ARGUMENT_TYPE.sub("", commands)
    components = "\n".join([_COMPONENTS, *_components()])
    return {"cli.md": commands.rstrip() + "\n", "components.md": components}


def _components() -> Iterator[str]:
    """Yield the components, then each model that they use."""
    models: list[type[dg.Model]] = [
        PaimonTableComponent,
        PaimonDatabaseComponent,
        PaimonWarehouseComponent,
    ]
    for model in models:
        yield f"## {model.__name__}\n\n{(model.__doc__ or '').partition(chr(10))[0]}\n"
        yield "| attribute | type | default | description |\n| --- | --- | --- | --- |"
        for name, field in model.model_fields.items():
            yield f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {field.description or ''} |"
            models += [used for used in _models(field.annotation) if used not in models]
        yield ""


def _type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(_type(part) for part in inner if part is not NoneType)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"map of {_type(inner[1])}"
    name = annotation.__name__
    return f"[{name}](#{name.lower()})" if _models(annotation) else name


def _models(annotation: Any) -> list[type[dg.Model]]:
    if isinstance(annotation, type) and issubclass(annotation, dg.Model):
        return [annotation] if annotation.__module__.startswith("paimon_orch") else []
    return [model for inner in get_args(annotation) for model in _models(inner)]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None or isinstance(default, dg.Model):
        return ""
    return f"`{json.dumps(default)}`"


if __name__ == "__main__":
    for page, text in pages().items():
        (FOLDER / page).write_text(text, encoding="utf-8")
