"""The section of docs/compatibility.md about table options."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from paimon_orch.format.options.core_options import FAMILIES
from paimon_orch.format.options.option_lookup import OPTION_REGISTRY
from paimon_orch.format.options.table_option import AnyOption, OptionClass, StepKind

_STEPS = {
    StepKind.READ: "reads",
    StepKind.DEFAULT_READ: "reads that name no snapshot, tag or time",
    StepKind.WRITE_ROWS: "writes of rows",
    StepKind.COMPACT: "compaction and rewrites",
    StepKind.METADATA: "commits of metadata",
    StepKind.TAG: "tags",
    StepKind.DELETE: "expiration and cleanup",
    StepKind.ALTER: "schema changes",
}
_INTRODUCTION = """\
## Table options

Every option in the documentation of Paimon 0.9 to 2.1 is registered in
`paimon_orch/format/options/` with a class. A step checks the options before it changes anything:

| class | meaning | a step |
| --- | --- | --- |
| honoured | same behavior as Java Paimon | runs; values that are not implemented are refused |
| external | Java Paimon also updates another system at a commit | is refused, unless `--allow-stale-external` is set |
| changes the format | rows, keys, order or files have a meaning that is not implemented | is refused |
| harmless | the option tunes an engine; rows and files are correct without it | runs |

An option with its default value never stops a step. An unknown option whose first word is also the
first word of a table option, such as `merge-engin` or `sequence.new-order`, stops steps that change
the table, unless `--allow-unknown-options` is set; readers log one warning. All other keys are your
own properties. `create` and `alter` warn about unknown options and options that stop steps.
"""


def option_section() -> Iterator[str]:
    """Yield the lines of the section."""
    yield _INTRODUCTION
    options = [*OPTION_REGISTRY.values(), *FAMILIES]
    for option_class in (OptionClass.EXTERNAL, OptionClass.CHANGES_FORMAT):
        yield f"### {option_class.value.capitalize()}\n"
        yield "| option | default | refused | without it |\n| --- | --- | --- | --- |"
        for option in _select_by_class(options, option_class):
            values = f" = {', '.join(option.choices)}" if option.choices else ""
            yield (
                f"| `{option.key}`{values} | {_default(option)} | {_steps(option.steps)} | {option.consequence} |"
            )
        yield ""
    yield "### Honoured\n"
    yield "| option | default | implemented values |\n| --- | --- | --- |"
    for option in _select_by_class(options, OptionClass.HONOURED):
        values = ", ".join(f"`{choice}`" for choice in option.choices) or option.type.name
        values += f" {option.range}" if option.range else ""
        yield f"| `{option.key}` | {_default(option)} | {values} |"
    yield "\n### Harmless\n"
    harmless = _select_by_class(options, OptionClass.HARMLESS)
    keys = ", ".join(f"`{option.key}`" for option in harmless)
    yield textwrap.fill(f"{keys}.", width=100, break_on_hyphens=False)


def _select_by_class(options: Sequence[AnyOption], option_class: OptionClass) -> list[AnyOption]:
    selected = (option for option in options if option.option_class is option_class)
    return sorted(selected, key=lambda option: option.key)


def _default(option: AnyOption) -> str:
    return "" if option.default is None else f"`{option.default}`"


def _steps(steps: StepKind) -> str:
    return ", ".join(text for step, text in _STEPS.items() if step & steps)
