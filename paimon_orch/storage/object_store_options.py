"""Options of object stores; credentials are redacted in messages and not pickled if possible."""

import json
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_orch.errors import InputError, PaimonError, StorageError
from paimon_orch.safe_text import MASK, mask_values, note_secret_options
from paimon_orch.storage.error_advice import describe_store_error
from paimon_orch.storage.store_operation import begin_operation, describe_attempts
from paimon_orch.stores import list_stores

STORAGE_OPTIONS_ENV = "PAIMON_STORAGE_OPTIONS"
_UNKNOWN_OPTION = re.compile(r"__init__\(\) got an unexpected keyword argument (\S+)")
LOCK_PATH = "lock_path"  # our own option: a lock file for stores without exclusive creation
_PUBLIC_OPTIONS = ("anon", "endpoint", "endpoint_url", LOCK_PATH)


class StorageCredentials(Protocol):
    """Options of a store that expire and are renewed, such as a session token."""

    def load(self) -> Mapping[str, Any]:
        """Return the fsspec options that are valid now."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """The fsspec options of a store.

    Only the names of options from ``PAIMON_STORAGE_OPTIONS`` are stored and pickled; each process,
    for example a Spark task, reads the values from its own environment.
    """

    explicit: Mapping[str, Any]
    """Options that the user passed, with their values."""
    inherited: frozenset[str]
    """Names of options from the environment."""
    credentials: StorageCredentials | None = None
    """Adds options that expire; they take precedence."""

    @classmethod
    def of(
        cls, explicit: Mapping[str, Any], credentials: StorageCredentials | None = None
    ) -> "StorageOptions":
        """Combine explicit options with those of the environment; explicit ones take precedence."""
        return cls(dict(explicit), frozenset(_read_environment()) - set(explicit), credentials)

    def resolve(self) -> dict[str, Any]:
        """Return the options for fsspec.

        Raises :class:`InputError` if an inherited option is missing in the environment of this
        process.
        """
        return {name: value for name, value in self._merge_options().items() if name != LOCK_PATH}

    @property
    def has_lock(self) -> bool:
        """Return whether a lock file is configured; does not load credentials."""
        return LOCK_PATH in self.inherited or self.explicit.get(LOCK_PATH) is not None

    @property
    def lock_path(self) -> str | None:
        """Return the path of the lock file that all committers share, if one is configured."""
        path = self._merge_options().get(LOCK_PATH)
        return None if path is None else str(path)

    def _merge_options(self) -> dict[str, Any]:
        renewed = {} if self.credentials is None else self.credentials.load()
        note_secret_options({**self.explicit, **renewed})
        if not self.inherited:
            return {**self.explicit, **renewed}
        environment = _read_environment()
        missing_names = ", ".join(sorted(self.inherited - set(environment)))
        if missing_names:
            raise InputError(
                f"storage option {missing_names} comes from {STORAGE_OPTIONS_ENV}, but the variable "
                "does not have it in this process; set it for Spark's workers too, or "
                "pass the options to the catalog"
            )
        return {name: environment[name] for name in self.inherited} | {
            **self.explicit,
            **renewed,
        }

    def redact(self, text: str) -> str:
        """Return the text without the values of options that may be secret."""
        try:
            values = list(find_secrets(self.resolve()))
        except PaimonError:
            values = list(find_secrets(self.explicit))
        return mask_values(text, values)

    def describe_error(self, error: Exception) -> str:
        """Return the type and message of an error without secrets, and what to do."""
        return self.redact(describe_store_error(error))

    def redact_cause(self, error: Exception) -> Exception | None:
        """Return the error, or None if its traceback would show a secret."""
        text = "".join(traceback.format_exception(error))
        return error if self.redact(text) == text else None

    @contextmanager
    def wrap_errors(self, path: str, action: str) -> Iterator[None]:
        """Convert errors of fsspec packages into :class:`StorageError`, without secrets."""
        with begin_operation():
            try:
                yield
            except (FileNotFoundError, NotADirectoryError, PaimonError):
                raise
            except Exception as error:  # noqa: BLE001 - each package has its own errors
                if isinstance(error, TypeError) and (match := _UNKNOWN_OPTION.search(str(error))):
                    raise InputError(
                        f"{path} cannot be {action}: the package of the store has no option {match[1]}"
                    ) from None
                failure = StorageError(f"{path} cannot be {action}: {self.describe_error(error)}")
                raise describe_attempts(failure) from self.redact_cause(error)

    @contextmanager
    def wrap_write_errors(self, path: str, action: str = "written") -> Iterator[None]:
        """Convert errors as :meth:`wrap_errors`, also those of a missing bucket or upload."""
        with self.wrap_errors(path, action):
            try:
                yield
            except FileNotFoundError as error:
                text = f"{path} cannot be {action}: {self.describe_error(error)}"
                raise StorageError(text) from self.redact_cause(error)

    def __repr__(self) -> str:
        names = (f"{name}={MASK}" for name in sorted({*self.explicit, *self.inherited}))
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
    if not isinstance(
        options, dict
    ):  # the message does not contain the text, which may hold secrets
        raise InputError(
            f'{STORAGE_OPTIONS_ENV} must be a JSON object like {{"key": "...", "secret": "..."}}'
        )
    note_secret_options(options)
    return options


def parse_storage_option(text: str) -> tuple[str, Any]:
    """Return name and value of ``name=value``; JSON objects and booleans are parsed."""
    name, separator, value = text.partition("=")
    if not (name.strip() and separator):
        raise InputError("a storage option must look like name=value, for example key=...")
    if value.startswith("{") or value in ("true", "false"):
        try:
            return name.strip(), json.loads(value)
        except ValueError:
            raise InputError(
                f"storage option {name.strip()!r} begins like JSON, but is not valid JSON"
            ) from None
    return name.strip(), value


def find_secrets(options: object, name: str = "") -> Iterator[str]:
    """Yield all text values, nested ones included, except those of public options."""
    if isinstance(options, Mapping):
        for key, value in options.items():
            yield from find_secrets(value, str(key))
    elif isinstance(options, (list, tuple)):
        for value in options:
            yield from find_secrets(value, name)
    elif isinstance(options, str) and not _is_public(name):
        yield options


def _is_public(name: str) -> bool:
    """Return whether the values of an option may appear in messages."""
    return name in _PUBLIC_OPTIONS or any(name in store.public_options for store in list_stores())
