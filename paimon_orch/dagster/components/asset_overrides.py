"""Methods of components that subclasses override to change the assets of a table."""

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from paimon_orch.dagster.asset_runs.asset_run import ExecuteFunction
from paimon_orch.dagster.names import TableAssetKind
from paimon_orch.errors import InputError


@dataclass(frozen=True, slots=True)
class AssetOverrides:
    """The methods ``get_asset_spec`` and ``execute`` of a component, for the assets of a table."""

    get_asset_spec: Callable[[TableAssetKind], dg.AssetSpec]
    execute: ExecuteFunction

    def build_spec(self, kind: TableAssetKind, table: str, default: dg.AssetSpec) -> dg.AssetSpec:
        """Return the spec of an asset.

        Raises :class:`InputError` if it lacks what the sensor, the schedules and the checks of the
        table refer to: the key, the dependencies and the partitions of ``default``.
        """
        spec = self.get_asset_spec(kind)
        if spec.key != default.key:
            raise InputError(
                f"assets of {table}: the key {default.key.to_user_string()} cannot be changed to "
                f"{spec.key.to_user_string()}, because the sensor, schedules and checks use it; "
                "set key_prefix of the component instead"
            )
        removed = {dep.asset_key for dep in default.deps} - {dep.asset_key for dep in spec.deps}
        if removed:
            names = ", ".join(sorted(key.to_user_string() for key in removed))
            raise InputError(
                f"assets of {table}: deps of {spec.key.to_user_string()} must include {names}"
            )
        if spec.partitions_def != default.partitions_def:
            raise InputError(
                f"assets of {table}: partitions_def cannot be changed; set partitions of the "
                "component instead"
            )
        return spec
