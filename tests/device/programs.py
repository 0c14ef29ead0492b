"""Programs in processes of their own: text goes in, what they print and exit with comes out."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

# The command `anymetal`, for an interpreter.
ANYMETAL = ("-c", "from anymetal.cli import main; main()")

SETTINGS = ("ANYMETAL_DEVICE", "ANYMETAL_DEVICE_MISSING", "ANYMETAL_DEVICE_ASYNC", "ANYMETAL_CXX")


def write(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text))
    return path


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without our settings, and with `variables`."""
    plain = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return {**plain, **variables}


def start(*command: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*command: str, **variables: str) -> tuple[int, str, str]:
    """The exit status, stdout and stderr of `python COMMAND`."""
    with start(*command, **variables) as process:
        output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors
