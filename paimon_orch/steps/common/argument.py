"""The arguments of a request: the fields that users set, and which values they accept."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from inspect import isclass
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from paimon_orch.errors import InputError
from paimon_orch.safe_text import clean_line

if TYPE_CHECKING:
    from paimon_orch.table.table import Table

TABLE_OPTION = "the table's option"
CUTOFF_HELP = "Minimum age such as '3 d', or a time in ISO 8601 or epoch milliseconds."

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True, slots=True)
class Argument:
    """What users see of a field of a request, and what it accepts."""

    help: str
    """One sentence."""
    parse: Callable[[str, Any], object] | None = None
    """Parses the text that a user writes; called with the name of the argument and the text.

    Returns values of the type of the field as they are, and raises :class:`InputError` for others.
    """
    minimum: int | None = None
    """The smallest number."""
    check: "Callable[[Table, Any], None] | None" = None
    """Raises an error for a value that does not fit the table."""
    split: "Callable[[Table, str], Sequence[object] | None] | None" = None
    """Splits the text of a list, for front ends that have no lists."""
    separator: str = ";"
    """Separates the items in the text of a list."""
    has_star: bool = False
    """Whether the command takes a single ``*`` for the object ``{"*": "*"}``."""
    is_positional: bool = False
    """Whether the command takes the value without an option, after the table."""
    option: str | None = None
    """The option of the command; by default, the name of the field with hyphens."""
    metavar: str | None = None
    """The value in help pages: ``DURATION``."""
    default: str | None = None
    """Where the default value comes from, if it is not that of the field."""


def split_names(_table: "Table", text: str) -> list[str]:
    """Split a list of names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredField:
    """A field of a request that users set."""

    name: str
    argument: Argument
    hint: Any
    """The type of its values."""
    default: Any
    """The default value; None if the argument is required."""
    is_required: bool

    @property
    def kind(self) -> Any:
        """Return the type of its values without None."""
        kinds = [each for each in get_args(self.hint) if each is not NoneType]
        return kinds[0] if get_origin(self.hint) in (Union, UnionType) else self.hint

    @property
    def option(self) -> str:
        """Return the option of the command: ``--older-than``."""
        return self.argument.option or f"--{self.name.replace('_', '-')}"

    def convert(self, value: object, label: str) -> object:
        """Return the value of the field for a JSON value.

        Raises :class:`InputError` for a value of another type, or below the minimum. ``label`` is
        the name of the argument in errors.
        """
        if value is None and _accepts(self.hint, None):
            return None
        if self.argument.parse is not None and isinstance(value, str):
            return self.argument.parse(label, value)
        if self.argument.parse is not None or not _accepts(self.hint, value):
            raise InputError(self._describe_mismatch(value, label))
        self.check_minimum(value, label)
        return tuple(value) if isinstance(value, list) else value

    def _describe_mismatch(self, value: object, label: str) -> str:
        """Say which part of a JSON value has a wrong type: ``types['v'] is 1``."""
        kind, arguments = self.kind, get_args(self.kind)
        if is_mapping(kind) and isinstance(value, Mapping):
            parts: Iterable[tuple[object, object]] = value.items()
            hint = arguments[1]
        elif is_list(kind) and isinstance(value, list):
            parts, hint = enumerate(value), arguments[0]
        else:
            return f"{label} is {_show(value)}, but must be {self.describe_type()}"
        key, part = next((key, part) for key, part in parts if not _accepts(hint, part))
        return f"{label}[{_show(key)}] is {_show(part)}, but must be {_describe(hint)}"

    def convert_text(self, value: object, label: str) -> object:
        """Return the value of the field as :meth:`convert` does; a text may be that of a number."""
        if isinstance(value, str) and self.kind in (int, float):
            with suppress(ValueError):
                value = self.kind(value)
        return self.convert(value, label)

    def check_minimum(self, value: object, label: str) -> None:
        """Raise :class:`InputError` for a number below the minimum."""
        minimum = self.argument.minimum
        if minimum is not None and isinstance(value, int) and value < minimum:
            raise InputError(f"{label} is {value}; the minimum is {minimum}")

    def check_type(self, value: Any) -> None:
        """Raise :class:`InputError` for a value of Python that is not of a simple type."""
        kind = self.kind
        if _is_whole(kind, value):
            return
        if is_list(kind):
            if isinstance(value, str) or not isinstance(value, Iterable):
                example = f": write [{_show(value)}]" if isinstance(value, str) else ""
                raise InputError(f"{self.name} is {_show(value)}, but must be a list{example}")
            item = get_args(kind)[0]
            is_right = (
                item not in _KINDS
                or not isinstance(value, Collection)  # an iterator can be read only once
                or all(_accepts(item, each) or _is_whole(item, each) for each in value)
            )
        else:
            is_right = not (kind in _KINDS or get_origin(kind) is Literal) or _accepts(
                self.hint, value
            )
        if not is_right:
            raise InputError(f"{self.name} is {_show(value)}, but must be {self.describe_type()}")

    @property
    def metavar(self) -> str | None:
        """Return the value of the option in help pages, or None for a text."""
        if get_origin(self.kind) is Literal:
            return f"<{'|'.join(map(str, get_args(self.kind)))}>"
        return self.argument.metavar or ("N" if self.kind in (int, float) else None)

    def describe_type(self) -> str:
        """Return what the argument accepts: ``a whole number``, ``minor or full``."""
        if self.argument.parse is not None:
            return "a text"
        return _describe(self.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """Base of requests: in Python too, parsers accept texts, and types and minima are checked."""

    def __post_init__(self) -> None:
        for name, field in list_arguments(type(self)).items():
            parse, value = field.argument.parse, getattr(self, name)
            if value is None and _accepts(field.hint, None):
                continue
            if parse is not None:
                object.__setattr__(self, name, parse(name, value))
            else:
                field.check_type(value)
                if is_list(field.kind) and not isinstance(value, Sequence):
                    object.__setattr__(self, name, tuple(value))  # steps read it several times
            field.check_minimum(value, name)


_DECLARED: dict[type[Any], Mapping[str, DeclaredField]] = {}  # reading hints takes 0.3 ms


def list_arguments(request: type[Any]) -> Mapping[str, DeclaredField]:
    """Return the annotated fields of a dataclass by name."""
    if request not in _DECLARED:
        _DECLARED[request] = _read_arguments(request)
    return _DECLARED[request]


def _read_arguments(request: type[Any]) -> Mapping[str, DeclaredField]:
    hints = get_type_hints(request, include_extras=True)
    declared = {}
    for field in fields(request):
        hint = hints[field.name]
        if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], Argument):
            declared[field.name] = DeclaredField(
                name=field.name,
                argument=get_args(hint)[1],
                hint=get_args(hint)[0],
                default=None if field.default is MISSING else field.default,
                is_required=field.default is MISSING and field.default_factory is MISSING,
            )
    return declared


def convert_arguments(
    request: type[Any],
    values: Mapping[str, object],
    *,
    get_label: Callable[[DeclaredField], str] = attrgetter("name"),
) -> dict[str, Any]:
    """Return the values of a JSON object as arguments of a dataclass.

    ``get_label`` returns the name of an argument in errors.
    Raises :class:`InputError` for an unknown or missing argument, and for a value that it does not
    accept.
    """
    declared = list_arguments(request)
    unknown = sorted(values.keys() - declared.keys())
    if unknown:
        raise InputError(
            f"unknown arguments: {clean_line(', '.join(unknown))}; possible are "
            f"{', '.join(declared) or 'none'}"
        )
    missing = [name for name, each in declared.items() if each.is_required and name not in values]
    if missing:
        raise InputError(f"missing arguments: {', '.join(missing)}")
    return {
        name: declared[name].convert(value, get_label(declared[name]))
        for name, value in values.items()
    }


def is_list(hint: Any) -> bool:
    """Return whether a type is that of a list, such as ``Sequence[str]``."""
    origin = get_origin(hint)
    return isclass(origin) and issubclass(origin, Sequence)


def is_mapping(hint: Any) -> bool:
    """Return whether a type is that of an object, such as ``Mapping[str, str]``."""
    origin = get_origin(hint)
    return isclass(origin) and issubclass(origin, Mapping)


def _accepts(hint: Any, value: object) -> bool:
    """Return whether a JSON value has a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_accepts(each, value) for each in arguments)
    if origin is Literal:
        return value in arguments
    if is_list(hint):
        return isinstance(value, list) and all(_accepts(arguments[0], item) for item in value)
    if origin is not None:
        return isinstance(value, Mapping) and all(_accepts(arguments[1], v) for v in value.values())
    if hint in (object, Any):
        return True
    if hint is NoneType or hint is None:
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _is_whole(kind: Any, value: object) -> bool:
    """Return whether a value is a whole number, perhaps of NumPy, where one is expected."""
    return kind is int and not isinstance(value, bool) and hasattr(value, "__index__")


def _describe(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kinds = (_describe(each) for each in arguments if each is not NoneType)
        return " or ".join(dict.fromkeys(kinds))
    if origin is Literal:
        *names, last = map(str, arguments)
        return f"{', '.join(names)} or {last}" if names else last
    if is_list(hint):
        return f"a list, each of {_describe(arguments[0])}"
    return _KINDS.get(hint, "an object")


def _show(value: object) -> str:
    return clean_line(repr(value))[:100]
