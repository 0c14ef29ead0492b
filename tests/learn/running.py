"""A page's code blocks go in; they run as a reader would run them, and what they print is compared.

Blocks of Python share their names from the top of a page to its end. Lines of shell that call
`anymetal` or a script of the page run in this process, since a new one takes two seconds to import
torch; other lines are bash's. A line that ends in `# exit status 1` must end so.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from tests.learn.blocks import ROOT, Block
from tests.learn.standin import compile_objective_c
from typer.testing import CliRunner

import anymetal
from anymetal.cli.app import app

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n#line 1\n"
# What a page may rely on: a terminal of that width, and where the repository is.
VARIABLES = {"COLUMNS": "100", "ANYMETAL_ROOT": str(ROOT)}
STATUS = re.compile(r"\s+# exit status (\d+)$")
ASSIGNMENT = re.compile(r"(\w+)=(\S*)")
# Commands that become another process, or that change this one for good.
APART = re.compile(r"[|&;<>$`]|^(?!(\w+=\S* )*anymetal |python \w+\.py)|\banymetal run |--mps\b")


class Page:
    """The state of one page: names of Python, files in a folder, what was printed last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "page"}
        self.printed = ""
        self.counts: Counter[str] = Counter()

    def run(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            try:
                self.step(block)
            except Exception as error:
                raise AssertionError(f"the block at {block}: {error}") from error

    def step(self, block: Block) -> None:
        done = getattr(self, f"_{re.sub('[^a-z]', '_', block.language) or 'nothing'}", None)
        assert done is not None, f"{block}: a block needs a language; {block.language!r} is none"
        if block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        done(block)

    def _python(self, block: Block) -> None:
        # Blank lines before it: a traceback, and the checker, name the lines of the page.
        text = "\n" * (block.line - 1) + block.text
        code = compile(text, str(block.place), "exec")
        if block.mark or block.title:
            self.counts["compiled"] += 1
            return
        screen = StringIO()
        with redirect_stdout(screen):
            exec(code, self.names)
        self.printed = screen.getvalue()
        self.counts["executed"] += 1

    def _sh(self, block: Block) -> None:
        if block.mark or block.title:
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
            self.counts["parsed"] += 1
            return
        lines = [line for line in _logical_lines(block.text) if not line.startswith("#")]
        if any(APART.search(STATUS.sub("", line)) for line in lines):
            self._bash(lines)
        else:
            self.printed = "".join(self._command(line) for line in lines)
        self.counts["executed"] += 1

    def _command(self, line: str) -> str:
        status = STATUS.search(line)
        words = shlex.split(STATUS.sub("", line))
        variables = {**VARIABLES}
        while assigned := ASSIGNMENT.fullmatch(words[0]):
            variables[assigned.group(1)] = assigned.group(2)
            del words[0]
        if words[0] == "python":
            return self._script(words[1:])
        result = CliRunner().invoke(app, words[1:], env=variables)
        wanted = int(status.group(1)) if status else 0
        assert result.exit_code == wanted, f"{line}: {result.exit_code}\n{result.output}"
        return result.output

    def _script(self, words: list[str]) -> str:
        """A script as `python` runs it; what it imported of the page is forgotten again."""
        before, arguments, screen = set(sys.modules), sys.argv, StringIO()
        sys.argv = words
        sys.path.insert(0, str(self.folder))
        try:
            with redirect_stdout(screen):
                runpy.run_path(words[0], run_name="__main__")
        finally:
            sys.argv = arguments
            sys.path.remove(str(self.folder))
            for name in set(sys.modules) - before:
                if (self.folder / name).with_suffix(".py").exists():
                    del sys.modules[name]
        return screen.getvalue()

    def _bash(self, lines: list[str]) -> None:
        script = "set -euo pipefail\n" + "\n".join(_with_status(line) for line in lines)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), **VARIABLES},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        self.printed = done.stdout + done.stderr

    def _metal(self, block: Block) -> None:
        """Compiled; a source with `// refused: words` in it must be refused with these words."""
        complete = "#include" in block.text
        refused = re.search(r"// refused: (.*)", block.text)
        text = block.text if complete else HEADER + block.text
        self.counts["compiled"] += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                anymetal.compile_shader(text, name=str(block))
        except (SyntaxError, anymetal.errors.UnsupportedError) as error:
            assert refused and refused.group(1) in str(error), error
        else:
            assert not refused, "it was to be refused"

    def _objc__(self, block: Block) -> None:
        compile_objective_c(block.text)
        self.counts["compiled"] += 1

    def _output(self, block: Block) -> None:
        """What was printed has these lines; `…` stands for what changes from run to run."""
        parts = [re.escape(part) for part in _plain(block.text).split("…")]
        assert re.search(".*?".join(parts), _plain(self.printed), re.DOTALL), (
            f"{block}: it says\n{block.text}but printed was\n{self.printed}"
        )
        self.counts["compared"] += 1

    def _text(self, block: Block) -> None:
        self.counts["text"] += 1

    def _toml(self, block: Block) -> None:
        tomllib.loads(block.text)
        self.counts["parsed"] += 1

    def _yaml(self, block: Block) -> None:
        yaml.safe_load(block.text)
        self.counts["parsed"] += 1

    def _json(self, block: Block) -> None:
        json.loads(block.text)
        self.counts["parsed"] += 1

    def _markdown(self, block: Block) -> None:
        self.counts["text"] += 1


def _logical_lines(text: str) -> list[str]:
    """Lines of shell with what a backslash continues."""
    return [line for line in re.sub(r"\\\n\s*", " ", text).splitlines() if line.strip()]


def _with_status(line: str) -> str:
    status = STATUS.search(line)
    if not status:
        return line
    command = STATUS.sub("", line)
    return f"ended=0; {command} || ended=$?; test $ended -eq {status.group(1)}"


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
