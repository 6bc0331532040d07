"""Maintenance on S3 while any request is refused, cut, or done without an answer that arrives."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock
from urllib.parse import unquote, urlsplit

import pytest
from botocore.exceptions import ConnectionClosedError
from support.clocks import replace_waits
from support.memory_s3 import OPTIONS, Answer, MemoryS3, run_memory_s3
from support.tables import rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitOutcomeUnknownError, PaimonError
from paimon_orch.retry_policy import RetryPolicy
from paimon_orch.steps import compact, expire_snapshots, remove_orphan_files
from paimon_orch.steps.cleanup.remove_orphan_files import RemoveOrphanFilesRequest, plan
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.storage import exclusive_create, store_operation
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.table import Table

ROOT = "s3://lake/wh"
OPERATIONS = 10
NAMES = (
    "upsert",
    "upsert",
    "upsert",
    "compact",
    "compact",
    "expire",
    "expire",
    "clean",
    "tag",
    "branch",
)
FAULTS = ("refused", "lost before", "lost after", "cut", "half deleted")


class Faults:
    """Chooses which requests fail, and how."""

    def __init__(self, store: MemoryS3, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - repeatable
        self.rate = 0.0
        self._answer = store._answer
        self._store = store
        self.counts = dict.fromkeys(FAULTS, 0)

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> Answer:
        """Answer a request of botocore, or fail."""
        if self.random.random() >= self.rate:
            return self._answer(method, path, headers, body)
        fault = self.random.choice(FAULTS)
        if fault == "half deleted" and "delete" not in urlsplit(path).query:
            fault = "lost after"
        self.counts[fault] += 1
        if fault == "refused":
            return Answer(503, b"<Error><Code>SlowDown</Code></Error>")
        if fault == "half deleted":
            self._delete_some(unquote(urlsplit(path).path), body)
        if fault in ("lost after", "cut"):
            answer = self._answer(method, path, headers, body)
            if fault == "cut" and method == "GET" and answer.body and answer.status < 300:
                return Answer(answer.status, answer.body[: len(answer.body) // 2], answer.headers)
        raise ConnectionClosedError(endpoint_url=path)

    def _delete_some(self, bucket: str, body: bytes) -> None:
        keys = [part.partition(b"</Key>")[0].decode() for part in body.split(b"<Key>")[1:]]
        for key in self.random.sample(keys, len(keys) // 2):
            self._store.objects.pop(f"{bucket.strip('/')}/{key}", None)

    @contextmanager
    def begin(self) -> Iterator[None]:
        """Let requests fail for a while."""
        self.rate = self.random.choice([0.02, 0.1, 0.3])
        try:
            yield
        finally:
            self.rate = 0.0


@pytest.fixture
def faulty_store(seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    replace_waits(monkeypatch, lambda _: None)
    policy = RetryPolicy(attempts=4, min_wait=0.001, max_wait=0.001, timeout=60)
    for module in (exclusive_create, store_operation):
        monkeypatch.setattr(module, "STORE_CALL", policy)
    with run_memory_s3() as store:
        store.page = 7 if seed % 2 else 1_000  # then a listing has many answers
        faults = Faults(store, seed)
        with mock.patch.object(MemoryS3, "_answer", lambda _, *request: faults.answer(*request)):
            yield faults


def open_catalog() -> Catalog:
    options: dict[str, Any] = {**OPTIONS}
    return Catalog(ROOT, **options)


def open_table() -> Table:
    clear_metadata_cache()
    return open_catalog().table("db.t")


def read_rows() -> set[tuple[int, str]]:
    return set(rows_of(open_table()))


def find_now() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Operation:
    """What one process does to the table, and the rows afterwards."""

    number: int
    name: str

    def run(self, table: Table) -> None:
        """Change the table."""
        executor = InProcessExecutor()
        if self.name == "upsert":
            table.upsert(table_of("k v", [(key, str(self.number)) for key in self._keys]))
        elif self.name == "compact":
            compact(table, executor, strategy="full")
        elif self.name == "expire":
            expire_snapshots(table, executor, retain_max=2, retain_min=1)
        elif self.name == "clean":
            remove_orphan_files(table, executor, older_than=find_now())
        elif self.name == "tag":
            table.tags.create(f"t{self.number}")
        else:
            table.branches.create(f"b{self.number}")

    def change(self, rows: set[tuple[int, str]]) -> set[tuple[int, str]]:
        """Return the rows if the operation is done."""
        if self.name != "upsert":
            return rows
        kept = {row for row in rows if row[0] not in self._keys}
        return kept | {(key, str(self.number)) for key in self._keys}

    @property
    def _keys(self) -> range:
        return range(self.number, self.number + 20)


def run_with_faults(faults: Faults, operation: Operation) -> str:
    """Return what the process is told: `done`, `unknown` or `failed`."""
    table = open_table()
    try:
        with faults.begin():
            operation.run(table)
    except CommitOutcomeUnknownError:
        return "unknown"
    except PaimonError:
        return "failed"
    return "done"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_faults_of_a_store_lose_no_row_and_delete_no_referenced_file(
    seed: int, faulty_store: Faults
) -> None:
    table = open_catalog().create_table(
        "db.t", "k INT, v STRING", primary_key=["k"], options={"bucket": "2"}
    )
    table.upsert(table_of("k v", [(0, "first")]))
    rows, told = read_rows(), Counter[str]()
    for number in range(OPERATIONS):
        operation = Operation(number, faulty_store.random.choice(NAMES))
        outcome = run_with_faults(faulty_store, operation)
        told[outcome] += 1
        possible = {"done": [operation.change(rows)], "failed": [rows]}
        found = read_rows()
        assert found in possible.get(outcome, [rows, operation.change(rows)]), (operation, outcome)
        rows = found
        assert check(open_table(), deep=True).findings == (), (operation, outcome)
    remove_orphan_files(open_table(), InProcessExecutor(), older_than=find_now())

    assert plan(open_table(), RemoveOrphanFilesRequest(older_than=find_now())).files == ()
    assert read_rows() == rows
    assert told["done"] > 1
    assert sum(faulty_store.counts.values()) > 5
