"""A hook of MkDocs: files outside docs/ that pages link to become part of the site.

``mkdocs.yml`` names this module; ``make docs`` runs it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[3]
_COPIED = {
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "benchmarks/README.md": "benchmarks.md",
    "tests/data/README.md": "test-data.md",
    "definitions/dagster.yaml": "definitions/dagster.yaml",
}
"""Paths in the repository and in the site."""

_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]+)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the copied files."""
    for source, uri in _COPIED.items():
        files.append(File.generated(config, uri, content=(_ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files of the repository to their place in the site."""
    del config, files
    sources = {uri: source for source, uri in _COPIED.items()}
    uri = page.file.src_uri
    source = sources.get(uri, f"docs/{uri}")

    def rewrite(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        in_site = _COPIED.get(target, target.removeprefix("docs/"))
        relative = posixpath.relpath(in_site, posixpath.dirname(uri) or ".")
        return f"]({relative}{match[2] or ''})"

    return _LINK.sub(rewrite, markdown)
