"""What a task hands back to the committer: manifest and index entries, as bytes (no pickled objects)."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass

from paimon_orch.files.reader import BucketFile, FileReader
from paimon_orch.format.index_manifest import (
    IndexManifestEntry,
    decode_index_manifest,
    encode_index_manifest,
)
from paimon_orch.format.manifest import (
    FileKind,
    ManifestEntry,
    decode_manifest,
    encode_manifest,
)


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """Files that a task added and deleted, the index files and the changelog files it wrote."""

    entries: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()

    def encode(self) -> bytes:
        """Return the message as JSON around Avro containers."""
        parts = {
            "entries": encode_manifest(self.entries, "null"),
            "index": encode_index_manifest(self.index, "null"),
            "changelog": encode_manifest(self.changelog, "null"),
        }
        return json.dumps({key: b64encode(part).decode() for key, part in parts.items()}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "CommitMessage":
        """Undo :meth:`encode`."""
        parts = {key: b64decode(part) for key, part in json.loads(data).items()}
        return cls(
            tuple(decode_manifest(parts["entries"], "a task's result")),
            tuple(decode_index_manifest(parts["index"], "a task's result")),
            tuple(decode_manifest(parts["changelog"], "a task's result")),
        )

    @property
    def added(self) -> list[ManifestEntry]:
        """Return the entries that add files."""
        return [entry for entry in self.entries if entry.kind is FileKind.ADD]

    @property
    def deleted(self) -> list[ManifestEntry]:
        """Return the entries that delete files."""
        return [entry for entry in self.entries if entry.kind is FileKind.DELETE]


def discard(reader: FileReader, messages: Iterable[CommitMessage]) -> None:
    """Remove what tasks wrote for a commit that is proven not to have happened.

    A file that was only moved to another level is no new file and stays.
    """
    for message in messages:
        kept = {entry.file.file_name for entry in message.deleted}
        for entry in (*message.added, *message.changelog):
            if entry.file.file_name not in kept:
                path = reader.path(BucketFile(entry.partition, entry.bucket, entry.file))
                reader.io.delete(path)
        for item in message.index:
            if item.kind is FileKind.ADD:
                path = reader.paths.index_file(
                    reader.schema, item.partition, item.bucket, item.file_name, item.external_path
                )
                reader.io.delete(path)
