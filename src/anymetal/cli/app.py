"""The command line: finds the verbs, lists them, and imports the one that is called."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from anymetal import __version__, settings
from anymetal.errors import BuildFileError, PolicyError, ProjectError

_VERBS = Path(__file__).parent / "verbs"


class Verbs(TyperGroup):
    """The files in `verbs/`. Most need torch; the list of them and `run` do not."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(path.stem for path in _VERBS.glob("[!_]*.py"))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=_summary(cmd_name))
        command = typer.main.get_command(import_module(f"{__package__}.verbs.{cmd_name}").app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        """A mistake in a configuration file is wrong usage, in one line."""
        try:
            return super().invoke(ctx)
        except (ProjectError, PolicyError, BuildFileError) as error:
            raise typer.BadParameter(str(error)) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of all verbs, read from their files: importing them would take seconds."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


def _summary(verb: str) -> str:
    """What a verb does, in a line: the first of its file's docstring, without its name."""
    text = ast.get_docstring(ast.parse((_VERBS / f"{verb}.py").read_text())) or ""
    line = text.partition("\n")[0].partition(": ")[2]
    return line[:1].upper() + line[1:]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"anymetal {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\n\n".join(
        f"[bold]{setting.variable}[/]  {setting.meaning}" for setting in settings.ALL
    ),
)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="and exit")
    ] = False,
) -> None:
    """Metal kernels for PyTorch on any machine."""
