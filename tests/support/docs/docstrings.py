"""An extension of Griffe: docstrings as Markdown, for the Python API in the site.

``mkdocs.yml`` names this module. Docstrings use roles of Sphinx, ``::`` before literal blocks, and
examples with ``>>>``, which Markdown does not know.
"""

from __future__ import annotations

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

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
