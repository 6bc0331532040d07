"""Runs the command of its arguments, without its output, and prints what it used as JSON.

A process of its own, because the peak memory of a process includes that of its parent at the start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
result = {
    "exit_code": process.returncode,
    "cpu_seconds": usage.ru_utime + usage.ru_stime,
    "wall_seconds": time.perf_counter() - start,
    "peak_mb": usage.ru_maxrss / 1024,
}
sys.stdout.write(json.dumps(result))
