"""The native build on a Mac; on Linux `anymetal extension build` does it."""

import subprocess
import sys
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

NAME = "patterns"
BUILD = Path("build") / "kernels"


def extensions() -> list:
    """None where there is no Metal: the package then has its sources alone."""
    if sys.platform != "darwin":
        return []
    BUILD.mkdir(parents=True, exist_ok=True)
    header = BUILD / "embedded_kernels.h"
    subprocess.run([sys.executable, "embed_kernels.py", str(header)], check=True)
    return [
        CppExtension(
            f"{NAME}._C",
            sorted(str(path) for path in Path("csrc").glob("*.mm")),
            include_dirs=[str(BUILD.resolve()), str(Path("csrc").resolve())],
            extra_compile_args=["-std=c++20", "-fno-objc-arc", "-O2"],
            extra_link_args=["-framework", "Metal", "-framework", "Foundation"],
        )
    ]


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
)
