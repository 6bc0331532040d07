"""The work units of compactions of append tables."""

from contextlib import ExitStack
from dataclasses import dataclass

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, FileSource
from paimon_orch.merge.compact.append_deletion_vectors import DeletionVectorRewrite
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.merge.sort.cluster_order import ClusterOrder
from paimon_orch.merge.tree.append_compact_strategy import FileGroup
from paimon_orch.steps.common.copy_rows import copy_rows
from paimon_orch.steps.common.sort_rows import sort_rows
from paimon_orch.steps.compaction.plan import CompactionUnit
from paimon_orch.table.write.commit_message import CommitMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendCompactionUnit(CompactionUnit):
    """Groups of files of one bucket; rewrites each group to new files."""

    groups: tuple[FileGroup, ...]
    vectors: tuple[IndexManifestEntry, ...]
    """The index files that the compaction may have to rewrite."""
    live_names: frozenset[str]
    """The names of live files whose deletion vectors are in these index files."""

    @property
    def inputs(self) -> tuple[DataFileMeta, ...]:
        """Return the files of all groups."""
        return tuple(file for group in self.groups for file in group)

    def run(self, reader: FileReader) -> bytes:
        """Rewrite the groups and return an encoded :class:`CommitMessage`; may run repeatedly.

        The message has only the new files, because the committer has the plan with the others.
        """
        index = DeletionVectorRewrite(
            reader=reader,
            partition=self.partition,
            bucket=self.bucket,
            index_files=self.vectors,
            live=self.live_names,
        )
        with index, ExitStack() as written:
            added = self._copy_groups(reader, written)
            index_entries = index.run(drop={file.file_name for file in self.inputs})
        entries = self.build_entries(FileKind.ADD, added)
        return CommitMessage(entries=entries, index=tuple(index_entries)).encode()

    def _copy_groups(self, reader: FileReader, written: ExitStack) -> list[DataFileMeta]:
        vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, self.vectors)
        return [
            file
            for group in self.groups
            for file in copy_rows(
                reader,
                self.partition_bucket,
                group,
                deletions=vectors,
                source=FileSource.COMPACT,
                written=written,
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringUnit(AppendCompactionUnit):
    """Sorted runs of one bucket; sorts their rows and writes them to one level.

    See docs/format/sort-compaction.md#incremental-clustering.
    """

    level: int
    """The level of the new files."""
    order: ClusterOrder

    @property
    def output_level(self) -> int:
        """Return the level of the new files."""
        return self.level

    def _copy_groups(self, reader: FileReader, written: ExitStack) -> list[DataFileMeta]:
        return sort_rows(
            reader,
            self.partition_bucket,
            self.inputs,
            order=self.order,
            level=self.level,
            deletions=read_deletion_vectors(reader.io, reader.paths, reader.schema, self.vectors),
            written=written,
        )
