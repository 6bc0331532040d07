"""What messages advise has stated consequences, and the commands have the options that they name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from support.commands import option_names, walk_commands
from support.syntax_trees import nodes_by_module

pytestmark = pytest.mark.xdist_group("syntax")

ADVICE = re.compile(
    r"\b(?:set|reset|remove|disable|unset|choose|change) (?:the |this |table |to |options? )*"
    r"(?P<option>'[a-z{][\w.{}-]*[.-][\w.{}-]+'|'fields\.[^']*'|(?<=the |his )option\b)",
    re.IGNORECASE,
)

SAFE = ""
REVIEWED = {
    "blob-as-descriptor": "also in other readers of the table",
    "compaction.force-rewrite-all-files": SAFE,  # a compaction keeps the rows
    "deletion-vectors.bitmap64": "cannot read the table",
    "dlf.region": SAFE,
    "fields.{self.column}.nested-key-null-strategy": "to drop these rows",
    "fields.{self.name}.ignore-retract": "to ignore them",
    "file.format": SAFE,  # every reader finds the format of a file by its name
    "ignore-delete": "to drop them",
    "metadata.iceberg.database": "to another name",
    "option": r"metastore|no other reader or writer|change the option first|catalog|'bucket'"
    "|Readers of the old Iceberg metadata then see old rows|if no reader needs the rows|or pass",
    "partition.expiration-time": SAFE,
    "pk-btree.index.columns": SAFE,
    "postpone.batch-write-fixed-bucket": SAFE,
    "streaming-read-append-overwrite": SAFE,
    "{TAG_AUTOMATIC_COMPLETION.key}": SAFE,  # only writers create tags by it
    "{ICEBERG_FORMAT_VERSION.key}": SAFE,  # the version of the existing metadata
    "{ICEBERG_STORAGE_LOCATION.key}": SAFE,  # the table has no metadata in a catalog's location
}
"""What a message that advises to change an option says about rows and other readers (a pattern)."""


def _unparse(part: ast.expr) -> str:
    assert isinstance(part, ast.FormattedValue)
    return f"{{{ast.unparse(part.value)}}}"


def iterate_texts() -> Iterator[str]:
    """Yield the texts of the package that are not docstrings."""
    for nodes in nodes_by_module().values():
        ignored = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:  # a text comes before its parts
            if isinstance(node, ast.JoinedStr):
                ignored |= {id(value) for value in node.values}
                yield "".join(
                    str(value.value) if isinstance(value, ast.Constant) else _unparse(value)
                    for value in node.values
                )
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in ignored
            ):
                yield node.value


def find_advice() -> dict[str, list[str]]:
    """Return the messages by the option that they advise to change."""
    messages = defaultdict(list)
    for text in iterate_texts():
        for found in ADVICE.finditer(text):
            messages[found["option"].strip("'")].append(text)
    return messages


def test_advice_to_change_an_option_names_its_consequences() -> None:
    advice = find_advice()
    assert set(advice) == set(REVIEWED)
    for option, messages in advice.items():
        for message in messages:
            assert re.search(REVIEWED[option], message), message


def test_messages_name_only_options_that_a_command_has() -> None:
    known = {option for _, command in walk_commands() for option in option_names(command)}
    known |= {"--catalog-option", "--storage-option", "--verbose", "--version"}

    named = {
        option
        for text in iterate_texts()
        for quoted in re.findall(r"`([^`]+)`", text)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", quoted)
    }

    assert "--set" in named
    assert named - known == set()
