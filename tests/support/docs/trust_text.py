"""The texts of docs/trust.md; `support.docs.trust` adds the tables."""

HEAD = """\
# What is tested

This page lists which tests check paimon_orch ("we") against which releases of other engines and
services, and the figures of kill tests, races and fuzzing. `make reference` generates it from the
tests that pytest collects, and a test fails if it is not current, if a listed test file has no
tests, or if a test with another implementation is not listed.

A number is a count of tests; the last column names their files below `tests/`. Tests download the
engines, and are skipped if one cannot be started: `.ci/run` prints the reasons. Cases that an engine
does not support are tested too, as exceptions; [compatibility](compatibility.md) lists them.
"""

SECTIONS = {
    "paimon": """
## Implementations of Paimon

- **we read theirs**: we read tables that the engine wrote, and often compact or change them.
- **they read ours**: the engine reads tables that we wrote, compacted or changed.
- **both write in turns**: the engine and we alternately commit to one table, and both read it.
- **same result**: the engine and we do the same, and files, rows or objects in a catalog are equal.

"Java" is the Paimon library that Flink, Spark and Hive use.
""",
    "iceberg": """
## Readers and writers of Iceberg metadata

Java is Java Paimon, which publishes the same metadata.
""",
    "services": """
## Catalog services

Each is a process that tests start; Java Paimon uses the same process in tests of both.
""",
}

VERSIONS = """
## Versions

The oldest and the newest tested release of each package; other tests use the newest.
"""

KILLS = """
## Kills

A process executes a step and is killed by SIGKILL before its first, second, ... change of a file,
until it finishes. After each kill, all retained snapshots, tags and branches have their rows, the
newest version has the rows before or after the step, repeating the step completes it, and orphan
cleanup leaves no unreferenced file. In catalogs, processes are killed before each request too, also
while they hold a lock. `benchmarks/kills.py` counts the kills.
"""

RACES = """
## Races

In these tests, processes or threads commit at the same time, or another commit takes place at a
chosen moment of a step. Every committed row must be in the table exactly once, or one of the commits
must be refused and leave no files.
"""

FUZZ = """
## Fuzzing

`tests/format/test_fuzz.py` ({count} tests) truncates, flips and splices files of metadata: a decoder
returns a value or raises an error that names the file. `tests/hostile/test_hostile_fuzz.py` does so
with a sample for each decoder, in a process with limited memory. `benchmarks/fuzz.py` searches such
inputs by coverage, with the same samples: snapshots, schemas, statistics, manifests, lists of
manifests, hash indexes, deletion vectors, file indexes, indexes of columns and their metadata,
variants, binary rows, Thrift, BLOB files and descriptors, data files in Parquet, ORC, Avro and JSON,
and the manifests of Iceberg. Branches are counted in the decoders of this library, not in Arrow.
These runs ended without an error:
"""

NOT_TESTED = """
## Not tested

- Flink, Hive, Trino, StarRocks and Doris: only the Java library that most of them use is tested.
- The services S3, Google Cloud Storage and Azure themselves, instead of servers on this machine.
- Other engines and services on Python 3.12 and 3.13: there, only the tests run that need nothing but
  this machine.
- Windows. On macOS, only the demo and the quick tests of the library run.
"""
