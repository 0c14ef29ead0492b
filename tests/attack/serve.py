"""The other end of worker.py: questions as lines of JSON in, how each case ended out."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("ANYMETAL_TIME_LIMIT", "20")
ENGINES = {"simdgroup": "auto", "coroutine": "coroutine"}
WAYS = (*ENGINES, "checked")


def main() -> None:
    """With `--apart` each question goes to a copy of this process, which may die of it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels and libraries print is no answer
    warnings.simplefilter("ignore")
    apart = "--apart" in sys.argv
    if apart:
        import tests.checker.bad_kernel  # noqa: F401, PLC0415  (torch, once for all copies)
    for line in sys.stdin:
        if not apart:
            print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)
            continue
        copy = os.fork()
        if copy == 0:
            print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        if status != 0:
            print(json.dumps(f"dies: status {status}"), file=answers, flush=True)


def _answer(question: dict[str, Any]) -> str:
    if "file" in question:
        return _judged(Path(question["file"]))
    os.environ["ANYMETAL_COMPILE_LIMIT"] = str(question["limit"])
    os.environ["ANYMETAL_ENGINE"] = ENGINES.get(question["way"], "auto")
    try:
        return _run(question)
    except SyntaxError as error:
        return f"refused: {_one_line(error)}"
    except Exception as error:
        names = " ".join(cls.__name__ for cls in type(error).__mro__)
        return f"raises {names}: {_one_line(error)}"


def _run(question: dict[str, Any]) -> str:
    from tests.checker import bad_kernel  # noqa: PLC0415  (torch is imported once a process)

    words = tuple(question["launch"].split())
    refused_too = question["way"] == "checked" and question["plain"].startswith("LimitError")
    raises = "LimitError" if refused_too else None
    case = bad_kernel.BadKernel(Path(question["name"]), (), (), raises, words, question["source"])
    if question["way"] != "checked":
        bad_kernel.run(case, case.arguments())
        return "runs"
    report = bad_kernel.run_checked(case)
    return f"finds {', '.join(dict.fromkeys(f.kind for f in report.findings)) or 'nothing'}"


def _judged(path: Path) -> str:
    """A file with expectations of the checker's findings; "as expected" or what differs."""
    from tests.checker import bad_kernel  # noqa: PLC0415

    case = bad_kernel.read(path)
    os.environ["ANYMETAL_TIME_LIMIT"] = case.keyword("seconds") or "20"
    try:
        findings = bad_kernel.run_checked(case).findings
    except Exception as error:
        return f"raises {type(error).__name__}: {_one_line(error)}"
    missing = [e for e in case.expected if not any(e.fits(f) for f in findings)]
    known = (*case.expected, *case.allowed)
    extra = [f for f in findings if not any(e.fits(f) for e in known)]
    if not missing and not extra:
        return "as expected"
    said = [f"{f.kind} {f.severity} line {f.line}: {f.message}" for f in extra]
    return f"missing {[e.kind for e in missing]}, not expected {said}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


if __name__ == "__main__":
    main()
