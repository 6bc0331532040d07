"""Options of object stores, credentials among them: kept out of texts, and out of pickles where possible."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paimon_orch.errors import InputError

STORAGE_OPTIONS_ENV = "PAIMON_STORAGE_OPTIONS"
LOCK_PATH = "lock_path"  # ours: a lock file for stores that cannot create exclusively
_REDACTED = "***"
_MIN_SECRET_LENGTH = 4  # shorter values would blot out ordinary words
# Options whose values may appear in an error text; whatever is not listed may be a secret.
_PUBLIC_OPTIONS = {
    "account_name",
    "addressing_style",
    "anon",
    "endpoint",
    "endpoint_url",
    LOCK_PATH,
    "project",
    "region_name",
    "signature_version",
    "use_ssl",
}


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """What a file system is opened with.

    Values that the user gave travel with the object, into Spark tasks too. Of options from the environment variable
    ``PAIMON_STORAGE_OPTIONS`` only the names travel: each process reads its own environment.
    """

    explicit: Mapping[str, Any]
    inherited: frozenset[str]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "StorageOptions":
        """Join what was given with what the environment adds; what was given counts."""
        return cls(dict(given), frozenset(_read_environment()) - set(given))

    def resolve(self) -> dict[str, Any]:
        """Return what fsspec takes, with its values.

        Raises :class:`InputError` if an option came from the environment and is not there in this process.
        """
        return {name: value for name, value in self._all().items() if name != LOCK_PATH}

    @property
    def lock_path(self) -> str | None:
        """Return the file whose lock all committers share, if one is configured."""
        found = self._all().get(LOCK_PATH)
        return None if found is None else str(found)

    def _all(self) -> dict[str, Any]:
        if not self.inherited:
            return dict(self.explicit)
        here = _read_environment()
        missing = ", ".join(sorted(self.inherited - set(here)))
        if missing:
            raise InputError(
                f"storage option {missing} came from {STORAGE_OPTIONS_ENV}, which does not have it in this process; set the "
                "variable for Spark's workers too, or hand the options to the catalog"
            )
        return {name: here[name] for name in self.inherited} | dict(self.explicit)

    def redact(self, text: str) -> str:
        """Return the text without the values of options that may be secret."""
        try:
            values = sorted(_find_secrets(self.resolve()), key=len, reverse=True)
        except InputError:
            values = sorted(_find_secrets(self.explicit), key=len, reverse=True)
        for value in values:
            text = text.replace(value, _REDACTED)
        return text

    def __repr__(self) -> str:
        names = (f"{name}={_REDACTED}" for name in sorted({*self.explicit, *self.inherited}))
        return f"StorageOptions({', '.join(names)})"

    def __hash__(self) -> int:
        return hash((frozenset(self.explicit), self.inherited))


def _read_environment() -> dict[str, Any]:
    text = os.environ.get(STORAGE_OPTIONS_ENV, "")
    if not text:
        return {}
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):  # the text may hold secrets: it is not repeated
        raise InputError(
            f'{STORAGE_OPTIONS_ENV} must be a JSON object, such as {{"key": "...", "secret": "..."}}'
        )
    return options


def parse_storage_option(text: str) -> tuple[str, Any]:
    """Return name and value of ``name=value``; JSON objects and true, false are read as such."""
    name, separator, value = text.partition("=")
    if not (name.strip() and separator):
        raise InputError("a storage option must look like name=value, for example key=...")
    if value.startswith("{") or value in ("true", "false"):
        try:
            return name.strip(), json.loads(value)
        except ValueError:
            raise InputError(
                f"storage option {name.strip()!r} begins like JSON, but is none"
            ) from None
    return name.strip(), value


def _find_secrets(options: object, name: str = "") -> Iterator[str]:
    """Yield every text among the values, nested ones too, unless its name is known to be harmless."""
    if isinstance(options, Mapping):
        for key, value in options.items():
            yield from _find_secrets(value, str(key))
    elif isinstance(options, (list, tuple)):
        for value in options:
            yield from _find_secrets(value, name)
    elif (
        isinstance(options, str)
        and len(options) >= _MIN_SECRET_LENGTH
        and name not in _PUBLIC_OPTIONS
    ):
        yield options
