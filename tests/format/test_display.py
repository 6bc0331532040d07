"""Objects in interactive Python: a short line, and an escaped table in notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from support.tables import new_table, table_of

from paimon_orch.format.display import Displayable, format_html
from paimon_orch.steps import COMPACT, CompactRequest, compact


@dataclass(frozen=True, slots=True)
class Example(Displayable):
    number: int
    names: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        return {
            "number": self.number,
            "names": list(self.names),
            "parts": [{"name": name} for name in self.names],
        }


@dataclass(frozen=True, slots=True)
class Fields(Displayable):
    text: str


def test_long_lists_and_texts_are_shortened() -> None:
    assert repr(Example(1, ("a", "b"))) == "Example(number=1, names=['a', 'b'], parts=<2 items>)"
    assert repr(Example(1, ("a",) * 2000)).count("<2,000 items>") == 2
    assert repr(Fields("x" * 1000)) == f"Fields(text='{'x' * 200}...')"


def test_all_texts_of_the_table_are_escaped() -> None:
    html = Example(1, ("<b>", "&'"))._repr_html_()

    assert "<b>" not in html
    assert "<tr><td>&lt;b&gt;</td></tr><tr><td>&amp;&#x27;</td></tr>" in html
    assert "<i>" not in format_html("<i>", {"<i>": "<i>", "m": {"<i>": ["<i>"]}})
    assert "and 10 more" in Example(1, ("a",) * 60)._repr_html_()


def test_plans_results_scans_and_tables_are_readable(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for text in ("<script>", "b"):
        table.upsert(table_of("k v", [(1, text)]))

    plan = COMPACT.plan(table, CompactRequest(strategy="full"))
    assert repr(plan).startswith("CompactionPlan(snapshot_id=2, buckets=1,")
    assert repr(plan).endswith("units=<1 item>)")
    assert "<td>full compaction</td>" in plan._repr_html_()
    assert repr(compact(table, strategy="full")).startswith("CompactionResult(snapshot_id=3, ")
    assert repr(table) == f"Table('db.t', '{tmp_path}/db.db/t')"
    assert "<td>v</td><td>STRING</td>" in table._repr_html_()
    scan = table.scan(columns=["v"], limit=2)
    assert repr(scan) == "Scan(table='db.t', snapshot_id=3, columns={'v': 'STRING'}, limit=2)"
    assert "<th>v</th><td>STRING</td>" in scan._repr_html_()
    assert repr(table.system("tags").scan(["tag_name"])) == (
        "MetadataScan(columns={'tag_name': 'string'})"
    )
