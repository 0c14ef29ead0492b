"""Gradients, hooks, transforms, autocast and checkpoints, on tensors of the device."""

from __future__ import annotations

from typing import Any

import torch
from torch.func import grad, hessian, jvp, vmap
from torch.utils.checkpoint import checkpoint


def test_gradients_are_those_of_the_cpu() -> None:
    x = torch.randn(5, 3)
    weight = torch.randn(3, 3)

    def gradient(device: str) -> torch.Tensor:
        w = weight.to(device).requires_grad_()
        (x.to(device) @ w).relu().pow(2).sum().backward()
        assert w.grad is not None
        assert w.grad.device.type == device
        return w.grad.cpu()

    assert torch.allclose(gradient("mps"), gradient("cpu"), atol=1e-6)


def test_gradient_crosses_to_the_cpu() -> None:
    x = torch.randn(3, requires_grad=True)
    (x.to("mps") * 2).sum().cpu().backward()
    assert x.grad is not None
    assert x.grad.is_cpu
    assert x.grad.tolist() == [2, 2, 2]


def test_own_function_sees_tensors_of_the_device() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            assert x.is_mps
            assert gradient.is_mps
            return gradient * 2

    x = torch.ones(3, device="mps", requires_grad=True)
    Twice.apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


def test_gradient_through_in_place_views() -> None:
    x = torch.zeros(4, device="mps", requires_grad=True)
    y = x.clone()
    y[1:3] += 3
    y.view(2, 2)[0].mul_(2)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 1, 1]


def test_changed_saved_tensor_is_noticed() -> None:
    x = torch.ones(3, device="mps", requires_grad=True)
    y = x.exp()
    y.add_(1)
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        raise AssertionError("the change was not noticed")


def test_second_derivative() -> None:
    x = torch.full((3,), 2.0, device="mps", requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    assert torch.autograd.grad(first.sum(), x)[0].tolist() == [12, 12, 12]


def test_all_kinds_of_hooks() -> None:
    seen: list[str] = []
    layer = torch.nn.Linear(2, 2, device="mps")
    layer.register_forward_pre_hook(lambda *_: seen.append("before"))
    layer.register_forward_hook(lambda *_: seen.append("after"))
    layer.register_full_backward_hook(lambda *_: seen.append("backward"))
    x = torch.ones(1, 2, device="mps", requires_grad=True)
    x.register_hook(lambda g: g * 10)
    layer.weight.register_post_accumulate_grad_hook(lambda _: seen.append("accumulated"))
    output = layer(x)
    output.grad_fn.register_hook(lambda *_: seen.append("node"))
    output.sum().backward()
    assert sorted(seen) == ["accumulated", "after", "backward", "before", "node"]
    assert x.grad is not None
    expected = 10 * layer.weight.detach().sum(0, keepdim=True)
    assert torch.allclose(x.grad, expected)


def test_checkpointed_gradient() -> None:
    for reentrant in (False, True):
        x = torch.ones(3, device="mps", requires_grad=True)
        checkpoint(lambda t: (t * t).sum(), x, use_reentrant=reentrant).backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2, 2, 2]


def test_function_transforms() -> None:
    x = torch.ones(2, 3, device="mps")
    assert vmap(grad(lambda t: (t**2).sum()))(x).tolist() == [[2] * 3] * 2
    assert hessian(lambda t: (t**3).sum())(x[0]).diagonal().tolist() == [6, 6, 6]
    _, tangent = jvp(torch.sin, (torch.zeros(2, device="mps"),), (torch.ones(2, device="mps"),))
    assert tangent.tolist() == [1, 1]


def test_autocast_chooses_the_dtype() -> None:
    x = torch.ones(2, 2, device="mps")
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("mps", dtype=dtype):
            assert torch.mm(x, x).dtype == dtype
            assert torch.nn.functional.softmax(x.to(dtype), -1).dtype == torch.float32
    scaler = torch.amp.GradScaler("mps")
    weight = torch.ones(2, device="mps", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0, 0]


def test_inference_and_no_grad() -> None:
    x = torch.ones(2, device="mps", requires_grad=True)
    with torch.inference_mode():
        y = x + 1
        assert y.is_inference()
        y.mul_(2)
        assert y.view(2, 1).is_inference()
    with torch.no_grad():
        assert not (x * 2).requires_grad


def test_anomaly_mode_names_the_nan() -> None:
    x = torch.zeros(1, device="mps", requires_grad=True)
    try:
        with torch.autograd.detect_anomaly(check_nan=True):
            (x.sqrt() * 0).sum().backward()
    except RuntimeError as error:
        assert "returned nan values" in str(error)
    else:
        raise AssertionError("no NaN was found")
