"""Our layers as a repository of the package `kernels`."""

from __future__ import annotations

import pytest
import torch
import zoo

from anymetal import patch
from kernels import Mode, kernelize, use_kernel_mapping


@pytest.mark.parametrize(
    ("name", "layers"),
    [("llama", {"rms_norm": 5, "silu": 2}), ("gpt2", {"gelu": 2}), ("bert", {"gelu": 3})],
)
def test_kernelize_takes_our_layers(name: str, layers: dict[str, int], mps: torch.device) -> None:
    given = {key: value.to(mps) for key, value in zoo.inputs(name).items()}
    model = zoo.build(name).to(mps)
    expected = model(**given).logits
    with use_kernel_mapping(patch.kernel_mapping(), inherit_mapping=False):
        kernelize(model, mode=Mode.TRAINING | Mode.TORCH_COMPILE)
    ours = [m for m in model.modules() if m.forward.__module__ == "anymetal.patch.hub_layers"]
    assert len(ours) == sum(layers.values())
    output = model(**given)
    assert (output.logits - expected).abs().max() <= 2e-4 * expected.abs().max()
    output.loss.backward()
    assert all(p.grad is not None for m in ours for p in m.parameters())


def test_other_devices_keep_their_forward() -> None:
    model = zoo.build("llama")
    with use_kernel_mapping(patch.kernel_mapping(), inherit_mapping=False):
        kernelize(model, mode=Mode.INFERENCE)
    assert not any("anymetal" in m.forward.__module__ for m in model.modules())
    handle = patch.transformers(model)
    assert handle.count == 12  # a forward that is its class's own is no obstacle
    handle.undo()
