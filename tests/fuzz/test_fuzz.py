"""Random kernels on every engine against the model, kernels that failed once, the fuzzer itself.

One of these kernels, shrunk: python -m tests.fuzz --small --count 1 --seed N
More and larger ones:         python -m tests.fuzz --count 2000 --seed 1
With ANYMETAL_TEST_ALL=1 (`make thorough`), more seeds.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import anymetal

from . import __main__ as long_form
from . import lanes, model, regression, scalars, tree
from .driver import CHECKED, NAME, REFERENCE, Difference, compare, engine_names, launch, run_on
from .generate import LAUNCHES, generate
from .lanes import Mask
from .memory import Contents, ModelError
from .model import Machine, run
from .printer import source
from .scalars import Array, fused
from .shrink import shrink
from .tree import Kernel
from .worker import Worker

GENERATED = range(100)
ALL = os.environ.get("ANYMETAL_TEST_ALL") == "1"
SEEDS = GENERATED if ALL else range(16)
SEEDS_CHECKED = range(70, 100) if ALL else range(70, 80)


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """A process of its own: wrong code may crash it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANYMETAL_TIME_LIMIT", "20")
        with Worker() as made:
            yield made


@pytest.mark.parametrize("engine", engine_names())
@pytest.mark.parametrize("seed", SEEDS)
def test_engine_agrees_with_the_model(seed: int, engine: str, worker: Worker) -> None:
    kernel, _ = generate(seed, small=True)
    found = worker.check(kernel, [engine])
    assert not found, f"seed {seed}, {found[0]}\n{regression.text_of(kernel, NAME)}"


@pytest.mark.parametrize("seed", SEEDS_CHECKED)
def test_checker_agrees_with_the_model_and_finds_nothing(seed: int, worker: Worker) -> None:
    kernel, _ = generate(seed, small=True)
    found = worker.check(kernel, [CHECKED])
    assert not found, f"seed {seed}, {found[0]}\n{regression.text_of(kernel, NAME)}"


@pytest.mark.parametrize("engine", [*engine_names(), CHECKED])
@pytest.mark.parametrize("path", regression.kept(), ids=lambda path: path.stem)
def test_kernels_that_failed_once_do_not_fail_again(
    path: Path, engine: str, worker: Worker
) -> None:
    kernel = regression.load(path)
    assert path.with_suffix(".msl").read_text() == regression.text_of(kernel, path.stem)
    assert worker.check(kernel, [engine]) == []


@functools.cache
def result_of(seed: int) -> dict[str, Contents] | Exception:
    return run_on(REFERENCE, generate(seed, small=True)[0])


@pytest.mark.parametrize("engine", engine_names())
def test_few_kernels_are_refused(engine: str, worker: Worker) -> None:
    """Where an engine hands most kernels on to the reference engine, nothing would be tested."""
    refusals = [worker.refuses(generate(seed, small=True)[0], engine) for seed in SEEDS[:40]]
    assert np.mean(refusals) < 0.15


# ---- What the kernels cover ----------------------------------------------------------------------


@functools.cache
def kernels() -> list[Kernel]:
    return [generate(seed, small=True)[0] for seed in GENERATED]


def test_every_kind_of_node_is_generated() -> None:
    seen = {type(node).__name__ for kernel in kernels() for node in tree.walk(kernel)}
    abstract = {"Node", "Expression", "Statement"}
    assert set(tree.REGISTRY) - abstract - seen == set()


def test_every_launch_is_generated() -> None:
    seen = {(tuple(kernel.grid), tuple(kernel.group)) for kernel in kernels()}
    assert {(tuple(grid), tuple(group)) for grid, group in LAUNCHES} - seen == set()


def test_every_family_of_collectives_is_generated_under_divergence() -> None:
    seen = {
        node.name
        for kernel in kernels()
        for branch in tree.walk(kernel)
        if isinstance(branch, tree.If)
        for node in tree.walk(branch)
        if isinstance(node, tree.Collective)
    }
    wanted = "sum min xor ballot any broadcast shuffle shuffle_xor shuffle_up shuffle_and_fill_down"
    assert {f"simd_{name}" for name in wanted.split()} - seen == set()
    assert {f"quad_{name}" for name in ("sum", "shuffle", "broadcast_first")} - seen == set()


def test_lanes_of_a_simdgroup_do_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectives with all lanes there would test no mask."""
    partial = []

    def watched(name: str, arguments: list[Array], active: Mask, modulo: int) -> Array:
        counts = lanes.rows(active).sum(axis=1)
        partial.append(((counts > 0) & (counts < lanes.LANES)).any())
        return lanes.collective(name, arguments, active, modulo)

    monkeypatch.setattr(model, "collective", watched)
    for kernel in kernels()[:30]:
        run(kernel)
    assert np.mean(partial) > 0.3


def test_the_same_seed_gives_the_same_kernel() -> None:
    assert tree.to_json(generate(7, small=True)[0]) == tree.to_json(generate(7, small=True)[0])
    assert tree.to_json(generate(7, small=True)[0]) != tree.to_json(generate(8, small=True)[0])


def test_a_kernel_survives_being_written_down() -> None:
    kernel, expected = generate(3, small=True)
    again = tree.from_json(tree.to_json(kernel))
    assert source([(NAME, again)]) == source([(NAME, kernel)])
    for name, contents in run(again).contents.items():
        np.testing.assert_array_equal(contents[""], expected.contents[name][""])


@pytest.mark.parametrize("seed", range(2, 100, 10))
def test_the_checker_finds_nothing(seed: int) -> None:
    """The kernels are well defined by somebody else's judgement too."""
    kernel, _ = generate(seed, small=True)
    library = anymetal.compile_shader(source([(NAME, kernel)]))
    with anymetal.check(outputs=()) as report:
        launch(library, NAME, kernel)
    # Warnings are about collectives and barriers that some lanes skip: those we are after.
    assert [finding for finding in report.findings if finding.severity == "error"] == []


# ---- Bugs that it must find ----------------------------------------------------------------------


def _sums_of_all_lanes(name: str, arguments: list[Array], active: Mask, modulo: int) -> Array:
    everyone = np.ones_like(active) if name in ("simd_sum", "simd_xor") else active
    return lanes.collective(name, arguments, everyone, modulo)


def _reads_of_inactive_lanes(name: str, arguments: list[Array], active: Mask, modulo: int) -> Array:
    everyone = np.ones_like(active) if "shuffle" in name else active
    return lanes.collective(name, arguments, everyone, modulo)


def _continue_as_break(machine: Machine, node: tree.Continue, mask: Mask) -> None:
    assert machine.stops is not None and machine.stops.loop is not None
    machine.stops.loop.broken |= mask
    machine.stops.broken |= mask


def _saturating_unsigned(operator: str, name: str, left: Array, right: Array) -> Array:
    """`lane - 5` as if indices could not wrap around."""
    if operator == "-" and name == "uint":
        return np.where(left < right, 0, left - right).astype(left.dtype)
    return _true_binary(operator, name, left, right)


_true_binary = scalars.binary

PLANTED: dict[str, tuple[object, str, Callable[..., object]]] = {
    "reductions ignore the mask": (model, "collective", _sums_of_all_lanes),
    "shuffles read inactive lanes": (model, "collective", _reads_of_inactive_lanes),
    "continue leaves the loop": (Machine, "run_Continue", _continue_as_break),
    "indices do not wrap": (scalars, "binary", _saturating_unsigned),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong model is as good as a wrong engine: some of the kernels must tell them apart."""
    place, name, wrong = PLANTED[bug]
    monkeypatch.setattr(place, name, wrong)
    for seed in SEEDS:
        kernel, expected = generate_with(seed)
        if expected and compare(kernel, expected, REFERENCE, result_of(seed)):
            return
    pytest.fail(f"{len(SEEDS)} kernels, and none shows that {bug}")


def generate_with(seed: int) -> tuple[Kernel, model.Expected | None]:
    """The kernel of the seed, and what the planted model makes of it, if anything."""
    kernel = kernels()[seed]
    try:
        return kernel, run(kernel)
    except Exception:  # the planted bug may turn an index wild
        return kernel, None


def test_shrinking_keeps_the_failure_and_little_else() -> None:
    """The failure: a simd_sum under divergence anywhere."""
    kernel = next(kernel for kernel in kernels() if _sums_under_if(kernel))
    small = shrink(kernel, lambda candidate, _: _sums_under_if(candidate), seconds=60)
    statements = [node for node in tree.walk(small) if isinstance(node, tree.Statement)]
    assert _sums_under_if(small)
    assert len(statements) <= 3
    assert len(source([(NAME, small)])) < len(source([(NAME, kernel)]))


def _sums_under_if(kernel: Kernel) -> bool:
    for branch in tree.walk(kernel):
        if isinstance(branch, tree.If):
            inside = [node for part in branch.then for node in tree.walk(part)]
            if any(isinstance(n, tree.Collective) and n.name == "simd_sum" for n in inside):
                return True
    return False


def test_crash_of_an_engine_is_a_finding_and_not_the_end() -> None:
    kernel = small_kernel([tree.Store("out", IN_GRID, tree.Literal("int", 1))], OUT)
    with Worker() as worker:
        worker._process.kill()
        assert [found.kind for found in worker.check(kernel, ["coroutine"])] == ["crash"]
        assert worker.check(kernel, ["coroutine"]) == []


def test_long_form_reports_and_keeps_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine is right and the model is not: all the same, they differ."""
    monkeypatch.setattr(long_form, "FAILURES", tmp_path)
    monkeypatch.setattr(long_form, "Worker", _WrongWorker)
    assert long_form.main(["--seed", "4", "--count", "2", "--shrink-seconds", "30"]) == 1
    kept = regression.kept(tmp_path)
    assert [path.stem for path in kept] == ["seed4_coroutine", "seed5_coroutine"]
    assert "seed 4" in capsys.readouterr().out
    assert all(len(regression.load(path).body) <= 2 for path in kept)


class _WrongWorker(Worker):
    """Says that every kernel with a store fails."""

    def check(self, kernel: Kernel, engines: Sequence[str]) -> list[Difference]:
        stores = any(isinstance(node, tree.Store) for node in tree.walk(kernel))
        return [Difference(engines[0], "a store")] if stores else []


# ---- The model itself ----------------------------------------------------------------------------


def small_kernel(body: list[tree.Statement], *memories: tree.Memory) -> Kernel:
    return Kernel(1, [64], [32], False, list(memories), [], [], body)


IN_GRID = tree.Variable("uint", "in_grid")
LANE = tree.Variable("uint", "lane")
SHARED = tree.Memory("shared", "threadgroup", "int", 32)
OUT = tree.Memory("out", "output", "int", 64)


def test_the_model_refuses_a_race() -> None:
    neighbour = tree.Binary("uint", "^", LANE, tree.Literal("uint", 1))
    body: list[tree.Statement] = [
        tree.Store("shared", LANE, tree.Literal("int", 1)),
        tree.Store("out", IN_GRID, tree.Load("int", "shared", neighbour)),
    ]
    with pytest.raises(ModelError, match="a race"):
        run(small_kernel(body, SHARED, OUT))
    body.insert(1, tree.Barrier("simdgroup"))
    run(small_kernel(body, SHARED, OUT))


def test_the_model_refuses_a_divergent_barrier() -> None:
    first = tree.Compare("bool", "<", LANE, tree.Literal("uint", 9))
    branch = tree.If(first, [tree.Barrier("threadgroup")])
    with pytest.raises(ModelError, match="not all threads"):
        run(small_kernel([branch], OUT))
    leaving = tree.If(first, [tree.Return()])
    run(small_kernel([leaving, tree.Barrier("threadgroup")], OUT))


def test_the_model_refuses_a_wild_index() -> None:
    with pytest.raises(ModelError, match="outside"):
        run(small_kernel([tree.Store("shared", IN_GRID, tree.Literal("int", 1))], SHARED))


def test_fused_multiply_add_rounds_once() -> None:
    a = np.array([1 + 2**-12, 1 + 2**-23, 3], np.float32)
    c = np.array([-1, -1 - 2**-22, 2**-60], np.float32)
    exact = [2**-11 + 2**-24, 2**-46, 9]
    np.testing.assert_array_equal(fused(a, a, c), np.array(exact, np.float32))
