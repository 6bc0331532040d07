"""Finds old Iceberg manifests and manifest lists that no published metadata names.

A publication that fails, or that another one overtakes, leaves such files.
See docs/format/iceberg-metadata.md#expiration-of-metadata.
"""

import re

from paimon_orch.errors import PaimonError, raise_if_temporary
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.table.iceberg.iceberg_settings import build_iceberg_settings
from paimon_orch.table.iceberg.metadata_store import (
    IcebergMetadataStore,
    find_versions,
    get_file_name,
)
from paimon_orch.table.metadata.metadata_io import list_metadata_directory

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FILE_NAME = re.compile(rf"{_UUID}-m\d+\.avro|snap-\d+-{_UUID}\.avro")


def find_orphan_iceberg_files(
    io: FileIO, paths: TablePaths, schema: TableSchema, before: float
) -> list[FileInfo]:
    """Return the files that were last written before a time in epoch seconds.

    Returns none if some published metadata cannot be read, because it may name the files.
    """
    settings = build_iceberg_settings(schema, paths)
    if settings is None:
        return []
    store = IcebergMetadataStore(io, settings.directory)
    infos = list_metadata_directory(io, settings.directory)
    old = [
        info
        for info in infos
        if not info.is_dir
        and not info.is_link
        and info.modified < before
        and _FILE_NAME.fullmatch(info.name)
    ]
    try:
        used = _list_used_names(store, find_versions(info.name for info in infos)) if old else set()
    except (PaimonError, FileNotFoundError) as error:
        raise_if_temporary(error)
        return []
    return [info for info in old if info.name not in used]


def _list_used_names(store: IcebergMetadataStore, versions: list[int]) -> set[str]:
    names: set[str] = set()
    for version in versions:
        for snapshot in store.read_metadata(version).snapshots:
            name = get_file_name(snapshot.manifest_list)
            if name not in names:
                names.add(name)
                names.update(get_file_name(m.path) for m in store.read_manifests(snapshot))
    return names
