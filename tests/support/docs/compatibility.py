"""Generates docs/compatibility.md from the tables that parametrize the tests of peers.

PYTHONPATH=tests:. python -m support.docs.compatibility > docs/compatibility.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from support.docs.option_page import option_section
from support.peers.columns import COLUMN_LIMITS, COLUMNS, UNSETTLED
from support.peers.environments import TITLES
from support.peers.kinds import KINDS
from support.peers.limits import LIMITS, PeerAction

_HEAD = """\
# Compatibility

This page shows which tables paimon_orch ("we") and other implementations can exchange.
`make reference` generates it from the tables that parametrize `tests/peers`. The tests check every
row, including the exceptions: if an implementation starts or stops supporting a case, a test
fails.

- **reads**: the implementation returns the same rows as we do from a table that we wrote.
- **writes**: we return the same rows as the implementation from a table that it wrote, and the
  files of the table follow its options.

The writer of a table also compacts it, except for pypaimon and pypaimon-rust, which have no
compaction: we compact their tables. "Java" is the Paimon library that engines use. Java 0.9 also
verifies our tables: sizes, counts, statistics, key order, levels, buckets, deletion vectors. In
further tests, Java and we compact each other's tables of all kinds, and alternately compact one
table, with every merge engine (`tests/peers/test_compaction.py`).

Paimon's connector for Spark, 1.4.2 on Spark 4.0, reads, writes, deletes and compacts most of these
kinds in SQL, with all types that Spark has (`tests/peers/test_spark.py`). Some Maven repositories
lack its jar: without the jar, these tests are skipped with a message. The variable
`PAIMON_SPARK_JAR` can name a jar to use.

## Kinds of tables

"""

_TYPES = """
## Types

All {count} columns of `tests/support/peers/columns.py`, in Parquet, ORC and Avro files, are read
and written in both directions by all implementations, except:

"""


@dataclass
class _Notes:
    texts: list[str] = field(default_factory=list)

    def mark(self, text: str) -> str:
        if text not in self.texts:
            self.texts.append(text)
        return f"({self.texts.index(text) + 1})"


def page() -> str:
    """Return the page."""
    notes = _Notes()
    kinds = "\n".join(_kinds(notes))
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(notes.texts, 1))
    return (
        f"{_HEAD}{kinds}\n\n{listed}\n{_TYPES.format(count=len(COLUMNS))}"
        + "\n".join(_types())
        + "\n\n"
        + "\n".join(option_section())
        + "\n"
    )


def _kinds(notes: _Notes) -> Iterator[str]:
    yield _line(["table", "we", *TITLES.values()])
    yield _line(["---"] * (2 + len(TITLES)))
    for kind in KINDS:
        yield _line([kind, "writes", *(_cell(peer, kind, notes) for peer in TITLES)])


def _cell(who: str, kind: str, notes: _Notes) -> str:
    marks = []
    shown: list[PeerAction] = ["reads", "writes"]
    for does in tuple(shown):
        limit = LIMITS.get((who, does, kind))
        if limit is not None:
            marks.append(notes.mark(f"{_name(who)}: {limit.reason}"))
            shown = [action for action in shown if action != does]
    return " ".join([", ".join(shown) or "no", *dict.fromkeys(marks)])


def _types() -> Iterator[str]:
    yield _line(["who", "does not", "in", "columns", "why"])
    yield _line(["---"] * 5)
    reasons = {case: limit.reason for case, limit in COLUMN_LIMITS.items()}
    reasons |= {case: f"{reason}; not tried" for case, reason in UNSETTLED.items()}
    in_format: dict[tuple[str, str, str, str], list[str]] = {}
    for (who, does, kind, column), reason in reasons.items():
        # A peer can only read kinds of tables that we write.
        if does == "writes" or ("us", "writes", kind, column) not in COLUMN_LIMITS:
            in_format.setdefault((who, does, reason, kind), []).append(f"`{COLUMNS[column][0]}`")
    formats: dict[tuple[str, str, str, str], list[str]] = {}
    for (who, verb, reason, kind), columns in in_format.items():
        formats.setdefault((who, verb, ", ".join(columns), reason), []).append(kind)
    for (who, verb, types, reason), kinds in formats.items():
        yield _line([_name(who), verb.removesuffix("s"), ", ".join(kinds), types, reason])


def _name(who: str) -> str:
    return "we" if who == "us" else TITLES[who]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(page())
