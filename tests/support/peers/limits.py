"""Known limits of the implementations; each run of the tests verifies that they still apply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

PeerAction = Literal["reads", "writes", "checks"]


@dataclass(frozen=True)
class PeerLimit:
    """The reason of a limit, and the pattern of its error."""

    reason: str
    words: str


LimitEntries = Iterator[tuple[str, PeerAction, PeerLimit, list[str]]]

_BITMAP64 = ["append, 64-bit deletion vectors", "primary key, 64-bit deletion vectors"]
_APPEND_DELETED = [
    "append, 32-bit deletion vectors",
    "append, fixed buckets, 32-bit deletion vectors",
    "append, 64-bit deletion vectors",
]
_ORC = ["append, ORC files", "primary key, ORC files", "primary key, ORC, 32-bit deletion vectors"]
_MANIFESTS = ["append, ORC manifests"]
_TRACKED = ["append, row tracking"]
_DELETED = ["primary key, rows deleted"]
_THIN = ["primary key, thin files"]
_BUCKETS = [
    "append, buckets by mod",
    "primary key, buckets by mod",
    "primary key, buckets by hive",
]
_LEVELS = ["primary key, a format per level"]
_GROUPS = ["partial-update, sequence group"]


def _pypaimon_limits() -> LimitEntries:
    magic = PeerLimit("does not support 64-bit deletion vectors", "Invalid magic number")
    yield "pypaimon", "reads", magic, _BITMAP64
    groups = PeerLimit("does not support sequence groups", "sequence-group")
    yield "pypaimon", "reads", groups, _GROUPS
    yield "pypaimon", "writes", groups, _GROUPS
    rows = PeerLimit("deletes rows of append tables by row id only", "cannot delete")
    yield "pypaimon", "writes", rows, _APPEND_DELETED
    field = PeerLimit("deletes by key through the option rowkind.field only", "cannot delete")
    yield "pypaimon", "writes", field, _DELETED
    manifests = PeerLimit("ignores manifest.format and writes Avro", "ORC manifests")
    yield "pypaimon", "writes", manifests, _MANIFESTS
    avro = PeerLimit("reads manifests in Avro only", "avro.schema")
    yield "pypaimon", "reads", avro, _MANIFESTS
    yield "pypaimon", "writes", PeerLimit("ignores data-file.thin-mode", "no key columns"), _THIN
    level = PeerLimit("ignores file.format.per.level", "avro files")
    yield "pypaimon", "writes", level, _LEVELS
    hashed = PeerLimit("ignores bucket-function.type", "in a different bucket")
    yield "pypaimon", "writes", hashed, _BUCKETS


def _rust_limits() -> LimitEntries:
    manifests = PeerLimit("ignores manifest.format and writes Avro", "ORC manifests")
    yield "pypaimon-rust", "writes", manifests, _MANIFESTS
    avro = PeerLimit("reads manifests in Avro only", "invalid magic bytes")
    yield "pypaimon-rust", "reads", avro, _MANIFESTS
    level = PeerLimit("ignores file.format.per.level", "avro files")
    yield "pypaimon-rust", "writes", level, _LEVELS
    plain = PeerLimit("writes only uncompressed ORC, and zstd is the default", "ORC compression")
    yield "pypaimon-rust", "writes", plain, _ORC
    copies = PeerLimit(
        "writes no deletion vectors, but files without the deleted rows", "-bit deletion vectors"
    )
    yield "pypaimon-rust", "writes", copies, _APPEND_DELETED
    field = PeerLimit("deletes by key through the option rowkind.field only", "not yet supported")
    yield "pypaimon-rust", "writes", field, _DELETED
    yield (
        "pypaimon-rust",
        "writes",
        PeerLimit("does not create branches", "create_branch"),
        ["a branch"],
    )


def _java_limits() -> LimitEntries:
    size = PeerLimit("does not support 64-bit deletion vectors", "Size not match")
    columns = PeerLimit("needs the key columns twice in each file", "_KEY_k")
    for does in ("reads", "checks"):
        yield "java-0.9", does, size, _BITMAP64
        yield "java-0.9", does, columns, _THIN
    hashed = PeerLimit("ignores bucket-function.type", "bucket")
    yield "java-0.9", "writes", hashed, _BUCKETS
    yield "java-0.9", "checks", hashed, _BUCKETS
    yield (
        "java-0.9",
        "writes",
        PeerLimit("writes 32-bit deletion vectors", "64-bit deletion vectors"),
        _BITMAP64,
    )
    yield "java-0.9", "writes", PeerLimit("ignores data-file.thin-mode", "no key columns"), _THIN
    yield "java-0.9", "writes", PeerLimit("ignores row-tracking.enabled", "row ids"), _TRACKED


LIMITS = {
    (who, does, kind): limit
    for listed in (_pypaimon_limits(), _rust_limits(), _java_limits())
    for who, does, limit, kinds in listed
    for kind in kinds
}
