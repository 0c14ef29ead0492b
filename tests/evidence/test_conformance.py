"""The conformance run must not be able to hide a failure: every verdict from its cause."""

import math
import struct

import pytest
import torch
from conformance import wheel
from conformance.case import FLOAT, Case, Check, Launch, check
from conformance.run import Outcome, judge_engines, judge_errors, judge_refusal


def made() -> Launch:
    raise AssertionError("judging needs no launch")


def a_case(known_wrong: str | None = None, refused: str | None = None) -> Case:
    return Case("file.metal", "name", made, FLOAT, "", known_wrong, refused)


@pytest.mark.parametrize(
    ("case", "error", "verdict"),
    [
        (a_case(), 0.0, "right"),
        (a_case(), 1.0, "our fault"),
        (a_case(), math.inf, "our fault"),
        (a_case(known_wrong="a race"), 1.0, "kernel's fault"),
        (a_case(known_wrong="a race"), 0.0, "unexpected"),
        (a_case(refused="too much"), 0.0, "unexpected"),
    ],
)
def test_verdict_of_a_finished_run(case: Case, error: float, verdict: str) -> None:
    outcome = judge_errors(case, {"good": 0.0, "y": error})
    assert outcome.verdict == verdict
    assert outcome.failed == (verdict in ("our fault", "unexpected"))


def test_refusal_counts_only_with_its_reason() -> None:
    error = ValueError("32896 bytes are over the limit of 32768")
    assert judge_refusal(a_case(refused="32768"), error).verdict == "refused"
    assert judge_refusal(a_case(refused="something else"), error).verdict == "our fault"
    assert judge_refusal(a_case(), error).verdict == "our fault"
    assert judge_refusal(a_case(known_wrong="a race"), error).verdict == "our fault"


@pytest.mark.parametrize(
    ("different", "known_wrong", "races", "engines", "failed"),
    [
        ([], None, False, "both, equal", False),
        (["y"], None, False, "both, DIFFERENT", True),
        (["y"], None, True, "both, race", False),
        (["y"], "a race", False, "both, race", False),
    ],
)
def test_engines_may_differ_only_in_a_race(
    different: list[str], known_wrong: str | None, races: bool, engines: str, failed: bool
) -> None:
    outcome = Outcome(a_case(known_wrong), "kernel's fault" if known_wrong else "right", 0.0, "")
    judged = judge_engines(outcome, different, races=races)
    assert judged.engines == engines
    assert judged.failed == failed


def test_nan_is_never_close_enough() -> None:
    got = torch.tensor([1.0, math.nan])
    assert check("y", got, torch.ones(2)).error() == math.inf


def test_result_of_another_shape_is_an_error() -> None:
    wrong = Check("y", lambda: torch.ones(3), torch.ones(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="y: "):
        wrong.error()


def test_kernel_names_of_a_metallib() -> None:
    def entry(name: bytes) -> bytes:
        return b"NAME" + struct.pack("<H", len(name) + 1) + name + b"\0TYPE"

    library = b"MTLB" + entry(b"scale") + entry(b"sum_half") + b"NAME\x02\x00not_this_long\0"
    assert wheel.kernel_names(library) == {"scale", "sum_half"}
