"""Writes docs/compatibility.md from the tables that the tests run by.

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

What `paimon_orch` and other implementations read and write of each other's tables. This page is written by
`tests/support/docs/compatibility.py` from the tables that the tests in `tests/peers` run by, and a test fails when it is out of
date. Every line is tried in every run of the tests, the exceptions too: an implementation that learns what is listed
here as impossible makes a test fail, as does one that forgets something.

- **reads**: it finds the same rows in a table that we wrote.
- **writes**: we find the same rows in a table that it wrote, and its files show that it did as the table's options say.

Compactions in the life of a table are done by who writes it; those of the Python implementations, which compact nothing,
by us. The Java versions are Paimon's library as engines embed it. Java 0.9 also checks each of our tables: sizes, counts,
statistics, key order, levels, buckets, deletion vectors. Beyond this page, Java and we compact each other's tables of all
kinds, and one table in turn, with every merge engine (`tests/peers/test_compaction.py`).

Paimon's connector for Spark, 1.4.2 on Spark 4.0, reads, writes, deletes and compacts in SQL, in tables of most of these
kinds and of all types that Spark has (`tests/peers/test_spark.py`). Not every Maven repository has its jar: where it
cannot be had these tests are skipped and say so, and the variable `PAIMON_SPARK_JAR` names one to run them with.

## Kinds of tables

"""

_TYPES = """
## Types

All {count} columns of `tests/peers/columns.py`, in Parquet, ORC and Avro files, go both ways between us and everybody,
but:

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
    listed = "\n".join(f"{at}. {text}" for at, text in enumerate(notes.texts, 1))
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
        mine = _cell("us", kind, tried=["writes"], shown=["writes"], notes=notes)
        theirs = [
            _cell(peer, kind, tried=["reads", "writes"], shown=_possible(kind), notes=notes)
            for peer in TITLES
        ]
        yield _line([kind, mine, *theirs])


def _possible(kind: str) -> list[PeerAction]:
    # What we do not write nobody reads.
    return ["writes"] if ("us", "writes", kind) in LIMITS else ["reads", "writes"]


def _cell(
    who: str, kind: str, tried: Iterable[PeerAction], shown: list[PeerAction], notes: _Notes
) -> str:
    marks = []
    for does in tried:
        limit = LIMITS.get((who, does, kind))
        if limit is not None:
            marks.append(notes.mark(f"{_name(who)}: {limit.reason}"))
            shown = [one for one in shown if one != does]
    return " ".join([", ".join(shown) or "no", *dict.fromkeys(marks)])


def _types() -> Iterator[str]:
    yield _line(["who", "does not", "in", "columns", "why"])
    yield _line(["---"] * 5)
    reasons = {case: limit.reason for case, limit in COLUMN_LIMITS.items()}
    reasons |= {case: f"{reason}; not tried" for case, reason in UNSETTLED.items()}
    in_format: dict[tuple[str, str, str, str], list[str]] = {}
    for (who, does, kind, column), reason in reasons.items():
        # What we do not write nobody reads.
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
