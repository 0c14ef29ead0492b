"""A page for each command, from the command line's own declarations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import yaml

from anymetal import settings
from anymetal.cli.app import app

EXAMPLES = yaml.safe_load((Path(__file__).parent / "examples.yml").read_text())


def pages() -> dict[str, str]:
    """The pages by their path in the site."""
    group = typer.main.get_command(app)
    context = group.make_context("anymetal", [], resilient_parsing=True)
    names = group.list_commands(context)  # type: ignore[attr-defined]
    found = {}
    for name in names:
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        found[f"reference/commands/{name}.md"] = _page(command, context, name)
    summaries = {name: _first_line(group.get_command(context, name)) for name in names}  # type: ignore[attr-defined]
    found["reference/commands/index.md"] = _index(summaries)
    return found


def _index(summaries: dict[str, str]) -> str:
    lines = ["# Commands\n", "| command | |", "|---|---|"]
    lines += [f"| [anymetal {name}]({name}.md) | {text} |" for name, text in summaries.items()]
    lines += ["\n## Settings\n", "| variable | meaning |", "|---|---|"]
    lines += [f"| `{setting.variable}` | {_cell(setting.meaning)} |" for setting in settings.ALL]
    return "\n".join(lines) + "\n"


def _page(command: Any, above: Any, name: str) -> str:
    about, usage, *rest = _parts(command, above, f"anymetal {name}")
    calls, guide = "\n".join(EXAMPLES[name]["calls"]), EXAMPLES[name]["guide"]
    begin = f"To begin with ([more](../../docs/{guide})):\n\n```sh\n{calls}\n```"
    return "\n\n".join([f"# anymetal {name}", about, begin, usage, *rest]) + "\n"


def _parts(command: Any, above: Any, name: str) -> Iterator[str]:
    context = command.context_class(command, info_name=command.name, parent=above)
    yield (command.help or "").replace("\b", "").strip()
    pieces = " ".join(command.collect_usage_pieces(context)).replace("[[OP]...]", "[OP]")
    yield f"```text\n{name} {pieces}\n```"
    if hasattr(command, "list_commands"):
        for inner in command.list_commands(context):
            yield f"## {name} {inner}"
            yield from _parts(command.get_command(context, inner), context, f"{name} {inner}")
        return
    rows = [row for parameter in command.params for row in _rows(parameter)]
    if rows:
        yield "\n".join(["| | | |", "|---|---|---|", *rows])


def _rows(parameter: Any) -> Iterator[str]:
    if getattr(parameter, "hidden", False) or parameter.name in _OF_EVERY_COMMAND:
        return
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        value = f" {parameter.metavar}" if parameter.metavar else ""
        words = (*parameter.opts, *parameter.secondary_opts)
        names = ", ".join(f"`{word}{value}`" for word in words)
    default = parameter.default
    shown = "" if default in (None, "", False, ()) or callable(default) else f"default `{default}`"
    yield f"| {names} | {_cell(getattr(parameter, 'help', '') or '')} | {shown} |"


_OF_EVERY_COMMAND = {"install_completion", "show_completion", "help"}


def _first_line(command: Any) -> str:
    return _cell((command.help or "").strip().partition("\n")[0])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
