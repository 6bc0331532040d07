"""Partition values and their directory names.

See docs/format/table-layout.md#partition-directories.
"""

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import PARTITION_LEGACY_NAME
from paimon_orch.format.text import to_readable_text
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

_CHARS_TO_ESCAPE = set("\"#%'*/:=?\\{}[]^\x7f") | {chr(code) for code in range(32)}
_ESCAPE_SEQUENCE = re.compile(r"%([0-9A-Fa-f]{2})")
_EPOCH = date(1970, 1, 1)


def escape_path_name(text: str) -> str:
    """Escape one path component. Raises :class:`InputError` for an empty component."""
    if not text:
        raise InputError("a partition directory name must not be empty")
    return "".join(f"%{ord(char):02X}" if char in _CHARS_TO_ESCAPE else char for char in text)


def unescape_path_name(text: str) -> str:
    """Undo :func:`escape_path_name`; a ``%`` without two hex digits is unchanged."""
    return _ESCAPE_SEQUENCE.sub(lambda match: chr(int(match.group(1), 16)), text)


def build_partition_path(
    values: Sequence[object], fields: Sequence[Field], options: Options
) -> str:
    """Return ``k1=v1/k2=v2/`` for internal values, or "" for an unpartitioned table."""
    names = format_partition_values(values, fields, options)
    return "".join(
        f"{escape_path_name(key)}={escape_path_name(value)}/" for key, value in names.items()
    )


def format_partition_values(
    values: Sequence[object], fields: Sequence[Field], options: Options
) -> dict[str, str]:
    """Return the text of every partition value, before escaping."""
    legacy = options.get(PARTITION_LEGACY_NAME)
    names = {}
    for value, field in zip(values, fields, strict=True):
        text = "" if value is None else format_partition_value(value, field, legacy=legacy)
        names[field.name] = text if text.strip() else options.default_partition_name
    return names


def format_partition_value(value: object, field: Field, *, legacy: bool) -> str:
    """Return the text of one internal value (see ``binary_row``) as Java formats it."""
    assert isinstance(field.type, AtomicType)
    name, params = field.type.name, field.type.params
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return to_readable_text(value)
        case Decimal():
            return f"{value:f}"
        case float():
            return format_java_double(value, single=name == TypeRoot.FLOAT)
        case int() if name == TypeRoot.DATE and not legacy:
            return (_EPOCH + timedelta(days=value)).isoformat()
        case int() if name == TypeRoot.TIME and not legacy:
            clock = (datetime(1970, 1, 1) + timedelta(milliseconds=value)).time()
            return clock.isoformat("auto" if not value % 1000 else "milliseconds")
        case int() if name in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
            return format_timestamp(value, params[0], legacy=legacy)
        case bytes():
            raise InputError(
                f"partition column {field.name!r}: BINARY is not supported for partition columns"
            )
    return str(value)


def format_timestamp(value: int, precision: int, *, legacy: bool) -> str:
    """Format a TIMESTAMP in its Arrow unit; ``legacy`` formats as ``LocalDateTime.toString``."""
    nanos = value * {3: 10**6, 6: 10**3, 9: 1}[3 if precision <= 3 else 6 if precision <= 6 else 9]
    seconds, fraction = divmod(nanos, 10**9)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    digits = f"{fraction:09d}"
    if not legacy:
        digits = digits[: max(precision, len(digits.rstrip("0")))]
        return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{digits}" if digits else "")
    text = moment.strftime("%Y-%m-%dT%H:%M")
    if moment.second or fraction:
        text += moment.strftime(":%S")
    while fraction and digits.endswith("000"):
        digits = digits[:-3]
    return text + (f".{digits}" if fraction else "")


def format_java_double(value: float, *, single: bool = False) -> str:
    """Format a floating-point number as ``Double.toString`` or ``Float.toString`` does."""
    if math.isnan(value):
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if single:
        import numpy as np

        text = str(np.float32(value))
    else:
        text = repr(value)
    magnitude = abs(value)
    if value == 0 or 1e-3 <= magnitude < 1e7:
        decimal_text = format(Decimal(text), "f")
        return decimal_text if "." in decimal_text else decimal_text + ".0"
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    mantissa = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) - 1 + exponent
    return f"{'-' if sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{power}"
