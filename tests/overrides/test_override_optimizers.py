"""torch's optimizer classes by ours: the same steps, the same objects to ask, a way back."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anymetal import optim, overrides
from anymetal.errors import KernelFault, ToolchainError
from anymetal.ops.declare import OPERATORS


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    overrides.reset()
    yield
    overrides.disable()
    overrides.reset()


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def train(make: Callable[[Any], Any], steps: int = 4) -> tuple[list[Tensor], Any]:
    """The parameters after some steps, with gradients clipped."""
    net = model()
    optimizer = make(net.parameters())
    x, y = torch.ones(2, 5), torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, 1.0]])
    for _ in range(steps):
        optimizer.zero_grad()
        (net(x) - y).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return [p.detach() for p in net.parameters()], optimizer


MAKES: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9, dampening=0.3),
    "Adam": lambda params: torch.optim.Adam(params, 0.01, weight_decay=0.1),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01, amsgrad=True),
}


@pytest.mark.parametrize("name", MAKES)
def test_steps_are_torchs(name: str) -> None:
    original = getattr(torch.optim, name)
    expected, theirs = train(MAKES[name])
    with overrides.enabled("optim"):
        found, optimizer = train(MAKES[name])
        assert isinstance(optimizer, getattr(torch.optim, name))
        assert isinstance(theirs, getattr(torch.optim, name))
        assert issubclass(type(optimizer), getattr(torch.optim, name))
        assert not isinstance(3, getattr(torch.optim, name))
    assert isinstance(optimizer, original)
    assert isinstance(optimizer, getattr(optim, name))
    torch.testing.assert_close(found, expected)
    calls = overrides.report().functions
    assert calls[f"torch.optim.{name}"].taken == 4
    assert calls["torch.nn.utils.clip_grad_norm_"].taken == 4


@pytest.mark.parametrize("name", MAKES)
def test_states_go_to_torchs_class_and_back(name: str) -> None:
    with overrides.enabled("optim"):
        _, optimizer = train(MAKES[name])
    saved = io.BytesIO()
    torch.save(optimizer, saved)
    saved.seek(0)
    again = torch.load(saved, weights_only=False)
    assert type(again) is type(optimizer)
    theirs = MAKES[name](model().parameters())
    theirs.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert type(theirs) is getattr(torch.optim, name)


def test_what_torch_keeps() -> None:
    params = [nn.Parameter(torch.ones(3))]
    short = [nn.Parameter(torch.ones(3, dtype=torch.bfloat16))]
    original = torch.optim.AdamW
    with overrides.enabled("optim"):
        for kept in (
            torch.optim.AdamW(params, foreach=True),
            torch.optim.AdamW(params, fused=True),
            torch.optim.AdamW(params, differentiable=True),
            torch.optim.AdamW(params, lr=torch.tensor(0.1)),
            torch.optim.AdamW(short),
            torch.optim.AdamW([{"params": params, "lr": 0.1}, {"params": short}]),
        ):
            assert type(kept) is original
        for wrong in ([], 3, "w"):
            with pytest.raises((TypeError, ValueError)) as mine:
                torch.optim.AdamW(wrong)  # type: ignore[arg-type]
            with pytest.raises((TypeError, ValueError)) as theirs:
                original(wrong)  # type: ignore[arg-type]
            assert str(mine.value) == str(theirs.value)
        with pytest.raises(TypeError, match="master_weights"):
            torch.optim.AdamW(params, master_weights=True)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="Invalid learning rate"):
            torch.optim.AdamW(params, lr=-1.0)

        class Mine(torch.optim.AdamW):
            pass

        assert type(Mine(params)) is Mine
        assert type(torch.optim.AdamW([("w", params[0])])) is not original
    assert issubclass(Mine, original)
    reasons = overrides.report().functions["torch.optim.AdamW"].passed
    assert {"foreach=True", "fused=True", "no parameters"} <= set(reasons)


def test_sparse_gradients_take_torchs_step() -> None:
    results = []
    for groups in ((), ("optim",)):
        table = nn.Embedding(5, 3, sparse=True)
        nn.init.constant_(table.weight, 0.5)
        if groups:
            overrides.enable(*groups)
        optimizer = torch.optim.SGD(table.parameters(), 0.1)
        table(torch.tensor([1, 3, 1])).sum().backward()
        optimizer.step()
        results.append(table.weight.detach())
    torch.testing.assert_close(*results)
    assert overrides.report().functions["torch.optim.SGD"].passed == {"sparse gradients": 1}


@pytest.mark.parametrize("name", MAKES)
def test_step_that_cannot_be_compiled_is_torchs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = train(MAKES[name])
    hooks: list[int] = []

    def run(*_: Any, **__: Any) -> None:
        raise ToolchainError("no clang")

    def made(params: Any) -> Any:
        optimizer = MAKES[name](params)
        optimizer.register_step_post_hook(lambda *_: hooks.append(1))
        return optimizer

    operator = OPERATORS["sgd_step_" if name == "SGD" else "adam_step_"]
    monkeypatch.setattr(operator, "_run", run)
    with overrides.enabled("optim"):
        found, _ = train(made)
    torch.testing.assert_close(found, expected)
    assert len(hooks) == 4
    assert overrides.report().functions[f"torch.optim.{name}"].switched_off


def test_hooks_of_a_step_run_once() -> None:
    hooks: list[int] = []

    def made(params: Any) -> Any:
        optimizer = MAKES["AdamW"](params)
        optimizer.register_step_post_hook(lambda *_: hooks.append(1))
        return optimizer

    optim.AdamW([torch.zeros(3, requires_grad=True)])  # from here on its own step has hooks too
    with overrides.enabled("optim"):
        train(made)
    assert len(hooks) == 4


def test_step_that_broke_off_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise KernelFault("half written")

    monkeypatch.setattr(OPERATORS["adam_step_"], "_run", run)
    with overrides.enabled("optim"), pytest.raises(KernelFault, match="half written"):
        train(MAKES["AdamW"])


def test_closures_and_generators() -> None:
    with overrides.enabled("optim"):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = net(torch.ones(1, 5)).square().sum()
            loss.backward()
            return loss

        before = closure().item()
        assert optimizer.step(closure).item() == before
        assert closure().item() < before
        norm = torch.nn.utils.clip_grad_norm_((p for p in net.parameters()), 1e-3)
        assert norm.dtype == torch.float32
