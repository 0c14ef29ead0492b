"""Results of all shards -> docs/parity.md."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from parity import summary, wheels
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
    "ways": "## Code made soon, and code made as always",
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
    writers = {"tables": _tables, "results": _results, "ways": _ways, "structure": _structure}
    writers |= {"torch": _torch, "programs": _programs}
    if rows["results"] and (not chosen or "results" in chosen):
        date = _date_of(folder.glob("results-*.jsonl"))
        summary.keep(summary.renewed(summary.kept(), summary.summed_up(rows["results"], date)))
    known = _sections(PAGE.read_text()) if chosen else {}
    sections = []
    for part, title in _TITLES.items():
        if chosen and part not in chosen:
            sections += [known[title]] if title in known else []
        elif rows[part] or (part == "results" and summary.kept()):
            sections.append(f"{title}\n\n{writers[part](rows[part])}")
    PAGE.write_text("\n".join([_head(), *sections, _how()]))
    return PAGE


def _date_of(files: Iterable[Path]) -> str:
    """The day on which the last of some files was written."""
    last = max(file.stat().st_mtime for file in files)
    return datetime.fromtimestamp(last, timezone.utc).date().isoformat()


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
    return _table(("kernel", "what"), shown) + _more(found, shown)


def _more(found: Sequence[object], shown: Sequence[object]) -> str:
    more = len(found) - len(shown)
    return f"\nand {more} more.\n" if more > 0 else ""


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
    """Of the figures that are kept: rows may be of one engine."""
    engines = summary.kept()
    refused = [(row["kernel"], row["refused"]) for row in rows if row["refused"]]
    figures = _table(
        ("engine", "judged on", "kernels", *summary.KINDS),
        [
            (
                *(engine, one.date, f"{one.words.total():,}"),
                *(f"{one.words[kind]:,}" for kind in summary.KINDS),
            )
            for engine, one in engines.items()
        ],
    )
    parts = [_results_text(engines) + figures, _of_templates(engines) + _sign_table(engines)]
    if undefined := sorted({text for one in engines.values() for text in one.undefined}):
        listed = [
            (f"`{template}`", why, *(one.undefined[text] for one in engines.values()))
            for text in undefined
            for template, why in [text.split(": ", 1)]
        ]
        parts.append(_table(("template", "undefined: not launched, since", *engines), listed))
    longer = [(name, engine) for engine, one in engines.items() for name in one.other_engine]
    if longer:
        shown = [(f"`{name}`", engine) for name, engine in longer[:_MOST_LISTED]]
        parts.append(_table(("kernel", "too long for"), shown) + _more(longer, shown))
    bad = [(name, f"{engine}: {what}") for engine, one in engines.items() for name, what in one.bad]
    if bad or refused:
        parts += ["Not compared, or not equal:\n", _listed([*bad, *refused])]
    return "\n".join(parts)


def _results_text(engines: Mapping[str, summary.Summary]) -> str:
    count = max((one.compared for one in engines.values()), default=0)
    return _filled(
        f"Up to {count:,} kernels ran once from Apple's AIR and once from source, with the same"
        " bytes in one block of memory between pages that nobody may touch, and whole blocks are"
        " compared. How each family is launched"
        " (sizes with edges, strides, grids, function constants) is described in `parity/launches`."
        " Elementwise kernels, sorts and searches get special values: every second number is NaN,"
        " infinite, denormal, -0 or very large, and every one of them meets every other; sums and"
        " products get few of them. *Nothing written*: the launch left the block as it was, which"
        " proves nothing. *Other engine*: the kernel is too long for that one. *Undefined*: what"
        " MLX never launches, and nothing says the result of, or no launch can have: Apple's"
        " compiler lets a kernel declare more threadgroup memory than a threadgroup can have."
    ) + _filled(
        "Programs of a batch of kernels are made at once, and only simplified. The passes of the"
        " coroutine engine make loops and coroutines of them, those of the simdgroup engine vectors"
        " for each launch; machine code of these is not optimised, loops over arrays stay loops,"
        " and code for threadgroups that the grid cuts does for whole ones (`parity/together.py`,"
        " `parity/vectors.py`). What does not come out equal there, but for signs of NaN, is"
        " compiled as every kernel is, and judged by that."
    )


def _filled(text: str) -> str:
    return textwrap.fill(text, width=99) + "\n\n"


def _of_templates(engines: Mapping[str, summary.Summary]) -> str:
    """How much of MLX is judged: of every template, and of which not all kernels."""
    from parity import mlx, templates  # noqa: PLC0415  (torch is not needed before)

    found = (templates.template_of(name, templates.AnyType()) for name in mlx.kernels())
    there = Counter(one.function for one in found if one is not None)
    texts = []
    for engine, one in engines.items():
        judged = one.templates
        part = [name for name in there if judged[name] < there[name]]
        text = (
            f"On the {engine} engine {judged.total():,} of {there.total():,} kernels are judged,"
            f" of {len(judged)} of {len(there)} templates."
        )
        if part:
            text += (
                f" Of {len(there) - len(part)} templates all kernels ran; of the others"
                f" {sum(judged[name] for name in part):,} of {sum(there[name] for name in part):,}."
            )
        texts.append(text)
    return _filled(" ".join(texts))


def _sign_table(engines: Mapping[str, summary.Summary]) -> str:
    """Where a NaN has another sign, by template."""
    names = sorted({name for one in engines.values() for name in one.signs})
    if not names:
        return ""
    rows = [(f"`{name}`", *(_signs(one, name) for one in engines.values())) for name in names]
    text = (
        "Metal does not say which sign a NaN has. Where two operands are NaN, this machine's"
        " instructions give one of them, and which comes first is the compiler's choice. Kernels"
        " whose results differ in nothing but signs of NaN (-: none of the template is judged):"
    )
    return _filled(text) + _table(("template", *engines), rows)


def _signs(one: summary.Summary, template: str) -> str:
    return str(one.signs[template]) if one.templates[template] else "-"


def _ways(rows: Sequence[Row]) -> str:
    """What the two ways to make code came to."""
    engines = summary.summed_up(rows, "")
    kinds = ("equal", "NaN signs", "nothing written", "not run", "differ")
    text = _filled(
        "Judging by programs that are only simplified, and by machine code that is not optimised,"
        " speaks of the kernels that everybody runs if both compute the same. Kernels of a sample"
        " ran both ways, from AIR and from source, and each is compared with itself"
        " (`python -m parity --part ways --sample N`)."
    )
    figures = _table(
        ("engine", "kernels, both ways", *kinds),
        [
            (engine, f"{one.words.total():,}", *(f"{one.words[kind]:,}" for kind in kinds))
            for engine, one in engines.items()
        ],
    )
    bad = [(name, f"{engine}: {what}") for engine, one in engines.items() for name, what in one.bad]
    return "\n".join(filter(None, [text + figures, _listed(bad)]))


_STRUCTURE_TEXT = (
    "Where results cannot tell: how many additions, subtractions, products, quotients and fused"
    " multiply-adds the program of a kernel has, as the compilers leave it or after the same"
    " optimiser, which unrolls the same loops. Of vectors the components count that anything comes"
    " of; negations, which are exact, do not. Where the texts still differ, the operations are"
    " counted that a launch carries out. No optimiser makes a fused multiply-add of two operations"
    " here: of those there must be as many. Others are computed before a branch by one compiler and"
    " behind it by the other: in `four_step_mem_1024`, which was traced, threads without a"
    " butterfly compute one in vain in our program, and skip it in Apple's.",
    "`sv2_Powerfloat32` was traced too: it computes powers of one number, two in each thread."
    " Apple's compiler takes it that buffers never overlap, and reads that number once; what `pow`"
    " makes of it alone, 1 quotient and 6 fused multiply-adds, is then computed once a thread. Our"
    " program reads it again behind the first result, which may lie in the same memory, and"
    " computes it for each: 501 times more of 1,003. Nothing else differs.",
    "And which math functions it calls, the fast or the precise ones.",
)


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
    text = "".join(map(_filled, _STRUCTURE_TEXT))
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


_TORCH_TEXT = (
    "Elementwise operators in all their forms (dense, strided, broadcast, with casts), reductions,"
    " scans, norms, sorts, indexing, products. *Close* is within 2e-5 (float), 2e-3 (half), 1.6e-2"
    " (bfloat) of the CPU's result, 20 times that for special functions and sums; integers must be"
    " equal.",
    "A kernel may be wrong itself. PyTorch's `logaddexp` of complex numbers whose real parts are"
    " equal takes the second number for both: `logaddexp(6+0.3i, 6-0.47i)` is 6-0.47i and log 2"
    " more. That is what its AIR says, so it is what it computes here; the CPU's result is right.",
)


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
    text = "".join(map(_filled, _TORCH_TEXT))
    return "\n".join(filter(None, [text + figures, _listed(bad)]))


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
