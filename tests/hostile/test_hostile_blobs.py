"""Descriptors of BLOB values that name other files, or bytes that a file does not have."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.damage import edit_delta
from support.golden import GOLDEN, copy_warehouse
from support.limited_process import refuse, run_limited
from support.tables import rows_of

from paimon_orch import Catalog
from paimon_orch.files.blob import managed_blobs
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.table.table import Table

MARKER = b"CSEDBOLB"
LONG = (1 << 63) - 1
SECRET = b"the rows of another table"


def encode(uri: str | bytes, offset: int = 0, length: int = -1) -> bytes:
    """Return a descriptor of any content."""
    name = uri if isinstance(uri, bytes) else uri.encode()
    numbers = offset.to_bytes(8, "little", signed=True) + length.to_bytes(8, "little", signed=True)
    return b"\2" + MARKER + len(name).to_bytes(4, "little") + name + numbers


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of an attacker, beside the file of another one."""
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "blob", tmp_path / "w")
    victim = warehouse / "db.db" / "other" / "bucket-0" / "secret.managed.blob"
    victim.parent.mkdir(parents=True)
    victim.write_bytes(SECRET)
    (tmp_path / "secret").write_bytes(SECRET)
    return Catalog(str(warehouse)).table("db.t_pk")


def store(table: Table, encoded: bytes) -> None:
    """Replace the descriptors of all rows."""
    bucket = Path(table.paths.root) / "bucket-0"

    def change(entries: list[ManifestEntry]) -> list[ManifestEntry]:
        changed = []
        for entry in entries:
            path = bucket / entry.file.file_name
            rows = pq.read_table(path)
            column = pa.array([encoded] * rows.num_rows, rows.schema.field("data").type)
            index = rows.schema.get_field_index("data")
            path.unlink()
            pq.write_table(rows.set_column(index, rows.schema.field("data"), column), path)
            file = replace(entry.file, file_size=path.stat().st_size)
            changed.append(replace(entry, file=file))
        return changed

    for snapshot in table.stores.snapshots.ids():
        edit_delta(table, snapshot, change)


def pack(table: Table) -> Path:
    """Return a file with values of the table."""
    return min((Path(table.paths.root) / "bucket-0").glob("*.managed.blob"))


def record(value: bytes, checksum: int | None = None) -> bytes:
    """Return the record of a value in a pack."""
    data = bytes.fromhex("cf114e58") + value + (len(value) + 16).to_bytes(8, "little")
    return data + (zlib.crc32(data) if checksum is None else checksum).to_bytes(4, "little")


def forged_pack(table: Table) -> Path:
    path = Path(table.paths.root) / "bucket-0" / "forged.managed.blob"
    path.write_bytes(record(b"value", checksum=1))
    return path


def link_to_secret(table: Table) -> str:
    link = Path(table.paths.root) / "bucket-0" / "link.managed.blob"
    link.symlink_to(Path(table.paths.root).parents[2] / "secret")
    return str(link)


def make_pipe(table: Table) -> str:
    path = Path(table.paths.root) / "bucket-0" / "pipe.managed.blob"
    os.mkfifo(path)
    return str(path)


ATTACKS: dict[str, tuple[Callable[[Table], bytes], str]] = {
    "a file of another table": (
        lambda t: encode(f"{Path(t.paths.root).parent}/other/bucket-0/secret.managed.blob"),
        "",
    ),
    "a file of another table by a URI": (
        lambda t: encode(f"file://{Path(t.paths.root).parent}/other/bucket-0/secret.managed.blob"),
        "",
    ),
    "a way out": (lambda t: encode(f"{t.paths.root}/../other/bucket-0/secret.managed.blob"), ""),
    "a file of the machine": (lambda _: encode("/etc/passwd"), ""),
    "a relative path": (lambda _: encode("../../../secret"), ""),
    "an empty path": (lambda _: encode(""), ""),
    "a zero byte": (lambda t: encode(f"{pack(t)}\0"), ""),
    "another store": (lambda _: encode("s3://bucket/key"), "in a different store"),
    "a server": (lambda _: encode("http://127.0.0.1:9/secret"), "in a different store"),
    "a link": (lambda t: encode(link_to_secret(t)), ""),
    "a pipe": (lambda t: encode(make_pipe(t)), ""),
    "a directory": (lambda t: encode(f"{t.paths.root}/bucket-0"), "is a directory"),
    "a missing file": (lambda t: encode(f"{t.paths.root}/bucket-0/none"), "is missing"),
    "bytes that are no text": (lambda _: encode(b"\xff\xfe"), "cannot be decoded"),
    "a negative offset": (lambda t: encode(str(pack(t)), -9, 3), "names 3 bytes at -9"),
    "a large offset": (lambda t: encode(str(pack(t)), LONG, 3), "but a BLOB descriptor names"),
    "a large length": (lambda t: encode(str(pack(t)), 0, LONG), "but a BLOB descriptor names"),
    "a large end": (lambda t: encode(str(pack(t)), 3, LONG), "but a BLOB descriptor names"),
    "an offset after the end": (lambda t: encode(str(pack(t)), 1 << 20), "names"),
    "a part of a value": (lambda t: encode(str(pack(t)), 5, 9), "does not begin and end as a BLOB"),
    "the head of a pack": (lambda t: encode(str(pack(t)), 0, 9), "names 9 bytes at 0"),
    "the end of a pack": (lambda t: encode(str(pack(t)), 4), "ends within the record"),
    "another value in a pack": (lambda t: encode(str(forged_pack(t)), 4, 5), "wrong checksum"),
    "a short descriptor": (lambda t: encode(str(pack(t)))[:-1], "shorter than it states"),
    "a long name": (lambda _: b"\2" + MARKER + b"\xff\xff\xff\x7f", "shorter than it states"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ATTACKS)
def test_a_descriptor_of_other_bytes_is_refused(name: str, table: Table) -> None:
    build, message = ATTACKS[name]
    store(table, build(table))

    refusal = refuse(lambda: rows_of(table))

    assert message in refusal
    assert SECRET.decode() not in refusal


def test_values_of_many_rows_are_read_in_parts(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed_blobs, "_BATCH_BYTES", 1 << 20)
    large = Path(table.paths.root) / "bucket-0" / "large.managed.blob"
    large.write_bytes(record(bytes(1 << 20)))
    store(table, encode(str(large), 4, 1 << 20))

    def read() -> list[tuple[int, int]]:
        return [(batch.num_rows, batch.nbytes) for batch in table.scan(["data"]).to_batches()]

    batches = run_limited(read)
    assert isinstance(batches, list)
    assert len(batches) > 1
    assert max(rows for rows, _ in batches) == 1
