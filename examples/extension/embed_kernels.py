"""Writes the Metal kernels into a header: `python embed_kernels.py HEADER`.

The source is always there, for every Mac to compile. Where Apple's compiler is, the library that it
makes is there too, and is loaded first.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KERNELS = sorted(Path(__file__).parent.glob("*/kernels/*.metal"))


def metallib() -> bytes:
    """The compiled library; nothing where there is no Apple compiler."""
    if sys.platform != "darwin" or shutil.which("xcrun") is None:
        return b""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernels.metallib"
        command = ["xcrun", "-sdk", "macosx", "metal", "-fno-fast-math", "-o", str(library)]
        done = subprocess.run([*command, *map(str, KERNELS)], capture_output=True, check=False)
        return library.read_bytes() if done.returncode == 0 else b""


def header() -> str:
    source = "\n".join(path.read_text(encoding="utf-8") for path in KERNELS)
    if ')metal"' in source or not source.isascii():
        raise SystemExit('the kernels must be ASCII and may not contain )metal"')
    library = metallib()
    values = ",".join(map(str, library or b"\0"))
    return (
        "// Written by embed_kernels.py.\n#pragma once\n\n#include <cstddef>\n\n"
        f'static const char kKernelSource[] = R"metal({source})metal";\n'
        f"static const unsigned char kMetallib[] = {{{values}}};\n"
        f"static const std::size_t kMetallibLength = {len(library)};\n"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(header(), encoding="utf-8")
