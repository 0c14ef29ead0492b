"""Gradient scalers, float32 master weights, stochastic rounding, both devices, and clipping."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from trajectories import MATRICES, Gradients, Parameters, difference, parameters, states, trajectory

import anymetal.device
from anymetal import optim
from anymetal.device.enabling import _state

# --- gradient scalers -----------------------------------------------------------------------------


def scaled(make: Any, device: str = "cpu", kind: str = "") -> tuple[Parameters, Any]:
    """Six steps with a scaler; the gradients of one overflow."""
    params = parameters([(33,), (4, 5)], device=device)
    optimizer = make(params)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=2)
    scaler.scale(torch.ones((), device=device))  # it begins with the first loss
    gradients = Gradients()
    for i in range(6):
        gradients.set(params, scaler.get_scale())
        if i == 3:
            params[0].grad.view(-1)[5] = math.inf
        if i == 4 and kind == "unscaled before":
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    return params, optimizer


@pytest.mark.parametrize("kind", ["", "unscaled before"])
@pytest.mark.parametrize(
    ("name", "options"), [("AdamW", {"lr": 0.01}), ("SGD", {"lr": 0.01, "momentum": 0.9})]
)
def test_gradient_scaler(name: str, options: dict[str, Any], kind: str) -> None:
    mine, ours = scaled(lambda params: getattr(optim, name)(params, **options), kind=kind)
    theirs, _ = scaled(lambda params: getattr(torch.optim, name)(params, **options), kind=kind)
    assert difference(mine, theirs) <= 2e-6
    if name == "AdamW":  # a step that is left out is not counted
        assert [float(step) for step in states(ours, "step")] == [5.0, 5.0]


def test_gradient_scaler_of_lion_and_muon_leaves_steps_out() -> None:
    for make in (optim.Lion, optim.Muon):
        params = parameters([(5, 3)])
        optimizer = make(params)
        Gradients().set(params)
        before = params[0].detach().clone()
        optimizer.found_inf = torch.ones(())
        optimizer.step()
        assert torch.equal(params[0], before)
        assert not any(state.any() for state in optimizer.state[params[0]].values())


# --- short parameters -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Lion", "Muon"])
def test_master_weights_follow_the_float32_trajectory(name: str) -> None:
    options: dict[str, Any] = {"momentum": 0.9} if name == "SGD" else {}
    short = parameters(MATRICES, torch.bfloat16)
    long = [torch.nn.Parameter(param.detach().float()) for param in short]
    ours = getattr(optim, name)(short, lr=1e-4, master_weights=True, **options)
    exact = getattr(optim, name)(long, lr=1e-4, master_weights=True, **options)
    gradients = Gradients()
    for _ in range(5):
        gradients.set(short)
        for param, other in zip(short, long, strict=True):
            assert param.grad is not None
            other.grad = param.grad.float()
        ours.step()
        exact.step()
    masters = states(ours, "master_weight")
    assert difference(masters, long) == 0
    for param, master in zip(short, masters, strict=True):
        assert torch.equal(param, master.bfloat16())
    assert "master_weight" not in exact.state[long[0]]


def test_states_are_float32() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        optimizer = trajectory(optim.AdamW, parameters([(5,)], dtype), 1)
        assert [x.dtype for x in states(optimizer, "exp_avg_sq")] == [torch.float32]


def stochastic_step(seed: int, lr: float, value: float, steps: int = 1) -> torch.Tensor:
    param = torch.nn.Parameter(torch.full((100_000,), value).bfloat16())
    optimizer = optim.SGD([param], lr=lr, stochastic_rounding=True, rounding_seed=seed)
    param.grad = -torch.ones_like(param)
    for _ in range(steps):
        optimizer.step()
    return param.detach().float()


def test_stochastic_rounding_is_right_in_the_mean() -> None:
    """1 + lr lies between two bfloat16 numbers, 1 and 1 + 2^-7; each is taken as often as it must:
    of 100,000 the share is known to 0.0016 (one standard deviation at one half)."""
    spacing = 2.0**-7
    for share in (0.03, 0.25, 0.5, 0.9):
        found = stochastic_step(1, share * spacing, 1.0)
        assert set(found.unique().tolist()) == {1.0, 1.0 + spacing}
        rounded_up = float((found > 1.0).float().mean())
        assert abs(rounded_up - share) < 5 * math.sqrt(share * (1 - share) / found.numel())


def test_stochastic_rounding_keeps_small_updates() -> None:
    """Fifty updates of a tenth of the distance to the next number, each lost to the nearest."""
    lr = 0.1 * 2.0**-7
    found = stochastic_step(3, lr, 1.0, steps=50)
    assert abs(float(found.double().mean()) - (1 + 50 * lr)) < 1e-3
    # Neighbours, and the same place in two steps, have nothing to do with each other.
    once = stochastic_step(3, 0.5 * 2.0**-7, 1.0) > 1
    pairs = torch.corrcoef(torch.stack([once[:-1].float(), once[1:].float()]))
    assert abs(float(pairs[0, 1])) < 0.016


def test_stochastic_rounding_is_decided_by_its_seed() -> None:
    first, again, other = (stochastic_step(seed, 0.002, 1.0, 2) for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_stochastic_rounding_goes_on_where_it_was_saved() -> None:
    def run(reload: bool) -> torch.Tensor:
        params = parameters([(999,)], torch.bfloat16)
        gradients = Gradients()
        options: dict[str, Any] = {"lr": 1e-4, "stochastic_rounding": True, "rounding_seed": 5}
        optimizer = optim.AdamW(params, **options)
        for i in range(6):
            if reload and i == 3:
                saved = optimizer.state_dict()
                optimizer = optim.AdamW(params)
                optimizer.load_state_dict(saved)
            gradients.set(params)
            optimizer.step()
        return params[0].detach()

    assert torch.equal(run(True), run(False))


def test_values_that_are_not_finite_are_rounded_as_they_are() -> None:
    param = torch.nn.Parameter(torch.tensor([math.inf, -math.inf, math.nan]).bfloat16())
    param.grad = torch.zeros_like(param)
    optim.SGD([param], stochastic_rounding=True).step()
    assert param[0] == math.inf and param[1] == -math.inf and param[2].isnan()


# --- devices --------------------------------------------------------------------------------------


@pytest.fixture
def queued(mps: torch.device) -> Iterator[torch.device]:
    anymetal.device.enable(missing="run", asynchronous=True)
    yield mps
    torch.mps.synchronize()
    anymetal.device.enable(missing="run", asynchronous=False)


def makers() -> dict[str, Any]:
    return {
        "SGD": lambda params: optim.SGD(params, momentum=0.9),
        "AdamW": lambda params: optim.AdamW(params, amsgrad=True),
        "Lion": lambda params: optim.Lion(params, weight_decay=0.1),
        "Muon": optim.Muon,
    }


@pytest.mark.parametrize("name", makers())
def test_virtual_mps_gives_the_same(name: str, mps: torch.device) -> None:
    there, here = parameters(MATRICES, device=mps), parameters(MATRICES)
    for params in (there, here):
        trajectory(makers()[name], params, 3)
    assert all(param.is_mps for param in there)
    assert difference(there, here) == 0


def test_learning_rate_and_scaler_on_the_device(mps: torch.device) -> None:
    there, here = parameters([(33,)], device=mps), parameters([(33,)])
    on_device = optim.AdamW(there, lr=torch.tensor(0.01, device=mps))
    optimizer = optim.AdamW(here, lr=0.01)
    for params, its in ((there, on_device), (here, optimizer)):
        gradients = Gradients()
        for found in (0.0, 1.0, 0.0):
            gradients.set(params, 8.0)
            its.grad_scale = torch.tensor(8.0, device=params[0].device)
            its.found_inf = torch.tensor(found, device=params[0].device)
            its.step()
    assert difference(there, here) == 0
    assert float(states(on_device, "step")[0]) == 2.0


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Lion", "clip_grad_norm_"])
def test_no_step_waits_for_the_device(name: str, queued: torch.device) -> None:
    """The device is kept busy until the step has returned."""
    params = parameters([(i + 1,) for i in range(20)], device=queued)
    if name == "clip_grad_norm_":
        step: Any = lambda: optim.clip_grad_norm_(params, 1.0)  # noqa: E731
    else:
        step = makers()[name](params).step
    Gradients().set(params)
    step()
    torch.mps.synchronize()
    go_on, done = threading.Event(), threading.Event()
    _state.queue.submit(lambda: go_on.wait(20) and None)
    worker = threading.Thread(target=lambda: (step(), done.set()), daemon=True)
    worker.start()
    waited = not done.wait(10)
    go_on.set()
    worker.join()
    assert not waited


# --- clipping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf, 3.0, 0.5])
@pytest.mark.parametrize("max_norm", [0.5, 1e9])
def test_clipping_is_torchs(norm_type: float, max_norm: float) -> None:
    shapes = [(33, 7), (5,), (), (70001,)]  # torch refuses the largest of none
    mine, theirs = parameters(shapes), parameters(shapes)
    mine.append(torch.nn.Parameter(torch.zeros(3)))  # without a gradient
    for params in (mine[:-1], theirs):
        Gradients().set(params)
    # torch's own sum of powers is 3e-6 off in float32.
    for param in theirs:
        assert param.grad is not None
        grad, param.grad = param.grad.double(), None
        param.data = param.data.double()
        param.grad = grad
    norm = optim.clip_grad_norm_(mine, max_norm, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    torch.testing.assert_close(norm.double(), expected, rtol=1e-6, atol=0)
    assert difference([p.grad for p in mine[:-1]], [p.grad for p in theirs]) <= 1e-6


def test_clipping_over_dtypes_strides_and_tables() -> None:
    params = parameters([(i % 9 + 1, 3) for i in range(60)])
    params += parameters([(5, 4)] * 3, torch.bfloat16) + parameters([(7,)], torch.float16)
    Gradients().set(params)
    params[0].grad = torch.randn(3, 1).T
    params[1].grad = torch.randn(2, 6)[:, ::2]
    exact = torch.cat([p.grad.double().flatten() for p in params if p.grad is not None])
    norm = optim.clip_grad_norm_(params, 1.0)
    assert norm.dtype == torch.float32 and norm.dim() == 0
    assert abs(float(norm) - float(exact.norm())) <= 2e-6 * float(exact.norm())
    after = torch.cat([p.grad.double().flatten() for p in params if p.grad is not None])
    torch.testing.assert_close(after, exact / exact.norm(), rtol=4e-3, atol=1e-6)


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("norm_type", [2.0, math.inf])
def test_clipping_of_gradients_that_are_not_finite(value: float, norm_type: float) -> None:
    mine, theirs = parameters([(40,), (3,)]), parameters([(40,), (3,)])
    for params in (mine, theirs):
        Gradients().set(params)
        assert params[0].grad is not None
        params[0].grad[33] = value
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
        optim.clip_grad_norm_(mine, 1.0, norm_type, error_if_nonfinite=True)
    assert mine[1].grad is not None and bool(mine[1].grad.isfinite().all())
    norm = optim.clip_grad_norm_(mine, 1.0, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, 1.0, norm_type)
    torch.testing.assert_close(norm, expected, equal_nan=True)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, equal_nan=True)


def test_clipping_without_gradients_and_with_a_wrong_order() -> None:
    assert optim.clip_grad_norm_(parameters(), 1.0) == 0
    empty = parameters([(0,)])
    Gradients().set(empty)
    assert optim.clip_grad_norm_(empty, 1.0) == 0
    params = parameters([(3,)])
    Gradients().set(params)
    with pytest.raises(ValueError, match=r"'norm_type' expects a positive order, got 0\.0"):
        optim.clip_grad_norm_(params[0], 1.0, 0)
