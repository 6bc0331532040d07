"""What a task hands back to the committer: manifest and index entries, as bytes (no pickled objects)."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.file_index_reader import sibling_path
from paimon_orch.format.deletion_vector import DeletionVector, decode_deletion_vector_payload
from paimon_orch.format.manifest.columnar_manifest import open_manifest
from paimon_orch.format.manifest.index_manifest import (
    IndexManifestEntry,
    decode_index_manifest,
    encode_index_manifest,
)
from paimon_orch.format.manifest.manifest_entry import (
    FileKind,
    ManifestEntry,
    encode_manifest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMessage:
    """Files that a task added and deleted, the index files and the changelog files it wrote.

    ``marks`` are rows to hide, by data file, that are in no index file yet: the committer has to write one.
    ``refusal`` says why the entries cannot be committed; what the task wrote has to be removed then.
    """

    entries: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    marks: Mapping[str, DeletionVector] = field(default_factory=dict)
    refusal: str | None = None

    def encode(self) -> bytes:
        """Return the message as JSON around Avro containers.

        Metadata fields that cannot be carried over into other files make it a refusal.
        """
        try:
            parts = self._encode_entries()
        except UnsupportedError as error:
            return self._without_additional_fields(str(error)).encode()
        text = {key: b64encode(part).decode() for key, part in parts.items()}
        marks = {
            name: b64encode(vector.encode_payload(bitmap64=True)).decode()
            for name, vector in self.marks.items()
        }
        return json.dumps(text | {"marks": marks, "refusal": self.refusal}).encode()

    def _encode_entries(self) -> dict[str, bytes]:
        return {
            "entries": encode_manifest(self.entries, "null"),
            "index": encode_index_manifest(self.index, "null"),
            "changelog": encode_manifest(self.changelog, "null"),
        }

    def _without_additional_fields(self, refusal: str) -> "CommitMessage":
        def plain(entry: ManifestEntry) -> ManifestEntry:
            return replace(entry, file=replace(entry.file, additional=None))

        index = tuple(replace(item, ranges=None, additional=None) for item in self.index)
        entries, changelog = tuple(map(plain, self.entries)), tuple(map(plain, self.changelog))
        return CommitMessage(
            entries=entries, index=index, changelog=changelog, marks=self.marks, refusal=refusal
        )

    @classmethod
    def decode(cls, data: bytes) -> "CommitMessage":
        """Undo :meth:`encode`."""
        found, name = json.loads(data), "a task's result"
        marks, refusal = found.pop("marks"), found.pop("refusal")
        parts = {key: b64decode(part) for key, part in found.items()}
        return cls(
            entries=tuple(open_manifest(parts["entries"], name).entries()),
            index=tuple(decode_index_manifest(parts["index"], name)),
            changelog=tuple(open_manifest(parts["changelog"], name).entries()),
            marks={
                file: decode_deletion_vector_payload(b64decode(vector), name)
                for file, vector in marks.items()
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
        """Return the names of files that are gone: a file that was only moved to another level is not."""
        gone = {entry.file.file_name for entry in self.deleted}
        return gone - {entry.file.file_name for entry in self.added}


def combine_messages(messages: Iterable[CommitMessage]) -> CommitMessage:
    """Return the files of all tasks of a write as one message."""
    messages = list(messages)
    return CommitMessage(
        entries=tuple(entry for message in messages for entry in message.entries),
        index=tuple(entry for message in messages for entry in message.index),
        changelog=tuple(entry for message in messages for entry in message.changelog),
    )


def discard_written_files(reader: FileReader, messages: Iterable[CommitMessage]) -> None:
    """Remove what tasks wrote for a commit that is proven not to have happened.

    A file that was only moved to another level, or got another index, is no new file and stays.
    """
    for message in messages:
        kept = {entry.file.file_name: entry.file.extra_files for entry in message.deleted}
        for entry in (*message.added, *message.changelog):
            path = reader.path(BucketFile(entry.partition, entry.bucket, entry.file))
            if entry.file.file_name not in kept:
                reader.io.delete(path)
            for name in set(entry.file.extra_files).difference(kept.get(entry.file.file_name, ())):
                reader.io.delete(sibling_path(path, name))
        for item in message.index:
            if item.kind is FileKind.ADD:
                path = reader.paths.index_file(
                    reader.schema,
                    item.partition,
                    bucket=item.bucket,
                    name=item.file_name,
                    external=item.external_path,
                )
                reader.io.delete(path)
