"""The internal API of a table for steps and writers: stores, readers, writers and commits."""

import logging
from dataclasses import KW_ONLY, dataclass
from functools import partial

from paimon_orch.errors import PaimonError, UnsupportedError
from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES, BatchSizes
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.format.options.table_option import EVERY_CHANGE, StepKind
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage import FileIO
from paimon_orch.table.catalog_environment import NO_CATALOG, CatalogEnvironment
from paimon_orch.table.commit.commit import TableCommit, create_commit_user
from paimon_orch.table.iceberg.publish import IcebergPublisher
from paimon_orch.table.iceberg.publishable import check_publishable
from paimon_orch.table.metadata.bitmap_index_version import choose_bitmap_version
from paimon_orch.table.metadata.branches import Branches
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.metadata.tags import Tags
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.scan_planner import ScanPlanner
from paimon_orch.table.step_gate import require_step
from paimon_orch.table.table_label import TableLabel

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableStores:
    """Access to the metadata and files of one table or branch, from :attr:`Table.stores`.

    Holds no open files and no data; each property reads the current state.
    """

    identifier: str
    io: FileIO
    paths: TablePaths
    allowances: Allowances = NO_ALLOWANCES
    _: KW_ONLY
    batch_sizes: BatchSizes = DEFAULT_BATCH_SIZES
    environment: CatalogEnvironment = NO_CATALOG

    @property
    def label(self) -> TableLabel:
        """Return how messages name the table."""
        warehouse = self.paths.root.rsplit("/", 2)[0]
        return TableLabel(self.identifier, self.environment.command_argument or warehouse)

    def check_step(self, step: StepKind, schema: TableSchema | None = None) -> None:
        """Refuse a step that the options of ``schema`` (default: the newest) forbid.

        Raises :class:`UnsupportedError` with the names of these options. Logs a warning for each
        option that the table's allowances permit.
        """
        schema = schema or self.schema
        require_step(self.identifier, schema.options, step, self.allowances)
        if step & EVERY_CHANGE and not self.allowances.stale_external:
            check_publishable(self.identifier, schema, self.paths)

    @property
    def schemas(self) -> SchemaStore:
        """Return the store of schema versions."""
        return SchemaStore(self.io, self.paths)

    @property
    def schema(self) -> TableSchema:
        """Read the newest schema."""
        return self.schemas.latest()

    @property
    def snapshots(self) -> SnapshotStore:
        """Return the store of snapshots, tag files and hints."""
        return SnapshotStore(self.io, self.paths, self.environment.snapshots)

    @property
    def tags(self) -> Tags:
        """Return the tags; changing them requires that the options allow it."""
        return Tags(
            self.snapshots,
            check=partial(self.check_step, StepKind.TAG),
            on_change=self.publish_iceberg_metadata,
        )

    @property
    def branches(self) -> Branches:
        """Return the branches; changing them requires that the options allow it."""
        return Branches(
            self.io,
            self.paths.root,
            check=partial(self.check_step, StepKind.METADATA),
            on_change=self.publish_iceberg_metadata,
        )

    @property
    def manifests(self) -> ManifestReader:
        """Return the reader of manifests."""
        return ManifestReader(self.io, self.paths)

    def files(self, snapshot: Snapshot | None = None) -> list[BucketSplit]:
        """Return all live files of a snapshot (default: the newest) by bucket, level 0 included."""
        return ScanPlanner(self.manifests, self.schema).splits(snapshot or self.snapshots.latest())

    def reader(self) -> FileReader:
        """Return a reader of data files that converts rows to the newest schema."""
        schemas = self.schemas
        return FileReader(
            self.io,
            self.paths,
            schemas.latest(),
            schemas.get_all(schemas.ids()),
            batch_sizes=self.batch_sizes,
        )

    def build_writer_factory(self) -> FileWriterFactory:
        """Return a factory of data file writers for the newest schema."""
        version = choose_bitmap_version(self.manifests, self.reader(), self.snapshots.latest())
        return FileWriterFactory(
            self.io, self.paths, self.schema, version, batch_sizes=self.batch_sizes
        )

    def new_commit(self, step: StepKind, user: str | None = None) -> TableCommit:
        """Return a commit for one run of ``step``; creates a commit user unless it is given."""
        schemas = self.schemas
        return TableCommit(
            schemas=schemas,
            snapshots=self.snapshots,
            manifests=self.manifests,
            user=user or create_commit_user(schemas.latest()),
            environment=self.environment,
            check=partial(self.check_step, step),
            on_commit=self._report_commit,
        )

    def _report_commit(self, _snapshot: Snapshot) -> None:
        """Report a commit to external systems; failures are warnings, as the snapshot exists."""
        self.publish_iceberg_metadata()

    @property
    def iceberg(self) -> IcebergPublisher:
        """Return the publisher of the Iceberg metadata."""
        return IcebergPublisher(
            schemas=self.schemas, snapshots=self.snapshots, manifests=self.manifests
        )

    def publish_iceberg_metadata(self) -> None:
        """Publish the newest snapshot as Iceberg metadata; log a warning if that fails.

        The next commit, or the step ``sync-iceberg``, tries again.
        """
        try:
            self.iceberg.publish()
        except Exception as error:  # noqa: BLE001 - the snapshot exists, so the commit succeeded
            logger.warning(
                "%s: the Iceberg metadata is stale, because it cannot be written: %s. The next "
                "commit tries again, as does sync-iceberg.",
                self.identifier,
                error,
            )

    def require_iceberg_metadata(self) -> None:
        """Publish the newest snapshot as Iceberg metadata before files are deleted.

        The published metadata then names no file of snapshots that are being deleted. Raises
        :class:`UnsupportedError` if it cannot be written, unless stale metadata is allowed.
        """
        if self.allowances.stale_external:
            self.publish_iceberg_metadata()
            return
        try:
            self.iceberg.publish()
        except (PaimonError, OSError) as error:
            raise UnsupportedError(
                f"{self.identifier}: no file was deleted, because Iceberg readers may still need "
                f"the files: the Iceberg metadata cannot be brought up to date ({error}). Run "
                "sync-iceberg when this is fixed, or accept that Iceberg readers fail: "
                "--allow-stale-external, in Python Table.allow(stale_external=True), in Dagster "
                "allow_stale_external: true."
            ) from error
