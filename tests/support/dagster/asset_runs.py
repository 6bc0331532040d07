"""Runs assets and jobs in this process, and reads the metadata that a run reported."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

Resources = Mapping[str, object]


def materialize(
    asset: dg.AssetsDefinition, resources: Resources, key: str | None = None, **arguments: Any
) -> dg.ExecuteInProcessResult:
    return dg.materialize([asset], resources=resources, partition_key=key, **arguments)


def materialize_range(
    asset: dg.AssetsDefinition,
    resources: Resources,
    first: str,
    last: str,
    instance: dg.DagsterInstance,
) -> dg.ExecuteInProcessResult:
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    return materialize(asset, resources, tags=tags, instance=instance)


def metadata_by_partition(result: dg.ExecuteInProcessResult) -> dict[str | None, dict[str, Any]]:
    """The metadata of the materializations of a run by partition."""
    return {
        event.partition: {key: value.value for key, value in event.materialization.metadata.items()}
        for event in result.get_asset_materialization_events()
    }


def observation_metadata(result: dg.ExecuteInProcessResult) -> list[dict[str, Any]]:
    """The metadata of each observation of a run."""
    return [
        {
            key: value.value
            for key, value in event.asset_observation_data.asset_observation.metadata.items()
        }
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.ASSET_OBSERVATION
    ]
