"""The result that a writing task sends to the committer: manifest and index entries."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.file_index_reader import sibling_path
from paimon_orch.files.uncommitted_files import delete_unused_files
from paimon_orch.format.deletion_vector import DeletionVector, decode_deletion_vector_payload
from paimon_orch.format.manifest.columnar_manifest import open_manifest
from paimon_orch.format.manifest.index_manifest import (
    IndexManifestEntry,
    decode_index_manifest,
    encode_index_manifest,
)
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry, encode_manifest
from paimon_orch.format.manifest.manifest_format import ManifestEncoding

_UNCOMPRESSED = ManifestEncoding(codec="null")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMessage:
    """The data files that a task added and deleted, and its new index and changelog files."""

    entries: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()

    new_deletion_vectors: Mapping[str, DeletionVector] = field(default_factory=dict)
    """New deletion vectors by data file; the committer writes them to an index file."""

    refusal: str | None = None
    """Why the entries cannot be committed; if set, the written files must be deleted."""

    def encode(self) -> bytes:
        """Encode the message as JSON with Avro containers.

        If unknown metadata fields cannot be copied to other files, encodes a refusal instead.
        """
        try:
            parts = self._encode_entries()
        except UnsupportedError as error:
            return self._without_additional_fields(str(error)).encode()
        message = {key: b64encode(part).decode() for key, part in parts.items()}
        deletion_vectors = {
            name: b64encode(vector.encode_payload(bitmap64=True)).decode()
            for name, vector in self.new_deletion_vectors.items()
        }
        fields = {"new_deletion_vectors": deletion_vectors, "refusal": self.refusal}
        return json.dumps(message | fields).encode()

    def _encode_entries(self) -> dict[str, bytes]:
        return {
            "entries": encode_manifest(self.entries, _UNCOMPRESSED),
            "index": encode_index_manifest(self.index, _UNCOMPRESSED),
            "changelog": encode_manifest(self.changelog, _UNCOMPRESSED),
        }

    def _without_additional_fields(self, refusal: str) -> "CommitMessage":
        def plain(entry: ManifestEntry) -> ManifestEntry:
            return replace(entry, file=replace(entry.file, additional=None))

        index = tuple(replace(item, ranges=None, additional=None) for item in self.index)
        entries, changelog = tuple(map(plain, self.entries)), tuple(map(plain, self.changelog))
        return CommitMessage(
            entries=entries,
            index=index,
            changelog=changelog,
            new_deletion_vectors=self.new_deletion_vectors,
            refusal=refusal,
        )

    @classmethod
    def decode(cls, data: bytes) -> "CommitMessage":
        """Decode the result of :meth:`encode`."""
        message, name = json.loads(data), "a task's result"
        deletion_vectors = message.pop("new_deletion_vectors")
        refusal = message.pop("refusal")
        parts = {key: b64decode(part) for key, part in message.items()}
        return cls(
            entries=tuple(open_manifest(parts["entries"], name).entries()),
            index=tuple(decode_index_manifest(parts["index"], name)),
            changelog=tuple(open_manifest(parts["changelog"], name).entries()),
            new_deletion_vectors={
                file: decode_deletion_vector_payload(b64decode(vector), name)
                for file, vector in deletion_vectors.items()
            },
            refusal=refusal,
        )

    @property
    def added(self) -> list[ManifestEntry]:
        """Return the entries that add files."""
        return [entry for entry in self.entries if entry.kind is FileKind.ADD]

    @property
    def deleted(self) -> list[ManifestEntry]:
        """Return the entries that delete files."""
        return [entry for entry in self.entries if entry.kind is FileKind.DELETE]

    @property
    def replaced_file_names(self) -> set[str]:
        """Return the names of deleted files, without files that moved to another level."""
        deleted = {entry.file.file_name for entry in self.deleted}
        return deleted - {entry.file.file_name for entry in self.added}


def combine_messages(messages: Iterable[CommitMessage]) -> CommitMessage:
    """Combine the messages of all tasks of a write into one message."""
    messages = list(messages)
    return CommitMessage(
        entries=tuple(entry for message in messages for entry in message.entries),
        index=tuple(entry for message in messages for entry in message.index),
        changelog=tuple(entry for message in messages for entry in message.changelog),
    )


def discard_written_files(reader: FileReader, messages: Iterable[CommitMessage]) -> None:
    """Delete the files that tasks wrote for a commit that certainly failed.

    Keeps files that were only moved to another level or whose index was replaced. A file that cannot
    be deleted is left to the orphan cleanup: the error of the commit matters more.
    """
    paths = list[str]()
    for message in messages:
        existing = {entry.file.file_name: entry.file.extra_files for entry in message.deleted}
        for entry in (*message.added, *message.changelog):
            path = reader.path(BucketFile(entry.partition, entry.bucket, entry.file))
            if entry.file.file_name not in existing:
                paths.append(path)
            for name in set(entry.file.extra_files).difference(
                existing.get(entry.file.file_name, ())
            ):
                paths.append(sibling_path(path, name))
        for item in message.index:
            if item.kind is FileKind.ADD:
                paths.append(reader.paths.index_file(reader.schema, item))
    delete_unused_files(reader.io, paths)
