"""Converts failures of Spark jobs to errors of this library."""

import re

from pyspark.errors import PySparkException

from paimon_orch.errors import InputError, PaimonError

# This matches if an executor with shuffle rows was lost, and a repetition of its stage may produce
# the rows in another order. Spark then repeats both stages. If tasks of the last stage have
# finished, Spark aborts the job instead, although their files have no effect before the commit.
STAGE_LOST = re.compile(r"Job aborted due to stage failure: [^\n]*\bindeterminate\b")

_CONDITION = re.compile(
    r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\] (.*?) *(?:SQLSTATE: (\w{5})|\n|$)", re.DOTALL
)
_CONTEXT = re.compile(r"== SQL \([^\n]*\) ==\n(.*?)\n *\^", re.DOTALL)
_ADVICE = re.compile(
    r"(?<=[.!]) (?:Use `try_|If necessary|Correct the value|To return NULL).*", re.DOTALL
)
_USER_RAISED = "USER_RAISED_EXCEPTION"
_DATA_EXCEPTION = "22"  # first two characters of the SQLSTATE
_MALFORMED_RECORD = ("MALFORMED_RECORD", "MALFORMED_CSV")


def translate_failure(label: str, error: BaseException, attempts: int) -> PaimonError:
    """Return the error of a job; :class:`InputError` if Spark refused data or an expression."""
    text = str(error)
    if "worker exited unexpectedly" in text:
        return PaimonError(
            f"{label}: a Python worker of Spark exited while it ran a task, usually because it was "
            "out of memory. Run fewer tasks in parallel (a smaller local[N]) or give the workers "
            "more memory."
        )
    if STAGE_LOST.search(text):
        return PaimonError(
            f"{label}: executors with rows of an earlier stage were lost, and Spark aborted the "
            f"job {attempts} times. Nothing was committed. Find out why executors are lost "
            "(memory, preemption), then run the step again."
        )
    return _find_data_error(label, text) or PaimonError(
        f"{label}: the Spark job failed: {_find_reason(text, error)}"
    )


def _find_data_error(label: str, text: str) -> InputError | None:
    """Return the error if Spark refused data or an expression, or None for other failures."""
    for condition, message, state in _CONDITION.findall(text):
        sentence = _ADVICE.sub("", " ".join(message.split())).rstrip(".")
        if condition == _USER_RAISED:
            return InputError(f"{sentence}. Nothing was committed")
        if condition.startswith(_MALFORMED_RECORD):
            return InputError(
                f"{label}: a record cannot be read, or does not have the columns of the header "
                f"(line breaks in quotes are not supported): {sentence}. Nothing was committed"
            )
        if state.startswith(_DATA_EXCEPTION):
            context = _CONTEXT.search(text)
            where = "" if context is None else f", in the expression {context.group(1).strip()}"
            return InputError(f"{label}: {sentence}{where}. Nothing was committed")
    return _find_csv_header_error(label, text)


def _find_csv_header_error(label: str, text: str) -> InputError | None:
    header = re.search(
        r"CSV header does not conform to the schema\.\s*(.*?CSV file: \S+)", text, re.DOTALL
    )
    if header is not None:
        detail = " ".join(header.group(1).split())
        return InputError(
            f"{label}: the CSV files have different headers; load them one at a time ({detail}). "
            "Nothing was committed"
        )
    return None


def _find_reason(text: str, error: BaseException) -> str:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("SQLSTATE")]
    causes = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    condition = _CONDITION.search(text)
    # Java exceptions and tracebacks end with the reason; other messages begin with it.
    reason = repr(error)
    if condition is not None:
        reason = f"[{condition.group(1)}] {' '.join(condition.group(2).split())}"
    elif lines:
        reason = lines[-1] if isinstance(error, PySparkException) else [*lines[:1], *causes][-1]
    if reason.startswith("ModuleNotFoundError"):
        reason += (
            ". The module is not installed on the workers: set PYSPARK_PYTHON to a Python that "
            "has paimon-orch."
        )
    return reason
