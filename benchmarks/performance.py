"""The figures and plots of docs/performance.md, one plot a question.

    python benchmarks/performance.py measure [QUESTION ...]
    python benchmarks/performance.py draw

``measure`` answers the questions, all of them by default, and stores the figures with the machine
and the versions in performance.json. ``draw`` makes docs/images/performance-*.svg of them, with
matplotlib from the extra ``benchmarks``.
"""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer
from measurement import console, show
from performance_plots import draw_all
from performance_questions import QUESTIONS
from performance_results import Answer, read_answers, store_answer

app = typer.Typer(add_completion=False)


@app.command()
def measure(
    questions: Annotated[list[str] | None, typer.Argument(help="Names; all by default.")] = None,
) -> None:
    """Answer questions and store the figures."""
    pa.set_cpu_count(1)
    for name in questions or QUESTIONS:
        answer = QUESTIONS[name]()
        store_answer(name, answer)
        show_answer(answer)


@app.command()
def draw() -> None:
    """Draw a plot for each stored answer."""
    for path in draw_all(read_answers()):
        console.print(f"wrote {path}")


def show_answer(answer: Answer) -> None:
    """Print the bars of an answer and its further figures."""
    bars = [(bar.group, bar.series, f"{bar.value:.3g}", bar.unit) for bar in answer.bars]
    show(answer.title, ("", "", "", "unit"), bars)
    for name, text in answer.details.items():
        console.print(f"{name}: {text}")


if __name__ == "__main__":
    app()
