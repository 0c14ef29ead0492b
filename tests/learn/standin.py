"""Objective-C++ of our pages is compiled for a Mac without one, to no code.

Foundation and Metal are the product's own stand-ins, over the system headers that zig carries. Of
torch there are declarations beside this file: its own headers take ten seconds to read.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ziglang

from anymetal.extension.compiling import STANDIN

ZIG = Path(ziglang.__file__).parent / "lib"
INCLUDES = (
    Path(__file__).parent / "torch_headers",
    STANDIN / "include",
    STANDIN / "darwin",
    ZIG / "include",
    ZIG / "libc" / "include" / "any-darwin-any",
)


def compile_objective_c(text: str) -> None:
    """Raise AssertionError with the compiler's words where the text is no Objective-C++."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ziglang", "clang", "-target", "arm64-apple-macosx14.0"),
            *("-x", "objective-c++", "-std=c++20", "-nostdinc", "-fsyntax-only", "-fblocks"),
            *("-fno-objc-arc", "-Werror", "-Wno-unused", "-Wno-deprecated"),
            *(f"-isystem{folder}" for folder in INCLUDES),
            "-",
        ],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
