"""What a store declares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from operator import attrgetter
from typing import Any


class ExclusiveCreation(StrEnum):
    """The means by which only one of several processes creates a name."""

    HARD_LINK = "hard link of a complete file"
    CONDITIONAL_PUT = "conditional put"
    RENAME = "rename of a complete file, which replaces no other one"
    LOCK_FILE = "lock file of all committers"
    ONE_PROCESS = "a check within one process"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCapabilities:
    """What a store can do, and what its requests cost; the defaults are those of object stores."""

    is_local: bool = False
    """Its paths are those of this machine, which other programs open without a client."""
    has_slow_requests: bool = True
    """Each call waits for a network: few large ones, several at the same time, are faster."""
    has_directories: bool = False
    """A directory can be empty; otherwise directories are only parts of names."""
    has_atomic_rename: bool = False
    """A directory gets another name at one moment, with all that is in it."""
    has_bulk_delete: bool = False
    """One request deletes many files."""
    exclusive_creation: ExclusiveCreation | None = ExclusiveCreation.CONDITIONAL_PUT
    """None if no means is known; nothing is then written."""

    def describe_commits(self) -> str:
        """Return how only one of several committers creates a snapshot, or that none may."""
        means = self.exclusive_creation
        if means is None:
            return "not written, because no exclusive creation is known"
        is_verified = means is ExclusiveCreation.CONDITIONAL_PUT
        verified = ", which each process verifies before its first commit" if is_verified else ""
        return f"commits by {means}{verified}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A store, and what it demands; a reference to code is ``module:name``."""

    schemes: tuple[str, ...]
    has_different_schemes: bool = False
    """Whether two schemes name two stores; otherwise they are aliases of the first one."""
    opener: str = "paimon_orch.storage.object_store:open_object_store"
    """The function from a URI, storage options and credentials to a file system and a root path."""
    server_reader: str | None = None
    """Of a store whose URIs name a server: the function from a URI and storage options to it.

    See :class:`paimon_orch.storage.hdfs_settings.HdfsSettings`.
    """
    package: str | None
    """The Python package of the client; None if each installation has it."""
    extra: str | None
    """The extra of this package that installs it."""
    capabilities: StoreCapabilities = field(default_factory=StoreCapabilities)

    option_prefixes: tuple[str, ...] = ()
    """What the names of Paimon's options begin with, in lower case."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The storage options that Paimon's options set, by their names without prefix.

    These are in lower case, with dots for dashes. Dots in a storage option lead into nested ones.
    Of two options that set the same, the first counts. ``option=value`` is set by `true`.
    """
    endpoints: tuple[str, ...] = ("endpoint", "endpoint_url")
    """The storage options with the address of a server, which may get the credentials."""
    public_options: tuple[str, ...] = ()
    """The storage options whose values are no secrets, besides those of all stores."""
    advice: tuple[tuple[str, str], ...] = ()
    """Patterns of the client's errors, and what to do."""

    fsspec_protocol: str | None = None
    """The name by which fsspec finds the implementation, if it is one of fsspec."""
    first_trusted_version: tuple[int, int] | None = None
    """The first release of the package that creates a file by a conditional request."""
    shortens_ranges: bool = False
    """Whether it returns the bytes up to the end for a range that ends after the end."""
    public_host: str | None = None
    """Of a dialect of S3, the host of the public service, with ``{region}``."""

    @property
    def is_shared(self) -> bool:
        """Whether several processes see the same files."""
        return self.capabilities.exclusive_creation is not ExclusiveCreation.ONE_PROCESS

    def open(self, *arguments: Any) -> Any:
        """Call the opener, whose module is imported now."""
        return _import(self.opener)(*arguments)

    def read_server(self, uri: str, options: Mapping[str, Any]) -> Any | None:
        """Return the server that a URI names, or None if it names a bucket."""
        return None if self.server_reader is None else _import(self.server_reader)(uri, options)

    def find_setting(self, option: str) -> str | None:
        """Return the storage option that one of Paimon's options sets, or None for another one."""
        name = self._strip_prefix(option)
        return None if name is None else self.options.get(name)

    def translate_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the storage options that Paimon's options set; other options are left out."""
        values = {
            name: str(value)
            for option, value in options.items()
            if value and (name := self._strip_prefix(option)) is not None
        }
        result: dict[str, Any] = {}
        for name, setting in self.options.items():
            path, is_flag, flag_value = setting.partition("=")
            if name not in values or (is_flag and values[name].lower() != "true"):
                continue
            inner, parts = result, path.split(".")
            for part in parts[:-1]:
                inner = inner.setdefault(part, {})
            inner.setdefault(parts[-1], flag_value if is_flag else values[name])
        return result

    def _strip_prefix(self, option: str) -> str | None:
        lowered = option.lower()
        for prefix in self.option_prefixes:
            if lowered.startswith(prefix):
                return lowered.removeprefix(prefix).replace("-", ".")
        return None


def _import(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return attrgetter(name)(import_module(module))


GIVE_CREDENTIALS = "give the credentials as storage options, or where the package looks for them"
