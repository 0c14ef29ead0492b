"""The benchmark's arithmetic: turns, ratios and goals, without running an engine."""

import pytest
import torch

import ceiling
import engines
import tables
import workloads
from anymetal.evidence.timing import summarise

FOUR = engines.REFERENCE_KERNELS


def row(name: str, milliseconds: dict[str, float]) -> "engines.Row":
    times = {key: summarise([value * 1e3]) for key, value in milliseconds.items()}
    return engines.Row(name, name, times, dict.fromkeys(times, 0.0), ())


def beside_pocl(name: str, engine: float, pocl: float, relaxed: float) -> "engines.Row":
    milliseconds = {"torch CPU": 1.0, "PoCL": pocl, "PoCL relaxed": relaxed}
    return row(name, {"coroutine": engine, "simdgroup": engine, **milliseconds})


def results(*ratios: float, names: tuple[str, ...] = FOUR) -> "engines.Results":
    rows = [
        beside_pocl(name, ratio * 10, 20, 10) for name, ratio in zip(names, ratios, strict=False)
    ]
    return engines.Results(rows, None, {}, "PoCL")


def test_ratio_is_against_the_faster_pocl() -> None:
    assert beside_pocl("silu", 30, 20, 10).against_pocl() == 3


def test_ratio_is_missing_where_a_contender_is() -> None:
    without_pocl = row("simdgroup_matmul", {"coroutine": 6, "simdgroup": 6, "torch CPU": 2})
    assert without_pocl.against_pocl() is None
    assert without_pocl.against_torch() == 3
    assert tables.time_cell(without_pocl, "PoCL") == "-"


def test_goals_look_at_the_slowest_and_the_second_slowest() -> None:
    slowest, second = results(1, 3.9, 1.5, 1.9).speed_goals()
    assert (slowest.measured, slowest.met) == (3.9, True)
    assert (second.measured, second.met) == (1.9, True)
    slowest, second = results(1, 4.1, 2.5, 1).speed_goals()
    assert (slowest.met, second.met) == (False, False)


def test_goals_are_not_measured_when_a_kernel_is_missing() -> None:
    assert [goal.met for goal in results(1, 1, 1).speed_goals()] == [None, None]


def test_new_kernels_do_not_change_the_goals_of_the_reference_engine() -> None:
    rows = results(1, 3.9, 1.5, 1.9, 50, names=(*FOUR, "scan")).speed_goals()
    assert [goal.measured for goal in rows] == [3.9, 1.9]


def test_simdgroup_goals_ask_for_every_kernel_of_pocl() -> None:
    fast = results(0.5, 0.76, 0.7, 0.6).simdgroup_goals()[0]
    assert (fast.measured, fast.met) == (0.76, True)
    assert results(0.5, 0.8, 0.7, 0.6).simdgroup_goals()[0].met is False


def test_simdgroup_goals_against_torch() -> None:
    rows = [
        row("silu", {"simdgroup": 6, "torch CPU": 10}),
        row("rmsnorm", {"simdgroup": 7, "torch CPU": 10}),
        row("simdgroup_matmul", {"simdgroup": 19, "torch CPU": 10}),
    ]
    found = {
        goal.what: goal.met for goal in engines.Results(rows, None, {}, None).simdgroup_goals()
    }
    assert found["simdgroup, silu against torch"] is True
    assert found["simdgroup, rmsnorm against torch"] is False
    assert found["simdgroup, simdgroup_matmul against torch"] is True
    assert found["simdgroup, softmax against torch"] is None


def test_wrong_result_has_no_time() -> None:
    wrong = engines.Row("silu", "SiLU", {}, {"coroutine": 0.5}, ("coroutine",))
    assert wrong.against_torch() is None
    assert "wrong" in tables.time_cell(wrong, "coroutine")


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_ranges_of_c_cover_every_piece_once(threads: int) -> None:
    parts = ceiling.ranges(7, threads)
    assert [piece for begin, end in parts for piece in range(begin, end)] == list(range(7))


def test_every_workload_has_its_sources() -> None:
    for name in workloads.MAKERS:
        assert (workloads.KERNELS / f"{name}.metal").exists()
        assert (workloads.KERNELS / f"{name}.c").exists()
        # PoCL has no simdgroup matrices.
        assert (workloads.KERNELS / f"{name}.cl").exists() == (name != "simdgroup_matmul")


def test_spoiled_output_is_an_error() -> None:
    counts = torch.zeros(4, dtype=torch.int32)
    workload = workloads.Workload(
        name="histogram",
        title="",
        arguments=(counts,),
        output=counts,
        threads=(4,),
        group_size=(4,),
        pieces=4,
        torch_call=lambda: counts,
        reference=lambda: torch.ones(4, dtype=torch.float64),
        tolerance=0,
    )
    workload.spoil()
    assert workload.error(counts) == 2
