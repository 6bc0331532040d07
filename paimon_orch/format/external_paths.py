"""Locations of new data and index files: the bucket directory or an external path.

See docs/format/table-layout.md#external-paths.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    DATA_FILE_EXTERNAL_PATHS,
    DATA_FILE_EXTERNAL_PATHS_SPECIFIC_FS,
    DATA_FILE_EXTERNAL_PATHS_STRATEGY,
    DATA_FILE_EXTERNAL_PATHS_WEIGHTS,
)
from paimon_orch.stores import normalize_scheme

_NONE, _ROUND_ROBIN, _SPECIFIC_FS, _ENTROPY, _WEIGHTED = _STRATEGIES = (
    "none",
    "round-robin",
    "specific-fs",
    "entropy-inject",
    "weight-robin",
)
_FILE_SCHEME = re.compile("^file:(?://)?", re.IGNORECASE)
_MASK = 0xFFFFFFFF


def strip_file_scheme(uri: str) -> str:
    """Return the file system path of a URI in metadata or options, without ``file:``."""
    return _FILE_SCHEME.sub("", uri)


def parse_store_scheme(path: str) -> str:
    """Return the scheme of a path, or an empty string for local paths."""
    scheme, separator, _ = strip_file_scheme(path).partition("://")
    return normalize_scheme(scheme) if separator else ""


def normalize_external_uri(key: str, uri: str, root: str) -> str:
    """Return an external path as Java Paimon writes it into manifests, without trailing slash.

    Raises :class:`InputError` for a path without scheme, and :class:`UnsupportedError` for a
    path in a different store from the table, whose directory is ``root``.
    """
    scheme, separator, _ = uri.partition(":")
    scheme = scheme.lower()
    path = strip_file_scheme(uri).rstrip("/")
    if not separator or "/" in scheme or (scheme == "file" and not path.startswith("/")):
        raise InputError(
            f"option {key!r} holds {uri!r}, which must be an absolute path with a scheme, for "
            "example file:/data/t or s3://bucket/t"
        )
    if parse_store_scheme(path) != parse_store_scheme(root):
        raise UnsupportedError(
            f"option {key!r} holds {uri!r}, which is in a different store from the table, {root}; "
            "tables whose files are in several stores are not supported"
        )
    return f"file:{path}" if scheme == "file" else path


@dataclass(frozen=True, slots=True)
class NewFilePath:
    """The path of a new file."""

    path: str
    external: str | None = None
    """The path in metadata, or None if the file is below the table."""


@dataclass(frozen=True, slots=True)
class ExternalPaths:
    """The external paths for new data files, and the strategy that selects one."""

    roots: tuple[str, ...]
    strategy: str
    weights: tuple[int, ...] = ()

    @classmethod
    def of(cls, options: Options, root: str) -> "ExternalPaths | None":
        """Return the external paths of a table's options, or None if files are below ``root``.

        Raises :class:`InputError` for invalid or contradictory options, and
        :class:`UnsupportedError` for paths in a different store from the table.
        """
        strategy = options.get(DATA_FILE_EXTERNAL_PATHS_STRATEGY)
        if strategy not in _STRATEGIES:
            strategies = ", ".join(_STRATEGIES)
            raise InputError(
                f"option {DATA_FILE_EXTERNAL_PATHS_STRATEGY.key!r} = {strategy!r} must be one of "
                f"{strategies}"
            )
        uris = options.get(DATA_FILE_EXTERNAL_PATHS)
        if strategy == _NONE or not uris:
            return None
        if strategy == _SPECIFIC_FS:
            uris = _select_specific_fs(options, uris)
        weights = _parse_weights(options, len(uris)) if strategy == _WEIGHTED else ()
        return cls(
            tuple(normalize_external_uri(DATA_FILE_EXTERNAL_PATHS.key, uri, root) for uri in uris),
            strategy,
            weights,
        )


def _select_specific_fs(options: Options, uris: Sequence[str]) -> tuple[str, ...]:
    scheme = options.get(DATA_FILE_EXTERNAL_PATHS_SPECIFIC_FS) or ""
    selected = tuple(uri for uri in uris if uri.partition(":")[0].lower() == scheme)
    if not selected:
        paths = DATA_FILE_EXTERNAL_PATHS.key
        raise InputError(
            f"option {DATA_FILE_EXTERNAL_PATHS_STRATEGY.key!r} = 'specific-fs' needs "
            f"{DATA_FILE_EXTERNAL_PATHS_SPECIFIC_FS.key!r} to be the scheme of one of the paths "
            f"in {paths!r} = {options.values[paths]!r}; it is {scheme!r}"
        )
    return selected


def _parse_weights(options: Options, paths: int) -> tuple[int, ...]:
    """Return the weights of the paths, or () if the option is not set or there is one path."""
    weights = options.get(DATA_FILE_EXTERNAL_PATHS_WEIGHTS)
    if paths < 2 or not weights:
        return ()
    if len(weights) != paths or not all(w.isdecimal() and int(w) for w in weights):
        key = DATA_FILE_EXTERNAL_PATHS_WEIGHTS.key
        raise InputError(
            f"option {key!r} = {options.values[key]!r} must be {paths} positive whole numbers, one "
            f"for each path of {DATA_FILE_EXTERNAL_PATHS.key!r}"
        )
    return tuple(int(weight) for weight in weights)


@dataclass(slots=True)
class DataFilePathFactory:
    """Chooses the path of each new file of one bucket.

    ``root`` is the table's directory, ``relative`` the path of the bucket below it and below each
    external path.
    """

    root: str
    bucket_path: str
    external: ExternalPaths | None = None
    _position: int = field(default=0)

    def __post_init__(self) -> None:
        if self.external is not None and self.external.strategy != _ENTROPY:
            self._position = random.randrange(len(self.external.roots))  # noqa: S311 - only spreads load

    def place(self, name: str) -> NewFilePath:
        """Return the path for a file of this name."""
        if self.external is None:
            return NewFilePath(f"{self.root}/{self.bucket_path}/{name}")
        below = self.bucket_path
        if self.external.strategy == _ENTROPY:
            below = f"{below}/{compute_entropy_directories(name)}"
        uri = f"{self._next_root(self.external)}/{below}/{name}"
        return NewFilePath(strip_file_scheme(uri), uri)

    def _next_root(self, external: ExternalPaths) -> str:
        if external.weights:
            limits = list(accumulate(external.weights))
            return random.choices(external.roots, cum_weights=limits)[0]  # noqa: S311
        self._position = (self._position + 1) % len(external.roots)
        return external.roots[self._position]


def compute_entropy_directories(name: str) -> str:
    """Return 20 bits of the name's hash as directories of 4, 4, 4 and 8 binary digits."""
    bits = f"{hash_murmur3_32(name.encode()):032b}"[-20:]
    return "/".join((bits[:4], bits[4:8], bits[8:12], bits[12:]))


def hash_murmur3_32(data: bytes) -> int:
    """Return the standard MurmurHash3 (32 bits, seed 0); the murmur3 of buckets differs."""
    state = 0
    words = len(data) // 4 * 4
    for start in range(0, words, 4):
        state ^= _scramble(int.from_bytes(data[start : start + 4], "little"))
        state = (_rotate_left(state, 13) * 5 + 0xE6546B64) & _MASK
    state ^= _scramble(int.from_bytes(data[words:], "little")) ^ len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    return state ^ state >> 16


def _scramble(word: int) -> int:
    return _rotate_left(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
