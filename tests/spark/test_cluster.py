"""Every step on a standalone cluster: two workers in a separate environment, killed and slow tasks.

Workers have different addresses, because Spark runs speculative attempts on another host. All
addresses are local and share a file system, so sending files to nodes is not tested here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from support.histories import backdate_files, unreferenced_files
from support.peers.protocol import PeerProcess
from support.spark.cluster import (
    SPARK_HOME,
    clean_environment,
    make_environment,
    pack_environment,
    run_driver,
    run_standalone_cluster,
    unpack_environment,
)
from support.spark.step_cases import STEP_CASES, assert_step_done

from paimon_orch import Catalog
from paimon_orch.spark import package_archive
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("cluster"),
    # The start of an executor, also after each kill, is slow on a busy machine.
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="needs the addresses 127.0.0.2 and .3"),
]

WORKERS = ("127.0.0.2", "127.0.0.3")
_SECONDS = 280

# A task is blocked at the n-th file or directory that matches. Files that it wrote remain.
STOPPED = {
    "ingest": ("open", r"/bucket-\d/data-\S* x$", 2),
    "compact, full": ("open", r"/bucket-\d/data-\S*\.index x$", 1),
    "compact by lookup": ("open", r"/index/\S* x$", 1),
    "rewrite file indexes": ("open", r"\.index\.\S*\.tmp x$", 2),
    "remove orphan files": ("os.scandir", r"/bucket-\d$", 1),
}


@dataclass(frozen=True)
class Cluster:
    """A cluster, the Python of its workers, and a driver."""

    master: str
    python: Path
    talk: PeerProcess

    def run(self, step: str, warehouse: Path) -> Any:
        return self.talk.ask("run", step=step, warehouse=str(warehouse))[0]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    python = make_environment(folder / "workers")
    settings = {
        "spark.pyspark.python": str(python),
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        # By default, Spark waits 5 s before each of three retries of a fetch from a lost executor.
        "spark.shuffle.io.retryWait": "200ms",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "3s",
    }
    with (
        run_standalone_cluster(folder, WORKERS) as master,
        run_driver(master=master, spark_config=settings, ship_package=True) as talk,
    ):
        talk.ask("workers", tasks=2)  # this starts the session before the first test
        yield Cluster(master, python, talk)


def test_workers_use_a_separate_python_and_the_package_of_the_driver(
    cluster: Cluster,
) -> None:
    workers = cluster.talk.ask("workers", tasks=2)[0]

    assert {task["python"] for task in workers} == {str(cluster.python)}
    assert {task["host"] for task in workers} == set(WORKERS)
    assert all(package_archive().name in task["package"] for task in workers)


@pytest.mark.parametrize("name", STEP_CASES)
def test_every_step_has_the_same_result_on_a_cluster(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    assert_step_done(name, tmp_path, lambda: cluster.run(name, tmp_path))


class BlockedTask:
    """Blocks one task of a step, and runs an action once it is blocked."""

    def __init__(self, python: Path) -> None:
        packages = next((python.parents[1] / "lib").glob("python*/site-packages"))
        spec = spec_from_file_location("hold", packages / "hold.py")
        assert spec is not None
        assert spec.loader is not None
        self.hold = module_from_spec(spec)
        spec.loader.exec_module(self.hold)

    def executor(self, running: Future[Any]) -> int:
        """Return the process id of the executor whose task is blocked."""
        while not wait([running], 0.02).done:
            if self.hold.HELD.exists():
                return int(self.hold.HELD.read_text())
        pytest.fail(f"no task was stopped where it was to be: {running.result()}")


def run_with_blocked_task(cluster: Cluster, name: str, root: Path, *, kill: bool) -> Table:
    """Run a step with one task blocked forever, optionally with its executor killed."""
    blocked = BlockedTask(cluster.python)

    def run() -> Any:
        blocked.hold.ask(*STOPPED[name])
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(cluster.run, name, root)
            executor = blocked.executor(running)
            if kill:
                os.kill(executor, signal.SIGKILL)
            return running.result()

    return assert_step_done(name, root, run)


def assert_only_orphans_remain(table: Table) -> None:
    """Check that orphan cleanup finds all files of a killed attempt.

    There may be none: a worker that is notified early can still clean up.
    """
    backdate_files(table)
    remove_orphan_files(table, InProcessExecutor())
    assert unreferenced_files(table) == set()
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize("name", STOPPED)
def test_a_killed_executor_leaves_only_orphan_files(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    table = run_with_blocked_task(cluster, name, tmp_path, kill=True)

    assert_only_orphans_remain(table)


@pytest.mark.parametrize("name", ["ingest", "compact by lookup"])
def test_a_slow_task_runs_twice_and_is_counted_once(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    table = run_with_blocked_task(cluster, name, tmp_path, kill=False)

    assert_only_orphans_remain(table)


def spark_submit(
    cluster: Cluster, folder: Path, program: str, *arguments: str, **environment: str
) -> list[str]:
    """Run a program that compacts a table with ``spark-submit``; return the lines of its output."""
    (folder / "nightly.py").write_text(program)
    STEP_CASES["compact, full"].make(folder / "lake")
    settings = {"cores.max": "1", "executor.memory": "512m", "driver.host": "127.0.0.1"}
    confs = [f"--conf=spark.{name}={value}" for name, value in settings.items()]

    process = subprocess.run(
        [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master, *confs,
         *arguments, "nightly.py", str(folder / "lake")],
        env=clean_environment(SPARK_LOCAL_IP="127.0.0.1", **environment), cwd=folder,
        capture_output=True, text=True, check=False, timeout=_SECONDS,
    )  # fmt: skip

    assert process.returncode == 0, process.stderr[-2000:]
    table = Catalog(str(folder / "lake")).table("db.t")
    assert check(table, deep=True).findings == ()
    assert len(list(table.files())) == 4
    return process.stdout.splitlines()


def test_spark_submit_runs_a_program_with_the_package_archive(
    cluster: Cluster, tmp_path: Path
) -> None:
    pythons = {"python": cluster.python, "driver.python": Path(sys.executable)}
    confs = [f"--conf=spark.pyspark.{name}={python}" for name, python in pythons.items()]
    files = ["--py-files", str(package_archive(tmp_path))]

    printed = spark_submit(cluster, tmp_path, PROGRAM, *confs, *files)

    assert printed == [cluster.master, str(cluster.python), "True"]


def test_spark_submit_runs_a_program_in_a_packed_environment(
    cluster: Cluster, tmp_path: Path
) -> None:
    packed = make_environment(tmp_path / "packed", "pandas")
    archive = pack_environment(packed, tmp_path / "environment.tar.gz")
    unpack_environment(archive, tmp_path / "environment")
    python = {"PYSPARK_PYTHON": "./environment/bin/python"}

    printed = spark_submit(
        cluster,
        tmp_path,
        PROGRAM + COUNT,
        "--archives",
        f"{archive.as_uri()}#environment",
        **python,
    )

    assert [printed[0], *printed[2:]] == [cluster.master, "True", "40"]
    assert printed[1].endswith("/environment/bin/python")
    assert not printed[1].startswith(str(tmp_path))  # this is the path on the executor


PROGRAM = """
import sys
from paimon_orch import Catalog
from paimon_orch.spark import SparkExecutor, spark_session
from paimon_orch.steps.compaction.compact import compact

session = spark_session()
python = lambda unit: __import__("sys").executable.encode()
result = compact(Catalog(sys.argv[1]).table("db.t"), SparkExecutor(session), strategy="full")
where = SparkExecutor(session).map(python, [1], label="which Python")[0].decode()
print(session.conf.get("spark.master"), where, result.snapshot_id is not None, sep="\\n")
"""

COUNT = """
print(session.read.format("paimon").load(f"{sys.argv[1]}/db.db/t").count())
"""
