"""The benchmark's arithmetic: turns, ratios and goals, without running an engine."""

import engines
import timing


def row(name: str, coroutine: float, pocl: float, relaxed: float) -> "engines.Row":
    milliseconds = {"coroutine": coroutine, "torch CPU": 1.0, "PoCL": pocl, "PoCL relaxed": relaxed}
    times = {key: timing.Times(value, value, 3) for key, value in milliseconds.items()}
    return engines.Row(name, name, times, dict.fromkeys(times, 0.0), ())


def results(*ratios: float) -> "engines.Results":
    rows = [row(str(ratio), ratio * 10, 20, 10) for ratio in ratios]
    return engines.Results(rows, None, {}, "PoCL")


def test_contenders_take_turns() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    times = timing.interleave(calls, rounds=3, seconds=60)
    assert "".join(order) == "ab" * 4
    assert times["a"].rounds == 3


def test_times_stop_after_three_rounds_when_over_time() -> None:
    times = timing.interleave({"a": lambda: None}, rounds=50, seconds=0)
    assert times["a"].rounds == 3


def test_ratio_is_against_the_faster_pocl() -> None:
    assert row("silu", 30, 20, 10).against_pocl() == 3


def test_goals_look_at_the_slowest_and_the_second_slowest() -> None:
    slowest, second = results(1, 3.9, 1.5, 1.9).speed_goals()
    assert (slowest.measured, slowest.met) == (3.9, True)
    assert (second.measured, second.met) == (1.9, True)
    slowest, second = results(1, 4.1, 2.5, 1).speed_goals()
    assert (slowest.met, second.met) == (False, False)


def test_goals_are_not_measured_when_a_kernel_is_missing() -> None:
    assert [goal.met for goal in results(1, 1, 1).speed_goals()] == [None, None]


def test_wrong_result_has_no_time() -> None:
    wrong = engines.Row("silu", "SiLU", {}, {"coroutine": 0.5}, ("coroutine",))
    assert wrong.against_torch() is None
    assert "wrong" in engines.time_cell(wrong, "coroutine")
