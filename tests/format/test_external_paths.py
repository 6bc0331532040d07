"""Locations of new files: external paths and their strategies."""

from __future__ import annotations

from collections import Counter

import pytest

from paimon_orch.errors import InputError, PaimonError, UnsupportedError
from paimon_orch.format.external_paths import (
    DataFilePathFactory,
    ExternalPaths,
    compute_entropy_directories,
    hash_murmur3_32,
    parse_store_scheme,
    strip_file_scheme,
)
from paimon_orch.format.options import Options

PATHS = "data-file.external-paths"
TWO = "file:///a/t, file:/b/t/"


def external(paths: str, strategy: str, root: str = "/w/t", **more: str) -> ExternalPaths | None:
    named = {f"{PATHS}.{name.replace('_', '-')}": text for name, text in more.items()}
    options = {PATHS: paths, f"{PATHS}.strategy": strategy} | named
    return ExternalPaths.of(Options(options), root)


def roots_used(paths: ExternalPaths | None, files: int) -> Counter[str]:
    placement = DataFilePathFactory("/w/t", "p=1/bucket-0", paths)
    return Counter(
        placement.place(f"data-{n}").path.removesuffix(f"/data-{n}") for n in range(files)
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # published hashes of MurmurHash3_x86_32 with seed 0
        (b"", 0),
        (b"test", 0xBA6BD213),
        (b"Hello, world!", 0xC0363E43),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)
def test_murmur3_with_seed_0_equals_published_hashes(data: bytes, expected: int) -> None:
    assert hash_murmur3_32(data) == expected


@pytest.mark.parametrize(
    ("name", "directories"),
    [  # names and directories of files that Java 2.0 wrote
        ("data-0628a234-58d6-4535-b185-96d5a46b64ce-0.parquet", "0011/1100/0010/11111011"),
        ("data-8220040f-bf6a-44d7-b6ec-15e90b0b1ea4-0.parquet", "1101/0010/0010/10101101"),
        ("data-b1506ad6-10c6-4c5a-8e7e-eb3dfcb41a5b-0.parquet", "0110/0100/0100/10000100"),
        ("data-dcf699cc-379e-4c33-98e6-2c255a94462b-0.parquet", "1000/0010/1010/10100010"),
    ],
)
def test_entropy_directories_equal_those_of_java(name: str, directories: str) -> None:
    assert compute_entropy_directories(name) == directories


def test_the_strategy_round_robin_alternates_between_paths() -> None:
    used = roots_used(external(TWO, "round-robin"), 6)
    assert used == {"/a/t/p=1/bucket-0": 3, "/b/t/p=1/bucket-0": 3}


def test_weights_are_the_probabilities_of_the_paths() -> None:
    used = roots_used(external(TWO, "weight-robin", weights="9,1"), 2_000)
    assert 1_650 < used["/a/t/p=1/bucket-0"] < 1_950
    assert sum(used.values()) == 2_000


def test_paths_without_weights_are_used_in_turn() -> None:
    assert set(roots_used(external(TWO, "weight-robin"), 4).values()) == {2}


def test_the_strategy_specific_fs_selects_paths_by_scheme() -> None:
    paths = external(f"s3://x/t,{TWO}", "specific-fs", specific_fs="FILE")
    assert set(roots_used(paths, 4)) == {"/a/t/p=1/bucket-0", "/b/t/p=1/bucket-0"}


def test_external_uris_in_metadata_equal_those_of_java() -> None:
    placed = DataFilePathFactory("/w/t", "bucket-0", external("file:///a/t/", "round-robin")).place(
        "x"
    )
    assert (placed.path, placed.external) == ("/a/t/bucket-0/x", "file:/a/t/bucket-0/x")


@pytest.mark.parametrize(("paths", "strategy"), [(TWO, "none"), ("", "round-robin")])
def test_files_are_in_the_table_directory_without_a_strategy_or_external_paths(
    paths: str, strategy: str
) -> None:
    placed = DataFilePathFactory("/w/t", "bucket-0", external(paths, strategy)).place("x")
    assert (placed.path, placed.external) == ("/w/t/bucket-0/x", None)


@pytest.mark.parametrize(
    ("paths", "strategy", "options", "kind", "message"),
    [
        (TWO, "random", {}, InputError, "must be one of none, round-robin"),
        ("/a/t", "round-robin", {}, InputError, "with a scheme"),
        ("file:a", "round-robin", {}, InputError, "with a scheme"),
        (TWO, "specific-fs", {}, InputError, "specific-fs"),
        (TWO, "specific-fs", {"specific_fs": "oss"}, InputError, "'oss'"),
        (TWO, "weight-robin", {"weights": "1"}, InputError, "2 positive whole numbers"),
        (TWO, "weight-robin", {"weights": "1,0"}, InputError, "2 positive whole numbers"),
        ("s3://x/t", "round-robin", {}, UnsupportedError, "different store"),
    ],
)
def test_invalid_external_path_options_are_refused(
    paths: str, strategy: str, options: dict[str, str], kind: type[PaimonError], message: str
) -> None:
    with pytest.raises(kind, match=message) as error:
        external(paths, strategy, **options)
    assert PATHS in str(error.value)


def test_schemes_of_the_same_store_are_equivalent() -> None:
    paths = external("s3a://x/t", "round-robin", root="s3://w/t")
    assert paths is not None
    assert (
        DataFilePathFactory("s3://w/t", "bucket-0", paths).place("x").path == "s3a://x/t/bucket-0/x"
    )


@pytest.mark.parametrize("uri", ["FILE:///a/t", "File:/a/t", "file:///a/t"])
def test_the_scheme_of_a_local_path_is_found_in_any_case(uri: str) -> None:
    paths = external(uri, "round-robin")

    assert paths is not None
    assert paths.roots == ("file:/a/t",)
    assert strip_file_scheme(uri) == "/a/t"


@pytest.mark.parametrize(
    "schemes", [("s3", "S3A", "s3n"), ("gs", "gcs"), ("abfs", "abfss", "az"), ("oss",), ("hdfs",)]
)
def test_schemes_of_one_store_are_equal(schemes: tuple[str, ...]) -> None:
    assert {parse_store_scheme(f"{scheme}://b/t") for scheme in schemes} == {schemes[0]}
