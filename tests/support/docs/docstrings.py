"""An extension of Griffe: docstrings as Markdown, for the Python API in the site.

``mkdocs.yml`` names this module. Docstrings use roles of Sphinx, ``::`` before literal blocks, and
examples with ``>>>``, which Markdown does not know.
"""

from __future__ import annotations

import ast
import re
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
