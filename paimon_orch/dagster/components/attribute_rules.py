"""Rules for text attributes of components, checked by ``dg check yaml`` and by the components.

``dg check yaml`` only validates against the JSON schema of a component. In Dagster's own schema,
every attribute may be any string, since it may be a template such as ``{{ env.RETAIN }}``, and an
error in a nested attribute is reported for its parent. The schema built here accepts a string
only if it is a template or matches the rule of its attribute, and reports errors for the attribute
itself.
"""

import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import dagster as dg
from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from paimon_orch.dagster.names import check_table_name
from paimon_orch.errors import InputError
from paimon_orch.format.options.value_type import parse_memory
from paimon_orch.format.times import parse_cutoff, parse_duration
from paimon_orch.steps.common.argument import DeclaredField

JsonSchema = dict[str, Any]

_EXAMPLES_BY_TYPE: Mapping[str, Any] = {
    "string": "text",
    "boolean": True,
    "integer": 1,
    "number": 0.5,
    "array": ["text"],
    "object": {},
}
_TEMPLATE_SCHEMA: JsonSchema = {"type": "string", "pattern": r"\{\{"}


@dataclass(frozen=True, slots=True)
class TextRule:
    """A rule for the text of an attribute."""

    accepted_values: str
    """A description of the accepted values.

    The JSON schema has it as the only value of an enumeration, since validators print the accepted
    values together with the invalid value.
    """
    pattern: str
    """A regular expression that all accepted values match; other values may also match."""
    parse: Callable[[str, str], object]
    """Takes the attribute's name and its value; raises :class:`InputError` for invalid values."""
    example: str

    def check(self, name: str, value: Any) -> None:
        """Raise :class:`InputError` if the value is not accepted."""
        self.parse(name, value)

    def apply(self, schema: JsonSchema) -> None:
        """Add the rule to the schema of an attribute."""
        schema["examples"] = [self.example]
        schema["if"] = _build_string_except_schema(
            {"anyOf": [_TEMPLATE_SCHEMA, {"pattern": self.pattern}]}
        )
        schema["then"] = {"enum": [self.accepted_values]}


@dataclass(frozen=True, slots=True)
class KeyRule:
    """A rule for the keys of a mapping."""

    key_kind: str
    names: Collection[str]

    def check(self, name: str, value: Mapping[str, Any]) -> None:
        """Raise :class:`InputError` for unknown keys."""
        unknown = sorted(set(value) - set(self.names))
        if unknown:
            raise InputError(
                f"{name}: unknown {self.key_kind} {', '.join(map(repr, unknown))}; "
                f"accepted values are {', '.join(self.names)}"
            )

    def apply(self, schema: JsonSchema) -> None:
        """Add the rule to the schema of an attribute."""
        schema["propertyNames"] = {"enum": [*self.names]}


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """The rule for an argument of a step: its values are refused as in Python and in commands."""

    declared: DeclaredField

    def check(self, name: str, value: Any) -> None:
        """Raise :class:`InputError` for a value that the step refuses."""
        self.declared.convert(value, name)

    def apply(self, schema: JsonSchema) -> None:
        """Add the rule to the schema of an attribute."""
        if self.declared.argument.minimum is not None:
            schema["minimum"] = self.declared.argument.minimum


def require_any_of(*names: str) -> JsonSchema:
    """Return a schema that requires at least one of these attributes."""
    missing = {"required": [" or ".join(names)]}
    return {"if": {"anyOf": [{"required": [name]} for name in names]}, "else": missing}


def require_pattern(name: str, pattern: str, accepts: str, *, where: JsonSchema) -> JsonSchema:
    """Return a schema for objects that match ``where``: a string must match a pattern."""
    text = {
        "if": _build_string_except_schema({"anyOf": [_TEMPLATE_SCHEMA, {"pattern": pattern}]}),
        "then": {"enum": [accepts]},
    }
    return {"if": where, "then": {"properties": {name: text}}}


def _build_string_except_schema(schema: JsonSchema) -> JsonSchema:
    """Return a schema that accepts the strings that the given schema does not accept."""
    return {"type": "string", "not": schema}


def _build_any_case_pattern(words: Iterable[str]) -> str:
    """Return a pattern of words that ignores case; JSON schemas have no flag for that."""
    return "|".join("".join(f"[{c}{c.upper()}]" for c in word) for word in words)


def _build_quantity_pattern(units: Iterable[str]) -> str:
    return rf"^\s*[0-9]+\s*(?:{_build_any_case_pattern(units)})\s*$"


def _build_cron_pattern() -> str:
    """Return a pattern that matches every cron schedule that Dagster accepts."""
    months = _build_any_case_pattern(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
    )
    days = _build_any_case_pattern(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])
    minute, hour, day, month, weekday = (
        "[0-5]?[0-9]",
        "[01]?[0-9]|2[0-3]",
        "0?[1-9]|[12][0-9]|3[01]|[lL]",
        f"0?[1-9]|1[0-2]|{months}",
        f"0?[0-7]|{days}|[lL][0-7]",
    )
    fields = []
    for value in (minute, hour, day, month, weekday):
        nth = "(?:#[1-5lL])?" if value is weekday else ""
        item = f"(?:[*?]|(?:{value})(?:-(?:{value}))?{nth})(?:/[0-9]+)?"
        fields.append(f"{item}(?:,{item})*")
    words = _build_any_case_pattern(
        ["hourly", "midnight", "daily", "weekly", "monthly", "yearly", "annually"]
    )
    return rf"^\s*(?:@(?:{words})|{_SPACE.join(fields)})\s*$"


_SPACE = r"\s+"
_TIME_UNITS = (
    *("ms", "milli", "millis", "millisecond", "milliseconds"),
    *("s", "sec", "secs", "second", "seconds"),
    *("m", "min", "minute", "minutes", "h", "hour", "hours", "d", "day", "days"),
)
_SIZE_UNITS = (
    *("b", "bytes", "k", "kb", "kibibytes", "m", "mb", "mebibytes"),
    *("g", "gb", "gibibytes", "t", "tb", "tebibytes"),
)
_TIMESTAMP_PATTERN = r"^[0-9]{4}-[01][0-9]-[0-3][0-9](?:[T ].*)?$"


def _parse_cron(name: str, text: str) -> None:
    try:
        with warnings.catch_warnings():
            # Creating the real schedule emits the same warning.
            warnings.simplefilter("ignore", UserWarning)
            dg.ScheduleDefinition(name="check", job_name="check", cron_schedule=text)
    except dg.DagsterInvalidDefinitionError:
        raise InputError(
            f"{name} {text!r} is not a cron schedule; expected {CRON_RULE.accepted_values}"
        ) from None


def _parse_timezone(name: str, text: str) -> None:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(
            f"{name} {text!r} is not a time zone; expected {TIMEZONE_RULE.accepted_values}"
        ) from None


def _parse_database(name: str, text: str) -> None:
    try:
        check_table_name(f"{text}.table")
    except InputError:
        raise InputError(
            f"{name} {text!r} is not a database name; expected {DATABASE_RULE.accepted_values}"
        ) from None


DURATION_RULE = TextRule(
    "a whole number and a unit (ms, s, min, h or d), for example 24 h",
    _build_quantity_pattern(_TIME_UNITS),
    parse_duration,
    "24 h",
)
AGE_RULE = TextRule(
    "a whole number and a unit (ms, s, min, h or d), for example 3 d, or a point in time such as "
    "2026-01-31T12:00:00",
    f"{DURATION_RULE.pattern}|{_TIMESTAMP_PATTERN}",
    parse_cutoff,
    "3 d",
)
SIZE_RULE = TextRule(
    "a whole number and a unit (b, kb, mb, gb or tb), for example 10 gb",
    _build_quantity_pattern(_SIZE_UNITS),
    parse_memory,
    "10 gb",
)
CRON_RULE = TextRule(
    "five fields: minute, hour, day of the month, month and day of the week, for example "
    "17 * * * *",
    _build_cron_pattern(),
    _parse_cron,
    "17 * * * *",
)
TIMEZONE_RULE = TextRule(
    "an IANA time zone name, for example Europe/Berlin",
    "^[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*$",
    _parse_timezone,
    "Europe/Berlin",
)
TABLE_RULE = TextRule(
    "database.table, with letters, digits, _ and - only",
    r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$",
    lambda _, text: check_table_name(text),
    "lake.orders",
)
DATABASE_RULE = TextRule(
    "the name of a database, with letters, digits, _ and - only",
    r"^[A-Za-z0-9_-]+$",
    _parse_database,
    "lake",
)


class Attributes(dg.Model, dg.Resolvable):
    """Base class of attributes, with rules in their annotations."""

    object_schemas: ClassVar[Sequence[JsonSchema]] = ()
    """Additional JSON schemas of the whole object."""

    def check(self, path: str = "") -> None:
        """Raise :class:`InputError` for an invalid attribute, including nested attributes.

        The component calls this, since Dagster hides errors of constructors of nested attributes.
        """
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is None:
                continue
            for rule in _find_rules(field):
                rule.check(path + name, value)
            if isinstance(value, Attributes):
                value.check(f"{path}{name}.")
            elif isinstance(value, dict):
                for key, nested in value.items():
                    if isinstance(nested, Attributes):
                        nested.check(f"{path}{name}.{key}.")

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Return the attributes of a YAML file.

        Raises :class:`InputError` for a template with an environment variable that is not set,
        which Dagster replaces by null.
        """
        for path, text in _list_texts(model.model_dump(exclude_unset=True)):
            for name in VARIABLE_PATTERN.findall(text):
                if name not in os.environ:
                    raise InputError(
                        f"environment variable {name} is not set; {path} in "
                        f"{_find_file(context)} uses it"
                    )
        attributes: Self = super().resolve_from_model(context, model)
        return attributes

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the model of the YAML, with the JSON schema for ``dg check yaml``."""
        return _build_model_with_schema(cls, _allow_templates(super().model()))


VARIABLE_PATTERN = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")
"""A template that is only a variable; others, such as ``env('A', 'b')``, have their own defaults."""


def _list_texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts in a value of YAML, each with its path such as ``a.b``."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, nested in value.items():
            yield from _list_texts(nested, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for nested in value:
            yield from _list_texts(nested, path)


def _find_file(context: dg.ResolutionContext) -> str:
    tree = context.source_position_tree
    return tree.position.filename if tree else "the attributes"


def _find_rules(field: FieldInfo) -> Iterator[TextRule | KeyRule | ArgumentRule]:
    return (r for r in field.metadata if isinstance(r, TextRule | KeyRule | ArgumentRule))


def _allow_templates(model: type[BaseModel]) -> type[BaseModel]:
    """Leave the bounds of numbers to their types: pydantic cannot compare them with a template."""
    for field in model.model_fields.values():
        if str in get_args(field.annotation):
            field.metadata = [bound for bound in field.metadata if not isinstance(bound, Ge | Le)]
    model.model_rebuild(force=True)
    return model


@cache
def _build_model_with_schema(
    attributes: type[Attributes], model: type[BaseModel]
) -> type[BaseModel]:
    """Return a model whose JSON schema contains the rules of all attributes."""

    def model_json_schema(_: type[BaseModel], *args: Any, **options: Any) -> JsonSchema:
        schema = model.model_json_schema(*args, **options)
        _refine_object(schema, attributes)
        for nested in _find_nested_attributes(attributes):
            definition = schema.get("$defs", {}).get(f"{nested.__name__}Model")
            if definition is not None:
                _refine_object(definition, nested)
        return schema

    namespace = {"model_json_schema": classmethod(model_json_schema), "__module__": __name__}
    return type(model.__name__, (model,), namespace)


def _find_nested_attributes(attributes: type[Attributes]) -> set[type[Attributes]]:
    """Return the classes of nested attributes, at any depth."""
    classes, pending = set[type[Attributes]](), [attributes]
    while pending:
        types = [field.annotation for field in pending.pop().model_fields.values()]
        while types:
            annotation = types.pop()
            if (
                isinstance(annotation, type)
                and issubclass(annotation, Attributes)
                and annotation not in classes
            ):
                classes.add(annotation)
                pending.append(annotation)
            types += get_args(annotation)
    return classes


def _refine_object(schema: JsonSchema, attributes: type[Attributes]) -> None:
    for name, field in attributes.model_fields.items():
        refined = _refine_attribute(schema["properties"][name])
        if field.description:
            refined["description"] = field.description
        for rule in _find_rules(field):
            rule.apply(refined)
        schema["properties"][name] = refined
    if attributes.object_schemas:
        schema["allOf"] = [*attributes.object_schemas]


def _refine_attribute(schema: JsonSchema) -> JsonSchema:
    """Return the schema of an attribute that accepts a string of another type only as a template.

    Its errors are reported for the attribute; with ``anyOf`` they would be reported for its parent.
    Schemas with several types, such as those of Dagster, are returned unchanged.
    """
    refined = {key: value for key, value in schema.items() if key in ("title", "default")}
    choices = schema.get("anyOf") or [{k: v for k, v in schema.items() if k not in refined}]
    null = [choice for choice in choices if choice == {"type": "null"}]
    values = [choice for choice in choices if choice not in ({"type": "string"}, *null)]
    if len(values) > 1:
        return schema
    value = values[0] if values else {"type": "string"}
    if "$ref" in value:
        # This schema accepts any value; editors use the reference to suggest values.
        accepted = {"anyOf": [value, {}]}
        return refined | accepted | {"if": {"anyOf": [_TEMPLATE_SCHEMA, *null]}, "else": value}
    strict = {"enum": value["enum"]} if "enum" in value else {"type": value["type"]}
    types = [*dict.fromkeys([value["type"], "string", *(["null"] if null else [])])]
    refined |= {key: part for key, part in value.items() if key not in ("type", "enum")}
    refined["type"] = types if len(types) > 1 else types[0]
    refined["examples"] = [
        value["enum"][0] if "enum" in value else _EXAMPLES_BY_TYPE[value["type"]]
    ]
    if strict != {"type": "string"}:
        refined |= {"if": _build_string_except_schema(_TEMPLATE_SCHEMA), "then": strict}
    return refined
