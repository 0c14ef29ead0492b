"""LLVM in a process of its own, for modules so large that it may not come to an end, or may die.

Nothing stops LLVM inside this process. Below the size it takes seconds, and a process more would
cost every kernel its start.
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
from anymetal.errors import EngineError

LARGE = 16_000  # lines of IR; a checked kernel with 1,500 accesses has as many

_PACKAGES = Path(__file__).parents[3]
_SERVING = "_ANYMETAL_APART"  # set in the process that does the work

Code = TypeVar("Code", str, bytes)


def bounded(function: Callable[..., Code]) -> Callable[..., Code]:
    """The function as it is for small modules, its first argument; apart for large ones."""

    @functools.wraps(function)
    def call(ir: str, *arguments: Any, **keywords: Any) -> Code:
        if ir.count("\n") < LARGE or _SERVING in os.environ:
            return function(ir, *arguments, **keywords)
        answer: Code = _ask(function.__name__, (ir, *arguments), keywords)
        return answer

    return call


def _ask(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    limit = settings.COMPILE_LIMIT.value()
    path = os.pathsep.join(filter(None, [str(_PACKAGES), os.environ.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=pickle.dumps((name, arguments, keywords)),
            capture_output=True,
            env={**os.environ, "PYTHONPATH": path, _SERVING: "1"},
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(
            f"making machine code of this kernel takes longer than {limit:g} s"
            f" ({settings.COMPILE_LIMIT.variable}): {len(arguments[0]) >> 10} KiB of LLVM IR"
        ) from None
    if done.returncode:
        messages = done.stderr.decode(errors="replace")[-2000:]
        raise EngineError(f"LLVM gave up on this kernel (status {done.returncode}):\n{messages}")
    return pickle.loads(done.stdout)


def _serve() -> None:
    name, arguments, keywords = pickle.loads(sys.stdin.buffer.read())
    function = getattr(import_module("anymetal.engines.cpu.jit"), name)
    sys.stdout.buffer.write(pickle.dumps(function(*arguments, **keywords)))


if __name__ == "__main__":
    _serve()
