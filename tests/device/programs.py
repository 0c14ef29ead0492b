"""Programs in processes of their own: text goes in, what they print and exit with comes out.

`run` starts an interpreter. `run_text` takes a fork of one that has imported torch and nothing of
ours, which spares the import: for everything that does not depend on how torch is imported.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

# The command `anymetal`, for an interpreter.
ANYMETAL = ("-c", "from anymetal.cli import main; main()")

SETTINGS = ("ANYMETAL_DEVICE", "ANYMETAL_DEVICE_MISSING", "ANYMETAL_DEVICE_ASYNC", "ANYMETAL_CXX")

# The child leaves the loop and becomes the program: it ends as an interpreter does.
SERVER = """
import json, os, sys, torch
for line in sys.stdin:
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
text, environment, sys.argv[1:], folder = json.loads(line)
os.environ.clear()
os.environ.update(environment)
for number, name in enumerate(["input", "output", "errors"]):
    os.dup2(os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT), number)
if environment.get("ANYMETAL_DEVICE") == "1":
    from anymetal.device.autoload import autoload
    autoload()
exec(text, {"__name__": "__main__"})
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text))
    return path


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without our settings, and with `variables`."""
    plain = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return {**plain, **variables}


def run(*command: str, **variables: str) -> tuple[int, str, str]:
    """The exit status, stdout and stderr of `python COMMAND`."""
    done = subprocess.run(
        [sys.executable, *command],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def run_text(text: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """The exit status, stdout and stderr of `python -c TEXT ARGUMENTS`, torch imported before."""
    server = _server()
    assert server.stdin and server.stdout
    with tempfile.TemporaryDirectory() as name:
        request = [textwrap.dedent(text), environment(**variables), arguments, name]
        print(json.dumps(request), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        output, errors = (Path(name, file).read_text() for file in ("output", "errors"))
    return status, output, errors


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Ends with this process, when its input does."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
