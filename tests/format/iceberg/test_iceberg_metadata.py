"""Table metadata of Iceberg: files of Java Paimon are read and written again without a change."""

from __future__ import annotations

import json

import pytest
from support.golden import GOLDEN

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata, build_commit_identity
from paimon_orch.format.snapshot import CommitKind, Snapshot

FILES = sorted(GOLDEN.glob("java-2.0/iceberg_*/warehouse/*/*/metadata/v*.metadata.json"))


def test_golden_metadata_is_written_again_with_the_keys_and_values_of_java() -> None:
    assert len(FILES) >= 5
    for path in FILES:
        data = path.read_bytes()

        written = json.loads(IcebergMetadata.from_json(data, str(path)).to_json())

        assert written == json.loads(data)
        assert list(written) == list(json.loads(data))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format-version", 4),
        ("format-version", "2"),
        ("snapshots", []),
        ("snapshots", None),
        ("current-snapshot-id", 99),
        ("table-uuid", 7),
        ("partition-specs", []),
        ("refs", []),
    ],
)
def test_damaged_metadata_is_reported(key: str, value: object) -> None:
    metadata = json.loads(FILES[0].read_bytes()) | {key: value}

    with pytest.raises(CorruptFileError, match="/v1"):
        IcebergMetadata.from_json(json.dumps(metadata).encode(), "/v1")


def snapshot_of(**additional: object) -> Snapshot:
    return Snapshot(
        id=1,
        schema_id=0,
        base_manifest_list="base",
        delta_manifest_list="delta",
        commit_user="user",
        commit_identifier=3,
        commit_kind=CommitKind.APPEND,
        time_millis=17,
        total_record_count=0,
        delta_record_count=0,
        additional=additional,
    )


def test_the_identity_of_a_commit_is_its_uuid_if_it_has_one() -> None:
    assert build_commit_identity(snapshot_of(uuid="abc")) == "abc"
    assert build_commit_identity(snapshot_of()) == "user:3:17"
