"""A fault in a kernel ends its launch; any other is the affair of whoever handles signals."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

BEGINNING = """
lib = anymetal.compile_shader('''
#include <metal_stdlib>
kernel void wild(device float* x, uint i [[thread_position_in_grid]]) {
  x[(ulong)(i + 1) << 44] = 1;
}
kernel void one(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }
''')
x = torch.zeros(100_000)  # enough for several workers

def wild(times=3):
    for _ in range(times):
        try:
            lib.wild(x, threads=100_000)
            raise SystemExit("no error")
        except anymetal.errors.KernelFault as error:
            assert "'wild'" in str(error) and "anymetal check" in str(error)
    lib.one(x, threads=100_000)

"""

# Imports once, then runs each program in a process of its own; gives back status and stderr.
DRIVER = """
import ctypes, faulthandler, json, os, signal, sys, tempfile, threading
import torch, anymetal
ends = {}
for name, program in json.load(sys.stdin).items():
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.dup2(errors.fileno(), 2)
            exec(program, dict(globals()))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        ends[name] = (status, errors.read().decode())
print(json.dumps(ends))
"""

# What the program does, its status, and words that it prints to stderr.
ENDS = {
    "nothing else": ("wild()", 0, ""),
    "many threads": (
        "threads = [threading.Thread(target=wild) for _ in range(6)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\nwild()",
        0,
        "",
    ),
    "own fault": ("wild()\nctypes.string_at(16)", -11, ""),
    "faulthandler before": (
        "faulthandler.enable()\nwild()\nctypes.string_at(16)",
        -11,
        "Fatal Python error: Segmentation fault",
    ),
    "faulthandler between": (
        "wild()\nfaulthandler.enable()\nwild()\nctypes.string_at(16)",
        -11,
        "Fatal Python error: Segmentation fault",
    ),
    "handler of the program": (
        "signal.signal(signal.SIGSEGV, lambda *_: os._exit(7))\nwild()\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\nfor _ in range(10**6): pass",
        7,
        "",
    ),
    "signal that is sent": ("wild()\nos.kill(os.getpid(), signal.SIGSEGV)\nprint(1)", -11, ""),
    "forked child": (
        "wild()\nchild = os.fork()\nif child == 0:\n    wild()\n    os._exit(3)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3",
        0,
        "",
    ),
}


@pytest.fixture(scope="module")
def ends() -> dict[str, tuple[int, str]]:
    programs = {name: BEGINNING + program for name, (program, _, _) in ENDS.items()}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ENDS)
def test_faults_of_kernels_and_of_others(name: str, ends: dict[str, tuple[int, str]]) -> None:
    _, wanted, words = ENDS[name]
    status, errors = ends[name]
    assert status == wanted, errors[-2000:]
    assert words in errors
