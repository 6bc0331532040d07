"""The doctor's report as one HTML page with plots, which needs no other file.

Names of tables, columns and options come from storage, so all text is escaped.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from paimon_orch.format.display import format_count, format_size
from paimon_orch.safe_text import clean_line
from paimon_orch.steps.inspection.doctor.doctor_findings import (
    DoctorFinding,
    DoctorReport,
    Severity,
)

_COLORS = {Severity.ERROR: "#c62828", Severity.WARNING: "#ef8f00", Severity.ADVICE: "#4a78a8"}
_SOUND_COLOR = "#3a8f4d"
_MAX_BARS = 20
_BAR_HEIGHT = 22
_LABEL_WIDTH = 210
_BAR_WIDTH = 260
_PLOT_WIDTH = _LABEL_WIDTH + _BAR_WIDTH + 80
_MAX_LABEL = 30
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem;
  padding: 0 1.5rem; color: #222; background: #fff }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
.counts { display: flex; gap: 1rem; margin: 1.2rem 0 }
.counts div { border: 1px solid #ddd; border-radius: 6px; padding: .5rem 1.2rem }
.counts b { display: block; font-size: 1.6rem; line-height: 1.2 }
.plots { display: flex; flex-wrap: wrap; gap: 0 2rem }
svg { font: 12px system-ui, sans-serif; max-width: 100% }
table { border-collapse: collapse; width: 100%; table-layout: fixed }
td { border-top: 1px solid #e4e4e4; padding: .4rem .6rem; vertical-align: top;
  overflow-wrap: anywhere }
td:first-child { width: 15rem; font-weight: 600 }
code { display: block; margin-top: .2rem; background: #f4f4f4; padding: .15rem .4rem;
  border-radius: 3px; width: fit-content; max-width: 100% }
"""


def build_page(report: DoctorReport, location: str) -> str:
    """Return the page; ``location`` is the catalog in the commands."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>Doctor: {_show(location)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_show(location)}</h1>",
        f"<p>{format_count(len(report.tables), 'table')}, {report.sound_tables} without findings",
        f" · {format_size(sum(table.bytes for table in report.tables))} in ",
        f"{format_count(sum(table.files for table in report.tables), 'data file')}</p>",
        *_build_counts(report),
        '<div class="plots">',
        *_build_plots(report),
        "</div>",
    ]
    for name, findings in groupby(report.findings, key=lambda finding: finding.table):
        parts += _build_table(name, findings, location)
    return "".join([*parts, "</body></html>\n"])


def _show(text: str) -> str:
    """Return a text from storage as HTML of one line."""
    return escape(clean_line(text))


def _build_counts(report: DoctorReport) -> Iterable[str]:
    yield '<div class="counts">'
    for severity, color in _COLORS.items():
        noun = severity if severity is Severity.ADVICE else f"{severity}s"
        yield f'<div><b style="color:{color}">{report.count(severity)}</b>{noun}</div>'
    yield f'<div><b style="color:{_SOUND_COLOR}">{report.sound_tables}</b>sound tables</div></div>'


def _build_plots(report: DoctorReport) -> Iterable[str]:
    """Yield the plots: findings by rule, and the size of tables by their worst finding."""
    severities: dict[str, Severity] = {}
    for finding in sorted(report.findings, key=lambda each: list(Severity).index(each.severity)):
        severities.setdefault(finding.rule, finding.severity)
    rules = Counter(finding.rule for finding in report.findings).most_common(_MAX_BARS)
    bars = [(rule.value, count, f"{count:,}", _COLORS[severities[rule]]) for rule, count in rules]
    yield from _build_plot("Findings by rule", bars)
    largest = sorted(report.tables, key=lambda table: -table.bytes)[:_MAX_BARS]
    colors = {each.table: _COLORS[each.severity] for each in reversed(report.findings)}
    tables = [
        (table.name, table.bytes, format_size(table.bytes), colors.get(table.name, _SOUND_COLOR))
        for table in largest
        if table.bytes
    ]
    yield from _build_plot("Largest tables, by their worst finding", tables)


def _build_plot(title: str, bars: Sequence[tuple[str, int, str, str]]) -> Iterable[str]:
    """Yield a bar chart; a bar is a label, a length, the text of its length and a color."""
    if not bars:
        return
    longest, height = max(length for _, length, _, _ in bars), len(bars) * _BAR_HEIGHT
    yield f"<section><h2>{_show(title)}</h2>"
    yield f'<svg width="{_PLOT_WIDTH}" height="{height}" viewBox="0 0 {_PLOT_WIDTH} {height}"'
    yield f' role="img" aria-label="{_show(title)}">'
    for index, (label, length, text, color) in enumerate(bars):
        width, top = max(2.0, _BAR_WIDTH * length / longest), index * _BAR_HEIGHT
        short = label if len(label) <= _MAX_LABEL else f"{label[: _MAX_LABEL - 1]}…"
        yield f'<text x="{_LABEL_WIDTH - 8}" y="{top + 15}" text-anchor="end">{_show(short)}'
        yield f"<title>{_show(label)}</title></text>"
        yield f'<rect x="{_LABEL_WIDTH}" y="{top + 3}" width="{width:.1f}" height="16" rx="2"'
        yield f' fill="{color}"/>'
        yield f'<text x="{_LABEL_WIDTH + width + 6:.1f}" y="{top + 15}">{_show(text)}</text>'
    yield "</svg></section>"


def _build_table(name: str, findings: Iterable[DoctorFinding], location: str) -> Iterable[str]:
    yield f"<h2>{_show(name)}</h2><table>"
    for finding in findings:
        command = finding.format_command(location)
        shown = f"<br>{_show(finding.advice or '')}"
        if command is not None:
            shown = f"<code>{_show(command)}</code>"
        yield f'<tr><td style="color:{_COLORS[finding.severity]}">{finding.rule}</td>'
        yield f"<td>{_show(finding.text)}{shown}</td></tr>"
    yield "</table>"
