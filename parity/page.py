"""Results of all shards -> docs/parity.md."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from parity import wheels
from parity.__main__ import results_in
from parity.executed import SAME_FUSED

PAGE = Path(__file__).parent.parent / "docs" / "parity.md"
_MOST_LISTED = 60
Row = dict[str, Any]

_HEAD = """# Parity with Apple's compiler

Written by `python -m parity --page` from the results of `make parity`. No Mac is at hand, but what
Apple's compiler made of public sources is: the macOS wheels of `mlx-metal` and `torch` hold
metallibs. Their kernels run here ([compiled kernels](metallibs.md)), and judge what our own front
end makes of the same sources.

- MLX: {mlx}, {mlx_kernels:,} kernels. The wheel's headers have
  the templates of {with_source:,} of them; most of the rest has its text in files that are not in
  the wheel.
- PyTorch: {torch}, {torch_kernels:,} kernels in its first
  metallib (AIR 2.6), {with_case:,} of them with a case in `parity/pytorch.py`.

Both of a pair run the implementation of `air.*` functions that anymetal has. Equal bits therefore
speak of the front end: language rules, promotions, contraction, layout, what Apple's own headers
inline. They say nothing about what the GPU's compiler and hardware do with those functions.
"""


_TITLES = {
    "tables": "## Accepted, and with the same arguments",
    "results": "## The same results, bit by bit",
    "structure": "## The same operations",
    "torch": "## PyTorch's kernels against torch on the CPU",
    "programs": "## Kernels that become programs",
}


def write_page(folder: Path, chosen: Sequence[str] | None = None) -> Path:
    """Writes the page of what is kept; of parts that are not chosen the sections stay.

    Left to itself it writes all of it, without the parts that nobody has run.
    """
    rows = {part: list(results_in(folder, part).values()) for part in _TITLES}
    judged = {row["kernel"]: row for part in ("tables", "results") for row in rows[part]}
    rows["tables"] = list(judged.values())  # who runs a kernel compares its arguments too
    writers = {"tables": _tables, "results": _results, "structure": _structure, "torch": _torch}
    writers["programs"] = _programs
    known = _sections(PAGE.read_text()) if chosen else {}
    sections = []
    for part, title in _TITLES.items():
        if chosen and part not in chosen:
            sections += [known[title]] if title in known else []
        elif rows[part]:
            sections.append(f"{title}\n\n{writers[part](rows[part])}")
    PAGE.write_text("\n".join([_head(), *sections, _how()]))
    return PAGE


def _sections(text: str) -> dict[str, str]:
    """The sections of a page by their headings."""
    found = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return {part.partition("\n")[0]: part.rstrip("\n") + "\n" for part in found}


def _head() -> str:
    from parity import mlx, pytorch  # noqa: PLC0415  (they import torch)

    return _HEAD.format(
        mlx=wheels.MLX.label,
        mlx_kernels=len(mlx.kernels()),
        with_source=sum(map(mlx.has_source, mlx.kernels())),
        torch=wheels.TORCH.label,
        torch_kernels=len(pytorch.kernels()),
        with_case=sum(map(pytorch.has_case, pytorch.kernels())),
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _listed(found: Sequence[tuple[str, str]]) -> str:
    if not found:
        return ""
    shown = [(f"`{name}`", what.replace("|", "\\|")) for name, what in found[:_MOST_LISTED]]
    more = len(found) - len(shown)
    rest = f"\nand {more} more.\n" if more > 0 else ""
    return _table(("kernel", "what"), shown) + rest


def _tables(rows: Sequence[Row]) -> str:
    refused = [(row["kernel"], row["refused"]) for row in rows if row["refused"]]
    other = [(row["kernel"], row["arguments"]) for row in rows if row["arguments"]]
    figures = _table(
        ("MLX's kernels", "judged", "accepted", "argument tables equal"),
        [("all families", *_counts(len(rows), len(refused), len(other)))],
    )
    return "\n".join(filter(None, [figures, _listed(refused), _listed(other)]))


def _counts(judged: int, refused: int, other: int) -> tuple[str, str, str]:
    return f"{judged:,}", f"{judged - refused:,}", f"{judged - refused - other:,}"


def _results(rows: Sequence[Row]) -> str:
    words: dict[str, Counter[str]] = {}
    signs, undefined = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    bad = []
    for row in rows:
        for engine, word in row["results"]:
            words.setdefault(engine, Counter())[_kind(word)] += 1
            if _kind(word) == "NaN signs":
                signs[row["family"], engine] += 1
            elif _kind(word) == "undefined":
                undefined[row["family"], word.removeprefix("undefined: ")] += 1
            elif _kind(word) in ("nothing written", "not run", "differ"):
                bad.append((row["kernel"], f"{engine}: {word}"))
        if row["refused"]:
            bad.append((row["kernel"], row["refused"]))
    kinds = (
        *("equal", "NaN signs", "nothing written", "other engine", "undefined"),
        *("not run", "differ"),
    )
    figures = _table(
        ("engine", "kernels", *kinds),
        [
            (engine, f"{counts.total():,}", *(f"{counts[kind]:,}" for kind in kinds))
            for engine, counts in words.items()
        ],
    )
    parts = [_results_text(rows) + figures, _of_templates(rows) + _sign_table(signs)]
    if undefined:
        listed = [(f"`{name}`", why, count) for (name, why), count in sorted(undefined.items())]
        parts.append(_table(("template", "undefined: not launched, since", "kernels"), listed))
    if bad:
        parts += ["Not compared, or not equal:\n", _listed(bad)]
    return "\n".join(parts)


def _results_text(rows: Sequence[Row]) -> str:
    count = sum(map(_was_compared, rows))
    return _filled(
        f"{count:,} kernels ran once from Apple's AIR and once from source, with the same bytes"
        " in one block of memory, and whole blocks are compared. How each family is launched (sizes"
        " with edges, strides, grids, function constants) is described in `parity/launches`."
        " Elementwise kernels, sorts and searches get special values: every second number is NaN,"
        " infinite, denormal, -0 or very large, and every one of them meets every other; sums and"
        " products get few of them. *Nothing written*: the launch left the block as it was, which"
        " proves nothing. *Other engine*: the kernel is too long for that one. *Undefined*: what"
        " MLX never launches, and nothing says the result of, or no launch can have: Apple's"
        " compiler lets a kernel declare more threadgroup memory than a threadgroup can have."
    ) + _filled(
        "For the coroutine engine alone, code is made for a batch of kernels at once, and both"
        " programs are only simplified, not optimised (`parity/together.py`). What does not come"
        " out equal there, but for signs of NaN, is compiled as every kernel is, and judged by"
        " that."
    )


def _was_compared(row: Row) -> bool:
    kinds = {_kind(word) for _, word in row["results"]}
    return not row["refused"] and not kinds <= {"undefined", "not run", "other engine"}


def _filled(text: str) -> str:
    return textwrap.fill(text, width=99) + "\n\n"


def _of_templates(rows: Sequence[Row]) -> str:
    """How much of MLX is judged: of every template, and of which not all kernels."""
    from parity import mlx, templates  # noqa: PLC0415  (torch is not needed before)

    found = (templates.template_of(name, templates.AnyType()) for name in mlx.kernels())
    there = Counter(one.function for one in found if one is not None)
    judged = Counter(row["family"] for row in rows)
    part = [name for name in there if judged[name] < there[name]]
    text = (
        f"Judged are {judged.total():,} of {there.total():,} kernels and {len(judged)} of"
        f" {len(there)} templates."
    )
    if part:
        text += (
            f" Of {len(there) - len(part)} templates all kernels ran; of the others"
            f" {sum(judged[name] for name in part):,} of {sum(there[name] for name in part):,}."
        )
    return _filled(text)


def _sign_table(signs: Counter[tuple[str, str]]) -> str:
    """Where a NaN has another sign, by template."""
    if not signs:
        return ""
    rows = [(f"`{name}`", engine, count) for (name, engine), count in sorted(signs.items())]
    text = (
        "Metal does not say which sign a NaN has. Where two operands are NaN, this machine's"
        " instructions give one of them, and which comes first is the compiler's choice. Kernels"
        " whose results differ in nothing but signs of NaN:"
    )
    return _filled(text) + _table(("template", "engine", "kernels"), rows)


def _kind(word: str) -> str:
    if word in ("equal", "NaN signs"):
        return word
    if word == "equal, nothing written":
        return "nothing written"
    if word.startswith("engine: "):
        return "other engine"
    if word.startswith("undefined: "):
        return "undefined"
    return "not run" if word.startswith("not run") else "differ"


def _structure(rows: Sequence[Row]) -> str:
    words: dict[str, list[str]] = {"structure": [], "functions": []}
    other = []
    for row in rows:
        for what, word in row["results"]:
            if word.startswith("undefined: "):
                continue
            words[what].append(word)
            if word != "equal":
                other.append((row["kernel"], word))
    text = _filled(
        "Where results cannot tell: how many additions, subtractions, products, quotients and fused"
        " multiply-adds the program of a kernel has, as the compilers leave it or after the same"
        " optimiser, which unrolls the same loops. Of vectors the components count that anything"
        " comes of; negations, which are exact, do not. Where the texts still differ, the"
        " operations are counted that a launch carries out. No optimiser makes a fused multiply-add"
        " of two operations here: of those there must be as many. Others are computed before a"
        " branch by one compiler and behind it by the other: in `four_step_mem_1024`, which was"
        " traced, threads without a butterfly compute one in vain in our program, and skip it in"
        " Apple's."
    ) + _filled("And which math functions it calls, the fast or the precise ones.")
    names = {"structure": "operations", "functions": "functions called"}
    figures = _table(
        ("of programs", "compared", "equal", "as many fused", "differ"),
        [(names[what], *_structure_counts(found)) for what, found in words.items()],
    )
    return "\n".join([text.rstrip("\n") + "\n", figures, _listed(other[:15])])


def _structure_counts(words: Sequence[str]) -> tuple[str, ...]:
    equal = words.count("equal")
    fused = sum(word.startswith(f"{SAME_FUSED}: ") for word in words)
    counts = (len(words), equal, fused, len(words) - equal - fused)
    return tuple(f"{count:,}" for count in counts)


def _torch(rows: Sequence[Row]) -> str:
    words = Counter(_torch_kind(row["results"][0][1]) for row in rows)
    bad = [
        (row["kernel"], row["results"][0][1])
        for row in rows
        if _torch_kind(row["results"][0][1]) in ("off", "not run")
    ]
    kinds = ("equal", "close", "off", "not run")
    figures = _table(
        ("PyTorch's kernels run", *kinds),
        [(f"{len(rows):,}", *(f"{words[kind]:,}" for kind in kinds))],
    )
    text = (
        "Elementwise operators in all their forms (dense, strided, broadcast, with casts),"
        " reductions, scans,\nnorms, sorts, indexing, products. *Close* is within 2e-5 (float),"
        " 2e-3 (half), 1.6e-2 (bfloat) of\nthe CPU's result, 20 times that for special functions"
        " and sums; integers must be equal.\n"
    )
    return "\n".join([text, figures, _listed(bad)])


def _torch_kind(word: str) -> str:
    if word in ("equal", "close"):
        return word
    return "not run" if word.startswith("not run") else "off"


def _programs(rows: Sequence[Row]) -> str:
    judged = Counter(row["family"] for row in rows)
    refused = Counter(row["family"] for row in rows if row["refused"])
    reasons = Counter(_reason(row["refused"]) for row in rows if row["refused"])
    figures = _table(
        ("metallib", "kernels tried", "become programs"),
        [(name, f"{judged[name]:,}", f"{judged[name] - refused[name]:,}") for name in judged],
    )
    text = (
        "Of the metallibs of both MLX builds (AIR 2.6 and 2.8) and of both in torch: a sample,"
        " without\nmachine code.\n"
    )
    listed = _table(("refused because it calls", "kernels"), reasons.most_common())
    return "\n".join([text, figures, listed if reasons else ""])


def _reason(text: str) -> str:
    match = re.search(r"calls (\S+),", text)
    return f"`{match[1]}`" if match else text[:80]


def _how() -> str:
    return (
        "## How to run it\n\n"
        "`make parity` judges everything, which takes hours; `python -m parity --shard 3/8` an"
        " eighth of it.\n`make test` has a sample. The wheels are fetched once, by exact version,"
        " into `.anymetal/parity`;\nnothing of them is in the repository. Without a network it"
        " says so, and fails only in CI.\n"
    )
