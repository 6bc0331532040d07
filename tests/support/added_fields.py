"""Adds unknown fields to the metadata files of a table, and checks that they are preserved."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fastavro
from hypothesis import strategies as st

from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache

PREFIX = "_LATER"
KEY = "laterKey"
NO_ADDED_VALUES = "[]"
RANGES_FIELD = "_DELETIONS_VECTORS_RANGES"
PLACES = {
    "manifest": ("", "_FILE.", "_FILE._KEY_STATS.", "_FILE._VALUE_STATS."),
    "manifest-list": ("", "_PARTITION_STATS."),
    "index-manifest": ("", "_GLOBAL_INDEX.", f"{RANGES_FIELD}."),
}
_ATOMS: list[Any] = [
    *("boolean", "int", "long", "float", "double", "string", "bytes"),
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "int", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "fixed", "size": 3},
    {"type": "enum", "symbols": ["A", "B", "C"]},
]
JAVA_ATOMS = ["boolean", "int", "long", "float", "double", "string", "bytes"]


def seeded_random(text: str) -> random.Random:
    """Return a random generator with a string as its seed."""
    return random.Random(text)  # noqa: S311 - no secrets


def avro_types(atoms: list[Any] | None = None, depth: int = 2) -> st.SearchStrategy[Any]:
    """Draw Avro types; :func:`with_type_names` gives names to those that need one."""
    atom = st.sampled_from(_ATOMS if atoms is None else atoms)
    if depth == 0:
        return atom
    inner = avro_types(atoms, depth - 1)
    nested = st.one_of(
        st.builds(lambda item: {"type": "array", "items": item}, inner),
        st.builds(lambda item: {"type": "map", "values": item}, inner),
        st.lists(inner, min_size=1, max_size=3).map(_record),
    )
    kinds = atom | nested
    return kinds | kinds.map(lambda kind: ["null", kind])


def _record(kinds: list[Any]) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "fields": fields}


def with_type_names(kind: Any, name: str) -> Any:
    """Name the types that need a name by their position."""
    if isinstance(kind, list):
        return [with_type_names(option, name) for option in kind]
    if not isinstance(kind, dict):
        return kind
    kind = dict(kind)
    for key in ("items", "values"):
        if key in kind:
            kind[key] = with_type_names(kind[key], f"{name}_{key}")
    if "fields" in kind:
        kind["fields"] = [
            {**field, "type": with_type_names(field["type"], f"{name}_{field['name']}")}
            for field in kind["fields"]
        ]
    return kind | ({"name": name} if kind["type"] in ("record", "fixed", "enum") else {})


def random_value(kind: Any, chance: random.Random) -> Any:
    """Return a random value of an Avro type."""
    if isinstance(kind, list):
        return random_value(chance.choice(kind), chance)
    if isinstance(kind, str):
        return _random_atom(kind, chance)
    match kind["type"]:
        case "array":
            return [random_value(kind["items"], chance) for _ in range(chance.randrange(3))]
        case "map":
            return {
                f"k{n}": random_value(kind["values"], chance) for n in range(chance.randrange(3))
            }
        case "record":
            return {field["name"]: random_value(field["type"], chance) for field in kind["fields"]}
        case "enum":
            return chance.choice(kind["symbols"])
        case "fixed":
            return chance.randbytes(kind["size"])
        case other:
            return chance.randbytes(3) if other == "bytes" else chance.randrange(10_000)


def _random_atom(kind: str, chance: random.Random) -> Any:
    number = chance.randrange(-(2**31), 2**31)
    atoms = {
        "null": None,
        "boolean": number % 2 == 0,
        "int": number,
        "long": number << 30,
        "float": number / 2**31,
        "double": number / 7,
        "string": f"ü{number}",
        "bytes": number.to_bytes(5, "big", signed=True),
    }
    return atoms[kind]


def metadata_kind(path: Path) -> str:
    """Return which of :data:`PLACES` a metadata file has."""
    name = path.name
    return next(k for k in ("manifest-list", "index-manifest", "manifest") if name.startswith(k))


def metadata_files(root: Path) -> Iterator[Path]:
    """Yield all manifests, then all index manifests, then all manifest lists of a table."""
    order = ("manifest", "index-manifest", "manifest-list")
    yield from sorted(root.glob("manifest/*"), key=lambda path: order.index(metadata_kind(path)))


def json_files(root: Path) -> list[Path]:
    """Return all snapshots, changelogs, tags and schemas of a table and of its branches."""
    places = [root, *root.glob("branch/branch-*")]
    kinds = {"snapshot": "snapshot-", "changelog": "changelog-", "tag": "tag-", "schema": "schema-"}
    paths = (p for place in places for k, start in kinds.items() for p in (place / k).glob(f"{start}*"))  # fmt: skip
    return sorted(path for path in paths if path.is_file())


def add_fields(
    root: Path,
    fields: Mapping[str, Mapping[str, Any]],
    seed: int = 0,
    *,
    chance: float = 0.8,
    only: str = "",
    convert: Callable[[Path, list[Any]], None] | None = None,
) -> None:
    """Add fields (paths and types by kind of file) to metadata files, and keys to JSON objects.

    Each file gets each field with a probability, so that files differ; ``only`` names one manifest.
    ``convert`` writes a manifest in another form.
    """
    sizes: dict[str, int] = {}
    for path in metadata_files(root):
        random_of_file = seeded_random(f"{seed} {path.name}")
        kind = metadata_kind(path)
        schema, records = read_metadata_file(path)
        for record in records if kind == "manifest-list" else ():
            record["_FILE_SIZE"] = sizes[record["_FILE_NAME"]]
        for name, of_type in fields.get(kind, {}).items():
            if random_of_file.random() < chance and only in (path.name, ""):
                _add_field(schema, records, path=name, kind=of_type, seed=seed)
        if convert is not None and kind == "manifest":
            convert(path, records)
        else:
            with path.open("wb") as file:
                fastavro.writer(file, schema, records, "zstandard")
        sizes[path.name] = path.stat().st_size
    for path in json_files(root):
        _add_keys(path, sizes)
    clear_metadata_cache()  # the files were changed in place


def _add_field(schema: Any, records: list[Any], path: str, kind: Any, seed: int) -> None:
    *above, name = path.split(".")
    schema = record_type(schema)
    for step in above:
        types_by_name = {field["name"]: field["type"] for field in schema["fields"]}
        if step not in types_by_name:  # an older release, without this field, wrote the file
            return
        schema = record_type(types_by_name[step])
    field = {"name": name, "type": with_type_names(kind, path.replace(".", "_"))}
    if isinstance(kind, list):
        field["default"] = None
    schema["fields"].insert(len(path) % (len(schema["fields"]) + 1), field)
    for key, record in _records_at(records, above):
        record[name] = random_value(kind, seeded_random(f"{seed} {path} {key}"))


def _records_at(records: list[Any], above: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the records at a path, each with the name of the file that it describes."""
    for record in records:
        parts, key = [record], (record.get("_FILE") or record).get("_FILE_NAME")
        if isinstance(key, dict):
            key = key["_FILE_NAME"]
        for step in above:
            parts = [part[step] for part in parts if part.get(step) is not None]
            parts = [item for part in parts for item in (part if isinstance(part, list) else [part])]  # fmt: skip
        for part in parts:
            yield part.get("f0", key), part


def record_type(schema: Any) -> Any:
    """Return the record type inside of arrays and unions with null."""
    while not isinstance(schema, dict) or schema["type"] == "array":
        schema = schema["items"] if isinstance(schema, dict) else next(o for o in schema if o != "null")  # fmt: skip
    return schema


def read_metadata_file(path: Path) -> tuple[Any, list[Any]]:
    """Return the schema and the records of a metadata file."""
    with path.open("rb") as file:
        reader: Any = fastavro.reader(file)
        schema = json.loads(json.dumps(reader.writer_schema))
        return schema, list(reader)


def _add_keys(path: Path, sizes: Mapping[str, int]) -> None:
    document = json.loads(path.read_bytes())
    for key in ("baseManifestList", "deltaManifestList", "changelogManifestList"):
        if f"{key}Size" in document:
            document[f"{key}Size"] = sizes.get(document[key], document[f"{key}Size"])
    if path.name.startswith("schema-"):
        _add_to_fields(document["fields"])
        document[KEY] = {"of": ["schema", 1.5]}
    else:
        document |= {KEY: {"of": document["id"]}} | commit_keys(document["id"])
    if path.name.startswith("tag-"):
        document[f"{KEY}OfTag"] = [path.name]
    path.write_text(json.dumps(document, indent=1))


def commit_keys(number: int) -> dict[str, str]:
    """Return keys of snapshots that releases after 0.9 write."""
    operation = ("WRITE", "MERGE", "OVERWRITE")[number % 3]
    return {"operation": operation, "uuid": f"u-{number}", "writerVersion": f"later {number}"}


def _add_to_fields(fields: list[Any]) -> None:
    for field in fields:
        field[KEY] = [field["id"]]
        if isinstance(field["type"], dict):
            field["type"][KEY] = [-field["id"]]
            _add_to_fields(field["type"].get("fields", []))


def added_values(root: Path) -> dict[tuple[str, str, str], set[str]]:
    """Return the non-null values of added fields of all metadata files, by kind, path and file."""
    result: dict[tuple[str, str, str], set[str]] = {}
    for path in metadata_files(root):
        _, records = read_metadata_file(path)
        for place in PLACES[metadata_kind(path)]:
            for key, record in _records_at(records, place.split(".")[:-1]):
                values = {k: v for k, v in record.items() if PREFIX in k and v is not None}
                result.setdefault((metadata_kind(path), place, key), set()).add(repr(sorted(values.items())))  # fmt: skip
    return result


def assert_added_values_kept(root: Path, before: Mapping[tuple[str, str, str], set[str]]) -> None:
    """Check that added values of existing files are preserved, and that new files have none."""
    for place, values in added_values(root).items():
        # A changed deletion vector is a new one, without added values.
        is_range = place[1].startswith("_DELETIONS")
        allowed = before.get(place, {NO_ADDED_VALUES})
        assert values <= (allowed | {NO_ADDED_VALUES} if is_range else allowed), place
