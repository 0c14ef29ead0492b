"""The operator reference, from the declarations: signature, dtypes, cost, accuracy, launches."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from anymetal import linalg, ops
from anymetal.evidence.measure import cost_of_call
from anymetal.ops.declare import OPERATORS
from anymetal.policy.policy import PACKAGE_FILE, Row, read_policies

ACCURACY = Path(__file__).parent.parent.parent / "docs" / "accuracy.md"


def pages() -> dict[str, str]:
    """A page for each family of operators, by its path in the site, and a list of all."""
    families: dict[str, list[Any]] = defaultdict(list)
    for operator in OPERATORS.values():
        families[_family(operator)].append(operator)
    rows, accuracy = read_policies(PACKAGE_FILE).rows, _accuracy()
    found = {
        f"reference/operators/{family}.md": _page(family, members, rows, accuracy)
        for family, members in sorted(families.items())
    }
    found["reference/operators/index.md"] = _index(families)
    return found


def _family(operator: Any) -> str:
    folder = Path(operator.kernels.path).parent
    return "linalg" if "linalg" in folder.parts else folder.name


def _index(families: dict[str, list[Any]]) -> str:
    lines = [
        "# Operators\n",
        f"{sum(map(len, families.values()))} operators, from their declarations. Each is"
        " `torch.ops.anymetal.NAME` too; an operator named `..._backward` is the gradient alone.\n",
        "| family | operators |",
        "|---|---|",
    ]
    for family, members in sorted(families.items()):
        names = ", ".join(f"[{o.name}]({family}.md#{o.name})" for o in members)
        lines.append(f"| [{family}]({family}.md) | {names} |")
    return "\n".join(lines) + "\n"


def _page(family: str, members: list[Any], rows: Any, accuracy: dict[str, str]) -> str:
    parts = [f"# {family}"]
    for operator in members:
        parts.append(f"## {operator.name}")
        parts.append(_about(operator))
        schema = textwrap.fill(
            f"anymetal::{operator.signature.schema}", 96, subsequent_indent="    "
        )
        parts.append(f"```text\n{schema}\n```")
        parts.append(_facts(operator, accuracy))
        parts.append(_launches(operator, rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(operator: Any) -> str:
    room = getattr(linalg if _family(operator) == "linalg" else ops, operator.name, None)
    text = getattr(room, "__doc__", None) or operator.room.__doc__ or ""
    return text.strip().partition("\n\n")[0].replace("\n    ", "\n")


def _facts(operator: Any, accuracy: dict[str, str]) -> str:
    dtypes = ", ".join(str(dtype).removeprefix("torch.") for dtype in operator.dtypes)
    shapes = "; ".join(dict.fromkeys(case.name for case in operator.cases))
    gradient = "yes" if operator.differentiable else f"none: {operator.no_gradient}"
    lines = ["| | |", "|---|---|", f"| dtypes | {dtypes} |", f"| gradient | {gradient} |"]
    lines.append(f"| tested with | {_cell(shapes) or 'the tests of what it is part of'} |")
    lines.append(f"| cost | {_cost(operator)} |")
    if operator.name in accuracy:
        lines.append(
            f"| [error](../../docs/accuracy.md) over torch's | {accuracy[operator.name]} |"
        )
    return "\n".join(lines)


def _cost(operator: Any) -> str:
    """The least a call must move and compute, for one of its cases."""
    if operator.cost is None or not operator.cases:
        return "not declared"
    case = operator.cases[-1]
    args, keywords = case.make(torch.float32, torch.device("cpu"), torch.Generator().manual_seed(0))
    cost = cost_of_call(operator, operator.cost, args, keywords)
    flops = f", {cost.flops:,} floating-point operations" if cost.flops else ""
    return f"{_cell(case.name)}: {cost.read:,} bytes read, {cost.write:,} written{flops}"


def _launches(operator: Any, rows: tuple[Row, ...]) -> str:
    named = [row for row in rows if operator.name in row.operators]
    if not named:
        return ""
    lines = ["| launch | threadgroup | where | tried by `anymetal tune` |", "|---|---|---|---|"]
    for row in named:
        dtypes = ", ".join(sorted(row.dtypes))
        where = " ".join(word for word in (row.device, dtypes, row.shape_class) if word != "*")
        tried = "; ".join(f"{k}: {', '.join(map(str, v))}" for k, v in row.candidates.items())
        strategies = ", ".join(sorted(row.strategies))
        lines.append(f"| {strategies} | {row.group_size} | {where or 'everywhere'} | {tried} |")
    return "\n".join(lines)


def _accuracy() -> dict[str, str]:
    """The first figure of each operator's row in docs/accuracy.md: float32."""
    rows = re.findall(r"^\| ([a-z_0-9]+) \| ([^|]+) \|", ACCURACY.read_text(), re.MULTILINE)
    return {name: figure.strip() for name, figure in rows if figure.strip()}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
