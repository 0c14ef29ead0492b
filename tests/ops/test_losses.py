"""Losses against torch's in float64, every option; and what they refuse."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from anymetal import ops

REDUCTIONS = ("mean", "sum", "none")
# Rows, a dimension behind the classes, no batch, and several dimensions.
SHAPES = ((5, 33), (2, 7, 31), (19,), (2, 5, 3, 4))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def near(ours: torch.Tensor, exact: torch.Tensor, where: Any, tolerance: float = 3e-6) -> None:
    torch.testing.assert_close(
        ours.double(), exact, rtol=tolerance, atol=tolerance, msg=lambda text: f"{where}: {text}"
    )


def differentiated(function: Any, *leaves: torch.Tensor) -> list[torch.Tensor]:
    """The result and the gradients of leaves for a gradient that differs in each element."""
    held = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    result = function(*held)
    upstream = torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype).view(result.shape)
    return [result.detach(), *torch.autograd.grad(result, held, upstream)]


def entropy_in_float64(
    x: torch.Tensor, target: torch.Tensor, *, z_loss: float, softcap: float, **options: Any
) -> torch.Tensor:
    """F.cross_entropy with the two options that torch does not have."""
    x = softcap * torch.tanh(x / softcap) if softcap else x
    at = min(x.dim() - 1, 1)
    reduction = options.pop("reduction")
    losses = F.cross_entropy(x, target, reduction="none", **options)
    if target.is_floating_point():
        kept = torch.ones_like(losses)
        counted = kept
    else:
        kept = (target != options["ignore_index"]).double()
        weight = options["weight"]
        counted = kept if weight is None else kept * weight[target.clamp_min(0)]
    losses = losses + z_loss * x.logsumexp(at) ** 2 * kept
    if reduction == "none":
        return losses
    return losses.sum() / counted.sum() if reduction == "mean" else losses.sum()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cross_entropy_with_every_option(shape: tuple[int, ...]) -> None:
    at = min(len(shape) - 1, 1)
    rows = [size for i, size in enumerate(shape) if i != at]
    logits, weight = 3 * random(*shape), random(shape[at], seed=1).abs() + 0.2
    generator = torch.Generator().manual_seed(2)
    classes = torch.randint(2, shape[at], rows, generator=generator)
    # Some are of class 1, which is ignored at times; a single row is not.
    ones = torch.rand(rows, generator=generator) < (0.3 if rows else 0.0)
    some = torch.where(ones, 1, classes)
    shares = random(*shape, seed=3).softmax(at)
    choices = itertools.product(
        REDUCTIONS, (None, weight), (0.0, 0.1), (0.0, 1e-2), (0.0, 4.0), (-100, 1), (0, 1, 2)
    )
    # 19 is no factor of their number: over the shapes every pair of options is met.
    for reduction, by_class, smoothing, z_loss, softcap, ignored, kind in list(choices)[at::19]:
        if kind == 2 and ignored >= 0:
            continue  # torch refuses it, and we do
        target = (some, some.int(), shares)[kind]
        options = {
            "reduction": reduction,
            "label_smoothing": smoothing,
            "ignore_index": ignored,
            "z_loss": z_loss,
            "softcap": softcap,
        }
        exact_target = target if kind == 2 else target.long()
        exact = differentiated(
            lambda x, t=exact_target, o=options, w=by_class: entropy_in_float64(
                x, t, weight=w, **o
            ),
            logits,
        )
        target = target.float() if kind == 2 else target
        given = None if by_class is None else by_class.float()
        ours = differentiated(
            lambda x, t=target, o=options, w=given: ops.cross_entropy(x, t, w, **o), logits.float()
        )
        for mine, truth in zip(ours, exact, strict=True):
            near(mine, truth, (kind, by_class is not None, options), 2e-5)


def test_cross_entropy_is_torchs_where_torch_has_it() -> None:
    x, target = random(6, 11).float(), torch.tensor([0, -100, 3, 10, 2, 1])
    for keywords in ({}, {"reduction": "sum"}, {"size_average": False}, {"reduce": False}):
        theirs = F.cross_entropy(x, target, **keywords)
        torch.testing.assert_close(ops.cross_entropy(x, target, **keywords), theirs)
    ignored = torch.full((6,), -100)
    assert ops.cross_entropy(x, ignored).isnan()
    assert ops.cross_entropy(x[:0], target[:0]).isnan()
    assert ops.cross_entropy(x, ignored, reduction="sum") == 0


def test_target_out_of_range_is_an_error_and_no_wild_read() -> None:
    x = random(3, 7).float()
    for wrong in (7, -1, 2**40):
        with pytest.raises(RuntimeError, match=rf"Target {wrong} is out of bounds\."):
            ops.cross_entropy(x, torch.tensor([1, wrong, 2]))


def test_losses_name_the_argument_that_is_wrong() -> None:
    x, target = torch.randn(3, 7), torch.tensor([1, 2, 3])
    with pytest.raises(ValueError, match="'reduction' expects 'mean', 'sum', 'none', got 'max'"):
        ops.cross_entropy(x, target, reduction="max")
    with pytest.raises(ValueError, match=r"'label_smoothing' expects 0 to 1, got 1\.5"):
        ops.cross_entropy(x, target, label_smoothing=1.5)
    with pytest.raises(ValueError, match=r"'target' expects shape \[3\] .* got \[2\]"):
        ops.cross_entropy(x, target[:2])
    with pytest.raises(ValueError, match=r"'weight' expects shape \[7\] .* got \[3\]"):
        ops.cross_entropy(x, target, torch.ones(3))
    with pytest.raises(TypeError, match="'target' expects int64, int32, got bool"):
        ops.cross_entropy(x, target.bool())
    with pytest.raises(RuntimeError, match="derivative for 'weight' is not implemented"):
        ops.cross_entropy(x, target, torch.ones(7, requires_grad=True))


def test_kl_div_with_every_option() -> None:
    x = random(5, 7, 33).log_softmax(-1)
    shares = random(5, 7, 33, seed=1).softmax(-1)
    shares[0, 0, :3] = 0.0
    for reduction, logarithms in itertools.product((*REDUCTIONS, "batchmean"), (False, True)):
        target = (shares + 1e-3).log() if logarithms else shares
        options = {"reduction": "sum" if reduction in ("mean", "batchmean") else reduction}
        share = {"mean": x.numel(), "batchmean": 5}.get(reduction, 1)
        exact = differentiated(
            lambda a, t=target, o=options, k=logarithms, s=share: (
                F.kl_div(a, t, log_target=k, **o) / s
            ),
            x,
        )
        options["reduction"] = reduction
        short = target.float()
        ours = differentiated(
            lambda a, t=short, o=options, k=logarithms: ops.kl_div(a, t, log_target=k, **o),
            x.float(),
        )
        for mine, truth in zip(ours, exact, strict=True):
            near(mine, truth, (reduction, logarithms), 2e-5)


def test_kl_div_topk_of_all_classes_is_kl_div() -> None:
    x, teacher = 2 * random(6, 9), random(6, 9, seed=1).log_softmax(-1)
    index = torch.argsort(random(6, 9, seed=2), -1)
    for reduction in ("sum", "batchmean", "none"):

        def exact(a: torch.Tensor, name: str = reduction) -> torch.Tensor:
            log_shares = a.log_softmax(-1)
            if name == "none":
                return F.kl_div(log_shares, teacher, reduction="none", log_target=True).sum(-1)
            return F.kl_div(log_shares, teacher, reduction=name, log_target=True)

        for kind in (index, index.int()):
            found = differentiated(
                lambda a, i=kind, r=reduction: ops.kl_div_topk(
                    a, teacher.gather(1, index).float(), i, r
                ),
                x.float(),
            )
            for mine, truth in zip(found, differentiated(exact, x), strict=True):
                near(mine, truth, reduction, 2e-5)
    with pytest.raises(RuntimeError, match="index 9 is out of bounds"):
        ops.kl_div_topk(x.float(), teacher[:, :1].float(), torch.full((6, 1), 9))


def test_modules_are_the_functions() -> None:
    x, target = random(6, 9).float(), torch.tensor([0, 1, 8, 2, -100, 3])
    loss = ops.modules.CrossEntropyLoss(label_smoothing=0.1, z_loss=1e-3)
    exact = ops.cross_entropy(x, target, label_smoothing=0.1, z_loss=1e-3)
    torch.testing.assert_close(loss(x, target), exact)
    head = ops.modules.LinearCrossEntropyLoss(9, 40)
    logits = F.linear(x, head.weight, head.bias)
    torch.testing.assert_close(head(x, target), F.cross_entropy(logits, target))


def test_linear_cross_entropy_has_the_gradients_of_its_parts() -> None:
    """More parts than one, of rows and of classes, and a part that is not whole."""
    x, weight = random(2, 53, 12), random(349, 12, seed=1)
    target = torch.randint(0, 349, (2, 53), generator=torch.Generator().manual_seed(2))
    target[0, :3] = -100
    for reduction in REDUCTIONS:
        options = {"reduction": reduction, "label_smoothing": 0.1, "z_loss": 1e-3, "softcap": 3.0}

        def exact(a: torch.Tensor, w: torch.Tensor, o: Any = options) -> torch.Tensor:
            given = {"weight": None, "ignore_index": -100, **o}
            rows = entropy_in_float64(F.linear(a, w).flatten(0, 1), target.flatten(), **given)
            return rows.view(target.shape) if o["reduction"] == "none" else rows

        ours = differentiated(
            lambda a, w, o=options: ops.linear_cross_entropy(a, w, target, **o),
            x.float(),
            weight.float(),
        )
        for mine, truth in zip(ours, differentiated(exact, x, weight), strict=True):
            near(mine, truth, reduction, 2e-5)
