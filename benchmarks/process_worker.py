"""Runs the command of its arguments, without its output, and prints what it used as JSON.

This is a process of its own for two reasons. The peak memory of a process includes that of its
parent at the start. And processes whose parent has ended, such as a JVM of Spark, become children
of this process, which waits for them.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36

ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
start = time.perf_counter()
process = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=False)
wall_seconds = time.perf_counter() - start
try:
    while True:
        os.wait()
except ChildProcessError:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
result = {
    "exit_code": process.returncode,
    "cpu_seconds": usage.ru_utime + usage.ru_stime,
    "wall_seconds": wall_seconds,
    "peak_mb": usage.ru_maxrss / 1024,
}
sys.stdout.write(json.dumps(result))
