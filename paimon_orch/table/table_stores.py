"""The internal API of a table for steps and writers: stores, readers, writers and commits."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from paimon_orch.errors import PaimonError, StorageError, UnsupportedError, is_temporary
from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES, BatchSizes
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.format.options.core_options import PARTITION_END_INPUT_TO_DONE
from paimon_orch.format.options.table_option import EVERY_CHANGE, StepKind
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.storage import FileIO
from paimon_orch.table.blob_gate import require_blob_support
from paimon_orch.table.catalog_environment import NO_CATALOG, CatalogEnvironment
from paimon_orch.table.chain.chain_branches import ChainBranches, find_chain_branches
from paimon_orch.table.iceberg.iceberg_settings import build_iceberg_settings, is_iceberg_enabled
from paimon_orch.table.metadata.branches import Branches
from paimon_orch.table.metadata.consumers import ConsumerStore
from paimon_orch.table.metadata.held_metadata import HeldManifestReader, HeldSnapshotStore
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import LATEST, LatestHint, SnapshotStore
from paimon_orch.table.metadata.tags import Tags
from paimon_orch.table.partition_directories import open_paths
from paimon_orch.table.permissions import find_directory_requests, find_iceberg_requests
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.scan_planner import ScanPlanner
from paimon_orch.table.step_gate import list_stale_options, require_step
from paimon_orch.table.table_label import TableLabel

if TYPE_CHECKING:  # imported on first use, because commands that read metadata need few of them
    from paimon_orch.files.data_file_reader import FileReader
    from paimon_orch.files.data_file_writer import FileWriterFactory
    from paimon_orch.table.catalog_reports import CatalogReports
    from paimon_orch.table.commit.commit import CommitRules, TableCommit
    from paimon_orch.table.commit.commit_changes import PartitionFilter
    from paimon_orch.table.commit.commit_id import CommitId
    from paimon_orch.table.iceberg.publish import IcebergPublisher
    from paimon_orch.table.partition_marks import PartitionMarker

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TableStores:
    """Access to the metadata and files of one table or branch, from :attr:`Table.stores`.

    Its methods read the current state each time. A step calls :meth:`Table.load` once instead.
    """

    identifier: str
    io: FileIO
    paths: TablePaths
    allowances: Allowances = NO_ALLOWANCES
    _: KW_ONLY
    batch_sizes: BatchSizes = DEFAULT_BATCH_SIZES
    environment: CatalogEnvironment = NO_CATALOG
    hint: LatestHint = field(default_factory=LatestHint, repr=False, compare=False)
    schemas: SchemaStore = field(init=False)
    snapshots: SnapshotStore = field(init=False)
    """The snapshots, tag files and hints."""
    manifests: ManifestReader = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", open_paths(self.io, self.paths.root, self.paths.branch))
        snapshots = SnapshotStore(self.io, self.paths, self.environment.snapshots)
        object.__setattr__(self, "schemas", SchemaStore(self.io, self.paths))
        object.__setattr__(self, "snapshots", snapshots)
        object.__setattr__(self, "manifests", ManifestReader(self.io, self.paths, is_cached=True))

    def hold(self, latest_hint: int | None = None) -> Self:
        """Return a copy for one examination, which reads each metadata file once.

        It by-passes the cache of the process. ``latest_hint`` is the content of LATEST, if it was
        just read.
        """
        stores = replace(self)
        snapshots = HeldSnapshotStore(
            self.io,
            self.paths,
            self.environment.snapshots,
            _held={} if latest_hint is None else {LATEST: latest_hint},
        )
        object.__setattr__(stores, "snapshots", snapshots)
        object.__setattr__(stores, "manifests", HeldManifestReader(self.io, self.paths))
        return stores

    def get_schema(self) -> TableSchema:
        """Read the newest schema; a :class:`TableState` returns the schema that it has read."""
        return self.schemas.latest()

    def get_snapshot(self) -> Snapshot | None:
        """Read the newest snapshot, as :meth:`get_schema` does; None if there is none."""
        return self.snapshots.latest()

    @property
    def label(self) -> TableLabel:
        """Return how messages name the table."""
        warehouse = self.paths.root.rsplit("/", 2)[0]
        return TableLabel(self.identifier, self.environment.command_argument or warehouse)

    @property
    def file_roots(self) -> tuple[str, ...]:
        """Return the directories of the table's files: its own, and those that are allowed."""
        return self.io.roots or (self.paths.root,)

    def check_step(self, step: StepKind, schema: TableSchema | None = None) -> None:
        """Refuse a step that the options of ``schema`` (default: the newest) forbid.

        Raises :class:`UnsupportedError` with the names of these options. Logs a warning for each
        option that the table's allowances permit.
        """
        schema = schema or self.get_schema()
        require_step(
            self.identifier,
            schema.options,
            step,
            self.allowances,
            has_service=self.environment.is_service,
        )
        require_blob_support(self.identifier, schema, step)
        permissions = self.environment.permissions
        if step & EVERY_CHANGE:
            permissions.check(self.identifier, find_directory_requests(schema))
        if step & StepKind.WRITE_ROWS and not self.allowances.stale_external:
            self._check_can_mark(schema)
        is_checked = step & EVERY_CHANGE and not self.allowances.stale_external
        if is_checked and is_iceberg_enabled(schema):
            from paimon_orch.table.iceberg.publishable import check_publishable

            permissions.check(self.identifier, find_iceberg_requests(schema))
            check_publishable(self.identifier, schema, self.paths)

    def owns_directory(self, path: str) -> bool:
        """Return whether the operator allows an external directory to this table only."""
        return self.environment.permissions.owns(self.identifier, path)

    def list_stale_options(self) -> list[str]:
        """Return the options, as ``key=value``, whose external systems a step leaves stale."""
        return list_stale_options(
            self.get_schema().options,
            EVERY_CHANGE,
            self.allowances,
            has_service=self.environment.is_service,
        )

    def _check_can_mark(self, schema: TableSchema) -> None:
        """Refuse writes that must mark partitions as done by an action that cannot be executed."""
        if not _marks_after_write(schema):
            return
        try:
            self._build_marker(schema).check()
        except UnsupportedError as error:
            raise UnsupportedError(
                f"{error} Each write marks its partitions, because the option "
                f"{PARTITION_END_INPUT_TO_DONE.key!r} is true; to write without marks, allow a "
                "stale external system: --allow-stale-external, in Python "
                "Table.allow(stale_external=True), in Dagster allow_stale_external: true. Nothing "
                "was changed."
            ) from error

    def _build_marker(self, schema: TableSchema) -> "PartitionMarker":
        from paimon_orch.table.partition_marks import PartitionMarker

        return PartitionMarker(
            identifier=self.identifier,
            environment=self.environment,
            schema=schema,
            io=self.io,
            paths=self.paths,
        )

    def build_marker(self) -> "PartitionMarker":
        """Return the actions that mark partitions as done."""
        return self._build_marker(self.get_schema())

    def build_catalog_reports(self) -> "CatalogReports":
        """Return the reports of partitions and tags to the catalog."""
        from paimon_orch.table.catalog_reports import CatalogReports

        return CatalogReports(
            identifier=self.identifier,
            environment=self.environment,
            schema=self.get_schema(),
            snapshots=self.snapshots,
            manifests=self.manifests,
        )

    def get_branch_snapshots(self, branch: str) -> SnapshotStore:
        """Return the store of the snapshots of another branch."""
        catalog = self.environment.snapshots
        return SnapshotStore(
            self.io,
            TablePaths(self.paths.root, branch),
            None if catalog is None else catalog.of_branch(branch),
        )

    def of_branch(self, branch: str) -> "TableStores":
        """Return the stores of another branch."""
        snapshots = self.environment.snapshots
        if snapshots is not None:
            snapshots = snapshots.of_branch(branch)
        name = self.identifier.partition("$branch_")[0]
        return TableStores(  # not a copy: a state and a hint belong to one branch
            f"{name}$branch_{branch}",
            self.io,
            TablePaths(self.paths.root, branch),
            self.allowances,
            batch_sizes=self.batch_sizes,
            environment=replace(self.environment, snapshots=snapshots),
        )

    @property
    def tags(self) -> Tags:
        """Return the tags; changing them requires that the options allow it."""
        return Tags(
            self.snapshots,
            check=partial(self.check_step, StepKind.TAG),
            on_change=self.report_tags,
        )

    @property
    def branches(self) -> Branches:
        """Return the branches; changing them requires that the options allow it."""
        return Branches(
            self.io,
            self.paths.root,
            check=partial(self.check_step, StepKind.METADATA),
            on_change=self.publish_iceberg_metadata,
            catalog=self.environment.branches,
        )

    def open_consumers(self) -> ConsumerStore:
        """Return the consumers of the branch."""
        return ConsumerStore(
            self.io,
            self.paths,
            self.get_schema().typed_options,
            check=partial(self.check_step, StepKind.METADATA),
        )

    def files(
        self, snapshot: Snapshot | None = None, schema: TableSchema | None = None
    ) -> list[BucketSplit]:
        """Return all live files of a snapshot by bucket, level 0 included.

        The defaults are the newest snapshot and schema.
        """
        planner = ScanPlanner(self.manifests, schema or self.get_schema())
        return planner.splits(snapshot or self.get_snapshot())

    def reader(self, schemas: Mapping[int, TableSchema] | None = None) -> "FileReader":
        """Return a reader of data files that converts rows to the newest schema.

        ``schemas`` are those of the files, if the caller has read them.
        """
        from paimon_orch.files.data_file_reader import FileReader

        return FileReader(
            self.io,
            self.paths,
            self.get_schema(),
            self.schemas if schemas is None else schemas,
            batch_sizes=self.batch_sizes,
        )

    def build_writer_factory(self, snapshot: Snapshot | None = None) -> "FileWriterFactory":
        """Return a factory of data file writers for the newest schema.

        The files of a snapshot (default: the newest) decide the version of bitmap indexes.
        """
        from paimon_orch.files.data_file_writer import FileWriterFactory
        from paimon_orch.table.metadata.bitmap_index_version import choose_bitmap_version

        latest = snapshot or self.get_snapshot()
        reader = self.reader()
        version = choose_bitmap_version(self.manifests, reader, latest)
        return FileWriterFactory(
            self.io, self.paths, reader.schema, version, batch_sizes=self.batch_sizes
        )

    def new_commit(self, step: StepKind, user: str | None = None) -> "TableCommit":
        """Return a commit for one run of ``step``; creates a commit user unless it is given."""
        from paimon_orch.table.commit.commit import TableCommit
        from paimon_orch.table.commit.commit_id import create_commit_user

        schema = self.get_schema()
        return TableCommit(
            options=schema.typed_options,
            schemas=self.schemas,
            snapshots=self.snapshots,
            manifests=self.manifests,
            user=user or create_commit_user(schema),
            environment=self.environment,
            rules=self._build_commit_rules(schema),
            check=partial(self.check_step, step),
            on_commit=partial(self.report_commit, step),
        )

    def _build_commit_rules(self, schema: TableSchema) -> "CommitRules | None":
        branches = ChainBranches.of(schema)
        if branches is None or find_chain_branches(schema, self.paths.branch) is not None:
            return None
        from paimon_orch.table.chain.chain_commit import ChainCommitRules

        return ChainCommitRules(self, branches)

    def report_commit(self, step: StepKind, snapshot: Snapshot) -> None:
        """Report a commit of ``step`` to external systems; may be repeated.

        Failures are warnings, because the snapshot exists.
        """
        has_catalog = self.environment.partitions is not None
        if has_catalog:
            self.build_catalog_reports().report_commit(snapshot)
        self.publish_iceberg_metadata()
        if has_catalog:
            self.build_catalog_reports().report_statistics(snapshot)
        if step & StepKind.WRITE_ROWS:
            self._mark_written_partitions(snapshot)

    def _mark_written_partitions(self, snapshot: Snapshot) -> None:
        """Mark the partitions that got new files, if ``partition.end-input-to-done`` is true."""
        schema = self.get_schema()
        if not _marks_after_write(schema):
            return
        try:
            added = self.build_catalog_reports().read_added_partitions(snapshot)
            self._build_marker(schema).mark(added)
        except Exception as error:  # noqa: BLE001 - the snapshot exists, so the commit succeeded
            logger.warning(
                "%s: the partitions of snapshot %d are not all marked as done: %s. To mark them, "
                "run mark-done.",
                self.identifier,
                snapshot.id,
                error,
            )

    def report_tags(self, created: str | None = None, deleted: str | None = None) -> None:
        """Report a change of tags to external systems; failures are warnings."""
        if created is not None and self.environment.partitions is not None:
            self.build_catalog_reports().report_new_tag(created)
        if deleted is not None:
            self.report_deleted_tags([deleted])
        self.publish_iceberg_metadata()

    def report_deleted_tags(self, names: Iterable[str]) -> None:
        """Report the deletion of tags to the catalog; failures are warnings."""
        if self.environment.partitions is not None:
            for name in names:
                self.build_catalog_reports().report_deleted_tag(name)

    def drop_partitions(
        self,
        step: StepKind,
        matches: "PartitionFilter",
        partitions: Iterable[Mapping[str, str]],
        *,
        has_rows: bool = True,
        commit_id: "CommitId | None" = None,
    ) -> Snapshot | None:
        """Drop partitions from the catalog, then delete their rows in one snapshot.

        ``partitions`` are the names of those that ``matches`` selects. Without ``has_rows``, only
        the catalog changes. If the commit fails, the catalog lists the partitions again.
        """
        from paimon_orch.table.commit.commit_changes import CommitChanges

        names = list(partitions)
        undo = self.build_catalog_reports().drop_partitions(names) if names else lambda: None
        if not has_rows:
            return None
        commit = self.new_commit(step, None if commit_id is None else commit_id.user)
        changes = CommitChanges(kind=CommitKind.OVERWRITE, overwrite=matches)
        if commit_id is not None:
            changes = replace(changes, identifier=commit_id.identifier)
        try:
            return commit.commit(changes)
        except BaseException:
            if commit.created is None:
                undo()
            raise

    @property
    def iceberg(self) -> "IcebergPublisher":
        """Return the publisher of the Iceberg metadata."""
        from paimon_orch.table.iceberg.publish import IcebergPublisher

        return IcebergPublisher(
            identifier=self.identifier,
            schemas=self.schemas,
            snapshots=self.snapshots,
            manifests=self.manifests,
            permissions=self.environment.permissions,
        )

    def publish_iceberg_metadata(self) -> None:
        """Publish the newest snapshot as Iceberg metadata; log a warning if that fails.

        The next commit, or the step ``sync-iceberg``, tries again.
        """
        try:
            self._publish_if_enabled()
        except Exception as error:  # noqa: BLE001 - the snapshot exists, so the commit succeeded
            logger.warning(
                "%s: the Iceberg metadata is stale, because it cannot be written: %s. The next "
                "commit tries again, as does sync-iceberg.",
                self.identifier,
                error,
            )

    def _publish_if_enabled(self) -> None:
        """Publish the newest snapshot; the modules are imported only for tables that need them."""
        if build_iceberg_settings(self.get_schema(), self.paths) is not None:
            self.iceberg.publish()

    def prepare_deletion(self) -> None:
        """Check the newest snapshot and publish it as Iceberg metadata, before files are deleted.

        Raises the errors of :meth:`publish_before_deletion`, and :class:`UnsupportedError` if the
        newest snapshot of a catalog has no file.
        """
        self.snapshots.require_latest_file()
        self.publish_before_deletion()

    def publish_before_deletion(self) -> None:
        """Publish the newest snapshot as Iceberg metadata, if the table has it.

        The published metadata then names no file of snapshots that are being deleted. Raises
        :class:`StorageError` after a temporary error of the store or catalog, and
        :class:`UnsupportedError` if it cannot be written, unless stale metadata is allowed.
        """
        if self.allowances.stale_external:
            self.publish_iceberg_metadata()
            return
        try:
            self._publish_if_enabled()
        except (PaimonError, OSError) as error:
            if is_temporary(error):
                raise StorageError(
                    f"{self.identifier}: no file was deleted, because the Iceberg metadata cannot "
                    f"be brought up to date now ({error}). Try again."
                ) from error
            raise UnsupportedError(
                f"{self.identifier}: no file was deleted, because Iceberg readers may still need "
                f"the files: the Iceberg metadata cannot be brought up to date ({error}). Run "
                "sync-iceberg when this is fixed, or accept that Iceberg readers fail: "
                "--allow-stale-external, in Python Table.allow(stale_external=True), in Dagster "
                "allow_stale_external: true."
            ) from error


def _marks_after_write(schema: TableSchema) -> bool:
    """Return whether each write marks its partitions as done."""
    return bool(schema.partition_keys) and schema.typed_options.get(PARTITION_END_INPUT_TO_DONE)
