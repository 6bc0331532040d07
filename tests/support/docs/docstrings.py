"""An extension of Griffe: docstrings as Markdown, for the Python API in the site.

``mkdocs.yml`` names this module. Docstrings use roles of Sphinx, ``::`` before literal blocks, and
examples with ``>>>``, which Markdown does not know.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):(?=`)")
_EXAMPLE = re.compile(r"(?:^[ ]*(?:>>>|\.\.\.).*\n?)+", re.MULTILINE)
_LITERAL_BLOCK = re.compile(r"::$", re.MULTILINE)


def to_markdown(docstring: str) -> str:
    """Return a docstring as Markdown."""
    text = _LITERAL_BLOCK.sub(":", _ROLE.sub("", docstring))
    text = re.sub(r"^:$", "", text, flags=re.MULTILINE)
    return _EXAMPLE.sub(lambda match: f"\n```pycon\n{match[0].rstrip()}\n```\n", text)


class DocstringsAsMarkdown(griffe.Extension):
    """Converts each docstring once it is loaded."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Show the type of a declared field, and its sentence if it has no docstring."""
        annotation = attr.annotation
        if not isinstance(annotation, griffe.ExprSubscript) or str(annotation.left) != "Annotated":
            return
        assert isinstance(annotation.slice, griffe.ExprTuple)
        attr.annotation, argument = annotation.slice.elements[:2]
        if isinstance(argument, griffe.ExprCall) and attr.docstring is None:
            sentence = ast.literal_eval(str(argument.arguments[0]))
            attr.docstring = griffe.Docstring(sentence, parent=attr)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Show the fields of requests and settings as parameters of the functions that take them."""
        for function in _find_functions_of_fields(pkg):
            _show_fields(function)


def _find_functions_of_fields(module: griffe.Module) -> Iterator[griffe.Function]:
    for member in module.members.values():
        if isinstance(member, griffe.Module):
            yield from _find_functions_of_fields(member)
        elif isinstance(member, griffe.Function) and any(
            str(each.value).startswith(("take_fields(", "take_settings("))
            for each in member.decorators
        ):
            yield member


def _show_fields(function: griffe.Function) -> None:
    """Replace the request by its fields, as the decorator does when the module is imported."""
    called = getattr(import_module(function.module.path), function.name)
    declared = next(p for p in function.parameters if p.name in ("request", "settings"))
    annotations = {each.name: each.annotation for each in function.parameters}
    defaults: dict[str, str | None] = dict.fromkeys(("executor", "progress"), "None")
    for name, member in function.module[str(declared.annotation)].all_members.items():
        if member.is_attribute:
            annotations[name], defaults[name] = member.annotation, _find_default(member.value)
    function.parameters = griffe.Parameters(
        *(
            griffe.Parameter(
                name,
                annotation=annotations[name],
                kind=griffe.ParameterKind(each.kind.description),
                default=defaults.get(name),
            )
            for name, each in inspect.signature(called).parameters.items()
        )
    )
    assert function.docstring is not None
    function.docstring.value = inspect.getdoc(called) or ""


def _find_default(value: object) -> str | None:
    """Return the default of a field, as its class has it."""
    if not isinstance(value, griffe.ExprCall) or str(value.function) != "field":
        return None if value is None else str(value)
    attributes = {
        each.name: each.value for each in value.arguments if isinstance(each, griffe.ExprKeyword)
    }
    if "default_factory" in attributes:
        return f"{attributes['default_factory']}()"
    return str(attributes["default"]) if "default" in attributes else None
