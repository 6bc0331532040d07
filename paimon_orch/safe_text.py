"""Text that leaves the process: secrets are masked, and names from storage cannot control a screen.

Names of tables, tags, partitions and users come from whoever can write to the warehouse. Every
exit of the process passes its text through this module: errors (:mod:`paimon_orch.errors`), log
lines (:func:`get_logger`), the command line, Dagster, and HTML.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from threading import Lock
from typing import Any

MASK = "***"
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# default-ignorable characters that Python regards as printable, and two blanks that look like spaces
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
_AFTER_BACKSLASH = "\\nrtxuU"
# The last alternative is what begins a heading, a list, a rule or a code block.
_MARKDOWN = re.compile(r"[`*\[\]<>|&~\\]|(?<!\w)_|_(?!\w)|\A\s*(?:[#+=-]|\d+[.)])|\A\s+")

_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|credential|key|authorization|signature|cookie"
    r"|(?<![a-z])(?:sas|sig|jwt)(?![a-z])|header\.",
    re.IGNORECASE,
)
_PUBLIC_NAME = re.compile(
    r"(?:.*\.)?header\.user-agent"
    r"|.*(?:algorithm|column|columns|enabled|file|format|loader|location|name|path|provider|type"
    r"|uri|url)",
    re.IGNORECASE,
)
"""Names of what describes a secret, and is not one."""
_USER = re.compile(
    r"(?P<start>(?P<scheme>\w{1,32})://)"
    r"(?P<user>[^\s/?#@]{1,1000}(?:@[^\s/?#@]{1,1000}){0,8}(?=@)"
    # a password may have a slash, but a port before a path with "@" is not a password
    r"|[^\s/?#@:'\"]{1,200}:(?!\d{1,5}[/?#])[^\s@'\"]{1,1000}(?=@))@"
    r"|(?P<oracle>\bjdbc:oracle:\w{1,32}:)[^\s@/'\"]{1,200}/[^\s@'\"]{1,1000}@"
)
_CONTAINER_SCHEMES = {"abfs", "abfss", "wasb", "wasbs"}  # the "user" is the container
_PARAMETER = re.compile(r"(?P<start>[?&;#])(?P<name>[\w.%$-]{1,100})=(?P<value>[^\s&;#'\"<>]+)")
_PASSWORD = re.compile(
    r"(?P<start>(?<![/\w.-])(?:password|passwd|passphrase|pwd)=)[^\s&;,'\"<>/]+", re.IGNORECASE
)
_AUTHORIZATION = re.compile(
    r"(?P<start>\bauthorization['\"]?\s*[:=]\s*['\"]?)[\w-]+(?:\s+[^\s'\",]+)?"
    r"|(?P<bearer>\bbearer\s+)[\w.~+/=-]{16,}",
    re.IGNORECASE,
)
_PERCENT_CODE = re.compile(r"%([0-9A-Fa-f]{2})")

_MAX_MESSAGE_LENGTH, _MAX_CLEANED_LENGTH = 8_000, 100_000
_CUT = " ... (a part of this text is left out) ... "
_MIN_SECRET_LENGTH = 4  # masking shorter values would mask ordinary words
_MIN_NOTED_LENGTH = 8  # noted values are masked everywhere, also where no secret is expected
_MAX_NOTED = 1000
_MAX_SIMILAR = 20  # names in a message
_noted: dict[str, None] = {}
_noted_lock = Lock()


def escape_name(text: str) -> str:
    r"""Return a name so that each name is shown in a different way, with visible characters only.

    Other characters become escape sequences of Python. A backslash is doubled where it could begin
    such a sequence, and a space at the start or end is ``\x20``.
    """
    last, is_plain = len(text) - 1, text.isascii() and text.isprintable()
    if is_plain and "\\" not in text and text == text.strip():
        return text
    hidden = [
        not _is_visible(char) or (char == " " and number in (0, last))
        for number, char in enumerate(text)
    ]
    shown = []
    for number, char in enumerate(text):
        following = number + 1
        if hidden[number]:
            shown.append(_escape_character(char))
        elif char == "\\" and number < last:
            is_start = hidden[following] or text[following] in _AFTER_BACKSLASH
            shown.append("\\\\" if is_start else char)
        else:
            shown.append(char)
    return "".join(shown)


def escape_line(text: str) -> str:
    """Return text of one line with escape sequences of Python for all invisible characters.

    Backslashes are kept, so text that is escaped already does not change.
    """
    if text.isprintable() and (text.isascii() or not _INVISIBLE.search(text)):
        return text
    return "".join(char if _is_visible(char) else _escape_character(char) for char in text)


def _is_visible(char: str) -> bool:
    return char.isprintable() and not _INVISIBLE.match(char)


def _escape_character(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return _ESCAPES.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_plain(name: str) -> bool:
    """Return whether a name is shown as it is."""
    return escape_name(name) == name


def escape_surrogates(text: str) -> str:
    """Return text that UTF-8 can encode; file names may have bytes that are not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def escape_unstorable(value: Any) -> Any:
    """Return JSON values whose texts each service can store: without NUL and surrogates.

    Airflow encodes values of tasks and events in UTF-8, and ends a triggerer that cannot.
    """
    if isinstance(value, str):
        return escape_surrogates(value).replace("\0", "\\x00")
    if isinstance(value, Mapping):
        return {escape_unstorable(key): escape_unstorable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [escape_unstorable(item) for item in value]
    return value


def escape_markdown(text: str) -> str:
    """Return one line for a Markdown text: it is shown as :func:`clean_line` returns it."""
    return _MARKDOWN.sub(
        lambda match: "".join(f"&#{ord(char)};" for char in match[0]), clean_line(text)
    )


def format_names(names: Iterable[str]) -> str:
    """Return a list of names for a message, or ``none``."""
    return ", ".join(map(escape_name, names)) or "none"


def format_similar_names(name: str, names: Sequence[str]) -> str:
    """Return a list of names for a message, or ``none``; of many, those most similar to ``name``."""
    if len(names) <= _MAX_SIMILAR:
        return format_names(names)
    similar = get_close_matches(name, names, _MAX_SIMILAR, cutoff=0)
    return f"{format_names(similar)} and {len(names) - len(similar):,} more"


def is_secret_name(name: str) -> bool:
    """Return whether an option or a parameter of a URL may have a secret as its value."""
    return _SECRET_NAME.search(name) is not None and not _PUBLIC_NAME.fullmatch(name)


def note_secrets(values: Iterable[object]) -> None:
    """Remember secrets of this process; :func:`mask_secrets` masks them in all texts."""
    texts = [value for value in values if isinstance(value, str)]
    with _noted_lock:
        for text in texts:
            if len(text) >= _MIN_NOTED_LENGTH:
                _noted.pop(text, None)
                _noted[text] = None  # the newest is the last
        for text in list(_noted)[:-_MAX_NOTED]:
            del _noted[text]


def note_secret_options(options: Mapping[str, Any]) -> None:
    """Remember the values of all options that are secrets by their names, nested ones included."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            note_secret_options(value)
        elif is_secret_name(name):
            note_secrets([value])


def mask_secrets(text: str) -> str:
    """Return text without the secrets that it can be seen to have.

    These are users, passwords and secret parameters of URLs, headers with credentials, and the
    values of :func:`note_secrets`.
    """
    text = mask_values(text, list(_noted))
    if "@" in text:
        text = _USER.sub(_mask_user, text)
    if "=" in text:
        text = _PASSWORD.sub(rf"\g<start>{MASK}", _PARAMETER.sub(_mask_parameter, text))
    return _AUTHORIZATION.sub(lambda match: f"{match['start'] or match['bearer']}{MASK}", text)


def _mask_user(match: re.Match[str]) -> str:
    is_container = (match["scheme"] or "").lower() in _CONTAINER_SCHEMES
    if is_container and ":" not in match["user"]:
        return match[0]
    return f"{match['start'] or match['oracle']}{MASK}@"


def _mask_parameter(match: re.Match[str]) -> str:
    name = _PERCENT_CODE.sub(lambda code: chr(int(code[1], 16)), match["name"])
    return f"{match['start']}{match['name']}={MASK}" if is_secret_name(name) else match[0]


def mask_values(text: str, secrets: Iterable[str]) -> str:
    """Return text without the secrets that are given, in whatever place they are."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_LENGTH and secret in text:
            text = text.replace(secret, MASK)
    return text


def clean_line(text: str) -> str:
    """Return one line for a screen, a log or a report: secrets are masked, and it is escaped."""
    return escape_line(mask_secrets(text))


def clean_message(text: str) -> str:
    """Return one line as :func:`clean_line` does, without its middle if it is very long.

    A message may repeat a stored text of any length.
    """
    if len(text) > _MAX_CLEANED_LENGTH:
        # Half of a secret of this process is not found, so these are masked first.
        text = _cut(mask_values(text, list(_noted)), _MAX_CLEANED_LENGTH)
    return _cut(clean_line(text), _MAX_MESSAGE_LENGTH)


def _cut(text: str, length: int) -> str:
    """Return text of at most ``length`` characters: its start and its end, which has the advice."""
    if len(text) <= length:
        return text
    end = length // 4
    return f"{text[: length - end - len(_CUT)]}{_CUT}{text[-end:]}"


def clean_values(value: Any) -> Any:
    """Return a JSON value with masked secrets in all its texts and keys."""
    match value:
        case str():
            return mask_secrets(value)
        case Mapping():
            return {
                mask_secrets(key) if isinstance(key, str) else key: clean_values(item)
                for key, item in value.items()
            }
        case Sequence() if not isinstance(value, bytes):
            return [clean_values(item) for item in value]
    return value


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module; its lines have no secrets and no control characters."""
    logger = logging.getLogger(name)
    logger.addFilter(clean_record)
    return logger


def clean_record(record: logging.LogRecord) -> bool:
    """Clean the text of a log record, and its traceback; a filter of loggers and handlers."""
    record.msg, record.args = clean_message(record.getMessage()), None
    if record.exc_info and record.exc_info[0] and not record.exc_text:
        error_type, error, trace = record.exc_info
        text = logging.Formatter().formatException(record.exc_info)
        record.exc_text = "\n".join(map(clean_message, text.split("\n")))
        if record.exc_text != text:
            # Formatters of JSON show the exception itself.
            record.exc_info = error_type, Exception(clean_message(str(error))), trace
    return True
