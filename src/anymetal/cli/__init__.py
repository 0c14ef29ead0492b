"""The command `anymetal`: one file for each of its verbs."""

from __future__ import annotations


def main() -> None:
    """What the installed script calls."""
    from anymetal.cli.app import app  # noqa: PLC0415  (rich and typer are only for the command)

    app()
