"""`anymetal lint`: compile every kernel in the files and show what the compiler says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from anymetal.checker.annotations import wanted
from anymetal.cli.diagnostics import annotation, lint_sarif
from anymetal.cli.files import STDOUT, check_writable
from anymetal.cli.publish import write
from anymetal.cli.screen import Json, finish
from anymetal.cli.screen import console as the_console
from anymetal.cli.sources import (
    Define,
    Diagnostic,
    Include,
    LanguageVersion,
    Library,
    Options,
    diagnostics_of,
    is_binary,
    source_of,
)
from anymetal.cli.verbs.kernels import executable_of, set_constants
from anymetal.engines.choose import REFERENCE, checking_target
from anymetal.engines.compiler import Compiler
from anymetal.engines.registry import METAL
from anymetal.errors import AnymetalError
from anymetal.hub.build_file import NAME as BUILD_FILE
from anymetal.hub.build_file import read_build
from anymetal.msl.check import check_all, check_entries, mistakes
from anymetal.msl.check_spaces import check_spaces
from anymetal.msl.compile import refuse_undefined, wrong_types
from anymetal.msl.diagnostics import raise_problems
from anymetal.nouns import EntryPoint, Prepared

# Says which kernel is being compiled, how many are done, and how many there are.
Step = Callable[[str, int, int], None]


app = typer.Typer()


@app.command()
def lint(
    files: Annotated[
        list[Path],
        typer.Argument(
            exists=True, help="Metal files, directories of them, build.toml files, metallibs"
        ),
    ],
    library: Library = None,
    include: Include = None,
    define: Define = None,
    language: LanguageVersion = None,
    as_json: Json = False,
    sarif: Annotated[
        str | None, typer.Option(metavar="FILE", help="write SARIF for code scanning; - is stdout")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="also generate code, which finds broken limits; slow")
    ] = False,
) -> None:
    """Compile every kernel in the files; the exit status is 1 when one has an error."""
    check_writable(sarif=sarif)
    options = Options.parse(include, define, library, language)
    reports = lint_files(metal_files(files), options, full)
    if as_json:
        print(json.dumps(as_data(reports), indent=2))
    elif sarif != STDOUT:
        _print(the_console(), reports)
    found = [diagnostic for report in reports for diagnostic in report.diagnostics]
    if sarif:
        write(sarif, lint_sarif(found))
    for line in map(annotation, found) if wanted() else ():
        print(line, file=sys.stderr)
    finish(all(report.passed for report in reports))


def metal_files(paths: Sequence[Path]) -> list[Path]:
    """The files, those that a build.toml lists, and all that end in .metal in other directories;
    each once."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.name == BUILD_FILE or (path / BUILD_FILE).is_file():
            inside = list(read_build(path).sources)
        else:
            inside = sorted(path.rglob("*.metal")) if path.is_dir() else [path]
        if not inside:
            raise typer.BadParameter(f"{path}: no .metal file in this directory")
        found |= dict.fromkeys(inside)
    return list(found)


@dataclass(frozen=True)
class FileReport:
    """What became of one file; `text` is what the compiler said, with the author's lines."""

    file: str
    kernels: int = 0
    failed: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    text: str = ""

    @property
    def passed(self) -> bool:
        return not any(found.severity == "error" for found in self.diagnostics)

    def with_warnings(self, warnings: Sequence[str]) -> FileReport:
        text = "\n".join(warnings)
        found = diagnostics_of(text, Path(self.file)) if text else []
        return replace(self, text=text, diagnostics=(*self.diagnostics, *found))

    def with_error(self, error: Exception, failed: Sequence[str]) -> FileReport:
        return replace(
            self,
            failed=(*self.failed, *failed),
            diagnostics=(*self.diagnostics, *diagnostics_of(str(error), Path(self.file))),
            text="\n".join(filter(None, (self.text, str(error)))),
        )


def lint_files(paths: Sequence[Path], options: Options, full: bool) -> list[FileReport]:
    """Compile the kernels of all files."""
    with _progress() as progress:
        task = progress.add_task("", total=None)

        def step(kernel: str, done: int, total: int) -> None:
            progress.update(task, description=kernel, completed=done, total=total)

        return [lint_file(path, options, full, step) for path in paths]


def lint_file(
    path: Path, options: Options, full: bool = False, step: Step = lambda *_: None
) -> FileReport:
    """Compile every kernel of one file."""
    step(path.name, 0, 1)
    report = FileReport(str(path))
    if is_binary(path):
        return _lint_metallib(report, path, options, full, step)
    try:
        prepared = METAL.prepared(source_of(path, options))
    except (AnymetalError, UnicodeDecodeError) as error:
        return report.with_error(error, ())
    report = replace(report, kernels=len(prepared.entry_points))
    try:
        target = checking_target()
        check_all(prepared, target)
        check_spaces(prepared, target)
        warnings = (*prepared.remarks, *prepared.warnings, *mistakes(prepared, target))
    except AnymetalError as error:
        return report.with_error(error, failing(prepared, step))
    report = report.with_warnings(warnings)
    if full:
        return _generate(report, prepared, step)
    try:
        refuse_undefined(prepared, list(prepared.entry_points.values()), checking_target())
    except AnymetalError as error:
        return report.with_error(error, undefined(prepared))
    wrong = wrong_types(prepared, checking_target())
    if wrong:
        problems = list(dict.fromkeys(problem for found in wrong.values() for problem in found))
        try:
            raise_problems(problems, prepared.source_map.excerpt)
        except AnymetalError as error:
            return report.with_error(error, list(wrong))
    return report


def _lint_metallib(
    report: FileReport, path: Path, options: Options, full: bool, step: Step
) -> FileReport:
    """Whether each kernel of a metallib can be made a program, or with `full` code."""
    try:
        compiler = Compiler(source_of(path, options))
    except AnymetalError as error:
        return report.with_error(error, ())
    names = compiler.outline.kernels
    report = replace(report, kernels=len(names))
    for number, name in enumerate(names):
        step(name, number, len(names))
        try:
            if full:
                executable_of(compiler, name, REFERENCE)
            else:
                compiler.program(name, set_constants(compiler, name))
        except AnymetalError as error:
            report = report.with_error(error, [name])
    return report


def undefined(prepared: Prepared) -> list[str]:
    """The kernels that use what nobody defines."""
    found = []
    for name, entry in prepared.entry_points.items():
        try:
            refuse_undefined(prepared, [entry], checking_target())
        except AnymetalError:
            found.append(name)
    return found


def failing(prepared: Prepared, step: Step = lambda *_: None) -> list[str]:
    """The kernels that do not compile: all of them when the text itself has an error."""
    entries = list(prepared.entry_points.values())
    if not _compiles(prepared, []):
        return [entry.name for entry in entries]
    found: list[str] = []
    _bisect(prepared, entries, found, lambda done: step("", done, len(entries)))
    return found


def _bisect(
    prepared: Prepared,
    entries: list[EntryPoint],
    found: list[str],
    done: Callable[[int], None],
) -> int:
    """Halve a list of kernels that has a wrong one until each wrong one stands alone."""
    if _compiles(prepared, entries):
        return len(entries)
    if len(entries) == 1:
        found.append(entries[0].name)
        return 1
    middle = len(entries) // 2
    count = _bisect(prepared, entries[:middle], found, done)
    done(count)
    return count + _bisect(prepared, entries[middle:], found, lambda more: done(count + more))


def _compiles(prepared: Prepared, entries: list[EntryPoint]) -> bool:
    try:
        check_entries(prepared, entries, checking_target())
    except AnymetalError:
        return False
    return True


def _generate(report: FileReport, prepared: Prepared, step: Step) -> FileReport:
    """Generate code for each kernel too: limits such as threadgroup memory are known only then."""
    compiler = Compiler(prepared.source)
    for number, name in enumerate(prepared.entry_points):
        step(name, number, len(prepared.entry_points))
        try:
            executable_of(compiler, name, REFERENCE)
        except AnymetalError as error:
            report = report.with_error(error, [name])
    return report


def as_data(reports: Sequence[FileReport]) -> dict[str, object]:
    """The reports as --json prints them."""
    return {
        "files": [
            {
                "file": report.file,
                "passed": report.passed,
                "kernels": report.kernels,
                "failed": list(report.failed),
                "diagnostics": [asdict(found) for found in report.diagnostics],
            }
            for report in reports
        ],
        "passed": all(report.passed for report in reports),
    }


def _print(console: Console, reports: Sequence[FileReport]) -> None:
    for report in reports:
        if report.text:
            console.print(report.text, markup=False, highlight=False, soft_wrap=True)
    kernels = sum(report.kernels for report in reports)
    compiled = kernels - sum(len(report.failed) for report in reports)
    wrong = sum(not report.passed for report in reports)
    style = "red" if wrong else "green"
    files = f"{len(reports) - wrong} of {len(reports)} files"
    console.print(f"[{style}]{files} and {compiled} of {kernels} kernels compile[/]")


def _progress() -> Progress:
    """On the terminal only, and gone when it is done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
