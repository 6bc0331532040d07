"""Named catalogs from a configuration file and environment variables.

The file ``.paimon_orch.yaml`` is read from the directory in ``PAIMON_ORCH_HOME``, the home
directory, or the working directory; the first one that exists counts::

    catalog:
      prod:
        metastore: rest
        uri: https://catalog.example.com
        warehouse: prod

Variables add options and take precedence: ``PAIMON_ORCH_CATALOG__PROD__TOKEN`` sets ``token`` of
the catalog ``prod``. In their names, ``__`` stands for a dot and ``_`` for a hyphen.

See docs/how-to/named-catalogs.md.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paimon_orch.catalog.catalog_options import METASTORE, STORAGE_PREFIX, URI, WAREHOUSE
from paimon_orch.errors import InputError
from paimon_orch.format.argument_checks import format_option_value
from paimon_orch.safe_text import mask_secrets

CONFIG_FILE = ".paimon_orch.yaml"
HOME_VARIABLE = "PAIMON_ORCH_HOME"
VARIABLE_PREFIX = "PAIMON_ORCH_CATALOG__"
_ROOT_KEY = "catalog"


def find_named_catalog(name: str) -> dict[str, Any] | None:
    """Return the options of a configured catalog, or None if there is none with this name.

    Raises :class:`InputError` if the configuration file is invalid.
    """
    if "/" in name or ":" in name or not name:
        return None
    catalogs = _read_file_catalogs()
    from_environment = _read_environment(name)
    if name not in catalogs and not from_environment:
        return None
    return {**catalogs.get(name, {}), **from_environment}


def describe_unconfigured_name(location: str) -> str:
    """Return a hint for a location that may be the misspelled name of a configured catalog."""
    names = [] if "/" in location or ":" in location else list_named_catalogs()
    return f"; no catalog {location!r} is configured, only {', '.join(names)}" if names else ""


def list_named_catalogs() -> list[str]:
    """Return the names of the catalogs in the configuration file and in variables, sorted.

    A name that only variables have is in lower case, with underscores.
    """
    names = set(_read_file_catalogs())
    known = tuple(_get_variable_prefix(name) for name in names)
    for key in os.environ:
        if key.startswith(VARIABLE_PREFIX) and not key.startswith(known):
            name, separator, option = key.removeprefix(VARIABLE_PREFIX).partition("__")
            if name and separator and option:
                names.add(name.lower())
    return sorted(names)


def describe_named_catalogs() -> list[dict[str, str | None]]:
    """Return the name, metastore, warehouse and URI of each catalog, without secrets."""
    return [_describe(name, find_named_catalog(name) or {}) for name in list_named_catalogs()]


def _describe(name: str, options: Mapping[str, Any]) -> dict[str, str | None]:
    locations = {
        option.key: mask_secrets(str(options[option.key])) if option.key in options else None
        for option in (WAREHOUSE, URI)
    }
    metastore = str(options.get(METASTORE.key, METASTORE.default))
    return {"name": name, "metastore": metastore, **locations}


def _get_variable_prefix(name: str) -> str:
    return f"{VARIABLE_PREFIX}{name.upper().replace('-', '_')}__"


def _read_environment(name: str) -> dict[str, str]:
    prefix = _get_variable_prefix(name)
    return {
        _to_option_name(key.removeprefix(prefix)): value
        for key, value in os.environ.items()
        if key.startswith(prefix)
    }


def _to_option_name(variable: str) -> str:
    """Return the option of a variable; names of fsspec options keep their underscores."""
    name = variable.lower().replace("__", ".")
    return name if name.startswith(STORAGE_PREFIX) else name.replace("_", "-")


def _find_file() -> Path | None:
    home = os.environ.get(HOME_VARIABLE)
    folders = [Path(home)] if home else []
    with suppress(RuntimeError):  # HOME is not set, and the system does not know the user
        folders.append(Path.home())
    for path in (folder / CONFIG_FILE for folder in [*folders, Path.cwd()]):
        if os.access(path, os.F_OK) and path.is_file():  # the home of another user may be closed
            return path
    return None


def _read_file_catalogs() -> Mapping[str, Mapping[str, Any]]:
    path = _find_file()
    if path is None:
        return {}
    import yaml

    try:
        content = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        # The message of the parser may quote lines with secrets.
        position = getattr(error, "problem_mark", None)
        line = "" if position is None else f", line {position.line + 1}"
        raise InputError(f"{path}{line} cannot be read as YAML ({type(error).__name__})") from None
    catalogs = content.get(_ROOT_KEY) if isinstance(content, Mapping) else content
    if catalogs is None:
        return {}
    if not isinstance(catalogs, Mapping) or not all(
        isinstance(name, str) and isinstance(options, Mapping) for name, options in catalogs.items()
    ):
        raise InputError(
            f"{path} must have the key 'catalog' with a mapping of options for each name"
        )
    # ``true`` and numbers have a type in YAML.
    return {
        name: {
            str(key): format_option_value(value) if isinstance(value, int | float) else value
            for key, value in options.items()
            if value is not None
        }
        for name, options in catalogs.items()
    }
