"""Events of OpenLineage for the steps of this process; see docs/monitoring.md#openlineage.

The package ``openlineage-python`` is imported only if the environment configures a transport. A
receiver that fails never fails a step: it is a warning, and the step sends no further event.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

import paimon_orch
from paimon_orch.optional_packages import require_package
from paimon_orch.safe_text import clean_line, get_logger, mask_secrets
from paimon_orch.stores import find_store

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, RunState
    from openlineage.client.generated.base import DatasetFacet, RunFacet

    from paimon_orch.steps.common.step_metrics import StepIo
    from paimon_orch.table.table import Table

logger = get_logger(__name__)

_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_TRANSPORT_PREFIX = "OPENLINEAGE__TRANSPORT__"
_PARENT_VARIABLE = "OPENLINEAGE_PARENT_ID"
_STEPS_OF_OTHER_ROWS = ("ingest",)  # their inputs are files, if these are known
_MAX_FILES = 100
"""More files are named by their directories, so that an event stays small."""


def emit_lineage() -> None:
    """Send the events of the steps of this process if the environment configures a transport."""
    if any(name in _VARIABLES or name.startswith(_TRANSPORT_PREFIX) for name in os.environ):
        # Commands that start no step do not need this import.
        from paimon_orch.steps.common.step_metrics import observe_steps

        observe_steps(_start_run)


@dataclass(slots=True)
class _LineageRun:
    """One execution of a step; sends its events."""

    step: str
    table: "Table"
    sources: Sequence[str] = ()
    """The files whose rows the step loads."""
    run_id: str = ""
    inputs: "list[InputDataset]" = field(default_factory=list)

    def start(self) -> None:
        """Send the first event, with the snapshot that the step reads."""
        try:
            require_package(
                "openlineage.client",
                "sending events of OpenLineage",
                install="paimon-orch[openlineage]",
                package="openlineage-python",
            )
            from openlineage.client.event_v2 import InputDataset, RunState
            from openlineage.client.uuid import generate_new_uuid

            if self.step in _STEPS_OF_OTHER_ROWS:
                self.inputs = [InputDataset(*name) for name in _name_files(self.sources)]
            else:
                self.inputs = [InputDataset(*self._name, facets=_describe_table(self.table, None))]
            run_id = str(generate_new_uuid())
            self._send(RunState.START, run_id, {})
            self.run_id = run_id
        except Exception as error:  # noqa: BLE001 - lineage never fails a step
            self._warn(error)

    def complete(self, io: "StepIo", snapshot_id: int | None) -> None:
        """Send the last event, with what the step read and wrote."""
        if not self.run_id:
            return
        try:
            from openlineage.client import facet_v2
            from openlineage.client.event_v2 import OutputDataset, RunState

            for each in self.inputs if self.step not in _STEPS_OF_OTHER_ROWS else ():
                statistics = facet_v2.input_statistics_input_dataset
                each.inputFacets = {
                    "inputStatistics": statistics.InputStatisticsInputDatasetFacet(
                        size=io.bytes_read, fileCount=io.files_read
                    )
                }
            written = facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=io.rows_written, size=io.bytes_written, fileCount=io.files_written
            )
            output = OutputDataset(
                *self._name,
                facets=_describe_table(self.table, snapshot_id),
                outputFacets={"outputStatistics": written},
            )
            self._send(RunState.COMPLETE, self.run_id, {}, [output])
        except Exception as error:  # noqa: BLE001
            self._warn(error)

    def fail(self, error: BaseException) -> None:
        """Send the last event, with the error."""
        if not self.run_id:
            return
        try:
            from openlineage.client.event_v2 import RunState
            from openlineage.client.facet_v2 import error_message_run

            message = clean_line(f"{type(error).__name__}: {error}")
            facet = error_message_run.ErrorMessageRunFacet(message, "Python")
            state = RunState.FAIL if isinstance(error, Exception) else RunState.ABORT
            self._send(state, self.run_id, {"errorMessage": facet})
        except Exception as failure:  # noqa: BLE001
            self._warn(failure)

    @property
    def _name(self) -> tuple[str, str]:
        return _name_dataset(self.table)

    def _send(
        self,
        state: "RunState",
        run_id: str,
        facets: "Mapping[str, RunFacet]",
        outputs: "Sequence[OutputDataset] | None" = None,
    ) -> None:
        from openlineage.client.event_v2 import OutputDataset, Run, RunEvent

        event: RunEvent = RunEvent(
            eventType=state,
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(run_id, facets={**_describe_process(), **facets}),
            job=_build_job(self.step, self.table),
            inputs=self.inputs,
            outputs=[OutputDataset(*self._name)] if outputs is None else [*outputs],
        )
        _make_client().emit(event)

    def _warn(self, error: Exception) -> None:
        logger.warning(
            "%s of %s: no event of OpenLineage: %s", self.step, self.table.identifier, error
        )
        self.run_id = ""


def _start_run(step: str, table: "Table", sources: Sequence[str]) -> _LineageRun:
    run = _LineageRun(step, table, sources)
    run.start()
    return run


@cache
def _make_client() -> "OpenLineageClient":
    """Return the client with the transport of the environment."""
    from openlineage.client import OpenLineageClient

    return OpenLineageClient()


def _build_job(step: str, table: "Table") -> "Job":
    from openlineage.client.event_v2 import Job
    from openlineage.client.facet_v2 import job_type_job

    facet = job_type_job.JobTypeJobFacet("BATCH", "PAIMON_ORCH", "STEP")
    return Job(
        os.environ.get("OPENLINEAGE_NAMESPACE", "default"),
        f"{table.identifier}.{step.replace(' ', '_')}",
        facets={"jobType": facet},
    )


def _describe_process() -> "dict[str, RunFacet]":
    """Return the facets of each run: this package, and the run that started this process."""
    from openlineage.client.facet_v2 import parent_run, processing_engine_run

    version = paimon_orch.__version__
    facets: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version, "paimon_orch", version
        )
    }
    if parent := os.environ.get(_PARENT_VARIABLE):
        namespace, job, run_id = parent.rsplit("/", 2)
        facets["parent"] = parent_run.ParentRunFacet(
            parent_run.Run(run_id), parent_run.Job(namespace, job)
        )
    return facets


def _name_dataset(table: "Table") -> tuple[str, str]:
    """Return the namespace and the name of a table: its store and its path, by the specification."""
    return _name_location(table.paths.branch_root)


def _name_files(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Return the namespaces and the names of files, or of their directories if there are many."""
    absolute = [path if "://" in path else os.path.abspath(path) for path in paths]  # noqa: PTH100 - not resolved
    if len(absolute) > _MAX_FILES:
        absolute = [path.rpartition("/")[0] for path in absolute]
    return [_name_location(path) for path in dict.fromkeys(absolute)]


def _name_location(location: str) -> tuple[str, str]:
    """Return the namespace and the name of a path or URI, without the secrets of a URI."""
    scheme, separator, rest = mask_secrets(location).partition("://")
    if not separator or scheme == "file":
        return "file", rest or location
    authority, _, path = rest.partition("/")
    store = find_store(scheme)
    is_key = store is not None and not store.capabilities.has_directories
    return f"{scheme}://{authority}", path if is_key else f"/{path}"


def _describe_table(table: "Table", snapshot_id: int | None) -> "dict[str, DatasetFacet]":
    """Return the schema, the names and the version of a table, by default the newest snapshot."""
    from openlineage.client.facet_v2 import (
        dataset_version_dataset,
        schema_dataset,
        symlinks_dataset,
    )

    from paimon_orch.format.types.data_types import type_to_sql

    state = table.load()
    fields = [
        schema_dataset.SchemaDatasetFacetFields(each.name, type_to_sql(each.type), each.description)
        for each in state.schema.fields
    ]
    namespace, _ = _name_dataset(table)
    identifier = symlinks_dataset.Identifier(namespace, table.identifier, "TABLE")
    facets: dict[str, DatasetFacet] = {
        "schema": schema_dataset.SchemaDatasetFacet(fields),
        "symlinks": symlinks_dataset.SymlinksDatasetFacet([identifier]),
    }
    if snapshot_id is None and state.snapshot is not None:
        snapshot_id = state.snapshot.id
    if snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(snapshot_id))
    return facets
