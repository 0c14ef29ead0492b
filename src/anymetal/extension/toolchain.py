"""What is needed to compile Objective-C++ on Linux: found on this machine, or named."""

from __future__ import annotations

import functools
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from anymetal.errors import ToolchainError

# Older ones do not read torch's C++20 headers over libstdc++.
_COMPILERS = tuple(f"clang++-{version}" for version in (21, 20, 19, 18, 17, 16))
PACKAGES = ("clang-19", "libobjc-12-dev", "libblocksruntime-dev")
INSTALL = f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"


@dataclass(frozen=True)
class Toolchain:
    """A clang with Objective-C++, the folder of gcc that has libobjc, and clang's version."""

    compiler: str
    objc: Path
    version: str

    def flags(self) -> list[str]:
        """What makes Objective-C++ of gcc's runtime."""
        return [
            "-fobjc-runtime=gcc",
            "-fconstant-string-class=NSConstantString",
            "-fblocks",
            "-fexceptions",
            "-fobjc-exceptions",
            f"-isystem{self.objc / 'include'}",
        ]

    def libraries(self) -> list[str]:
        return [f"-L{self.objc}", "-lobjc", "-lBlocksRuntime"]


@functools.cache
def find_toolchain() -> Toolchain:
    """The tools, or ToolchainError with the command that installs what is missing."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    # Of several gccs the newest has a libobjc that the others' programs can use too.
    objc = sorted(Path("/usr/lib/gcc").glob("*/*/include/objc/objc.h"))
    missing = [
        name
        for name, there in (
            ("clang 16 or newer", compiler),
            ("gcc's libobjc", objc),
            ("the runtime of blocks", Path("/usr/include/Block.h").is_file()),
            ("addr2line", shutil.which("addr2line")),
        )
        if not there
    ]
    if missing or compiler is None:
        raise ToolchainError(
            f"An Objective-C++ extension needs {', '.join(missing)} to be built on Linux. On Debian"
            f" 12: {INSTALL}. Other releases: libobjc-N-dev of their gcc."
        )
    return Toolchain(compiler, objc[-1].parents[2], _version(compiler))


def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]
