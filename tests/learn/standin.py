"""Objective-C++ of our pages is compiled without a Mac: against declarations, to no code.

The headers beside this file declare what the pages use of Foundation, Metal and torch. They find
misspelt selectors, wrong types and missing arguments; what Apple's own headers add stays unseen.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEADERS = Path(__file__).parent / "standin_headers"


def compile_objective_c(text: str) -> None:
    """Raise AssertionError with the compiler's words where the text is no Objective-C++."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ziglang", "clang", "-x", "objective-c++", "-std=c++20"),
            *("-nostdinc", "-fsyntax-only", "-fblocks", "-fobjc-runtime=macosx-14", "-Werror"),
            *("-Wno-unused", "-Wno-deprecated", "-Wno-objc-root-class", "-I", str(HEADERS), "-"),
        ],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
