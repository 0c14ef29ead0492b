"""Work on large kernels in a process of its own: it may not come to an end, or may die.

Nothing stops LLVM inside this process, nor the passes in Python. Below the size they take seconds,
and a process more would cost every kernel its start.
"""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from anymetal import settings
from anymetal.errors import AnymetalError, EngineError
from anymetal.machine.processor import code_for, wanted

LARGE = 16_000  # lines of IR; a checked kernel with 1,500 accesses has as many

_PACKAGES = Path(__file__).parents[2]
_SERVING = "_ANYMETAL_APART"  # set in the process that does the work

Code = TypeVar("Code", str, bytes)


def is_large(ir: str) -> bool:
    """Whether a module is work for another process; never in that process itself."""
    return ir.count("\n") >= LARGE and _SERVING not in os.environ


def bounded(function: Callable[..., Code]) -> Callable[..., Code]:
    """The function as it is for small modules, its first argument; apart for large ones."""

    @functools.wraps(function)
    def call(ir: str, *arguments: Any, **keywords: Any) -> Code:
        if not is_large(ir):
            return function(ir, *arguments, **keywords)
        what = f"making machine code of this kernel ({len(ir) >> 10} KiB of LLVM IR)"
        answer: Code = run_apart(what, function, ir, *arguments, **keywords)
        return answer

    return call


def run_apart(what: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What a function of a module returns, called in a process that has the compile limit.

    The function is found by its name. Errors of ours are raised here as they were raised there.
    """
    limit = settings.COMPILE_LIMIT.value()
    path = os.pathsep.join(filter(None, [str(_PACKAGES), os.environ.get("PYTHONPATH", "")]))
    question = (wanted(), function.__module__, function.__name__, arguments, keywords)
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=pickle.dumps(question),
            capture_output=True,
            env={**os.environ, "PYTHONPATH": path, _SERVING: "1"},
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(
            f"{what} takes longer than {limit:g} s ({settings.COMPILE_LIMIT.variable})"
        ) from None
    if done.returncode:
        messages = done.stderr.decode(errors="replace")[-2000:]
        raise EngineError(f"{what} failed (status {done.returncode}):\n{messages}")
    answer, error = pickle.loads(done.stdout)
    if error is not None:
        raise error
    return answer


def _serve() -> None:
    processor, module, name, arguments, keywords = pickle.loads(sys.stdin.buffer.read())
    answer = error = None
    try:
        with code_for(processor):
            answer = getattr(import_module(module), name)(*arguments, **keywords)
    except AnymetalError as raised:
        error = raised
    sys.stdout.buffer.write(pickle.dumps((answer, error)))


if __name__ == "__main__":
    _serve()
