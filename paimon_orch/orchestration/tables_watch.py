"""Watches many tables with one cursor, within a budget for each evaluation."""

import base64
import json
import zlib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.orchestration.cursor import Cursor
from paimon_orch.orchestration.table_watch import TableEvaluation, TableWatch
from paimon_orch.storage.concurrency import overlap_calls

TABLES_CURSOR_VERSION = 1


@dataclass(frozen=True, slots=True)
class TablesCursor:
    """The positions of a sensor in the snapshots of many tables."""

    texts: Mapping[str, str] = field(default_factory=dict)
    """The cursors as text by table; a table without one was not evaluated yet."""
    first: str = ""
    """The table with which the next evaluation begins."""

    def to_text(self) -> str:
        """Encode the cursors, compressed, because MySQL stores at most 64 kB."""
        content = {"v": TABLES_CURSOR_VERSION, "first": self.first, "tables": dict(self.texts)}
        compressed = zlib.compress(json.dumps(content, ensure_ascii=False).encode(), 9)
        return base64.b64encode(compressed).decode()

    @classmethod
    def from_text(cls, text: str | None) -> "TablesCursor | None":
        """Decode the cursors, or return None if the text has another format."""
        try:
            content = json.loads(zlib.decompress(base64.b64decode(text or "", validate=True)))
            if content["v"] != TABLES_CURSOR_VERSION:
                return None
            return cls(
                {str(name): str(each) for name, each in content["tables"].items()},
                str(content["first"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error):
            return None

    def rotate(self, tables: Iterable[str]) -> list[str]:
        """Return the tables in the order of the next evaluation; all have their turn."""
        names = sorted(tables)
        return [name for name in names if name >= self.first] + [
            name for name in names if name < self.first
        ]


def evaluate_tables(
    catalog: Catalog, watches: Iterable[TableWatch], cursor: TablesCursor
) -> Generator[tuple[str, TableEvaluation | Exception | None]]:
    """Yield the evaluation of each table, or its error; None for a table without news.

    Some tables are evaluated at the same time if the catalog answers over a network. Close the
    iterator to evaluate no further tables.
    """

    def evaluate(watch: TableWatch) -> tuple[str, TableEvaluation | Exception | None]:
        try:
            table_cursor = Cursor.from_json(cursor.texts.get(watch.table))
            return watch.table, watch.evaluate(catalog, table_cursor)
        except Exception as error:  # noqa: BLE001 - the other tables are evaluated
            return watch.table, error

    yield from (overlap_calls if catalog.waits_for_network else map)(evaluate, watches)


def share_requests(wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return how many requests each table may make, at most ``limit`` together.

    Tables that want few get all; the others get the same number, and the first tables one more.
    """
    shares = dict.fromkeys(wanted, 0)
    while limit > 0:
        hungry = [name for name, count in wanted.items() if shares[name] < count]
        if not hungry:
            break
        for name in hungry[:limit]:
            shares[name] += 1
        limit -= len(hungry)
    return shares
